// Copa by itself, on samples written by hand: against section 2 of the publication.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "transport/congestion/copa.hpp"

namespace loomnet::congestion {
namespace {

constexpr std::uint32_t kMss = 1000;
constexpr Picoseconds kBase = milliseconds(100);

// One ACK for each segment of a window, spread over a round trip.
struct Path {
  explicit Path(CopaOptions options = {}, std::uint64_t segments = 10)
      : w{.mss = kMss, .cwnd = segments * kMss}, copa(w, options, {}) {}
  FlowLimits w;
  Copa copa;
  Picoseconds now = seconds(1);
  std::uint64_t acked = 0;
  std::uint64_t in_order = kNoLimit;  // what is acknowledged in order stands still there
  double lost = 0;                    // bytes taken for lost for each byte delivered
  double segments() const { return static_cast<double>(w.cwnd) / kMss; }
  void ack(Picoseconds rtt, bool limited = true) {
    now += rtt / static_cast<std::int64_t>(w.cwnd / kMss);
    AckSample s;
    s.now = now;
    acked += kMss;
    s.acked = s.delivered = kMss;
    s.lost = static_cast<std::uint64_t>(lost * kMss);
    s.acked_end = std::min(acked, in_order);
    s.sent_end = acked + w.cwnd;
    s.delivered_total = acked;
    s.prior_delivered = acked > w.cwnd ? acked - w.cwnd : 0;
    s.rtt = s.srtt = rtt;
    s.cwnd_limited = limited;
    copa.on_ack(s);
  }
  void round(Picoseconds rtt) {
    for (int left = static_cast<int>(segments()); left > 0; --left) ack(rtt);
  }
  void lose(Congestion kind = Congestion::loss) {
    CongestionEvent event;
    event.kind = kind;
    event.now = now;
    copa.on_congestion(event);
  }
};

TEST(Copa, SlowStartDoublesUntilTheRateExceedsTheTarget) {
  Path path;
  path.round(kBase);
  EXPECT_NEAR(path.segments(), 20, 1);
  EXPECT_TRUE(path.copa.slow_start());
  // Target 1 / (0.5 x 4 ms) = 500 packets a second; the rate is 200.
  path.round(kBase + milliseconds(4));
  EXPECT_TRUE(path.copa.slow_start());
  // 1 / (0.5 x 20 ms) = 100; the rate is above 300 once RTTstanding has the new round trip.
  path.round(kBase + milliseconds(20));
  EXPECT_FALSE(path.copa.slow_start());
}

TEST(Copa, PacesAtTwiceTheWindowPerStandingRoundTrip) {
  Path path;
  path.ack(kBase);
  EXPECT_NEAR(path.w.pacing_rate, 2 * 8 * static_cast<double>(path.w.cwnd) / kBase.seconds(), 1);
}

// +-v / (delta cwnd) per ACK: v / delta packets per round trip.
TEST(Copa, MovesByVelocityOverDeltaPerRoundTripTowardsTheTarget) {
  Path path({}, 100);
  path.ack(kBase);
  path.round(kBase + milliseconds(20));  // leaves slow start
  ASSERT_FALSE(path.copa.slow_start());
  path.round(kBase + milliseconds(20));
  const double above = path.segments();
  ASSERT_EQ(path.copa.velocity(), 1);
  path.round(kBase + milliseconds(20));
  EXPECT_NEAR(path.segments(), above - 2, 0.2);
  EXPECT_EQ(path.copa.queue_delay(), milliseconds(20));
}

TEST(Copa, VelocityDoublesAfterThreeRoundTripsInOneDirectionAndFallsBackAtATurn) {
  Path path({}, 100);
  path.ack(kBase);
  path.round(kBase + milliseconds(20));
  std::vector<double> velocities;
  for (int i = 0; i < 8; ++i) {
    path.round(kBase + milliseconds(20));
    velocities.push_back(path.copa.velocity());
  }
  const auto two = std::find(velocities.begin(), velocities.end(), 2);
  ASSERT_NE(two, velocities.end());
  EXPECT_GE(two - velocities.begin(), 2) << "not in the first round trips";
  ASSERT_NE(two + 2, velocities.end());
  EXPECT_EQ(two[1], 4);
  for (int i = 0; i < 3; ++i) path.round(kBase);  // the queue is empty: up again
  EXPECT_EQ(path.copa.velocity(), 1);
}

// While losses are repaired, nothing may be acknowledged in order for many round trips.
TEST(Copa, VelocityDoublesByDeliveriesNotByWhatIsAcknowledgedInOrder) {
  Path path({}, 100);
  path.ack(kBase);
  path.round(kBase + milliseconds(20));
  path.in_order = path.acked;
  for (int i = 0; i < 6; ++i) path.round(kBase + milliseconds(20));
  EXPECT_GE(path.copa.velocity(), 4);
}

// The authors' code: a round trip at most doubles the window or empties it.
TEST(Copa, VelocityIsAtMostDeltaTimesTheWindow) {
  Path path({}, 100);
  path.ack(kBase);
  path.round(kBase + milliseconds(20));
  double most = 0;
  for (int i = 0; i < 1500; ++i) {
    const double window = path.segments();
    path.ack(kBase + milliseconds(20));
    EXPECT_LE(path.copa.velocity(), std::max(0.5 * window, 1.0)) << "ACK " << i;
    most = std::max(most, path.copa.velocity());
  }
  EXPECT_GE(most, 8);
}

// The authors' code: 0.7 of the window where more than 30 % of two round trips' packets were lost.
TEST(Copa, HeavyLossTakesTheWindowDownAndLittleLossDoesNot) {
  const auto after = [](double lost) {
    Path path({}, 200);
    for (int i = 0; i < 250; ++i) path.ack(kBase, false);
    path.lost = lost;
    for (int i = 0; i < 850; ++i) path.ack(kBase, false);
    return path.segments();
  };
  EXPECT_EQ(after(0.4), 200) << "0.4 of 1.4 sent";
  EXPECT_EQ(after(0.5), 140);
}

TEST(Copa, ALossChangesNothingInDefaultModeAndATimeoutBeginsSlowStart) {
  Path path({}, 100);
  path.ack(kBase);
  path.round(kBase + milliseconds(20));
  const std::uint64_t before = path.w.cwnd;
  path.lose();
  EXPECT_EQ(path.w.cwnd, before);
  EXPECT_EQ(path.copa.delta(), 0.5);
  path.lose(Congestion::timeout);
  EXPECT_EQ(path.segments(), 2);
  EXPECT_TRUE(path.copa.slow_start());
}

TEST(Copa, AnIdleWindowDoesNotGrow) {
  Path path;
  for (int i = 0; i < 30; ++i) path.ack(kBase, false);
  EXPECT_EQ(path.segments(), 10);
}

// Section 2.2: competitive where no queue below a tenth of the oscillation is seen for five round trips.
TEST(Copa, CompetesWhereTheQueueIsNeverNearlyEmpty) {
  Path path({.mode_switch = true}, 100);
  path.ack(kBase);
  for (int i = 0; i < 4; ++i) path.round(kBase + milliseconds(40));
  EXPECT_FALSE(path.copa.competitive());
  for (int i = 0; i < 4; ++i) path.round(kBase + milliseconds(40));
  EXPECT_TRUE(path.copa.competitive());
  const double before = 1 / path.copa.delta();
  for (int i = 0; i < 5; ++i) path.round(kBase + milliseconds(40));
  EXPECT_NEAR(1 / path.copa.delta(), before + 5, 1.1) << "one more per round trip";
  const double grown = 1 / path.copa.delta();
  path.lose();
  path.round(kBase + milliseconds(40));
  EXPECT_NEAR(1 / path.copa.delta(), grown / 2, 1.1);
  for (int i = 0; i < 20; ++i) {
    path.lose();
    path.round(kBase + milliseconds(40));
  }
  EXPECT_EQ(path.copa.delta(), 0.5) << "never above that of default mode";
  path.round(kBase);
  EXPECT_FALSE(path.copa.competitive());
  EXPECT_EQ(path.copa.delta(), 0.5);
}

TEST(Copa, AnEmptyPathIsNoReasonToCompete) {
  Path path({.mode_switch = true});
  for (int i = 0; i < 20; ++i) {
    path.round(kBase);
    ASSERT_FALSE(path.copa.competitive());
    if (path.segments() > 1000) path.w.cwnd = 10 * kMss;
  }
}

}  // namespace
}  // namespace loomnet::congestion
