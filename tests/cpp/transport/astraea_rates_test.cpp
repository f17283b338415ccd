// What actions may be but factors of the window, when they are taken, and intervals that follow round trips.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <string>

#include "astraea_flow.hpp"
#include "transport/congestion/astraea/action.hpp"
#include "transport/congestion/astraea/arithmetic.hpp"

namespace loomnet::astraea {
namespace {

using namespace by_hand;
using ::testing::HasSubstr;

TEST(Arithmetic, Exp2IsThePowerToItsLastDigits) {
  for (double x = -40; x <= 40; x += 0.037) EXPECT_NEAR(exp2(x) / std::exp2(x), 1, 1e-14) << x;
  EXPECT_EQ(exp2(0), 1);
  EXPECT_EQ(exp2(10), 1024);
}

TEST(MapRate, IsThePublicationsAndItsOwnInverse) {
  EXPECT_DOUBLE_EQ(map_rate(1e6, 1, 0.025), 1.025e6);
  EXPECT_DOUBLE_EQ(map_rate(1.025e6, -1, 0.025), 1e6);
  EXPECT_EQ(map_rate(1e6, 0), 1e6);
  EXPECT_EQ(map_rate(1e6, std::nan("")), 1e6);
  EXPECT_EQ(map_rate(1e6, 7, 0.5), 1.5e6);
}

TEST(RateBetween, IsEvenInLogarithms) {
  EXPECT_DOUBLE_EQ(rate_between(1e5, 1e9, -1), 1e5);
  EXPECT_NEAR(rate_between(1e5, 1e9, 0), 1e7, 1e-3);
  EXPECT_NEAR(rate_between(1e5, 1e9, 1), 1e9, 1);
  EXPECT_NEAR(rate_between(1e5, 1e9, 0.5), 1e8, 1e-1);
}

OptionValues outside(const std::string& action) {
  return {{"startup", std::string("none")}, {"policy", std::string("outside")}, {"action", action}};
}

// Acts whenever it is asked to, until then. A rate is used in full: acknowledgements come at it.
void act(Flow& flow, double action, Picoseconds until) {
  while (flow.now < until) {
    flow.go(flow.now + milliseconds(1), milliseconds(20));
    if (flow.control->pupil()->waits()) flow.control->pupil()->act(action);
  }
}

TEST(AstraeaRates, TheFirstActionIsOnTheRateThatTheWindowGives) {
  Flow flow(outside("rate"));
  flow.go(milliseconds(1'034), milliseconds(20));
  const double before = 10.0 * kMss * 8 / 0.02;
  EXPECT_NEAR(flow.limits.pacing_rate, before, 1);
  act(flow, 1, milliseconds(1'037));
  EXPECT_NEAR(flow.limits.pacing_rate, before * 1.025, 1);
  EXPECT_EQ(flow.window(), 20u) << "twice what a round trip carries at the rate";
  act(flow, 0, milliseconds(1'200));
  EXPECT_NEAR(flow.limits.pacing_rate, before * 1.025, 1);
  act(flow, -1, milliseconds(1'247));
  EXPECT_LT(flow.limits.pacing_rate, before);
}

TEST(AstraeaRates, AnAbsoluteRateIsTakenAtOnce) {
  Flow flow(with(with(outside("absolute"), "rate_least_bps", 1e6), "rate_most_bps", 1e8));
  act(flow, 0, milliseconds(1'100));
  // From 4 Mb/s, the rate of its first window: it may grow, since the flow delivers at least half of it.
  EXPECT_NEAR(flow.limits.pacing_rate, 1e7, 1);
  act(flow, -1, milliseconds(1'200));
  EXPECT_NEAR(flow.limits.pacing_rate, 1e6, 1);
  EXPECT_EQ(flow.window(), 5u) << "2 * 1 Mb/s * 20 ms";
}

TEST(AstraeaRates, ADecisionIsTakenAfterItsDelay) {
  Flow flow(with(with({{"startup", std::string("none")}}, "policy", constant_policy(20)), "action_delay_us",
                 std::int64_t{3'000}));
  flow.go(milliseconds(1'034), milliseconds(20));
  flow.now = milliseconds(1'035);
  flow.tick();
  for (int ms = 1'035; ms < 1'038; ++ms) {
    flow.now = milliseconds(ms);
    flow.ack(milliseconds(20));
    EXPECT_EQ(flow.window(), 10u) << ms;
  }
  flow.now = milliseconds(1'038);
  flow.ack(milliseconds(20));
  EXPECT_EQ(flow.window(), 11u);
}

TEST(AstraeaRates, IntervalsFollowTheLeastRoundTripWithinTheirBounds) {
  const auto length = [](Picoseconds rtt) {
    Flow flow(with(with(kHeld, "interval_rtts", 2.0), "wake_us", std::int64_t{0}));
    flow.go(flow.now + seconds(2), rtt);
    return flow.ticks.back() - flow.ticks[flow.ticks.size() - 2];
  };
  EXPECT_EQ(length(milliseconds(20)), milliseconds(40));
  EXPECT_EQ(length(milliseconds(2)), milliseconds(10));
  EXPECT_EQ(length(milliseconds(80)), milliseconds(100));
}

std::string refusal(const OptionValues& options) {
  try {
    astraea_kind().choose(options);
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "accepted";
}

TEST(AstraeaRates, OptionsThatDoNotFitAreRefused) {
  EXPECT_EQ(refusal({{"interval_rtts", 1.0}}), "accepted");
  EXPECT_THAT(refusal({{"interval_rtts", 1.0}, {"interval_least_us", std::int64_t{1'000}}}), HasSubstr("from wake_us"));
  EXPECT_THAT(refusal({{"action_delay_us", std::int64_t{30'000}}}), HasSubstr("30000 is not below an interval, 30000"));
  EXPECT_THAT(refusal({{"interval_rtts", 1.0}, {"action_delay_us", std::int64_t{10'000}}}),
              HasSubstr("interval, 10000"));
  EXPECT_THAT(refusal({{"rate_least_bps", 1e9}}), HasSubstr("below rate_most_bps"));
  const std::string trained = constant_policy(0);
  EXPECT_THAT(refusal({{"policy", trained}, {"interval_rtts", 1.0}}), HasSubstr("interval_rtts is above 0"));
  EXPECT_THAT(refusal({{"policy", trained}, {"action", std::string("rate")}}),
              HasSubstr("action is \"rate\", and the policy was trained with \"window\""));
}

}  // namespace
}  // namespace loomnet::astraea
