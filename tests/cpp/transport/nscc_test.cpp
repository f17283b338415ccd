// NSCC: the golden table of Ultra Ethernet 1.0, and the window's moves row by
// row.
#include "transport/congestion/nscc.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <vector>

namespace loomnet::congestion {
namespace {

struct Row {
  BitsPerSecond rate;
  Picoseconds rtt;
  std::uint32_t mss;
  double bdp, a, target, b, alpha, fi, eta, maxwnd, qa;
};

TEST(NsccConstants, GoldenTable) {
  const Row rows[] = {
      {gigabits(100), microseconds(12), 4096, 150'000, 1, 9, 0.75, 1365.33, 20480, 614.4, 225'000, 28'125},
      {gigabits(400), microseconds(13), 4096, 650'000, 4.3333, 9.75, 0.8125, 5916.44, 88747, 2662.4, 975'000, 121'875},
      {gigabits(800), microseconds(13), 4096, 1'300'000, 8.6667, 9.75, 0.8125, 11832.89, 177493, 5324.8, 1'950'000,
       243'750},
      {gigabits(1), microseconds(1000), 2048, 125'000, 0.8333, 750, 62.5, 568.89, 8533, 256, 187'500, 23'438},
  };
  for (const Row& r : rows) {
    const auto c = NsccConstants::derive(r.rate, r.rtt, r.mss, true);
    EXPECT_NEAR(c.bdp, r.bdp, 0.5);
    EXPECT_NEAR(c.scale_a, r.a, 1e-4);
    EXPECT_NEAR(c.target_us, r.target, 1e-9);
    EXPECT_NEAR(c.scale_b, r.b, 1e-9);
    EXPECT_NEAR(c.alpha, r.alpha, 0.005);
    EXPECT_NEAR(c.fi, r.fi, 0.5);
    EXPECT_NEAR(c.eta, r.eta, 0.05);
    EXPECT_NEAR(c.max_window, r.maxwnd, 0.5);
    EXPECT_NEAR(c.quick_adapt_below, r.qa, 0.5);
  }
}

TEST(NsccConstants, TargetIsTheWholeRttWithoutTrimming) {
  EXPECT_DOUBLE_EQ(NsccConstants::derive(gigabits(100), microseconds(12), 4096, false).target_us, 12);
}

struct Settings {
  NsccOptions nscc{.quick_adapt = false};
  BitsPerSecond port_rate = gigabits(100);
};

// One control on limits of its own, on a fabric of 12 us with trimming and packets of 4,096 B.
struct Limited {
  FlowLimits limits{.mss = 4096};
};
struct Flow : private Limited, Nscc {
  Flow(const Settings& s, std::size_t planes, Picoseconds base_rtt, Picoseconds rtt_step = {})
      : Nscc(limits, s.nscc,
             {.mss = 4096,
              .line_rate = s.port_rate.count * planes,
              .base_rtt = base_rtt,
              .network_rtt = microseconds(12),
              .rtt_step = rtt_step,
              .trimming = true}) {}
  std::uint64_t window() const { return limits.cwnd; }
  std::uint64_t max_window() const { return limits.cwnd_most; }
  Picoseconds base_rtt() const { return delay().base_rtt(); }
  // From one packet to the next.
  Picoseconds pace() const {
    if (limits.pacing_rate == 0) return {};
    return {std::llround(limits.mss * 8e12 / limits.pacing_rate)};
  }
};

class NsccTest : public ::testing::Test {
 protected:
  Settings options;
  static constexpr Picoseconds kBase = microseconds(12);
};

TEST_F(NsccTest, StartsAtItsMaximum) {
  EXPECT_EQ(Flow(options, 1, kBase).window(), 225'000u);
  EXPECT_EQ(Flow(options, 4, kBase).window(), 900'000u) << "four planes";
}

TEST_F(NsccTest, TheMaximumFollowsTheLongestRoundTripThatASampleAllows) {
  Flow exact(options, 1, kBase), stamped(options, 1, kBase, nanoseconds(128));
  exact.sample(microseconds(5), false);
  stamped.sample(microseconds(5), false);
  EXPECT_NEAR(static_cast<double>(exact.max_window()), 1.5 * 5 * 12'500, 1);
  EXPECT_NEAR(static_cast<double>(stamped.max_window()), 1.5 * 5.128 * 12'500, 1);
}

// On a short path the window's maximum is the BDP, two packets, and the packets that leave on all planes while an
// acknowledgement waits for one packet on each link; it is above the published 1.5 BDP there.
TEST(NsccShortPath, TheMaximumHoldsWhatLeavesWhileAnAcknowledgementWaits) {
  const auto most = [](std::uint64_t rate, Picoseconds wait) {
    FlowLimits limits{.mss = 4096};
    Nscc n(limits, {},
           {.mss = 4096,
            .line_rate = rate,
            .base_rtt = microseconds(1),
            .network_rtt = microseconds(1),
            .ack_wait = wait,
            .trimming = true});
    return limits.cwnd_most;
  };
  const std::uint64_t packet = 4096 + 80, wait = 4 * packet * 80;  // ps, four links of 100 Gb/s
  EXPECT_EQ(most(100'000'000'000, {}), 12'500 + 3 * packet) << "unknown: one packet";
  EXPECT_EQ(most(100'000'000'000, {static_cast<std::int64_t>(wait)}), 12'500 + 6 * packet);
  EXPECT_EQ(most(400'000'000'000, {static_cast<std::int64_t>(wait)}), 50'000 + 18 * packet) << "four planes";
}

TEST_F(NsccTest, NackCostsOnePacketAndStopsAtOneMtu) {
  options.nscc.min_window = 1;
  Flow n(options, 1, kBase);
  n.on_nack(4'176, 100'000, microseconds(90), microseconds(100));
  EXPECT_EQ(n.window(), 225'000u - 4'176u);
  for (int i = 0; i < 100; ++i) n.on_nack(4'176, 100'000, microseconds(90), microseconds(100));
  EXPECT_EQ(n.window(), 4'096u);
  EXPECT_EQ(n.pace(), Picoseconds{}) << "one packet in flight is always allowed";
}

// Below two packets a refusal halves, once for all that was sent before it; the pace follows.
TEST_F(NsccTest, AWindowBelowOnePacketIsKeptByTime) {
  Flow n(options, 1, kBase);
  for (int i = 0; i < 60; ++i) n.on_nack(4'176, 100'000, microseconds(90), microseconds(100));
  const auto first = n.window();
  EXPECT_LT(first, 8'192u);
  for (int i = 0; i < 60; ++i) n.on_nack(4'176, 0, microseconds(95), microseconds(110));
  EXPECT_EQ(n.window(), first) << "sent before the last halving";
  for (int i = 12; i < 20; ++i) n.on_nack(4'176, 0, microseconds(10 * i - 5), microseconds(10 * i));
  EXPECT_EQ(n.window(), 768u) << "3/16 of a packet";
  EXPECT_GE(n.pace(), kBase * 5);
  n.on_sack(4'176, false, microseconds(10), 0, microseconds(300));
  EXPECT_GT(n.window(), 768u);
  EXPECT_LT(n.pace(), kBase * 5);
}

// Behind a long queue a round trip adds to a window of a packet the root of its share
// of the windows that have the increase in full, 20,480 B: those of four increases and more.
TEST_F(NsccTest, FairIncreaseFallsWithTheRootOfASmallWindow) {
  const auto gained = [&](double floor, int refusals) {
    options.nscc.min_window = floor;
    Flow n(options, 1, kBase);
    for (int i = 0; i < refusals; ++i) n.on_nack(4'096, 0, microseconds(90), microseconds(100));
    const double before = static_cast<double>(n.window());
    // One window is acknowledged within one base RTT, at a delay above the target.
    for (int k = 0; k < 8; ++k) {
      n.on_sack(static_cast<std::uint64_t>(before / 8), false, microseconds(10), 0, microseconds(101 + k));
    }
    n.on_sack(0, false, microseconds(10), 0, microseconds(120));
    return (static_cast<double>(n.window()) - before) / 20'480;
  };
  EXPECT_NEAR(gained(3.0 / 16, 20), 1, 0.1) << "143,080 B: in full";
  EXPECT_NEAR(gained(3.0 / 16, 50), 0.5, 0.1) << "20,200 B, a quarter of 81,920";
  EXPECT_NEAR(gained(1, 50), 1, 0.15) << "as published";
}

// Round trips in which a window that was cut to an eighth is back at its maximum on an idle path of
// 12 us, which answers every 16 KB.
double back_after(const Settings& options) {
  constexpr Picoseconds kBase = microseconds(12), kBegin = microseconds(1'000);
  constexpr std::uint64_t kPiece = 16'384;
  Flow n(options, 1, kBase);
  n.on_nack(n.max_window() / 8 * 7, 0, microseconds(90), microseconds(100));
  EXPECT_NEAR(static_cast<double>(n.window()), static_cast<double>(n.max_window()) / 8, 8);
  Picoseconds now = kBegin, port_free = kBegin;
  std::deque<Picoseconds> answers;
  while (n.window() < n.max_window() && now < kBegin + kBase * 100) {
    while ((answers.size() + 1) * kPiece <= n.window()) {
      port_free = std::max(port_free, now) + serialization_time(kPiece, options.port_rate);
      answers.push_back(port_free + kBase);
    }
    now = answers.front();
    answers.pop_front();
    n.on_sack(kPiece, false, Picoseconds{}, answers.size() * kPiece, now);
  }
  return (now - kBegin).microseconds() / kBase.microseconds();
}

// The published gain, a quarter of `a`, is 2 at 800 Gb/s and 12 us: four round trips. It is a quarter
// at 100 Gb/s, where fast increase takes nearly three times as many.
TEST_F(NsccTest, AnIdlePathHasItsWholeWindowBackSoon) {
  const std::pair<BitsPerSecond, double> rows[] = {
      {gigabits(100), 12}, {gigabits(400), 5}, {gigabits(800), 4}, {gigabits(3200), 4}};
  for (const auto& [rate, most] : rows) {
    options.port_rate = rate;
    EXPECT_LE(back_after(options), most) << rate.count;
  }
}

TEST_F(NsccTest, MarkedAndLateDecreasesOncePerBaseRtt) {
  Flow n(options, 1, kBase);
  for (int i = 0; i < 400; ++i) n.sample(kBase + microseconds(30), true);  // average > target
  const auto before = n.window();
  n.on_sack(16'384, true, microseconds(30), 100'000, microseconds(1'000));
  const auto once = n.window();
  EXPECT_LT(once, before);
  EXPECT_GE(once, before / 2) << "never more than half";
  n.on_sack(16'384, true, microseconds(30), 100'000, microseconds(1'005));
  EXPECT_EQ(n.window(), once) << "within a base RTT of the last cut";
  n.on_sack(16'384, true, microseconds(30), 100'000, microseconds(1'013));
  EXPECT_LT(n.window(), once);
}

TEST_F(NsccTest, MarkedButEarlyLeavesTheWindow) {
  Flow n(options, 1, kBase);
  n.on_rto(100'000);
  n.on_sack(0, false, microseconds(1), 0, microseconds(100));  // the period's eta is over
  const auto before = n.window();
  n.on_sack(16'384, true, microseconds(1), 100'000, microseconds(101));
  EXPECT_EQ(n.window(), before);
}

TEST_F(NsccTest, UnmarkedGrows) {
  for (const auto delay : {microseconds(1), microseconds(5), microseconds(20)}) {
    Flow n(options, 1, kBase);
    n.on_rto(150'000);
    const auto before = n.window();
    for (int i = 1; i <= 20; ++i) {
      n.on_sack(16'384, false, delay, 60'000, microseconds(100 + 5 * i));
    }
    EXPECT_GT(n.window(), before) << delay.microseconds();
    EXPECT_LE(n.window(), 225'000u);
  }
}

// Without a mark a long delay is fair increase; trims and quick-adapt are the only brakes.
TEST_F(NsccTest, QuickAdaptCutsToWhatWasAchieved) {
  options.nscc.quick_adapt = true;
  Flow n(options, 1, kBase);
  n.on_sack(1'000, false, microseconds(1), 225'000, microseconds(10));  // opens an interval
  n.on_sack(8'000, false, microseconds(1), 225'000, microseconds(15));
  n.on_nack(4'176, 200'000, microseconds(30), microseconds(40));  // interval over, 8 kB achieved < 28,125
  EXPECT_EQ(n.window(), 8'000u);
  n.on_nack(4'176, 200'000, microseconds(31), microseconds(41));
  EXPECT_EQ(n.window(), 8'000u) << "feedback from before the cut is ignored";
}

// Acknowledgements come exactly a network RTT apart, so that every rounding of a time would show.
TEST_F(NsccTest, DecidesAlikeHoweverLateTheRunIs) {
  const auto windows = [&](Picoseconds shift) {
    Flow n(options, 1, kBase);
    for (int i = 0; i < 30; ++i) n.on_nack(4'096, 0, shift + microseconds(90), shift + microseconds(100));
    std::vector<std::uint64_t> found;
    for (int k = 10; k < 60; ++k) {
      n.on_sack(4'096, k % 7 == 0, microseconds(10), 50'000, shift + kBase * k);
      found.push_back(n.window());
    }
    return found;
  };
  for (int k = 1; k < 40; ++k) EXPECT_EQ(windows({}), windows(nanoseconds(128) * k)) << k;
}

TEST_F(NsccTest, PortsScaleTheMaximum) {
  Flow n(options, 4, kBase);
  n.on_ports(3, 4, {});
  EXPECT_EQ(n.window(), 675'000u);
  n.on_ports(4, 4, {});
  EXPECT_EQ(n.max_window(), 900'000u);
}

TEST_F(NsccTest, PenaltyHalvesAndRestores) {
  Flow n(options, 1, kBase);
  n.on_penalty(64, false);
  EXPECT_EQ(n.window(), 112'500u);
  n.on_penalty(0, true);
  EXPECT_EQ(n.window(), 225'000u);
}

TEST_F(NsccTest, ShorterRttLowersTheMaximum) {
  Flow n(options, 1, kBase);
  n.sample(microseconds(6), false);
  EXPECT_EQ(n.base_rtt(), microseconds(6));
  EXPECT_EQ(n.max_window(), 112'500u);
}

// Short packets are back sooner than whole ones: that is neither a delay below zero nor a shorter
// path, and takes nothing from the window.
TEST_F(NsccTest, ShortPacketsAreMeasuredAsIfTheyWereWhole) {
  Flow n(options, 1, microseconds(8));
  EXPECT_EQ(n.sample(microseconds(6), false, microseconds(2)), Picoseconds{});
  EXPECT_EQ(n.base_rtt(), microseconds(8));
  EXPECT_EQ(n.sample(microseconds(9), false, microseconds(2)), microseconds(3));
  n.sample(microseconds(5), false, microseconds(2));
  EXPECT_EQ(n.base_rtt(), microseconds(7));
  EXPECT_EQ(n.max_window(), 225'000u);
  n.sample(microseconds(11), false);
  EXPECT_EQ(n.base_rtt(), microseconds(7));
  EXPECT_NEAR(static_cast<double>(n.max_window()), 225'000.0 * 11 / 12, 1);
}

}  // namespace
}  // namespace loomnet::congestion
