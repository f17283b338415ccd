// Astraea's features by golden frames worked out by hand from the formulas (Liao et al., EuroSys 2024), the
// extremes that they are relative to, and the history of frames.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include "clock/random.hpp"
#include "transport/congestion/astraea/arithmetic.hpp"
#include "transport/congestion/astraea/extremes.hpp"
#include "transport/congestion/astraea/features.hpp"
#include "transport/congestion/astraea/meter.hpp"

namespace loomnet::astraea {
namespace {

struct Golden {
  Measured m;
  Range range;
  std::array<double, 10> astraea10;
  std::array<double, 3> own;  // features 4, 5 and 10 of ours11
};

// Measured: avg_thr, avg_urtt, srtt x 8, loss, packets_out, retrans_out, cwnd, pacing.
const std::array kGolden = {
    Golden{{6e6, 36'000, 280'000, 0, 248, 0, 250, 10'714'285},
           {12e6, 30'000},
           {0.5, 1.2, 1.166667, 0.811111, 1.2, 0.06, 0, 0.992, 0.892857, 0},
           {0.576572, 0.619275, 0.676880}},
    Golden{{0, 0, 0, 0, 10, 0, 10, 0}, {0, 0}, {0.5, 2, 2, 0, 0, 0, 0, 1, 0, 0}, {0, 0, 0}},
    Golden{{3e6, 90'000, 560'000, 150'000, 200, 4, 200, 4'285'714},
           {3e6, 30'000},
           {1, 2, 2, 2, 0.3, 0.06, 0.05, 1, 1.428571, 0.02},
           {0.412850, 0.619275, 0.883709}},
};

std::array<float, kMostFeatures> frame_of(FeatureSet set, const Golden& g) {
  std::array<float, kMostFeatures> out;
  out.fill(-7);
  frame(set, g.m, g.range, out);
  for (std::size_t i = features_of(set); i < out.size(); ++i) EXPECT_EQ(out[i], -7) << "written beyond the set";
  return out;
}

TEST(Frame, IsTheGoldenOne) {
  for (const Golden& g : kGolden) {
    const auto x = frame_of(FeatureSet::astraea10, g);
    for (std::size_t i = 0; i < 10; ++i) EXPECT_NEAR(x[i], g.astraea10[i], 1e-6) << i;
  }
}

TEST(Frame, OfOwnScalesHasLogarithmsAndTheQueueAndAllElseUnchanged) {
  for (const Golden& g : kGolden) {
    const auto x = frame_of(FeatureSet::ours11, g);
    for (std::size_t i = 0; i < 10; ++i) {
      if (i == 4 || i == 5) continue;
      EXPECT_NEAR(x[i], g.astraea10[i], 1e-6) << i;
    }
    EXPECT_NEAR(x[4], g.own[0], 1e-6);
    EXPECT_NEAR(x[5], g.own[1], 1e-6);
    EXPECT_NEAR(x[10], g.own[2], 1e-6);
  }
}

TEST(Frame, OfRelativeFeaturesAloneLeavesTheAbsoluteOnesOut) {
  for (const Golden& g : kGolden) {
    const auto x = frame_of(FeatureSet::rel8, g);
    for (std::size_t i = 0; i < 8; ++i) EXPECT_NEAR(x[i], g.astraea10[i < 4 ? i : i + 2], 1e-6) << i;
  }
}

// By hand. Round trips of 30, 31, 33 and 34 ms at 0, 10, 20 and 30 ms: the sums of products of the distances from
// the means (15 ms, 32 ms) are 15 x 2 + 5 x 1 + 5 x 1 + 15 x 2 = 70, those of squared times 2 x 225 + 2 x 25 = 500.
TEST(Frame, OfAurorasFeaturesIsTheGoldenOne) {
  Slope slope;
  for (const auto& [at, rtt] : {std::pair{0.0, 30'000.0}, {10'000, 31'000}, {20'000, 33'000}, {30'000, 34'000}}) {
    slope.add(at, rtt);
  }
  EXPECT_NEAR(slope.slope(), 70.0 / 500, 1e-12);
  struct Row {
    double slope, rtt, least, sent, delivered;
    std::array<double, 3> frame;
  };
  for (const Row& row : {
           Row{0.14, 32'000, 25'000, 60'000, 48'000, {0.14, 1.28, 1.25}},
           Row{-0.5, 25'000, 25'000, 40'000, 50'000, {-0.5, 1, 0.8}},
           Row{0, 0, 0, 0, 0, {0, 1, 1}},                              // nothing was measured
           Row{0, 0, 25'000, 10'000, 0, {0, 1, 10}},                   // sent, and nothing came back
           Row{50, 900'000, 25'000, 9e6, 1'000, {10, 10, 10}},         // the ends
           Row{-3, 25'000, 25'000, 50'000, 50'000, {-1, 1, 1}},
       }) {
    Golden g{{.avg_urtt_us = row.rtt}, {7e6, row.least}, {}, {}};
    g.m.rtt_slope = row.slope;
    g.m.sent_bytes = row.sent;
    g.m.delivered_bytes = row.delivered;
    const auto x = frame_of(FeatureSet::aurora3, g);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(x[i], row.frame[i], 1e-6) << i;
  }
}

TEST(Slope, OfOneTimeIsNone) {
  Slope slope;
  EXPECT_EQ(slope.slope(), 0);
  slope.add(5, 7);
  EXPECT_EQ(slope.slope(), 0);
  slope.add(5, 9);
  EXPECT_EQ(slope.slope(), 0);
}

TEST(Frame, IsFiniteWhateverWasMeasured) {
  RandomStream random(3, 1, 1);
  const std::array values = {0.0, 1e-9, 1.0, 1e3, 1e9, 1e15};
  const auto any = [&] { return values[random.below(values.size())]; };
  for (int i = 0; i < 20'000; ++i) {
    const Golden g{
        {any(), any(), any(), any(), any(), any(), any(), any(), any(), any(), any()}, {any(), any()}, {}, {}};
    for (const FeatureSet set : kFeatureSets) {
      const auto x = frame_of(set, g);
      for (std::size_t k = 0; k < features_of(set); ++k) {
        EXPECT_TRUE(std::isfinite(x[k])) << to_string(set) << " " << k;
      }
    }
  }
}

TEST(Arithmetic, IsThatOfTheLibraryToTheLastDigits) {
  RandomStream random(5, 1, 1);
  for (int i = 0; i < 50'000; ++i) {
    const double x = (random.uniform() - 0.5) * 50, y = std::exp((random.uniform() - 0.5) * 60);
    EXPECT_NEAR(tanh(x), std::tanh(x), 2e-15 + 1e-14 * std::fabs(std::tanh(x))) << x;
    EXPECT_NEAR(log2(y), std::log2(y), 2e-14 * std::max(1.0, std::fabs(std::log2(y)))) << y;
    EXPECT_NEAR(tanh(x / 1e6), std::tanh(x / 1e6), 1e-19);
  }
  EXPECT_EQ(tanh(0.0), 0.0);
  EXPECT_EQ(tanh(std::numeric_limits<double>::infinity()), 1);
  EXPECT_EQ(tanh(-std::numeric_limits<double>::infinity()), -1);
}

TEST(Arithmetic, RoundsAProductBeforeItIsAdded) { EXPECT_TRUE(rounds_products()) << "built without -ffp-contract=off"; }

// --- history -------------------------------------------------------------------------------------

// A frame whose first feature is n / 100.
void push(History& history, int n) { history.push({.avg_thr_Bps = n * 1e4, .cwnd = 10}, {1e6, 30'000}); }
std::vector<float> firsts(const History& history, std::size_t width) {
  std::vector<float> out;
  for (std::size_t i = 0; i < history.input().size(); i += width) out.push_back(history.input()[i] * 100);
  return out;
}

TEST(History, BeginsWithZerosAndEndsWithTheNewestFrame) {
  History history(FeatureSet::rel8, 3);
  ASSERT_EQ(history.input().size(), 24u);
  for (const float x : history.input()) EXPECT_EQ(x, 0);
  push(history, 1);
  EXPECT_EQ(firsts(history, 8), (std::vector<float>{0, 0, 1}));
  for (int n = 2; n <= 7; ++n) push(history, n);
  const auto seen = firsts(history, 8);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(seen[i], 5 + static_cast<double>(i), 1e-5);
  EXPECT_EQ(history.newest()[0], history.input()[16]);
}

TEST(History, OfDoubledDistancesReaches16IntervalsBackInFiveFrames) {
  History history(FeatureSet::ours11, 5, Spacing::doubled);
  for (int n = 1; n <= 40; ++n) push(history, n);
  const auto seen = firsts(history, 11);
  const std::array<double, 5> expected = {25, 33, 37, 39, 40};  // 16, 8, 4, 2 and 1 intervals back
  for (std::size_t i = 0; i < 5; ++i) EXPECT_NEAR(seen[i], expected[i], 1e-5) << i;
}

TEST(History, HasAsManyFramesAsASpacingAllows) {
  EXPECT_THROW(History(FeatureSet::rel8, 0), std::invalid_argument);
  EXPECT_THROW(History(FeatureSet::rel8, kMostFrames + 1), std::invalid_argument);
  EXPECT_THROW(History(FeatureSet::rel8, kMostDoubled + 1, Spacing::doubled), std::invalid_argument);
  EXPECT_EQ(History(FeatureSet::rel8, kMostFrames).input().size(), 8 * kMostFrames);
}

// --- extremes ------------------------------------------------------------------------------------

TEST(Extremes, OfAConnectionAreNeverForgotten) {
  Extremes e(Lifetime::connection);
  e.update(5e6, 30'000, seconds(1));
  e.update(2e6, 0, seconds(2));
  e.update(1e6, 40'000, seconds(500));
  EXPECT_EQ(e.range().max_tput_Bps, 5e6);
  EXPECT_EQ(e.range().min_rtt_us, 30'000);
  EXPECT_FALSE(e.forgets_min_rtt(seconds(500), seconds(100)));
}

TEST(Extremes, OfAWindowAreForgottenAfterTenSeconds) {
  Extremes e(Lifetime::windowed);
  e.update(5e6, 30'000, milliseconds(2'500));
  e.update(3e6, 40'000, milliseconds(7'500));
  e.update(1e6, 50'000, milliseconds(11'999));
  EXPECT_EQ(e.range().max_tput_Bps, 5e6);
  EXPECT_EQ(e.range().min_rtt_us, 30'000) << "the bucket of second 2 lasts to the end of second 11";
  e.update(1e6, 50'000, milliseconds(12'000));
  EXPECT_EQ(e.range().max_tput_Bps, 3e6);
  EXPECT_EQ(e.range().min_rtt_us, 40'000);
  e.update(0, 0, seconds(60));
  EXPECT_EQ(e.range().max_tput_Bps, 0);
  EXPECT_EQ(e.range().min_rtt_us, 0) << "an idle flow knows nothing of its path";
}

TEST(Extremes, SayWhenTheLeastRoundTripIsAboutToBeForgotten) {
  Extremes e(Lifetime::windowed_drain);
  e.update(5e6, 30'000, milliseconds(2'500));
  e.update(5e6, 31'000, milliseconds(3'500));
  EXPECT_FALSE(e.forgets_min_rtt(milliseconds(11'899), milliseconds(100)));
  EXPECT_TRUE(e.forgets_min_rtt(milliseconds(11'900), milliseconds(100)));
  e.update(5e6, 30'000, milliseconds(8'000));
  EXPECT_FALSE(e.forgets_min_rtt(milliseconds(11'999), milliseconds(100))) << "seen again meanwhile";
}

}  // namespace
}  // namespace loomnet::astraea
