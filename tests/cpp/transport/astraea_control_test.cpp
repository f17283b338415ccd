// Astraea as a congestion control, on acknowledgements written by hand: when it decides, what its window and
// its pacing follow, start-up, loss, timeout, drain and pauses; and what its options refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <string>

#include "astraea_flow.hpp"
#include "astraea_net.hpp"
#include "transport/congestion/astraea/teacher.hpp"

namespace loomnet::astraea {
namespace {

using ::testing::HasSubstr;
using namespace by_hand;

// --- when it decides -----------------------------------------------------------------------------

TEST(AstraeaControl, DecidesOnTheGridOfWakeUpsWithoutDrift) {
  Flow flow(with(kHeld, "interval_us", std::int64_t{12'000}));
  flow.go(milliseconds(1'070), milliseconds(20));
  // Intervals end 1002 + 12 n; wake-ups are at multiples of 5 ms of the engine's clock.
  const std::vector<Picoseconds> expected = {milliseconds(1'015), milliseconds(1'030), milliseconds(1'040),
                                             milliseconds(1'050), milliseconds(1'065)};
  EXPECT_EQ(flow.ticks, expected);
}

TEST(AstraeaControl, WithoutAGridDecidesWhenTheIntervalEnds) {
  Flow flow(with(with(kHeld, "interval_us", std::int64_t{12'000}), "wake_us", std::int64_t{0}));
  flow.go(milliseconds(1'040), milliseconds(20));
  const std::vector<Picoseconds> expected = {milliseconds(1'014), milliseconds(1'026), milliseconds(1'038)};
  EXPECT_EQ(flow.ticks, expected);
}

TEST(AstraeaControl, TakesADecisionAtTheNextAcknowledgement) {
  Flow flow(with({{"startup", std::string("none")}}, "policy", constant_policy(20)));
  flow.go(milliseconds(1'034), milliseconds(20));
  EXPECT_EQ(flow.window(), 10u) << "the first interval ends at 1032, its wake-up is at 1035";
  flow.now = milliseconds(1'035);
  flow.tick();
  EXPECT_EQ(flow.window(), 10u);
  flow.ack(milliseconds(20));
  EXPECT_EQ(flow.window(), 11u);
  EXPECT_EQ(flow.seen("action"), 1);
  flow.go(milliseconds(1'064), milliseconds(20));
  EXPECT_EQ(flow.window(), 11u) << "one step for each decision";
  flow.go(milliseconds(1'066), milliseconds(20));
  EXPECT_EQ(flow.window(), 12u);
}

TEST(AstraeaControl, InWholeNumbersGoesTheSameWayAtFullAction) {
  const OptionValues options = {{"startup", std::string("none")}, {"policy", constant_policy(-20)}};
  Flow one(options), other(with(options, "arithmetic", std::string("int16")));
  one.limits.cwnd = other.limits.cwnd = 400 * kMss;
  one.go(seconds(3), milliseconds(20));
  other.go(seconds(3), milliseconds(20));
  EXPECT_EQ(one.window(), other.window());
  EXPECT_LT(one.window(), 100u);
}

TEST(AstraeaControl, KeepsToTheWindowsOfItsPolicy) {
  PolicySpec spec;
  spec.cwnd_min = 6;
  spec.cwnd_max = 14;
  const OptionValues start = {{"startup", std::string("none")}};
  Flow up(with(start, "policy", constant_policy(20, spec))), down(with(start, "policy", constant_policy(-20, spec)));
  up.go(seconds(2), milliseconds(20));
  down.go(seconds(2), milliseconds(20));
  EXPECT_EQ(up.window(), 14u);
  EXPECT_EQ(down.window(), 6u);
}

TEST(AstraeaControl, PausesWithItsFlow) {
  Flow flow(kHeld);
  flow.packets_out = 0;
  flow.go(milliseconds(1'040), milliseconds(20));
  flow.ack(milliseconds(20));  // the last packet; nothing is sent after it
  flow.now = milliseconds(1'200);
  flow.tick();
  EXPECT_EQ(flow.limits.next_tick, kNever) << "a flow that has ended needs no ticks";
  const std::size_t before = flow.ticks.size();
  flow.now = milliseconds(5'001);
  flow.send(1);
  EXPECT_EQ(flow.limits.next_tick, milliseconds(5'035)) << "the first packet begins an interval";
  EXPECT_EQ(flow.ticks.size(), before);
}

// --- window and pacing ---------------------------------------------------------------------------

TEST(AstraeaControl, HoldsItsWindowUnderTheHoldingPolicy) {
  Flow flow(kHeld);
  flow.go(seconds(4), milliseconds(20));
  EXPECT_EQ(flow.limits.cwnd, 10u * kMss);
  EXPECT_EQ(flow.seen("mode"), 1);
  EXPECT_EQ(flow.seen("action"), 0);
}

TEST(AstraeaControl, PacesTheWindowOverTheSmoothedRoundTrip) {
  Flow flow(kHeld);
  EXPECT_EQ(flow.limits.pacing_rate, 0) << "before the first round trip";
  flow.ack(milliseconds(20));
  EXPECT_DOUBLE_EQ(flow.limits.pacing_rate, 8 * 10'000 / 0.020);
  flow.packets_out = 25;
  flow.ack(milliseconds(40));
  EXPECT_DOUBLE_EQ(flow.limits.pacing_rate, 8 * 25'000 / 0.040) << "what is out, where it is more";
}

TEST(AstraeaControl, ShowsWhatItMeasured) {
  Flow flow(kHeld);
  flow.go(milliseconds(1'040), milliseconds(20));
  flow.go(milliseconds(1'100), milliseconds(25));
  EXPECT_EQ(flow.seen("min_rtt_us"), 20'000);
  EXPECT_NEAR(flow.seen("max_tput_bps"), 8 * 10'000 / 0.020, 1e3);
  EXPECT_NEAR(flow.seen("queue_packets"), 10 * (1 - 20.0 / 25), 0.5);
}

// --- start-up ------------------------------------------------------------------------------------

TEST(AstraeaControl, StartsSlowlyUpToTheFirstRise) {
  Flow flow({{"policy", std::string("hold")}});
  flow.go(milliseconds(1'101), milliseconds(30));
  EXPECT_EQ(flow.seen("mode"), 0);
  EXPECT_EQ(flow.window(), 10u + 99) << "by what is acknowledged";
  EXPECT_DOUBLE_EQ(flow.limits.pacing_rate, 1.25 * 8 * 109'000 / 0.030);
  // 30 / 8 ms is less than 4 ms.
  flow.go(milliseconds(1'201), microseconds(33'900));
  EXPECT_EQ(flow.seen("mode"), 0);
  const std::uint64_t before = flow.window();
  flow.go(milliseconds(1'216), microseconds(34'200));
  EXPECT_EQ(flow.seen("mode"), 1) << "8 samples are two wake-ups";
  EXPECT_LE(flow.window(), before + 15);
  const std::uint64_t kept = flow.window();
  flow.go(milliseconds(1'500), microseconds(34'200));
  EXPECT_EQ(flow.window(), kept);
}

TEST(AstraeaControl, EndsTheStartAtALoss) {
  Flow flow({{"policy", std::string("hold")}});
  flow.go(milliseconds(1'031), milliseconds(30));
  const std::uint64_t before = flow.window();
  flow.ack(milliseconds(30), 1, kMss);
  EXPECT_EQ(flow.window(), before);
  flow.go(milliseconds(1'040), milliseconds(30));
  EXPECT_EQ(flow.window(), before);
  EXPECT_EQ(flow.seen("mode"), 1);
}

TEST(AstraeaControl, WithoutAStartGrowsByTheFirstDecision) {
  Flow flow({{"startup", std::string("none")}});
  flow.go(milliseconds(1'034), milliseconds(30));
  EXPECT_EQ(flow.window(), 10u);
  flow.go(milliseconds(1'036), milliseconds(30));
  EXPECT_EQ(flow.window(), 11u);
}

// --- loss and timeout ----------------------------------------------------------------------------

TEST(AstraeaControl, KeepsItsWindowInRecovery) {
  Flow flow(kHeld);
  flow.go(milliseconds(1'050), milliseconds(30));
  flow.control->on_congestion({.kind = Congestion::loss, .now = flow.now});
  EXPECT_EQ(flow.window(), 10u);
  EXPECT_EQ(flow.limits.ssthresh, 10u * kMss);
  flow.control->on_recovered(flow.now);
  flow.ack(milliseconds(30));
  EXPECT_EQ(flow.window(), 10u);
}

TEST(AstraeaControl, GrowsBackToItsWindowAfterATimeout) {
  Flow flow(kHeld);
  flow.go(milliseconds(1'050), milliseconds(30));
  flow.control->on_congestion({.kind = Congestion::timeout, .now = flow.now});
  EXPECT_EQ(flow.window(), 1u);
  flow.ack(milliseconds(30), 2);
  EXPECT_EQ(flow.window(), 3u);
  flow.ack(milliseconds(30), 4);
  EXPECT_EQ(flow.window(), 7u);
  flow.go(milliseconds(1'100), milliseconds(30));
  EXPECT_EQ(flow.window(), 10u) << "not above the command, which decisions go on from";
  flow.control->on_recovered(flow.now);
  flow.ack(milliseconds(30));
  EXPECT_EQ(flow.window(), 10u);
  // One that was a mistake is undone at once.
  flow.control->on_congestion({.kind = Congestion::timeout, .now = flow.now});
  flow.control->on_undo(flow.now);
  EXPECT_EQ(flow.window(), 10u);
}

TEST(AstraeaControl, EndsTheStartAtATimeoutAndGrowsBackToTheWindowOfThen) {
  Flow flow({{"policy", std::string("hold")}});
  flow.go(milliseconds(1'031), milliseconds(30));
  const std::uint64_t before = flow.window();
  flow.control->on_congestion({.kind = Congestion::timeout, .now = flow.now});
  EXPECT_EQ(flow.window(), 1u);
  flow.go(milliseconds(1'200), milliseconds(30));
  EXPECT_EQ(flow.window(), before);
  EXPECT_EQ(flow.seen("mode"), 1);
}

// --- windows larger than what is sent ------------------------------------------------------------

TEST(AstraeaControl, GrowsByAnActionOnlyWhereHalfOfTheWindowWasInFlight) {
  const std::string up = constant_policy(5);  // tanh: 1
  const OptionValues options = {{"policy", up}, {"startup", std::string("none")}};
  for (const std::uint32_t out : {40u, 60u}) {
    Flow flow(options);
    flow.limits.cwnd = 100 * kMss;
    flow.packets_out = out;
    flow.go(milliseconds(1'040), milliseconds(30));
    EXPECT_EQ(flow.window(), out == 60 ? 103u : 100u);
  }
}

TEST(AstraeaControl, OnAShortPathTheStartUpLeavesWhatARoundTripDelivers) {
  for (const std::int64_t rtt : {4, 30}) {
    Flow flow({{"policy", std::string("hold")}});
    flow.packets_out = 100'000;
    flow.go(milliseconds(1'030), milliseconds(rtt));
    const std::uint64_t before = flow.window();
    ASSERT_GT(before, 30u);
    flow.limits.cwnd = 4 * before * kMss;  // what overflowed the queue
    AckSample s;
    s.now = flow.now;
    s.lost = s.lost_total = kMss;
    s.rtt = s.srtt = s.rate_interval = milliseconds(2 * rtt);
    s.rate_bytes = 20 * kMss;  // 10 packets in the least round trip
    s.packets_out = 100;
    flow.control->on_congestion({.kind = Congestion::loss, .now = flow.now});
    flow.control->on_ack(s);
    EXPECT_EQ(flow.window(), rtt == 4 ? 10 : 4 * before);
  }
}

// --- drain ---------------------------------------------------------------------------------------

TEST(AstraeaControl, HalvesItsWindowOnceBeforeTheLeastRoundTripIsForgotten) {
  Flow flow(kHeld);
  flow.limits.cwnd = 100 * kMss;
  flow.go(milliseconds(1'900), milliseconds(30));
  std::map<std::uint64_t, int> windows;  // by size, milliseconds
  while (flow.now < milliseconds(12'500)) {
    flow.go(flow.now + milliseconds(1), flow.window() == 50 ? milliseconds(31) : milliseconds(40));
    ++windows[flow.window()];
  }
  // 30 ms were seen last in second 1: they are forgotten at the end of second 10.
  EXPECT_EQ(windows.size(), 2u);
  EXPECT_EQ(flow.window(), 100u);
  EXPECT_NEAR(windows[50], 60, 5) << "a round trip or an interval, and an interval";
  EXPECT_EQ(flow.seen("min_rtt_us"), 31'000);
}

TEST(AstraeaControl, DoesNotDrainAnEmptyQueueOrWithoutTheOption) {
  for (const char* extremes : {"windowed", "lifetime", "windowed+drain"}) {
    Flow flow(with(kHeld, "extremes", std::string(extremes)));
    flow.limits.cwnd = 100 * kMss;
    flow.go(milliseconds(1'900), milliseconds(30));
    const bool drains = std::string(extremes) == "windowed+drain";
    while (flow.now < milliseconds(12'500)) {
      flow.go(flow.now + milliseconds(1), drains ? microseconds(31'400) : milliseconds(40));
      ASSERT_EQ(flow.window(), 100u) << extremes << " at " << flow.now.count;
    }
    EXPECT_EQ(flow.seen("min_rtt_us"), std::string(extremes) == "lifetime" ? 30'000 : drains ? 31'400 : 40'000);
  }
}

// --- the teacher ---------------------------------------------------------------------------------

double teach(double cwnd, double rtt_us, double loss_share = 0) {
  return teacher_action({.avg_thr_Bps = 1e6, .avg_urtt_us = rtt_us, .loss_Bps = loss_share * 1e6, .cwnd = cwnd},
                        {1e6, 30'000}, 30'000, kAlpha);
}

TEST(Teacher, KeepsItsTargetInTheQueue) {
  EXPECT_GT(teach(100, 30'000), 0) << "an empty queue";
  EXPECT_EQ(teach(100, 31'250), 0) << "4 packets of 100";
  EXPECT_LT(teach(100, 40'000), 0);
  EXPECT_EQ(teach(100, 90'000), -1);
  // A share of 1280 packets on the path is 16 times 80, so the target is 4 times 4.
  EXPECT_EQ(teach(1'296, 30'000 * 1'296 / 1'280.0), 0);
  // The same rate on four times the path keeps the same queue.
  const double long_us = 120'000 * 5'136 / 5'120.0;
  const Measured longer{.avg_thr_Bps = 1e6, .avg_urtt_us = long_us, .cwnd = 5'136};
  EXPECT_EQ(teacher_action(longer, {1e6, 120'000}, 30'000, kAlpha), 0);
  EXPECT_EQ(teach(100, 30'000, 0.03), -1) << "above 2 % of loss";
  EXPECT_GT(teach(100, 30'000, 0.01), 0);
  EXPECT_EQ(teach(100, 0), 0) << "no sample";
  EXPECT_EQ(teacher_action({.avg_urtt_us = 30'000, .cwnd = 100}, {}, 30'000, kAlpha), 0);
}

TEST(Teacher, StepsByItsShareOfARoundTrip) {
  const auto packets = [](double rtt_us, double interval_us) {
    const Measured m{.avg_thr_Bps = 1e6, .avg_urtt_us = rtt_us, .cwnd = 1'000};
    return kAlpha * 1'000 * teacher_action(m, {1e6, 30'000}, interval_us, kAlpha);
  };
  // An empty queue: half of 5 % of the share per round trip.
  EXPECT_NEAR(packets(30'000, 30'000), 25, 1e-9);
  EXPECT_NEAR(packets(30'000, 15'000), 12.5, 1e-9);
  EXPECT_NEAR(packets(30'000, 300'000), 25, 1e-9) << "no more than a round trip makes good";
  // From half of the target on: half of the distance. 20 packets of 1000, 980 on the path, a target of 14.
  EXPECT_NEAR(packets(30'000 / 0.98, 15'000), 0.5 * 0.49 * (14 - 20), 1e-9);
}

// --- options -------------------------------------------------------------------------------------

std::string refusal(const OptionValues& options) {
  try {
    astraea_kind().choose(options);
  } catch (const std::invalid_argument& e) {
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
    return e.what();
  }
  return "accepted";
}

TEST(AstraeaOptions, RefuseWhatDoesNotFit) {
  EXPECT_EQ(refusal({}), "accepted");
  EXPECT_EQ(refusal({{"alpha", 0.0}}), "astraea.alpha: above 0, up to 0.5");
  EXPECT_EQ(refusal({{"features", std::string("x")}}),
            "astraea: features must be one of astraea10, ours11, rel8, aurora3");
  EXPECT_EQ(refusal({{"frames", std::int64_t{7}}, {"spacing", std::string("doubled")}}),
            "astraea.frames: 1 to 6 where their distance doubles");
  EXPECT_THAT(refusal({{"interval_us", std::int64_t{1'000}}}), HasSubstr("is less than wake_us, 5000"));
  EXPECT_EQ(refusal({{"interval_us", std::int64_t{1'000}}, {"wake_us", std::int64_t{0}}}), "accepted");
  EXPECT_EQ(refusal({{"policy", std::string("mine.astp")}}),
            "astraea.policy: no policy \"mine.astp\"; give \"teacher\", \"hold\", \"outside\", or what "
            "_core.astraea_policy() returned in this process for the bytes of a file");
}

TEST(AstraeaOptions, RefuseAPolicyThatWasTrainedOtherwise) {
  const std::string policy = constant_policy(0);
  const auto said = [&](const std::string& option, OptionValue value) {
    return refusal({{"policy", policy}, {option, std::move(value)}});
  };
  EXPECT_EQ(refusal({{"policy", policy}}), "accepted");
  EXPECT_EQ(said("features", std::string("rel8")),
            "astraea.policy: features is \"rel8\", and the policy was trained with \"ours11\"; give "
            "features=\"ours11\", or another policy");
  EXPECT_THAT(said("frames", std::int64_t{4}), HasSubstr("frames is 4, and the policy was trained with 5"));
  EXPECT_THAT(said("spacing", std::string("doubled")), HasSubstr("spacing is \"doubled\""));
  EXPECT_THAT(said("interval_us", std::int64_t{20'000}), HasSubstr("trained with 30000; give interval_us=30000"));
  EXPECT_THAT(said("alpha", 0.05), HasSubstr("alpha is 0.05"));
  EXPECT_EQ(said("arithmetic", std::string("int16")), "accepted");
  const std::string floats = add_policy(testbed::random_policy(1).serialize());
  EXPECT_THAT(refusal({{"policy", floats}, {"arithmetic", std::string("int16")}}),
              HasSubstr("no form of whole numbers"));
}

TEST(AstraeaOptions, SayInTheReportWhenNoPolicyWasGiven) {
  EXPECT_THAT(astraea_kind().note({}), HasSubstr("no trained one is shipped"));
  EXPECT_EQ(astraea_kind().note(kHeld), "");
  EXPECT_THAT(astraea_kind().note({{"policy", std::string("outside")}}), HasSubstr("nobody decides in this run"));
}

// --- decisions from outside --------------------------------------------------------------------------

TEST(Astraea, DecidedFromOutsideAsTheTeacherDecidesItIsTheSameFlow) {
  const OptionValues none = {{"startup", std::string("none")}};
  OptionValues outside = none;
  outside.emplace_back("policy", std::string("outside"));
  Flow taught(none), led(outside);
  ASSERT_FALSE(taught.control->pupil()->waits());
  int decisions = 0;
  for (int i = 0; i < 3'000; ++i) {
    const Picoseconds until = taught.now + milliseconds(1);
    const Picoseconds rtt = milliseconds(20 + i / 60 % 12);
    for (Flow* flow : {&taught, &led}) {
      flow->now = until;
      flow->tick();
    }
    Pupil& pupil = *led.control->pupil();
    ASSERT_FALSE(taught.control->pupil()->waits());
    if (pupil.waits()) {
      ++decisions;
      EXPECT_EQ(pupil.interval().end, until);
      EXPECT_GE(pupil.interval().rtt_us, 20'000);
      EXPECT_LE(pupil.interval().rtt_us, 31'000);
      EXPECT_EQ(pupil.interval().window_packets, static_cast<double>(led.window()));
      EXPECT_EQ(pupil.input().size(), 55u);
      pupil.act(taught.seen("action"));
      EXPECT_FALSE(pupil.waits());
    }
    for (Flow* flow : {&taught, &led}) {
      flow->ack(rtt);
      flow->send(1);
    }
    ASSERT_EQ(led.limits.cwnd, taught.limits.cwnd) << i;
    ASSERT_EQ(led.limits.pacing_rate, taught.limits.pacing_rate) << i;
  }
  EXPECT_NEAR(decisions, 100, 2);
  EXPECT_NE(led.window(), 10u);
}

TEST(Astraea, HoldsItsWindowWhereNobodyDecides) {
  Flow flow({{"startup", std::string("none")}, {"policy", std::string("outside")}});
  flow.go(flow.now + seconds(2), milliseconds(20));
  EXPECT_TRUE(flow.control->pupil()->waits());
  EXPECT_EQ(flow.window(), 10u);
}

TEST(Astraea, RefusesDecisionsThatAreNone) {
  Flow flow({{"startup", std::string("none")}, {"policy", std::string("outside")}});
  Pupil& pupil = *flow.control->pupil();
  EXPECT_THROW(pupil.act(0), std::logic_error);
  flow.go(flow.now + milliseconds(40), milliseconds(20));
  ASSERT_TRUE(pupil.waits());
  for (const double action : {1.001, -1.5, std::nan(""), HUGE_VAL}) {
    EXPECT_THROW(pupil.act(action), std::invalid_argument) << action;
  }
  pupil.act(-1);
  EXPECT_THROW(pupil.act(-1), std::logic_error);
}

}  // namespace
}  // namespace loomnet::astraea
