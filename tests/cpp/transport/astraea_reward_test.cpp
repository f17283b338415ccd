// Astraea's reward by golden values worked out by hand, its edges, and the critic's global state.
#include "transport/congestion/astraea/reward.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

namespace loomnet::astraea {
namespace {

constexpr double kCapacity = 12.5e6;

struct Flow {
  std::vector<double> thr;
  double rtt_us, pacing_Bps, loss_Bps = 0;
};
// They point into `flows`.
std::vector<FlowStep> steps(const std::vector<Flow>& flows) {
  std::vector<FlowStep> out;
  for (const Flow& f : flows) {
    out.push_back({.thr_Bps = f.thr,
                   .avg_urtt_us = f.rtt_us,
                   .base_rtt_us = 30'000,
                   .min_rtt_us = 30'000,
                   .pacing_Bps = f.pacing_Bps,
                   .loss_Bps = f.loss_Bps,
                   .cwnd = 100});
  }
  return out;
}

RewardOptions published() {
  RewardOptions o;
  o.lat_cap.reset();
  return o;
}

struct Golden {
  std::vector<Flow> flows;
  Reward expected;
};
const std::array kGolden = {
    Golden{{{std::vector(5, 6.25e6), 33'000, 6.5e6}, {std::vector(5, 6.25e6), 33'000, 6.5e6}},
           {1, 0, 0, 0, 0, 0.1, 0.1}},
    Golden{{{std::vector(5, 9e6), 50'000, 9.2e6}, {std::vector(5, 3e6), 48'000, 3.1e6}},
           {0.96, 16.849315, 0, 0.25, 0, -0.245986, -0.1}},
    Golden{{{{8e6, 8.5e6, 9e6, 9.5e6, 10e6}, 60'000, 10e6, 1e5}, {{3e6, 2.5e6, 2e6, 2e6, 2e6}, 60'000, 2e6, 4e4}},
           {0.96, 61.643836, 0.015, 0.29646, 0.12624, -1.159068, -0.1}},
};

TEST(Reward, IsTheGoldenOne) {
  for (const Golden& g : kGolden) {
    const Reward r = reward(steps(g.flows), kCapacity, published());
    EXPECT_NEAR(r.thr, g.expected.thr, 1e-6);
    EXPECT_NEAR(r.lat, g.expected.lat, 1e-6);
    EXPECT_NEAR(r.loss, g.expected.loss, 1e-6);
    EXPECT_NEAR(r.fair, g.expected.fair, 1e-6);
    EXPECT_NEAR(r.stab, g.expected.stab, 2e-6) << "the golden value has five digits";
    EXPECT_NEAR(r.raw, g.expected.raw, 1e-6);
    EXPECT_NEAR(r.clipped, g.expected.clipped, 1e-6);
  }
}

TEST(Reward, WithItsCapBoundsTheLatencyTermByThatOfThroughput) {
  const Reward r = reward(steps(kGolden[1].flows), kCapacity);
  EXPECT_EQ(r.lat, 5);
  EXPECT_NEAR(r.raw, -0.009, 1e-6);
  EXPECT_NEAR(r.clipped, -0.009, 1e-6);
}

TEST(Reward, TakesItsThresholdOfTheMeanRoundTrip) {
  // 60 ms and 20 ms: 40 on average, below 45, though one flow is above.
  EXPECT_EQ(reward(steps({{{1e6}, 60'000, 1e6}, {{1e6}, 20'000, 1e6}}), kCapacity).lat, 0);
  // A flow without a sample leaves the average of the round trips.
  EXPECT_NEAR(reward(steps({{{1e6}, 55'000, 1.46e6}, {{1e6}, 0, 1.46e6}}), kCapacity, published()).lat, 0.010 * 1000,
              1e-9);
}

TEST(Reward, HasNoFairnessOfOneFlowAndNoneWithoutThroughput) {
  EXPECT_EQ(reward(steps({{{5e6}, 33'000, 5e6}}), kCapacity).fair, 0);
  const Reward idle = reward(steps({{{0, 0}, 0, 0, 1e3}, {{0, 0}, 0, 0}}), kCapacity);
  EXPECT_EQ(idle.fair, 0);
  EXPECT_EQ(idle.stab, 0);
  EXPECT_EQ(idle.loss, 0) << "no throughput: no share of it is lost";
  EXPECT_EQ(reward({}, kCapacity).raw, 0);
}

// R_fair is sqrt(1/J - 1)/n with Jain's index J.
TEST(Reward, OfFairnessFollowsFromJainsIndex) {
  const std::array<double, 4> thr = {1e6, 2e6, 3e6, 6e6};
  std::vector<Flow> flows;
  double sum = 0, squares = 0;
  for (const double t : thr) {
    flows.push_back({{t, t, t}, 33'000, t});
    sum += t;
    squares += t * t;
  }
  const double jain = sum * sum / (4 * squares);
  EXPECT_NEAR(reward(steps(flows), kCapacity).fair, std::sqrt(1 / jain - 1) / 4, 1e-12);
}

TEST(Reward, LooksBackAsFarAsItsWindow) {
  const std::vector<Flow> flows = {{{9e6, 1e6, 1e6}, 33'000, 1e6}, {{0, 1e6, 1e6}, 33'000, 1e6}};
  RewardOptions o;
  o.window = 2;
  EXPECT_EQ(reward(steps(flows), kCapacity, o).fair, 0);
  EXPECT_EQ(reward(steps(flows), kCapacity, o).stab, 0);
  EXPECT_GT(reward(steps(flows), kCapacity).fair, 0.1);
}

TEST(Reward, MeasuresLatencyFromWhatTheFlowHasSeenWhereAsked) {
  const std::vector<Flow> seen = {{{1e6}, 60'000, 1.46e6}};
  auto flows = steps(seen);
  flows[0].min_rtt_us = 40'000;
  RewardOptions o = published();
  o.observed_base = true;
  EXPECT_EQ(reward(flows, kCapacity, o).lat, 0);
  EXPECT_NEAR(reward(flows, kCapacity, published()).lat, 15, 1e-9);
}

TEST(Reward, RefusesNoCapacityAndNoWindow) {
  EXPECT_THROW(reward({}, 0), std::invalid_argument);
  EXPECT_THROW(reward({}, NAN), std::invalid_argument);
  RewardOptions o;
  o.window = 0;
  EXPECT_THROW(reward({}, kCapacity, o), std::invalid_argument);
}

TEST(GlobalState, HasTwelveValuesNearOne) {
  const std::vector<Flow> seen = {{{1e6, 8e6}, 36'000, 9e6, 2e4}, {{1e6, 4e6}, 44'000, 5e6, 0}};
  auto flows = steps(seen);
  flows[0].cwnd = 300;
  flows[1].cwnd = 100;
  flows[1].base_rtt_us = 50'000;  // 40 ms on average
  const double product = kCapacity * 0.040;
  const auto g = global_state(flows, {kCapacity, 2 * product});
  const std::array<double, kGlobalValues> expected = {12e6 / 5e7, 4e6 / 5e7, 8e6 / 5e7, 0.08, 0.1, 0.3,
                                                      0.2,        0.01,      0.2,       0.04, 0.2, 0.2};
  for (std::size_t i = 0; i < g.size(); ++i) EXPECT_NEAR(g[i], expected[i], 1e-6) << i;
  EXPECT_NEAR(global_state(flows, {kCapacity, 30'000, true})[10], 2, 1e-6) << "20 packets / 10";
  for (const float x : global_state({}, {kCapacity, 1e5})) EXPECT_EQ(x, 0);
}

}  // namespace
}  // namespace loomnet::astraea
