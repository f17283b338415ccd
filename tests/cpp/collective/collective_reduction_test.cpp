// Both builds of the reduction loops against the plainest possible arithmetic; 16-bit floats over
// all their values.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "clock/random.hpp"
#include "collective/half.hpp"
#include "collective/reduction.hpp"
#include "collective/reduction_kernels.hpp"

namespace loomnet {
namespace {

std::vector<ReductionKernels> builds() {
  std::vector<ReductionKernels> all{reduction_kernels_baseline()};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) all.push_back(reduction_kernels_avx2());
#endif
  return all;
}

// Value of a binary16 pattern from its definition (IEEE 754-2019 3.4).
double binary16(std::uint16_t h) {
  const double sign = (h & 0x8000) != 0 ? -1 : 1;
  const int exponent = h >> 10 & 31, fraction = h & 0x3ff;
  if (exponent == 31) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * INFINITY;
  }
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

// Nearest pattern to f by search among the neighbours of every positive pattern, ties to even.
std::uint16_t nearest16(double f) {
  const std::uint16_t sign = std::signbit(f) ? 0x8000 : 0;
  const double a = std::abs(f);
  std::uint16_t low = 0, high = 0x7c00;  // patterns order as values do
  if (a >= 65520) return sign | 0x7c00;
  while (high - low > 1) {
    const auto mid = static_cast<std::uint16_t>((low + high) / 2);
    (binary16(mid) <= a ? low : high) = mid;
  }
  const double above = high == 0x7c00 ? 65536 : binary16(high);
  const double down = a - binary16(low), up = above - a;
  const bool take_high = up < down || (up == down && (high & 1) == 0);
  return sign | (take_high ? high : low);
}

TEST(Half, EveryFloat16WidensExactly) {
  for (std::uint32_t h = 0; h < 65536; ++h) {
    const double want = binary16(static_cast<std::uint16_t>(h));
    const float got = to_float(Float16{static_cast<std::uint16_t>(h)});
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(got)) << h;
      ASSERT_NE(to_float16(got).bits & 0x3ff, 0) << "a NaN became infinity";
    } else {
      ASSERT_EQ(got, want) << h;
      ASSERT_EQ(std::signbit(got), (h & 0x8000) != 0) << h;
      ASSERT_EQ(to_float16(got).bits, h);
    }
  }
}

TEST(Half, NarrowingRoundsToNearestEven) {
  RandomStream random(1, 2, 3);
  const auto check = [](float f) {
    if (std::isnan(f)) return;
    ASSERT_EQ(to_float16(f).bits, nearest16(f)) << f;
  };
  for (std::uint32_t h = 0; h < 0x7c00; ++h) {  // around every value and every midpoint
    const auto low = static_cast<float>(binary16(static_cast<std::uint16_t>(h)));
    const auto high = h == 0x7bff ? 65536.0f : static_cast<float>(binary16(static_cast<std::uint16_t>(h + 1)));
    const float middle = low / 2 + high / 2;
    for (const float f : {low, middle}) {
      check(f);
      check(-f);
      check(std::nextafter(f, 1e9f));
      check(std::nextafter(f, -1e9f));
    }
  }
  for (int i = 0; i < 200'000; ++i) {
    check(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  }
  EXPECT_EQ(to_float16(INFINITY).bits, 0x7c00);
  EXPECT_EQ(to_float16(-INFINITY).bits, 0xfc00);
}

TEST(Half, BFloat16) {
  EXPECT_EQ(to_bfloat16(1.0f).bits, 0x3f80);
  EXPECT_EQ(to_bfloat16(std::bit_cast<float>(0x3f808000u)).bits, 0x3f80);  // tie to even
  EXPECT_EQ(to_bfloat16(std::bit_cast<float>(0x3f818000u)).bits, 0x3f82);
  EXPECT_EQ(to_bfloat16(std::bit_cast<float>(0x3f808001u)).bits, 0x3f81);
  EXPECT_EQ(to_bfloat16(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_EQ(to_bfloat16(INFINITY).bits, 0x7f80);
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(std::bit_cast<float>(0xffffffffu)))));
  for (std::uint32_t h = 0; h < 65536; ++h) {
    const float f = to_float(BFloat16{static_cast<std::uint16_t>(h)});
    if (!std::isnan(f)) {
      ASSERT_EQ(to_bfloat16(f).bits, h);
    }
  }
}

