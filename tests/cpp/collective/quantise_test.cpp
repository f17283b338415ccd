// Blocks of floats as integers: the published golden vectors, and for 2 to 64 workers that no sum leaves
// the range of an int32 and that the error stays within its bound.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "clock/random.hpp"
#include "collective/quantise.hpp"

namespace loomnet {
namespace {

TEST(Quantise, GoldenVectors) {
  EXPECT_DOUBLE_EQ(scale_of(0, 4), 536870910.75);
  const std::vector<float> inputs = {0.75f, -0.3f, 0.125f, 0.5f};
  std::vector<std::int32_t> q(4);
  EXPECT_FALSE(quantise(inputs, scale_of(0, 4), q.data()));
  EXPECT_EQ(q, (std::vector<std::int32_t>{402653183, -161061280, 67108864, 268435455}));
  std::int64_t sum = 0;
  for (const auto v : q) sum += v;
  const std::int32_t total = static_cast<std::int32_t>(sum);
  float back = 0;
  dequantise({&total, 1}, scale_of(0, 4), &back);
  EXPECT_NEAR(back, 1.075, 4 / (2 * scale_of(0, 4)) + 1e-7);
}

TEST(Quantise, TheExponentLiesStrictlyAbove) {
  const auto of = [](float x) { return exponent_of(std::span(&x, 1)); };
  EXPECT_EQ(of(1.0f).exponent, 1);  // 2^0 is not above 1
  EXPECT_EQ(of(std::nextafter(1.0f, 0.0f)).exponent, 0);
  EXPECT_EQ(of(-3.0f).exponent, 2);
  EXPECT_EQ(of(0.0f).exponent, -126);
  EXPECT_EQ(of(std::numeric_limits<float>::denorm_min()).exponent, -126);
  EXPECT_EQ(of(std::numeric_limits<float>::min()).exponent, -125);
  EXPECT_TRUE(of(std::nextafter(0x1p127f, 0.0f)).finite);
  EXPECT_EQ(of(std::nextafter(0x1p127f, 0.0f)).exponent, 127);
  for (const float x : {0x1p127f, -std::numeric_limits<float>::max(), std::numeric_limits<float>::infinity(),
                        std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_FALSE(of(x).finite) << x;
  }
  EXPECT_EQ(exponent_of({}).exponent, -126);
}

TEST(Quantise, ZerosStayZeros) {
  const std::vector<float> zeros(64, 0.0f);
  std::vector<std::int32_t> q(64, 9);
  EXPECT_FALSE(quantise(zeros, scale_of(exponent_of(zeros).exponent, 8), q.data()));
  EXPECT_EQ(q, std::vector<std::int32_t>(64, 0));
  std::vector<float> back(64, 1.0f);
  dequantise(q, scale_of(kLeastExponent, 8), back.data());
  EXPECT_EQ(back, zeros);
}

TEST(Quantise, HalvesGoAwayFromZeroAndNothingIsUndefined) {
  const std::vector<float> x = {0.5f,
                                -0.5f,
                                1.5f,
                                -1.5f,
                                0.49999997f,
                                3e9f,
                                -3e9f,
                                std::numeric_limits<float>::quiet_NaN(),
                                std::numeric_limits<float>::infinity()};
  std::vector<std::int32_t> q(x.size());
  EXPECT_TRUE(quantise(x, 1.0, q.data()));
  EXPECT_EQ(q, (std::vector<std::int32_t>{1, -1, 2, -2, 0, INT32_MAX, INT32_MIN, 0, INT32_MAX}));
}

// QUANT-1: n = 2 to 64, at every exponent, with the values that come closest to the limits.
TEST(Quantise, NoSumOverflowsAndTheErrorIsBounded) {
  RandomStream random(20260601, 0, 0);
  for (unsigned n = 2; n <= 64; ++n) {
    for (int e = -126; e <= 127; ++e) {
      const double above = std::ldexp(1.0, e), scale = scale_of(static_cast<std::int8_t>(e), n);
      const float largest = std::nextafter(static_cast<float>(std::min(above, 0x1p127)), 0.0f);
      for (const int sign : {1, -1}) {
        const float x = static_cast<float>(sign) * largest;
        std::int32_t q = 0;
        ASSERT_FALSE(quantise({&x, 1}, scale, &q));
        const std::int64_t sum = std::int64_t{q} * n;
        ASSERT_LE(std::abs(sum), INT32_MAX) << n << " " << e;
      }
      double exact = 0;
      std::int64_t sum = 0;
      for (unsigned w = 0; w < n; ++w) {
        const float x = static_cast<float>((static_cast<double>(random() >> 11) * 0x1p-52 - 1) * 0.999 * above);
        std::int32_t q = 0;
        quantise({&x, 1}, scale, &q);
        exact += x;
        sum += q;
      }
      ASSERT_LE(std::abs(sum), INT32_MAX);
      ASSERT_LE(std::abs(static_cast<double>(sum) / scale - exact), n / (2 * scale) * (1 + 1e-9)) << n << " " << e;
    }
  }
}

}  // namespace
}  // namespace loomnet
