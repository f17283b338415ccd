// Vegas by itself, on samples written by hand: what a window's round trips do to the next.
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "transport/congestion/vegas.hpp"

namespace loomnet::congestion {
namespace {

constexpr std::uint32_t kMss = 1000;

// Round trips of a sender that is always busy, an ACK for each segment.
struct Path {
  explicit Path(bool as_linux = false) : options{.as_linux = as_linux} {}
  FlowLimits w{.mss = kMss, .cwnd = 20 * kMss, .ssthresh = 10 * kMss};
  VegasOptions options;
  Vegas vegas{w, options, {}};
  std::uint64_t acked = 0, sent = 0;
  std::uint64_t mark = 0;  // what the last ACK of a round is for
  double segments() const { return static_cast<double>(w.cwnd) / kMss; }
  void ack(Picoseconds rtt, bool reducing = false) {
    AckSample s;
    acked += kMss;
    sent = std::max(sent, acked + w.cwnd);
    if (mark == 0) mark = sent;
    s.acked = s.delivered = kMss;
    s.acked_end = acked;
    s.sent_end = sent;
    s.rtt = rtt;
    s.cwnd_limited = true;
    s.reducing = reducing;
    vegas.on_ack(s);
  }
  // All that had been sent at the end of the round before is acknowledged.
  void round(Picoseconds rtt) {
    while (acked < mark) ack(rtt);
    mark = sent;
  }
};

// JSAC 1995, section III-C: cwnd (1 - BaseRTT / RTT) packets are queued, and kept between alpha and
// beta; Linux counts cwnd (RTT - BaseRTT) / BaseRTT, in whole packets.
TEST(Vegas, KeepsBetweenAlphaAndBetaPacketsQueued) {
  Path path;
  path.ack(milliseconds(100));
  path.round(milliseconds(100));
  const double first = path.segments();
  path.round(milliseconds(100));
  EXPECT_EQ(path.segments(), first + 1) << "nothing is queued";
  path.round(milliseconds(100) + microseconds(15'000));
  EXPECT_NEAR(path.vegas.queued(), 3, 0.5);
  const double kept = path.segments();
  EXPECT_EQ(kept, first + 1) << "about 3 are queued";
  path.round(milliseconds(130));
  EXPECT_GT(path.vegas.queued(), 5);
  EXPECT_EQ(path.segments(), kept - 1);
}

// SIGCOMM 1994, section 3.3: in every other round trip, and those between compare.
TEST(Vegas, SlowStartDoublesInEveryOtherRoundTrip) {
  Path path;
  path.w.ssthresh = kNoLimit;
  path.ack(milliseconds(100));
  path.round(milliseconds(100));
  double before = path.segments();
  path.round(milliseconds(100));
  EXPECT_EQ(path.segments(), before + 1) << "held, until the last ACK compared";
  before = path.segments();
  path.round(milliseconds(100));
  EXPECT_NEAR(path.segments(), 2 * before, 1);
  before = path.segments();
  path.round(milliseconds(125));
  EXPECT_FALSE(path.w.in_slow_start());
  EXPECT_NEAR(path.segments(), before / 1.25 + 1, 1);
}

TEST(Vegas, AsLinuxItDoublesInEveryRoundTripUntilAPacketIsQueued) {
  Path path(true);
  path.w.ssthresh = kNoLimit;
  path.ack(milliseconds(100));
  path.round(milliseconds(100));
  const double before = path.segments();
  path.round(milliseconds(100));
  EXPECT_NEAR(path.segments(), 2 * before, 1);
  const double doubled = path.segments();
  path.round(milliseconds(125));
  EXPECT_FALSE(path.w.in_slow_start());
  // It grows until the round trip's last ACK, which measures.
  EXPECT_NEAR(path.segments(), (2 * doubled - 1) / 1.25 + 1, 1);
}

TEST(Vegas, TooFewSamplesMakeARenoStep) {
  Path path;
  path.w.cwnd = 2 * kMss;
  path.ack(milliseconds(100));
  path.round(milliseconds(200));
  EXPECT_GE(path.w.cwnd, 2u * kMss) << "two samples could be a delayed ACK's";
  EXPECT_EQ(path.vegas.queued(), 0);
}

TEST(Vegas, ALossHalvesAndRepairsAreLeftAlone) {
  Path path;
  path.ack(milliseconds(100));
  CongestionEvent event;
  event.flight = 20 * kMss;
  path.vegas.on_congestion(event);
  EXPECT_EQ(path.w.ssthresh, 10u * kMss);
  const std::uint64_t before = path.w.cwnd;
  for (int i = 0; i < 100; ++i) path.ack(milliseconds(300), true);
  EXPECT_EQ(path.w.cwnd, before);
}

TEST(Vegas, APauseForgetsTheLeastRoundTrip) {
  Path path;
  path.ack(milliseconds(100));
  path.round(milliseconds(100));
  path.vegas.on_restart({});
  path.round(milliseconds(200));
  const double before = path.segments();
  path.round(milliseconds(200));
  EXPECT_EQ(path.segments(), before + 1) << "200 ms are the path's own now";
}

TEST(Vegas, RefusesAlphaAboveBeta) {
  const VegasOptions options{.alpha = 5, .beta = 4};
  EXPECT_THROW(options.check(), std::invalid_argument);
}

}  // namespace
}  // namespace loomnet::congestion
