// The DCTCP-like window: its share of marks, one cut per window, growth by time.
#include "transport/congestion/dctcp_like.hpp"

#include <gtest/gtest.h>

namespace loomnet::congestion {
namespace {

constexpr std::uint64_t kMss = 4'000;

struct Limited {
  FlowLimits limits = fresh_limits({.mss = kMss, .initial_window = 20 * kMss});
};
struct Sender : Limited, DctcpLike {
  explicit Sender(const DctcpLikeOptions& o = {}) : DctcpLike(limits, o, {}) {}
  // One packet is acknowledged, and the window is full again.
  void acked(bool marked = false, Picoseconds later = nanoseconds(500), bool limited = true) {
    AckSample s;
    s.now = now += later;
    s.delivered = s.acked = kMss;
    s.ce_delivered = marked ? kMss : 0;
    s.acked_end = end += kMss;
    s.sent_end = end + limits.cwnd;
    s.cwnd_limited = limited;
    on_ack(s);
  }
  double packets() const { return static_cast<double>(limits.cwnd) / kMss; }
  Picoseconds now{};
  std::uint64_t end = 0;
};

TEST(DctcpLike, GrowsByOnePacketPerTwentyMicroseconds) {
  Sender d;
  d.acked();
  for (int i = 0; i < 400; ++i) d.acked();  // 200 us
  EXPECT_DOUBLE_EQ(d.packets(), 30);
  d.acked(false, microseconds(60));
  EXPECT_DOUBLE_EQ(d.packets(), 33) << "time alone counts";
}

TEST(DctcpLike, AWindowThatIsNotUsedDoesNotGrow) {
  Sender d;
  for (int i = 0; i < 400; ++i) d.acked(false, nanoseconds(500), false);
  EXPECT_DOUBLE_EQ(d.packets(), 20);
  d.acked(false, milliseconds(1), false);
  for (int i = 0; i < 30; ++i) d.acked();
  EXPECT_DOUBLE_EQ(d.packets(), 20) << "the pause before is no growth";
}

TEST(DctcpLike, MarksCutOncePerWindowByHalfOfAlpha) {
  Sender d;
  d.acked();  // ends the first window: alpha 15/16, without marks
  const double alpha = 15.0 / 16;
  EXPECT_DOUBLE_EQ(d.alpha(), alpha);
  d.acked(true);
  EXPECT_NEAR(d.packets(), 20 * (1 - alpha / 2), 1e-3);
  const std::uint64_t cut = d.limits.cwnd;
  for (int i = 0; i < 15; ++i) d.acked(true);  // of the window that was under way
  EXPECT_EQ(d.limits.cwnd, cut);
  EXPECT_EQ(d.reactions().cuts, 1u);
  for (int i = 0; i < 10; ++i) d.acked(true);
  EXPECT_EQ(d.reactions().cuts, 2u);
}

TEST(DctcpLike, AlphaFollowsTheMarkedShareWithItsGain) {
  Sender d;
  d.acked();
  // Windows of which every fourth packet is marked.
  for (int i = 0; i < 4'000; ++i) d.acked(i % 4 == 0);
  EXPECT_NEAR(d.alpha(), 0.25, 0.08);
}

TEST(DctcpLike, NeverBelowItsLeastAndALossHalves) {
  Sender d;
  CongestionEvent e;
  e.kind = Congestion::loss;
  d.on_congestion(e);
  EXPECT_DOUBLE_EQ(d.packets(), 10);
  e.kind = Congestion::notified;
  d.on_congestion(e);
  EXPECT_DOUBLE_EQ(d.packets(), 10);
  e.kind = Congestion::timeout;
  d.on_congestion(e);
  EXPECT_DOUBLE_EQ(d.packets(), 1);
  EXPECT_EQ(d.reactions().floors, 1u);
  for (int i = 0; i < 4; ++i) d.acked(true, microseconds(10));
  EXPECT_DOUBLE_EQ(d.packets(), 1);
  EXPECT_GE(d.reactions().at_floor, microseconds(30));
}

}  // namespace
}  // namespace loomnet::congestion
