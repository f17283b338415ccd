// TIMELY: each branch of Algorithm 1 (Mittal et al., SIGCOMM 2015) by its formula.
#include "transport/congestion/timely.hpp"

#include <gtest/gtest.h>

namespace loomnet::congestion {
namespace {

constexpr std::uint64_t kLine = 10'000'000'000;
constexpr double kLineRate = 1e10, kDelta = 1e7;

struct Limited {
  FlowLimits limits;
};
struct Sender : Limited, Timely {
  explicit Sender(const TimelyOptions& o = {}, std::uint64_t line = kLine)
      : Timely(limits, o, {.mss = 4'000, .line_rate = line, .base_rtt = microseconds(8)}) {}
  // A completion one millisecond, 50 minimum round trips, after the one before.
  double sample(int rtt_us) { return sample(microseconds(rtt_us), milliseconds(1)); }
  double sample(Picoseconds rtt, Picoseconds later) {
    AckSample s;
    s.now = now += later;
    s.rtt = rtt;
    on_ack(s);
    EXPECT_EQ(limits.pacing_rate, rate());
    return rate();
  }
  Picoseconds now{};
};

// Its rate has come down to a half, by a round trip far above T_high.
struct Slowed : Sender {
  explicit Slowed(const TimelyOptions& o = {}) : Sender(o) {
    sample(5'000);
    EXPECT_DOUBLE_EQ(rate(), kLineRate / 2) << "a cut takes no more than half";
  }
};

TEST(Timely, BeginsAtLineRateAndStaysThereOnAnIdlePath) {
  Sender t;
  EXPECT_EQ(t.limits.pacing_rate, kLineRate);
  EXPECT_EQ(t.limits.cwnd, kNoLimit);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(t.sample(8), kLineRate);
  EXPECT_EQ(t.reactions().cuts, 0u);
}

TEST(Timely, BelowTLowItGrowsByDeltaWhateverTheGradient) {
  Slowed t;
  t.sample(20);
  double rate = t.rate();
  EXPECT_DOUBLE_EQ(t.sample(49), rate + kDelta) << "a rising round trip";
  rate = t.rate();
  EXPECT_DOUBLE_EQ(t.sample(21), rate + kDelta);
}

TEST(Timely, AboveTHighItFallsByTheExcess) {
  Sender t;
  t.sample(20);
  EXPECT_DOUBLE_EQ(t.sample(1'000), kLineRate * (1 - 0.8 * (1 - 500.0 / 1'000)));
  const double rate = t.rate();
  EXPECT_DOUBLE_EQ(t.sample(800), rate * (1 - 0.8 * (1 - 500.0 / 800))) << "a falling round trip";
  EXPECT_EQ(t.reactions().cuts, 2u);
}

TEST(Timely, BetweenThemARisingRoundTripCutsByTheNormalizedGradient) {
  TimelyOptions o;
  o.ewma = 0.5;
  Sender t(o);
  t.sample(100);
  // Difference 10 us, smoothed 5, over a minimum of 20 us.
  EXPECT_DOUBLE_EQ(t.sample(110), kLineRate * (1 - 0.8 * 0.25));
  EXPECT_DOUBLE_EQ(t.gradient(), 0.25);
  const double rate = t.rate();
  t.sample(110);  // no difference: smoothed 2.5 us
  EXPECT_DOUBLE_EQ(t.rate(), rate * (1 - 0.8 * 0.125));
}

TEST(Timely, FiveFallingRoundTripsInARowBeginHyperActiveIncrease) {
  TimelyOptions o;
  o.ewma = 1;
  Slowed t(o);
  t.sample(400);
  double rate = t.rate();
  for (int n = 2; n <= 7; ++n) {  // the sample above is the first that fell
    EXPECT_DOUBLE_EQ(t.sample(400 - n), rate + kDelta * (n >= 5 ? 5 : 1)) << n;
    rate = t.rate();
  }
  t.sample(394);  // a rise ends it
  rate = t.rate();
  EXPECT_DOUBLE_EQ(t.sample(393), rate + kDelta);
}

TEST(Timely, AnUpdateSoonerThanAMinimumRoundTripCountsByItsShare) {
  Slowed t;
  t.sample(20);
  const double rate = t.rate();
  EXPECT_DOUBLE_EQ(t.sample(microseconds(20), microseconds(5)), rate + kDelta * 5 / 20);
}

TEST(Timely, MarksNotificationsAndAcknowledgementsWithoutARoundTripChangeNothing) {
  Slowed t;
  const double rate = t.rate();
  AckSample s;
  s.now = t.now += milliseconds(1);
  s.marked = true;
  s.ce_delivered = s.delivered = 4'000;
  t.on_ack(s);
  for (const Congestion kind : {Congestion::notified, Congestion::ecn}) {
    CongestionEvent e;
    e.kind = kind;
    t.on_congestion(e);
  }
  EXPECT_EQ(t.rate(), rate);
  EXPECT_FALSE(t.traits.notified);
}

TEST(Timely, NeverBelowItsMinimumAndCountsIt) {
  TimelyOptions o;
  o.minimum_rate = 1'000'000'000;
  Sender t(o);
  for (int i = 0; i < 10; ++i) t.sample(50'000);
  EXPECT_DOUBLE_EQ(t.rate(), 1e9);
  EXPECT_EQ(t.reactions().floors, 1u);
  EXPECT_GT(t.reactions().at_floor, milliseconds(4));
}

TEST(Timely, RefusesThresholdsOutOfOrderAndAnUnknownLineRate) {
  TimelyOptions o;
  o.low = o.high;
  EXPECT_THROW(Sender{o}, std::invalid_argument);
  EXPECT_THROW(Sender({}, 0), std::invalid_argument);
  o = {};
  o.min_rtt = {};
  EXPECT_NO_THROW(Sender{o}) << "the flow's own round trip";
}

}  // namespace
}  // namespace loomnet::congestion
