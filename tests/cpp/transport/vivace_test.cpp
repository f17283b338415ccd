// Vivace by itself: the utility, what an interval shows, how far the rate moves, and a path in one
// variable to walk through the states.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>

#include "transport/congestion/vivace.hpp"

namespace loomnet::congestion {
namespace {

constexpr std::uint32_t kMss = 1000;

// x^0.9 - 900 x dRTT/dT - 11.35 x L, x in Mb/s (section 3).
TEST(Vivace, UtilityIsThatOfThePublication) {
  FlowLimits w{.mss = kMss, .cwnd = 10 * kMss};
  const Vivace vivace(w, {}, {.mss = kMss, .initial_window = 10 * kMss});
  EXPECT_NEAR(vivace.utility(100e6, 0, 0), std::pow(100, 0.9), 1e-9);
  EXPECT_NEAR(vivace.utility(100e6, 0.02, 0), std::pow(100, 0.9) - 1800, 1e-9);
  EXPECT_NEAR(vivace.utility(100e6, 0, 0.01), std::pow(100, 0.9) - 11.35, 1e-9);
  // c = 11.35: at 100 Mb/s a rate above the current one is worth a random loss below 5 %.
  EXPECT_GT(vivace.utility(105e6, 0, 0.049), vivace.utility(95e6, 0, 0.049));
  EXPECT_LT(vivace.utility(105e6, 0, 0.051), vivace.utility(95e6, 0, 0.051));
}

TEST(Vivace, AnIntervalFitsALineToItsRoundTrips) {
  MonitorInterval interval;
  interval.begin = seconds(1);
  EXPECT_EQ(interval.gradient(), 0);
  for (int i = 0; i < 50; ++i) {
    const Picoseconds noise = microseconds(i % 2 == 0 ? 100 : -100);
    interval.add_rtt(seconds(1) + milliseconds(i), milliseconds(30) + microseconds(50 * i) + noise);
  }
  EXPECT_NEAR(interval.gradient(), 0.05, 0.001);
  EXPECT_EQ(interval.loss(), 1) << "nothing has come back";
  interval.delivered = 99'000;
  interval.lost = 1'000;
  EXPECT_DOUBLE_EQ(interval.loss(), 0.01);
  interval.end = seconds(2);
  interval.rate = 8e6;
  interval.sent_end = 1'000'000;
  EXPECT_TRUE(interval.used());
  interval.sent_end = 500'000;
  EXPECT_FALSE(interval.used());
}

// Section 4: m(tau) grows with decisions in one direction.
TEST(VivaceSteps, ConfidenceAmplifiesRepeatedDecisions) {
  for (const auto& [tau, m] : {std::pair{1, 1.0}, {2, 2.0}, {3, 3.0}, {4, 5.0}, {5, 7.0}}) {
    EXPECT_EQ(VivaceSteps::amplifier(tau), m);
  }
  VivaceSteps steps;
  for (const double m : {1, 2, 3, 5, 7}) EXPECT_NEAR(steps.next(0.1, 1e9), m * 0.1e6, 1e-6);
  EXPECT_NEAR(steps.next(-0.1, 1e9), -0.1e6, 1e-6) << "a turn begins anew";
}

TEST(VivaceSteps, TheSwingBufferWithholdsTheAmplifierAfterReversals) {
  VivaceSteps steps;
  steps.next(0.1, 1e9);
  steps.next(-0.1, 1e9);  // one reversal: one decision more at the first step
  EXPECT_NEAR(steps.next(-0.1, 1e9), -0.1e6, 1e-6);
  EXPECT_NEAR(steps.next(-0.1, 1e9), -0.2e6, 1e-6);
  for (int i = 0; i < 6; ++i) steps.next(i % 2 == 0 ? 0.1 : -0.1, 1e9);  // many: two
  EXPECT_NEAR(steps.next(-0.1, 1e9), -0.1e6, 1e-6);
  EXPECT_NEAR(steps.next(-0.1, 1e9), -0.1e6, 1e-6);
  EXPECT_NEAR(steps.next(-0.1, 1e9), -0.2e6, 1e-6);
}

TEST(VivaceSteps, TheChangeBoundaryGrowsWhileItIsHit) {
  VivaceSteps steps;
  EXPECT_NEAR(steps.next(1000, 100e6), 5e6, 1);
  EXPECT_NEAR(steps.next(1000, 100e6), 15e6, 1);
  EXPECT_NEAR(steps.next(1000, 100e6), 25e6, 1);
  EXPECT_NEAR(steps.boundary(), 0.35, 1e-12);
  EXPECT_NEAR(steps.next(1, 100e6), 5e6, 1) << "confidence 4, gradient 1";
  EXPECT_NEAR(steps.boundary(), 0.05, 1e-12) << "the smallest that a small change needs";
  EXPECT_NEAR(steps.next(-1000, 100e6), -5e6, 1) << "a turn begins at the first boundary";
  EXPECT_EQ(steps.next(0, 100e6), 0);
}

// A path of one rate: what is sent above it waits. Packets leave at the pacing rate, one by one.
struct Path {
  static constexpr double kRate = 50e6;
  static constexpr Picoseconds kProp = milliseconds(20);
  FlowLimits w{.mss = kMss, .cwnd = 10 * kMss};
  Vivace vivace{w, {}, {.mss = kMss, .initial_window = 10 * kMss, .seed = 3, .stream = 1}};
  struct Packet {
    Picoseconds sent, arrives;
    bool lost;
  };
  std::deque<Packet> path;
  Picoseconds now = seconds(1), next = seconds(1), free{};
  std::uint64_t packets = 0, lose_every = 0;
  Path() { vivace.on_established(kProp, now); }
  void run(Picoseconds span) {
    std::uint64_t lost = 0;
    for (const Picoseconds end = now + span; now < end;) {
      if (!path.empty() && path.front().arrives <= next) {
        const Packet p = path.front();
        path.pop_front();
        now = p.arrives;
        if (p.lost) {
          lost += kMss;
          continue;
        }
        AckSample s;
        s.now = now;
        s.acked = s.delivered = kMss;
        s.lost = std::exchange(lost, 0);
        s.rtt = s.srtt = now - p.sent;
        vivace.on_ack(s);
        continue;
      }
      now = next;
      const auto wire = [](double rate) { return Picoseconds{static_cast<std::int64_t>(8e12 * kMss / rate)}; };
      free = std::max(free, now) + wire(kRate);
      path.push_back({now, free + kProp, lose_every > 0 && ++packets % lose_every == 0});
      count_sent(w, vivace, kMss, now);
      next = now + wire(w.pacing_rate);
    }
  }
};

TEST(Vivace, DoublesUntilTheUtilityFallsAndThenStaysNearTheRateOfThePath) {
  Path path;
  EXPECT_NEAR(path.vivace.rate(), 8 * 10 * kMss / 0.020, 1);
  EXPECT_EQ(path.w.cwnd, kNoLimit);
  path.run(milliseconds(45));
  EXPECT_EQ(path.vivace.phase(), Vivace::State::starting);
  EXPECT_NEAR(path.vivace.rate(), 4 * 8 * 10 * kMss / 0.020, 1) << "twice in two round trips";
  path.run(seconds(1));
  EXPECT_NE(path.vivace.phase(), Vivace::State::starting);
  path.run(seconds(3));
  double least = 1e18, most = 0;
  for (int i = 0; i < 200; ++i) {
    path.run(milliseconds(20));
    least = std::min(least, path.vivace.rate());
    most = std::max(most, path.vivace.rate());
  }
  EXPECT_GT(least, 0.80 * Path::kRate);
  EXPECT_LT(most, 1.05 * Path::kRate);
}

TEST(Vivace, ToleratesLossesBelowFivePercentAndYieldsToMore) {
  Path few, many;
  few.lose_every = 50;
  many.lose_every = 10;
  few.run(seconds(10));
  many.run(seconds(10));
  EXPECT_GT(few.vivace.rate(), 0.75 * Path::kRate);
  EXPECT_LT(many.vivace.rate(), 0.25 * Path::kRate);
}

TEST(Vivace, ATimeoutHalvesTheRateAndASenderWithoutDataKeepsIt) {
  Path path;
  path.run(seconds(4));
  const double before = path.vivace.rate();
  CongestionEvent event;
  event.kind = Congestion::loss;
  event.now = path.now;
  path.vivace.on_congestion(event);
  EXPECT_EQ(path.vivace.rate(), before);
  event.kind = Congestion::timeout;
  path.vivace.on_congestion(event);
  EXPECT_NEAR(path.vivace.rate(), before / 2, 1);
}

}  // namespace
}  // namespace loomnet::congestion
