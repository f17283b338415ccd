// DCQCN as NICs and simulators have it: cuts that keep an interval, alpha sampled by its timer, a target
// that keeps through cuts in a row, raises by time alone; what a control counts of its reactions.
#include <gtest/gtest.h>

#include <cmath>

#include "transport/congestion/dcqcn.hpp"

namespace loomnet::congestion {
namespace {

constexpr double kGiga = 1e9, kKept = 255.0 / 256;
constexpr std::uint64_t kLine = 100'000'000'000;

struct Limited {
  FlowLimits limits;
  DcqcnOptions options;
};
struct Sender : private Limited, Dcqcn {
  explicit Sender(const DcqcnOptions& o) : Limited{{}, o}, Dcqcn(limits, options, {.mss = 4'000, .line_rate = kLine}) {}
  void on_cnp(Picoseconds now) {
    CongestionEvent event;
    event.kind = Congestion::notified;
    event.now = now;
    on_congestion(event);
  }
  void advance(Picoseconds now) { on_tick(now); }
};

// The constants of preset A, with alpha's timer as given.
DcqcnOptions simulator(Picoseconds alpha_timer = microseconds(1)) {
  DcqcnOptions o;
  o.decrease_interval = microseconds(4);
  o.rate_timer = microseconds(900);
  o.alpha_timer = alpha_timer;
  o.fast_recovery = 1;
  o.byte_counter = 0;
  o.additive_rate = 50'000'000;
  o.hyper_rate = 100'000'000;
  o.alpha_sampled = true;
  o.clamp_target = false;
  o.alpha_restart = false;
  return o;
}

TEST(DcqcnNic, ACnpWithinTheIntervalCutsAtItsEnd) {
  Sender d(simulator(milliseconds(1)));
  d.on_cnp(microseconds(10));
  EXPECT_DOUBLE_EQ(d.rate(), 50 * kGiga);
  d.on_cnp(microseconds(11));
  d.on_cnp(microseconds(12));  // both are one cut
  EXPECT_DOUBLE_EQ(d.rate(), 50 * kGiga);
  d.advance(microseconds(14) - Picoseconds{1});
  EXPECT_DOUBLE_EQ(d.rate(), 50 * kGiga);
  d.advance(microseconds(14));
  EXPECT_DOUBLE_EQ(d.rate(), 25 * kGiga);
  d.advance(microseconds(30));
  EXPECT_DOUBLE_EQ(d.rate(), 25 * kGiga) << "no CNP, no cut";
  d.on_cnp(microseconds(30));
  EXPECT_DOUBLE_EQ(d.rate(), 12.5 * kGiga) << "the interval is over: at once";
  EXPECT_EQ(d.reactions().cuts, 3u);
}

TEST(DcqcnNic, WithoutAnIntervalEachCnpCuts) {
  DcqcnOptions o = simulator(milliseconds(1));
  o.decrease_interval = {};
  Sender d(o);
  for (int i = 0; i < 3; ++i) d.on_cnp(microseconds(10));
  EXPECT_DOUBLE_EQ(d.rate(), 12.5 * kGiga);
}

TEST(DcqcnNic, AlphaMovesOncePerTimerByWhetherACnpCame) {
  Sender d(simulator());
  d.on_cnp({});
  EXPECT_DOUBLE_EQ(d.alpha(), 1) << "the first CNP sets it";
  d.advance(microseconds(3));
  EXPECT_DOUBLE_EQ(d.alpha(), kKept * kKept * kKept);
  const double before = d.alpha();
  for (int i = 0; i < 5; ++i) d.on_cnp(microseconds(3) + nanoseconds(100 * (i + 1)));
  EXPECT_DOUBLE_EQ(d.alpha(), before) << "a CNP alone moves nothing";
  d.advance(microseconds(4));
  EXPECT_DOUBLE_EQ(d.alpha(), kKept * before + 1.0 / 256);
}

TEST(DcqcnNic, ALongSilenceDecaysAlphaAsManySteps) {
  Sender d(simulator());
  d.on_cnp({});
  d.advance(microseconds(800));
  EXPECT_NEAR(d.alpha(), std::pow(kKept, 800), 1e-12);
}

TEST(DcqcnNic, TheTargetStaysThroughCutsInARow) {
  Sender d(simulator(milliseconds(1)));
  for (int i = 0; i < 4; ++i) d.on_cnp(microseconds(10 * i));
  EXPECT_DOUBLE_EQ(d.target(), 100 * kGiga);
  EXPECT_DOUBLE_EQ(d.rate(), 6.25 * kGiga);
  d.advance(microseconds(30 + 900));  // F = 1: one raise halves the way back
  EXPECT_DOUBLE_EQ(d.rate(), (6.25 + 100) / 2 * kGiga);
  const double raised = d.rate();
  d.on_cnp(microseconds(940));
  EXPECT_DOUBLE_EQ(d.target(), raised) << "the first cut after a raise takes it down";
}

TEST(DcqcnNic, ByTimeAloneRaisesAreFastThenOneAdditiveThenHyper) {
  DcqcnOptions o = simulator(seconds(1));
  o.fast_recovery = 5;
  o.rate_timer = microseconds(300);
  o.clamp_target = true;
  Sender d(o);
  d.on_cnp({});
  d.on_cnp(microseconds(4));  // target 50, rate 25
  double rate = 25 * kGiga, target = 50 * kGiga;
  for (int stage = 1; stage <= 8; ++stage) {
    if (stage == 6) target += 0.05 * kGiga;
    if (stage > 6) target += 0.1 * kGiga;
    rate = (rate + target) / 2;
    d.advance(microseconds(4 + 300 * stage));
    EXPECT_DOUBLE_EQ(d.target(), target) << stage;
    EXPECT_DOUBLE_EQ(d.rate(), rate) << stage;
  }
}

TEST(DcqcnNic, WithoutARestartAlphaGoesOnDecayingAtLineRate) {
  const auto second_cut = [](bool restart) {
    DcqcnOptions o = simulator();
    o.alpha_restart = restart;
    Sender d(o);
    d.on_cnp({});
    d.advance(milliseconds(200));
    EXPECT_FALSE(d.limited());
    d.on_cnp(milliseconds(200));
    return d.rate();
  };
  EXPECT_DOUBLE_EQ(second_cut(true), 50 * kGiga);
  EXPECT_GT(second_cut(false), 99.9 * kGiga);
}

TEST(DcqcnNic, AMinimumAtOrAboveTheLineRateLetsNoCutLowerTheRate) {
  DcqcnOptions o = simulator();
  o.minimum_rate = 2 * kLine;
  Sender d(o);
  for (int i = 0; i < 5; ++i) d.on_cnp(microseconds(10 * i));
  EXPECT_DOUBLE_EQ(d.rate(), 100 * kGiga);
  EXPECT_EQ(d.reactions().floors, 1u);
}

TEST(DcqcnNic, CountsCutsAndTheTimeAtTheMinimum) {
  DcqcnOptions o = simulator(milliseconds(10));
  o.minimum_rate = 20'000'000'000;
  Sender d(o);
  for (int i = 0; i < 4; ++i) d.on_cnp(microseconds(4 * i));  // 50, 25, 20, 20
  EXPECT_DOUBLE_EQ(d.rate(), 20 * kGiga);
  EXPECT_EQ(d.reactions().cuts, 4u);
  EXPECT_EQ(d.reactions().floors, 1u);
  d.advance(microseconds(8 + 500));
  EXPECT_EQ(d.reactions().at_floor, microseconds(500));
  d.advance(microseconds(12 + 900 + 50));  // the raise left it
  EXPECT_EQ(d.reactions().at_floor, microseconds(12 + 900 - 8));
}

}  // namespace
}  // namespace loomnet::congestion
