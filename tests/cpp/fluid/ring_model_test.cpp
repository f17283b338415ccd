// The fluid model of a ring: times that follow from its rules alone, pairs that differ in priority only,
// and that serving the rearmost first pays where paths change.
#include "fluid/ring_model.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

namespace loomnet::fluid {
namespace {

RingResult run(const RingSettings& settings) { return RingModel(settings).run(); }

TEST(RingModel, StepsThatMeetNobodyTakeOneStepEach) {
  // The first seed whose fixed paths are all apart.
  for (std::uint64_t seed = 1; seed < 100; ++seed) {
    const RingResult result = run({.ranks = 4, .uplinks = 64, .rehash = false, .gap = 1, .seed = seed});
    if (result.steps > 6.5) continue;
    EXPECT_NEAR(result.steps, 6, 1e-6);
    EXPECT_NEAR(result.gap, 0, 1e-6);
    EXPECT_EQ(result.throttled, 0);
    return;
  }
  FAIL() << "four of 64 uplinks were never apart";
}

TEST(RingModel, AnAlignedRingOnOneUplinkIsNeverThrottled) {
  for (const bool wide : {false, true}) {
    const RingResult result = run({.ranks = 5, .uplinks = 1, .gap = 1, .switch_wide = wide});
    EXPECT_NEAR(result.steps, 2 * 4 * 5, 1e-6);  // five flows share it in each of eight steps
    EXPECT_NEAR(result.throttled, 0, 1e-6);
  }
}

TEST(RingModel, RanksOfDifferentLeavesDoNotMeet) {
  // Four ranks, two to a leaf with one uplink: two share each, in each of six steps.
  EXPECT_NEAR(run({.ranks = 4, .uplinks = 2, .leaves = 2}).steps, 12, 1e-6);
  EXPECT_THROW(RingModel({.uplinks = 8, .leaves = 3}), std::invalid_argument);
}

TEST(RingModel, ASlowUplinkCostsWhatItLacks) {
  const RingSettings one{.ranks = 3, .uplinks = 1};
  RingSettings slow = one;
  slow.burst_share = 0.5;
  slow.burst_capacity = 1;  // bursts of full capacity are none
  EXPECT_NEAR(run(slow).steps, run(one).steps, 1e-6);
  slow.burst_capacity = 0.2;
  slow.burst_mean = 0.05;  // so short that their share alone counts: 0.5 + 0.5 x 0.2 of the capacity
  EXPECT_NEAR(run(slow).steps, run(one).steps / 0.6, 2);
}

TEST(RingModel, EqualWeightsAreNoPriorityAndTheSameSeedIsTheSameRun) {
  const RingSettings none{.ranks = 8, .uplinks = 4, .jitter = 0.3, .burst_share = 0.3, .seed = 5};
  RingSettings equal = none;
  equal.gap = 1;
  equal.weight = 1;
  EXPECT_NEAR(run(equal).steps, run(none).steps, 1e-6);
  EXPECT_GT(run(equal).throttled, 0);  // called ahead, to no effect
  EXPECT_EQ(run(none).steps, run(none).steps);
  RingSettings other = none;
  other.seed = 6;
  EXPECT_NE(run(other).steps, run(none).steps);
}

TEST(RingModel, TheRearmostFirstPaysWherePathsChangeAndNotWhereTheyStay) {
  double gain[2] = {}, gap[2] = {};
  constexpr int kSeeds = 24;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    for (const bool rehash : {false, true}) {
      RingSettings settings{.ranks = 16, .uplinks = 16, .rehash = rehash, .jitter = rehash ? 0 : 0.3, .seed = seed};
      const RingResult plain = run(settings);
      settings.gap = 1;
      const RingResult first = run(settings);
      gain[rehash] += (1 - first.steps / plain.steps) / kSeeds;
      gap[rehash] += (first.gap - plain.gap) / kSeeds;
    }
  }
  EXPECT_NEAR(gain[false], 0, 0.02);
  EXPECT_NEAR(gain[true], 0.072, 0.02);
  EXPECT_LT(gap[true], -0.5);
}

TEST(RingModel, RefusesWhatIsOutOfRange) {
  EXPECT_THROW(RingModel({.ranks = 1}), std::invalid_argument);
  EXPECT_THROW(RingModel({.uplinks = 0}), std::invalid_argument);
  EXPECT_THROW(RingModel({.jitter = -1}), std::invalid_argument);
  EXPECT_THROW(RingModel({.burst_share = 1}), std::invalid_argument);
  EXPECT_THROW(RingModel({.burst_capacity = 0}), std::invalid_argument);
  EXPECT_THROW(RingModel({.weight = 0}), std::invalid_argument);
}

}  // namespace
}  // namespace loomnet::fluid
