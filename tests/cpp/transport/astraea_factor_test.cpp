// Actions that are factors of another control's window, on acknowledgements written by hand: an action of 0 leaves
// the inner rule alone, another one multiplies the window that it goes on from.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "astraea_flow.hpp"
#include "clock/random.hpp"
#include "transport/congestion/astraea/plan.hpp"
#include "transport/congestion/contract.hpp"

namespace loomnet::astraea {
namespace {

using namespace by_hand;
using ::testing::HasSubstr;

TEST(MapFactor, IsOrcasByDefault) {
  EXPECT_EQ(map_factor(0), 1) << "to the bit";
  EXPECT_NEAR(map_factor(1), 4, 1e-13);
  EXPECT_NEAR(map_factor(-1), 0.25, 1e-14);
  EXPECT_NEAR(map_factor(0.5), 2, 1e-13);
  EXPECT_NEAR(map_factor(-0.25, 4), 0.5, 1e-14);
  EXPECT_NEAR(map_factor(7), 4, 1e-13) << "beyond the ends";
  EXPECT_EQ(map_factor(std::nan("")), 1);
  for (double a = -1; a <= 1; a += 0.11) EXPECT_NEAR(factor_action(map_factor(a, 3), 3), a, 1e-13);
  EXPECT_EQ(factor_action(100), 1) << "as much as an action can";
}

OptionValues factor(const std::string& inner, const std::string& policy = "outside") {
  return {{"action", std::string("factor")}, {"inner", inner}, {"policy", policy}};
}

// --- an action of 0 ------------------------------------------------------------------------------

// What happens to a flow at random: acknowledgements, losses, timeouts, pauses, recoveries and mistakes.
void play(std::uint64_t seed, const std::string& inner, CongestionControl& control, FlowLimits& limits,
          std::vector<std::uint64_t>& windows) {
  RandomStream random(seed, 1, 1);
  Picoseconds now = milliseconds(1'000);
  std::uint64_t sent = 0, acked = 0, lost = 0;
  bool recovers = false;
  for (int i = 0; i < 20'000; ++i) {
    now += microseconds(100 + random.below(2'000));
    if (random.below(200) == 0) now += milliseconds(random.below(400));
    if (tick_at(limits, control) <= now) control.on_tick(now);
    const auto kind = random.below(400);
    if (kind == 0) {
      control.on_congestion(
          {.kind = random.below(3) == 0 ? Congestion::timeout : Congestion::loss, .now = now, .flight = limits.cwnd});
      if (limits.cwnd > kMss && random.below(2) == 0) limits.cwnd = kMss;  // a sender's after a timeout
      recovers = true;
    } else if (kind == 1 && recovers) {
      limits.cwnd = std::max<std::uint64_t>(limits.ssthresh, kMss);
      control.on_recovered(now);
      recovers = false;
    } else if (kind == 2) {
      control.on_undo(now);
    } else if (kind == 3) {
      control.on_restart(now);
    }
    sent += kMss;
    acked += kMss;
    lost += random.below(100) == 0 ? kMss : 0;
    count_sent(limits, control, kMss, now);
    const Picoseconds rtt = milliseconds(20) + microseconds(random.below(9'000));
    control.on_ack({.now = now,
                    .acked = kMss,
                    .delivered = kMss * random.below(3),
                    .rtt = random.below(10) ? rtt : kNever,
                    .srtt = rtt,
                    .min_rtt = milliseconds(20),
                    .rate_bytes = limits.cwnd,
                    .rate_interval = rtt,
                    .lost_total = lost,
                    .packets_out = 1 + static_cast<std::uint32_t>(limits.cwnd / kMss),
                    .sent_end = sent + limits.cwnd,
                    .acked_end = acked,
                    .cwnd_limited = random.below(4) != 0,
                    .in_recovery = recovers,
                    .reducing = recovers && random.below(2) == 0});
    EXPECT_EQ(breach_of_contract(limits, now), "") << inner << " " << i;
    windows.push_back(limits.cwnd);
    windows.push_back(limits.ssthresh);
  }
}

std::vector<std::uint64_t> windows_of(const std::string& inner, std::uint64_t seed, const OptionValues& options,
                                      CongestionKind kind) {
  FlowLimits limits = fresh_limits(kFlow);
  const auto control = kind.choose(options)(limits, kFlow);
  std::vector<std::uint64_t> windows;
  play(seed, inner, *control, limits, windows);
  return windows;
}

TEST(FactorControl, OfNoActionIsTheInnerRuleWhateverHappens) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    for (const std::string_view name : kInnerRules) {
      const std::string inner(name);
      const auto found = std::ranges::find(congestion_controls(), inner, &CongestionKind::name);
      const auto alone = windows_of(inner, seed, {}, *found);
      EXPECT_TRUE(alone == windows_of(inner, seed, factor(inner, "hold"), astraea_kind())) << inner << " " << seed;
      EXPECT_FALSE(alone == windows_of(inner, seed, factor(inner, "teacher"), astraea_kind())) << inner << " " << seed;
    }
  }
}

TEST(FactorControl, HasTheTraitsOfTheInnerRule) {
  FlowLimits limits = fresh_limits(kFlow);
  const auto control = astraea_kind().choose(factor("cubic"))(limits, kFlow);
  EXPECT_FALSE(control->traits.owns_window) << "the sender's recovery is that of ordinary TCP";
  EXPECT_EQ(control->name(), "astraea");
}

// --- actions -------------------------------------------------------------------------------------

// Up to the wake-up at which the flow waits for an action; acknowledgements grow no window.
void wait(Flow& flow, bool limited = false) {
  while (!flow.control->pupil()->waits()) {
    flow.now += milliseconds(1);
    flow.tick();
    if (flow.control->pupil()->waits()) return;
    flow.ack(milliseconds(20), 1, 0, limited);
    flow.send(1);
  }
}

std::uint64_t after(Flow& flow, double action) {
  flow.packets_out = static_cast<std::uint32_t>(flow.window());
  wait(flow);
  const std::uint64_t before = flow.limits.cwnd;
  flow.control->pupil()->act(action);
  EXPECT_EQ(flow.limits.cwnd, before) << "the next acknowledgement takes it";
  flow.now += milliseconds(1);
  flow.ack(milliseconds(20), 1, 0, false);
  EXPECT_EQ(flow.seen("action"), action);
  const std::uint64_t taken = flow.limits.cwnd;
  flow.now += milliseconds(1);
  flow.ack(milliseconds(20), 1, 0, false);
  EXPECT_EQ(flow.limits.cwnd, taken) << "once";
  return taken;
}

TEST(FactorControl, MultipliesTheInnerRulesWindowAndStartsFromItsOwn) {
  Flow flow(factor("reno"));
  EXPECT_EQ(after(flow, 1), 40 * kMss) << "at the end of the first interval: there is no start-up but the rule's";
  EXPECT_EQ(after(flow, 0.5), 80 * kMss);
  EXPECT_EQ(after(flow, -1), 20 * kMss);
  EXPECT_EQ(after(flow, 0), 20 * kMss);
  EXPECT_NEAR(after(flow, -0.25), 20 * kMss / std::sqrt(2), 1);
  EXPECT_NEAR(after(flow, 0.25), 20 * kMss, 2);
  Flow weak(with(factor("reno"), "factor_exponent", 0.5));
  EXPECT_NEAR(after(weak, 1), 10 * kMss * std::sqrt(2), 1);
}

TEST(FactorControl, TheInnerRuleGoesOnFromTheWindowThatWasSet) {
  Flow flow(factor("reno"));
  flow.limits.ssthresh = 20 * kMss;
  EXPECT_EQ(after(flow, 1), 40 * kMss);
  flow.ack(milliseconds(20), 40);
  EXPECT_EQ(flow.limits.cwnd, 41 * kMss) << "above the threshold: a packet for a window of acknowledgements";
  flow.limits.cwnd = 40 * kMss;
  EXPECT_EQ(after(flow, -1), 10 * kMss);
  flow.ack(milliseconds(20), 5);
  EXPECT_EQ(flow.limits.cwnd, 15 * kMss) << "below it: slow start";
}

TEST(FactorControl, KeepsWithinTheLeastAndTheLargestWindowButDoesNotMoveAWindowBeyondThem) {
  Flow flow(factor("reno"));
  EXPECT_EQ(after(flow, -1), 4 * kMss);
  EXPECT_EQ(after(flow, -1), 4 * kMss);
  flow.limits.cwnd = 2 * kMss;
  EXPECT_EQ(after(flow, -1), 2 * kMss) << "the inner rule's own window may be less";
  flow.limits.cwnd = 15'000ull * kMss;
  EXPECT_EQ(after(flow, 1), 20'000ull * kMss);
  flow.limits.cwnd = 30'000ull * kMss;
  EXPECT_EQ(after(flow, 1), 30'000ull * kMss);
}

TEST(FactorControl, AWindowThatWasNotUsedDoesNotGrow) {
  Flow flow(factor("reno"));
  flow.packets_out = 5;
  wait(flow);
  flow.control->pupil()->act(1);
  flow.ack(milliseconds(20), 1, 0, false);
  EXPECT_EQ(flow.window(), 10u);
}

TEST(FactorControl, WhileARecoveryTakesTheWindowDownMultipliesTheThreshold) {
  Flow flow(factor("cubic"));
  flow.limits.cwnd = 100 * kMss;
  wait(flow);
  flow.packets_out = 100;
  flow.control->on_congestion({.kind = Congestion::loss, .now = flow.now, .flight = 100 * kMss});
  EXPECT_EQ(flow.limits.ssthresh, 70 * kMss);
  flow.control->pupil()->act(-0.5);
  flow.limits.cwnd = 90 * kMss;  // the sender's, on its way down
  flow.ack(milliseconds(20), 1, 0, true, true);
  EXPECT_EQ(flow.limits.ssthresh, 35 * kMss);
  EXPECT_EQ(flow.limits.cwnd, 90 * kMss);
}

TEST(FactorControl, ADecisionIsTakenAfterItsDelayOnTheWindowOfThen) {
  Flow flow(with(factor("reno"), "action_delay_us", std::int64_t{3'000}));
  wait(flow);
  flow.control->pupil()->act(-0.5);
  flow.now += milliseconds(2);
  flow.ack(milliseconds(20), 10);
  EXPECT_EQ(flow.window(), 20u) << "slow start meanwhile";
  flow.now += milliseconds(1);
  flow.ack(milliseconds(20), 1, 0, false);
  EXPECT_EQ(flow.window(), 10u);
}

TEST(FactorControl, ThePolicyInWholeNumbersGoesTheSameWay) {
  const std::string policy = constant_policy(-20, {.action = ActionKind::factor, .inner = InnerRule::reno, .alpha = 2});
  OptionValues options = factor("reno", policy);
  Flow one(options), other(with(options, "arithmetic", std::string("int16")));
  for (Flow* flow : {&one, &other}) {
    flow->limits.cwnd = 400 * kMss;
    flow->limits.ssthresh = kMss;
    flow->go(milliseconds(1'036), milliseconds(20));
  }
  EXPECT_NEAR(static_cast<double>(one.window()), 101, 1);
  EXPECT_EQ(one.window(), other.window());
}

TEST(FactorControl, TheTeacherAsksForTheFactorOfTheWindowThatItAlwaysAsksFor) {
  Flow flow(factor("reno", "teacher"));
  flow.limits.cwnd = 1'000 * kMss;
  flow.limits.ssthresh = kMss;
  flow.packets_out = 1'000;
  flow.go(milliseconds(1'034), milliseconds(20));
  flow.now = milliseconds(1'035);
  flow.tick();
  const double before = static_cast<double>(flow.limits.cwnd);
  flow.ack(milliseconds(20), 1, 0, false);
  EXPECT_NEAR(static_cast<double>(flow.limits.cwnd) / before, 1.025, 1e-6);
  EXPECT_NEAR(flow.seen("action"), std::log2(1.025) / 2, 1e-9);
}

TEST(FactorControl, ShowsTheRateThatAWindowGivesWhereTheRuleDoesNotPace) {
  Flow flow(factor("reno"));
  wait(flow);
  EXPECT_EQ(flow.limits.pacing_rate, 0);
  EXPECT_NEAR(flow.control->pupil()->interval().pacing_Bps, 10 * (kMss + 72) / 0.02, 1);
  EXPECT_GT(flow.control->pupil()->interval().most_throughput_Bps, 0);
  EXPECT_EQ(flow.seen("slow_start"), 1) << "series of the inner rule are there, too";
}

// --- options -------------------------------------------------------------------------------------

std::string said(const OptionValues& options, bool kernel = false) {
  try {
    kernel ? (void)kernel_plan_of(options) : (void)astraea_kind().choose(options);
  } catch (const std::invalid_argument& e) {
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
    return e.what();
  }
  return "accepted";
}

TEST(FactorOptions, RefuseWhatDoesNotFit) {
  EXPECT_EQ(said(factor("bbr")), "astraea: inner must be one of cubic, reno, vegas");
  EXPECT_EQ(said(with(factor("cubic"), "factor_exponent", 0.0)), "astraea.factor_exponent: above 0, up to 8");
  EXPECT_EQ(said(with(factor("cubic"), "factor_exponent", 9.0)), "astraea.factor_exponent: above 0, up to 8");
  EXPECT_EQ(said(with(factor("cubic"), "hystrat", true)), "astraea: no option hystrat");
  EXPECT_EQ(said(factor("cubic", "hold"), true),
            "astraea.action: live, an action multiplies the flow's own window; leave it out, or run on the virtual "
            "clock");
  EXPECT_EQ(said({{"features", std::string("aurora3")}, {"policy", std::string("hold")}}, true),
            "astraea.features: live, the kernel's counters do not tell aurora3; give another, or run on the virtual "
            "clock");
}

TEST(FactorOptions, ThoseOfTheInnerRuleAreTaken) {
  EXPECT_EQ(said(with(factor("cubic"), "hystart", false)), "accepted");
  EXPECT_EQ(said(with(factor("vegas"), "vegas_alpha", std::int64_t{9})),
            "TcpOptions.vegas_alpha: must not be above vegas_beta");
  EXPECT_EQ(said(with(factor("reno"), "hystart", std::string("x"))),
            "cubic: hystart has the wrong type, which is True or False")
      << "of another rule: checked, and unused";
  const auto window = [](std::int64_t packets) {
    Flow flow(with(with(factor("vegas", "hold"), "vegas_alpha", packets), "vegas_beta", packets));
    flow.limits.ssthresh = kMss;
    flow.go(milliseconds(1'050), milliseconds(20));
    flow.go(seconds(4), milliseconds(22));
    return flow.window();
  };
  EXPECT_LT(window(2), 35u) << "a tenth of the window is in the queue";
  EXPECT_GT(window(4), 38u);
}

TEST(FactorOptions, APolicyIsOfOneKindOfActionRuleAndExponent) {
  const auto trained = [](PolicySpec spec) { return constant_policy(0, spec); };
  const std::string mine = trained({.action = ActionKind::factor, .inner = InnerRule::reno, .alpha = 1.5f});
  const OptionValues fits = with(factor("reno", mine), "factor_exponent", 1.5);
  EXPECT_EQ(said(fits), "accepted");
  EXPECT_THAT(said({{"policy", mine}}),
              HasSubstr("action is \"window\", and the policy was trained with \"factor\"; give action=\"factor\""));
  EXPECT_THAT(said(factor("cubic", mine)), HasSubstr("inner is \"cubic\", and the policy was trained with \"reno\""));
  EXPECT_THAT(said(factor("reno", mine)), HasSubstr("factor_exponent is 2, and the policy was trained with 1.5"));
  for (const std::string kind : {"window", "rate"}) {
    const std::string other = trained({.action = kind == "rate" ? ActionKind::rate : ActionKind::window});
    EXPECT_THAT(said(factor("cubic", other)), HasSubstr("trained with \"" + kind + '"'));
    EXPECT_EQ(said({{"policy", other}, {"action", kind}}), "accepted");
  }
  const std::string by_rtts = trained({.interval_rtts = 1.5});
  EXPECT_EQ(said({{"policy", by_rtts}, {"interval_rtts", 1.5}}), "accepted");
  EXPECT_THAT(said({{"policy", by_rtts}}), HasSubstr("interval_rtts is 0, and the policy was trained with 1.5"));
  EXPECT_THAT(said({{"policy", by_rtts}, {"interval_rtts", 1.0}}), HasSubstr("interval_rtts is 1, and the policy"));
}

}  // namespace
}  // namespace loomnet::astraea