template <typename T>
T plain(ReduceOp op, T a, T b) {
  using U = std::make_unsigned_t<T>;
  switch (op) {
    case ReduceOp::min:
      return a < b ? a : b;
    case ReduceOp::max:
      return a > b ? a : b;
    case ReduceOp::product:
      return static_cast<T>(std::uint64_t{static_cast<U>(a)} * static_cast<U>(b));
    case ReduceOp::band:
      return a & b;
    case ReduceOp::bor:
      return a | b;
    case ReduceOp::bxor:
      return a ^ b;
    default:
      return static_cast<T>(std::uint64_t{static_cast<U>(a)} + static_cast<U>(b));
  }
}

template <typename T>
void integers(DataType type) {
  RandomStream random(7, static_cast<std::uint64_t>(type), 0);
  for (const ReductionKernels& k : builds()) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::min, ReduceOp::max, ReduceOp::product,
                              ReduceOp::band, ReduceOp::bor, ReduceOp::bxor}) {
      for (const std::size_t count : {0u, 1u, 3u, 17u, 64u, 1000u, 5003u}) {
        // One byte past alignment, and in place on either side.
        std::vector<std::uint8_t> a(count * sizeof(T) + 9), b(a.size()), out(a.size(), 0xee);
        for (auto& x : a) x = static_cast<std::uint8_t>(random());
        for (auto& x : b) x = static_cast<std::uint8_t>(random());
        const auto a0 = a, b0 = b;
        const auto check = [&](const std::uint8_t* got) {
          for (std::size_t i = 0; i < count; ++i) {
            T x, y, z;
            std::memcpy(&x, a0.data() + 1 + i * sizeof(T), sizeof(T));
            std::memcpy(&y, b0.data() + 1 + i * sizeof(T), sizeof(T));
            std::memcpy(&z, got + i * sizeof(T), sizeof(T));
            ASSERT_EQ(z, plain<T>(op, x, y)) << to_string(type) << ' ' << to_string(op) << ' ' << i;
          }
        };
        k.reduce(op, type, out.data() + 1, a.data() + 1, b.data() + 1, count);
        check(out.data() + 1);
        for (std::size_t i = 1 + count * sizeof(T); i < out.size(); ++i) ASSERT_EQ(out[i], 0xee);
        k.reduce(op, type, a.data() + 1, a.data() + 1, b.data() + 1, count);
        check(a.data() + 1);
        k.reduce(op, type, b.data() + 1, a0.data() + 1, b.data() + 1, count);
        check(b.data() + 1);
      }
    }
    std::vector<T> v{T(0), T(7), static_cast<T>(-7), std::numeric_limits<T>::min(), std::numeric_limits<T>::max()};
    const auto v0 = v;
    auto* p = reinterpret_cast<std::uint8_t*>(v.data());
    k.divide(type, p, p, v.size(), 3);
    for (std::size_t i = 0; i < v.size(); ++i) EXPECT_EQ(v[i], static_cast<T>(v0[i] / 3));
  }
}

TEST(Reduction, Integers) {
  integers<std::uint8_t>(DataType::uint8);
  integers<std::int8_t>(DataType::int8);
  integers<std::int16_t>(DataType::int16);
  integers<std::int32_t>(DataType::int32);
  integers<std::int64_t>(DataType::int64);
}

