// DCQCN: the rate's cuts and raises by the publication's rules.
#include "transport/congestion/dcqcn.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace loomnet::congestion {
namespace {

constexpr double kGiga = 1e9;
constexpr std::uint64_t kLine = 40'000'000'000;

// A queue pair that sends as RoCE's does: the control hears of its packets through the limits alone.
struct Limited {
  FlowLimits limits;
  DcqcnOptions options;
};
struct Sender : private Limited, Dcqcn {
  explicit Sender(std::uint64_t line = kLine) : Dcqcn(limits, options, {.mss = 1'000, .line_rate = line}) {}
  void on_cnp(Picoseconds now) {
    CongestionEvent event;
    event.kind = Congestion::notified;
    event.now = now;
    on_congestion(event);
  }
  void on_sent(std::uint32_t bytes, Picoseconds now) {
    count_sent(limits, *this, bytes, now);
    if (limits.pacing_rate == 0) return;
    const double gap = bytes * 8e12 / limits.pacing_rate;
    next = std::max(next, now) + Picoseconds{static_cast<std::int64_t>(gap)};
  }
  void advance(Picoseconds now) { on_tick(now); }
  Picoseconds next_send() const { return next; }
  Picoseconds next{};
};

TEST(Dcqcn, StartsAtLineRateAndPacesNothing) {
  Sender d;
  d.on_sent(4'000, microseconds(1));
  EXPECT_FALSE(d.limited());
  EXPECT_EQ(d.rate(), 40 * kGiga);
  EXPECT_LE(d.next_send(), microseconds(1));
}

TEST(Dcqcn, TheFirstNotificationHalvesTheRate) {
  Sender d;
  d.on_cnp(microseconds(10));
  EXPECT_TRUE(d.limited());
  EXPECT_DOUBLE_EQ(d.rate(), 20 * kGiga);
  EXPECT_DOUBLE_EQ(d.target(), 40 * kGiga);
  EXPECT_DOUBLE_EQ(d.alpha(), 1);  // (1 - g) * 1 + g
  d.on_sent(1'000, microseconds(10));
  EXPECT_EQ(d.next_send(), microseconds(10) + nanoseconds(400));
  d.on_sent(1'000, microseconds(10) + nanoseconds(400));
  EXPECT_EQ(d.next_send(), microseconds(10) + nanoseconds(800));
}

TEST(Dcqcn, AlphaDecaysWithoutNotificationsAndSoDoesTheNextCut) {
  Sender d;
  d.on_cnp({});
  d.advance(microseconds(55 * 3));
  const double kept = 255.0 / 256;
  EXPECT_DOUBLE_EQ(d.alpha(), kept * kept * kept);
  const double rate = d.rate(), alpha = d.alpha();
  d.on_cnp(microseconds(170));
  EXPECT_DOUBLE_EQ(d.target(), rate);
  EXPECT_DOUBLE_EQ(d.rate(), rate * (1 - alpha / 2));
  EXPECT_DOUBLE_EQ(d.alpha(), kept * alpha + 1.0 / 256);
}

TEST(Dcqcn, FastRecoveryThenAdditiveByTime) {
  Sender d(400'000'000'000);
  d.on_cnp({});
  d.on_cnp(microseconds(1));  // 100 Gb/s, back towards 200
  ASSERT_DOUBLE_EQ(d.rate(), 100 * kGiga);
  double expected = 100 * kGiga;
  for (int stage = 1; stage <= 5; ++stage) {
    d.advance(microseconds(1 + 55 * stage));
    expected = (expected + 200 * kGiga) / 2;
    EXPECT_DOUBLE_EQ(d.rate(), expected) << stage;
    EXPECT_DOUBLE_EQ(d.target(), 200 * kGiga) << stage;
  }
  d.advance(microseconds(1 + 55 * 6));
  EXPECT_DOUBLE_EQ(d.target(), 200.04 * kGiga);
  EXPECT_DOUBLE_EQ(d.rate(), (expected + 200.04 * kGiga) / 2);
}

TEST(Dcqcn, TheByteCounterRaisesAsTheTimerDoesAndBothTogetherFaster) {
  Sender d(400'000'000'000);
  d.on_cnp({});
  d.on_cnp({});
  for (int i = 0; i < 6; ++i) d.on_sent(10'000'000, {});  // six expiries of the byte counter
  EXPECT_DOUBLE_EQ(d.target(), 200.04 * kGiga);
  d.advance(microseconds(55 * 5));  // five of the timer: still additive
  EXPECT_DOUBLE_EQ(d.target(), 200.24 * kGiga);
  d.advance(microseconds(55 * 6));  // both beyond F: hyper increase, once
  EXPECT_DOUBLE_EQ(d.target(), 200.64 * kGiga);
}

TEST(Dcqcn, NeverBelowTheMinimumAndFreeAgainAtLineRate) {
  Sender d;
  for (int i = 0; i < 100; ++i) d.on_cnp(microseconds(i));
  EXPECT_DOUBLE_EQ(d.rate(), 0.1 * kGiga);
  d.advance(seconds(10));
  EXPECT_FALSE(d.limited());
  EXPECT_DOUBLE_EQ(d.rate(), 40 * kGiga);
}

// The packet that lets the limiter go is paced at the line rate, those behind it are not.
TEST(Dcqcn, PacingEndsWithTheFirstPacketAtLineRate) {
  Sender d;
  d.on_cnp({});
  d.on_sent(1'000, seconds(10));
  EXPECT_FALSE(d.limited());
  EXPECT_EQ(d.next_send(), seconds(10) + nanoseconds(200));
  d.on_sent(1'000, seconds(11));
  EXPECT_EQ(d.next_send(), seconds(10) + nanoseconds(200));
}

}  // namespace
}  // namespace loomnet::congestion