template <typename T>
void reals(DataType type) {
  RandomStream random(8, static_cast<std::uint64_t>(type), 0);
  const T nan = std::numeric_limits<T>::quiet_NaN();
  std::vector<T> a{1, nan, 2, nan, INFINITY, -INFINITY}, b{nan, 1, -3, nan, 1, 1};
  while (a.size() < 3001) {
    a.push_back(static_cast<T>(random.uniform() * 200 - 100));
    b.push_back(static_cast<T>(random.uniform() * 200 - 100));
  }
  const auto* pa = reinterpret_cast<const std::uint8_t*>(a.data());
  const auto* pb = reinterpret_cast<const std::uint8_t*>(b.data());
  for (const ReductionKernels& k : builds()) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::min, ReduceOp::max, ReduceOp::product}) {
      std::vector<T> out(a.size());
      k.reduce(op, type, reinterpret_cast<std::uint8_t*>(out.data()), pa, pb, a.size());
      for (std::size_t i = 0; i < a.size(); ++i) {
        if (std::isnan(a[i]) || std::isnan(b[i])) {
          ASSERT_TRUE(std::isnan(out[i])) << to_string(op) << ' ' << i;
          continue;
        }
        const T want = op == ReduceOp::sum       ? a[i] + b[i]
                       : op == ReduceOp::product ? a[i] * b[i]
                       : op == ReduceOp::min     ? std::min(a[i], b[i])
                                                 : std::max(a[i], b[i]);
        ASSERT_EQ(out[i], want) << to_string(op) << ' ' << i;
      }
    }
    std::vector<T> out(a.size());
    auto* po = reinterpret_cast<std::uint8_t*>(out.data());
    k.divide(type, po, pa, a.size(), 7);
    for (std::size_t i = 4; i < a.size(); ++i) ASSERT_EQ(out[i], a[i] / 7);
    k.multiply(type, po, pa, a.size(), 0.3);
    for (std::size_t i = 4; i < a.size(); ++i) ASSERT_EQ(out[i], a[i] * static_cast<T>(0.3));
  }
}

TEST(Reduction, Reals) {
  reals<float>(DataType::float32);
  reals<double>(DataType::float64);
}

TEST(Reduction, SixteenBitFloatsRoundEachTime) {
  RandomStream random(9, 0, 0);
  std::vector<std::uint16_t> a(4001), b(4001), out(4001);
  for (auto& x : a) x = static_cast<std::uint16_t>(random());
  for (auto& x : b) x = static_cast<std::uint16_t>(random());
  const auto bytes = [](auto& v) { return reinterpret_cast<std::uint8_t*>(v.data()); };
  for (const ReductionKernels& k : builds()) {
    k.reduce(ReduceOp::sum, DataType::float16, bytes(out), bytes(a), bytes(b), a.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double want = binary16(a[i]) + binary16(b[i]);
      if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(binary16(out[i])));
      } else {
        ASSERT_EQ(out[i], nearest16(static_cast<float>(want))) << i;
      }
    }
    k.reduce(ReduceOp::product, DataType::bfloat16, bytes(out), bytes(a), bytes(b), a.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      const float want = to_float(BFloat16{a[i]}) * to_float(BFloat16{b[i]});
      if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(to_float(BFloat16{out[i]})));
      } else {
        ASSERT_EQ(out[i], to_bfloat16(want).bits) << i;
      }
    }
  }
}

TEST(Reduction, BoolIsLogical) {
  std::uint8_t a[] = {0, 0, 1, 2, 0xff, 0}, b[] = {0, 1, 0, 1, 4, 8}, out[6];
  for (const ReductionKernels& k : builds()) {
    k.reduce(ReduceOp::sum, DataType::boolean, out, a, b, 6);
    const std::uint8_t any[] = {0, 1, 1, 1, 1, 1};
    EXPECT_EQ(0, std::memcmp(out, any, 6));
    k.reduce(ReduceOp::product, DataType::boolean, out, a, b, 6);
    const std::uint8_t both[] = {0, 0, 0, 1, 1, 0};
    EXPECT_EQ(0, std::memcmp(out, both, 6));
    k.reduce(ReduceOp::bxor, DataType::boolean, out, a, b, 6);
    const std::uint8_t one[] = {0, 1, 1, 0, 0, 1};
    EXPECT_EQ(0, std::memcmp(out, one, 6));
  }
}

TEST(Reduction, WhatDoesNotReduceIsRefused) {
  EXPECT_FALSE(reducible(ReduceOp::sum, DataType::opaque));
  EXPECT_FALSE(reducible(ReduceOp::band, DataType::float32));
  EXPECT_FALSE(reducible(ReduceOp::premul_sum, DataType::int32));
  EXPECT_FALSE(reducible(ReduceOp::avg, DataType::boolean));
  EXPECT_TRUE(reducible(ReduceOp::bxor, DataType::boolean));
}

}  // namespace
}  // namespace loomnet
