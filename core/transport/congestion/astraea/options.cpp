// Astraea's options by name, and the checks of a policy against them.
#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <string_view>

#include "transport/congestion/astraea/factor.hpp"
#include "transport/congestion/astraea/kernel_agent.hpp"
#include "transport/congestion/astraea/kernel_policy.hpp"
#include "transport/congestion/astraea/kernel_watch.hpp"
#include "transport/congestion/astraea/plan.hpp"

namespace loomnet::astraea {
namespace {

constexpr const char* kControl = "astraea";
constexpr std::uint32_t kLeastWake_us = 1'000;  // of an agent in real time

std::vector<std::string> feature_sets() {
  std::vector<std::string> names;
  for (const FeatureSet set : kFeatureSets) names.emplace_back(to_string(set));
  return names;
}

// "2", "0.25"
std::string short_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

std::string quoted(std::string_view name) { return '"' + std::string(name) + '"'; }

[[noreturn]] void refuse(const std::string& field, const std::string& why) {
  refuse_option(std::string(kControl) + "." + field, why);
}

AgentOptions agent_options(const AstraeaOptions& o) {
  AgentOptions agent;
  agent.interval = microseconds(o.interval_us);
  agent.interval_rtts = o.interval_rtts;
  agent.interval_least = microseconds(o.interval_least_us);
  agent.interval_most = microseconds(o.interval_most_us);
  agent.features = kFeatureSets[o.features];
  agent.frames = o.frames;
  agent.spacing = o.spacing;
  agent.lifetime = o.extremes;
  agent.slow_start = o.startup == Startup::slow_start;
  agent.alpha = o.alpha;
  if (o.action == ActionKind::factor) {
    // The inner rule has its own start-up, and a drain would halve the window that the rule works with.
    agent.slow_start = false;
    if (agent.lifetime == Lifetime::windowed_drain) agent.lifetime = Lifetime::windowed;
  }
  return agent;
}

// A policy meets the inputs that it was trained on, and its actions do what they did then.
void check_policy(const AstraeaOptions& o, const AgentOptions& agent, const Policy& policy) {
  const PolicySpec& spec = policy.spec();
  const auto differs = [](const char* option, const std::string& asked, const std::string& trained) {
    refuse("policy", std::string(option) + " is " + asked + ", and the policy was trained with " + trained + "; give " +
                         option + "=" + trained + ", or another policy");
  };
  if (spec.features != agent.features) {
    differs("features", quoted(to_string(agent.features)), quoted(to_string(spec.features)));
  }
  if (spec.frames != o.frames) differs("frames", std::to_string(o.frames), std::to_string(spec.frames));
  if (spec.spacing != o.spacing) {
    const auto text = [](Spacing s) { return std::string(s == Spacing::every ? "\"every\"" : "\"doubled\""); };
    differs("spacing", text(o.spacing), text(spec.spacing));
  }
  if (const std::uint32_t us = spec.interval_ms * 1'000u; us != o.interval_us) {
    differs("interval_us", std::to_string(o.interval_us), std::to_string(us));
  }
  if (o.interval_rtts > 0 && spec.interval_rtts == 0) {
    refuse("policy", "interval_rtts is above 0, and the policy was trained with intervals of one length; leave it out");
  }
  if (spec.interval_rtts != o.interval_rtts) {
    differs("interval_rtts", short_text(o.interval_rtts), short_text(spec.interval_rtts));
  }
  if (spec.action != o.action) differs("action", quoted(to_string(o.action)), quoted(to_string(spec.action)));
  if (o.action == ActionKind::factor) {
    if (spec.inner != o.inner) differs("inner", quoted(to_string(o.inner)), quoted(to_string(spec.inner)));
    if (spec.alpha != static_cast<float>(o.factor_exponent)) {
      differs("factor_exponent", short_text(o.factor_exponent), short_text(spec.alpha));
    }
  } else if (spec.alpha != static_cast<float>(o.alpha)) {
    differs("alpha", std::to_string(o.alpha), std::to_string(spec.alpha));
  }
  if (o.arithmetic == Arithmetic::int16 && !policy.quantised()) {
    const std::string by = o.agent == Seat::kernel ? "agent=" : "arithmetic=";
    refuse("policy", "it has no form of whole numbers; write its file after quantise(), or leave out " + by);
  }
}

// The kernel computes in whole numbers; on the virtual clock its flows then follow the same form of the policy.
void seat_in_kernel(AstraeaOptions& o, const NamedPolicy& policy, const OptionValues& values) {
  const auto given = [&](const char* option) {
    return std::any_of(values.begin(), values.end(), [&](const auto& v) { return v.first == option; });
  };
  if (policy.rule != Rule::trained) {
    refuse("agent", "\"kernel\" needs a trained policy; give policy=\"mine.astp\", or leave agent= out");
  }
  if (o.interval_rtts > 0) {
    refuse("interval_rtts", "the kernel's program has intervals of one length; leave it out, or give agent=\"thread\"");
  }
  if (given("arithmetic") && o.arithmetic == Arithmetic::float32) {
    refuse("arithmetic", "a kernel has no floats; leave it out, or give agent=\"thread\"");
  }
  o.arithmetic = Arithmetic::int16;
}

}  // namespace

Plan plan_of(const OptionValues& values) {
  AstraeaOptions o;
  CongestionMake inner = nullptr;
  const OptionValues others = AstraeaOptions::table().read(kControl, o, values);
  AstraeaOptions::table().check(o);
  CongestionMake rule = choose_inner(o.inner, others);
  if (o.action == ActionKind::factor) inner = std::move(rule);
  if (o.spacing == Spacing::doubled && o.frames > kMostDoubled) {
    refuse("frames", "1 to " + std::to_string(kMostDoubled) + " where their distance doubles");
  }
  if (o.interval_us < o.wake_us) {
    refuse("interval_us", std::to_string(o.interval_us) + " is less than wake_us, " + std::to_string(o.wake_us) +
                              ": flows are looked at only then; give a shorter wake_us, or 0");
  }
  const bool by_rtts = o.interval_rtts > 0;
  if (by_rtts && (o.interval_least_us < o.wake_us || o.interval_most_us < o.interval_least_us)) {
    refuse("interval_least_us", "from wake_us, " + std::to_string(o.wake_us) + ", to interval_most_us, " +
                                    std::to_string(o.interval_most_us));
  }
  const std::uint32_t shortest = by_rtts ? o.interval_least_us : o.interval_us;
  if (o.action_delay_us >= shortest) {
    refuse("action_delay_us", std::to_string(o.action_delay_us) + " is not below an interval, " +
                                  std::to_string(shortest) + ": the next decision would come before it");
  }
  if (o.rate_least_bps >= o.rate_most_bps) refuse("rate_least_bps", "below rate_most_bps");
  AgentOptions agent = agent_options(o);
  NamedPolicy policy;
  try {
    policy = policy_named(o.policy);
  } catch (const std::invalid_argument& e) {
    refuse("policy", e.what());
  }
  if (o.agent == Seat::kernel) seat_in_kernel(o, policy, values);
  if (policy.trained) {
    check_policy(o, agent, *policy.trained);
    agent.cwnd_min = policy.trained->spec().cwnd_min;
    agent.cwnd_max = policy.trained->spec().cwnd_max;
  }
  return {std::move(o), agent, std::move(policy), std::move(inner)};
}

Plan kernel_plan_of(const OptionValues& values) {
  Plan plan = plan_of(values);
  const AstraeaOptions& o = plan.options;
  if (o.action != ActionKind::window) {
    refuse("action", "live, an action multiplies the flow's own window; leave it out, or run on the virtual clock");
  }
  if (plan.agent.features == FeatureSet::aurora3) {
    refuse("features", "live, the kernel's counters do not tell aurora3; give another, or run on the virtual clock");
  }
  if (o.action_delay_us > 0) {
    refuse("action_delay_us", "live, an action takes as long as it takes; leave it out, or run on the virtual clock");
  }
  if (o.wake_us < kLeastWake_us) {
    refuse("wake_us", "live, " + std::to_string(kLeastWake_us) + " or more: an agent wakes for all flows at once");
  }
  if (plan.policy.rule == Rule::outside) {
    refuse("policy", "live, nobody outside decides; give \"teacher\", \"hold\" or a trained policy");
  }
  if (o.agent == Seat::kernel) {
    try {
      check_kernel_policy(*plan.policy.trained);
    } catch (const std::invalid_argument& e) {
      refuse("policy", std::string(e.what()).substr(std::string_view("policy: ").size()));
    }
  }
  return plan;
}

namespace {

CongestionMake choose(const OptionValues& values) {
  return [plan = plan_of(values)](FlowLimits& limits, const FlowContext& flow) -> std::unique_ptr<CongestionControl> {
    if (plan.inner) {
      return std::make_unique<FactorControl>(plan.inner(limits, flow), limits, plan.options, plan.agent, plan.policy,
                                             flow);
    }
    return std::make_unique<Astraea>(limits, plan.options, plan.agent, plan.policy, flow);
  };
}

std::string note(const OptionValues& values) {
  for (const auto& [name, value] : values) {
    if (name != "policy") continue;
    const std::string* policy = std::get_if<std::string>(&value);
    return policy && *policy == "outside"
               ? "astraea: policy=\"outside\": nobody decides in this run, so windows stay as the start-up left them; "
                 "loomnet.learning is where a learner does"
               : std::string();
  }
  return "astraea: no policy was given and no trained one is shipped: flows follow the rule policy=\"teacher\"";
}

}  // namespace

const OptionTable<AstraeaOptions>& AstraeaOptions::table() {
  static const OptionTable<AstraeaOptions> rows = [] {
    using O = AstraeaOptions;
    OptionTable<O> t(kControl);
    t.add("policy", &O::policy,
          {.doc = "\"teacher\", \"hold\", the name that _core.astraea_policy() gave a policy file, or \"outside\": "
                  "a learner decides"})
        .add("interval_us", &O::interval_us,
             {.unit = "us",
              .doc = "between two decisions of a flow; a trained policy has its own",
              .least = 10,
              .most = 1e6})
        .add("interval_rtts", &O::interval_rtts,
             {.doc = "the interval in least round trips of the flow, within the two bounds; 0: interval_us",
              .least = 0,
              .most = 100})
        .add("interval_least_us", &O::interval_least_us,
             {.unit = "us", .doc = "shortest interval by interval_rtts", .least = 10, .most = 1e6})
        .add("interval_most_us", &O::interval_most_us,
             {.unit = "us", .doc = "longest interval by interval_rtts", .least = 10, .most = 1e6})
        .add("action_delay_us", &O::action_delay_us,
             {.unit = "us",
              .doc = "from a decision on, before which no acknowledgement takes it",
              .least = 0,
              .most = 1e6})
        .choice("action", &O::action, {kActionKinds.begin(), kActionKinds.end()},
                {.doc = "what an action is: a factor of the window, a factor of the sending rate, a rate from "
                        "rate_least_bps (-1) to rate_most_bps (1), even in its logarithm, or a factor of the window "
                        "of the control `inner`, which runs beneath"})
        .choice("inner", &O::inner, {kInnerRules.begin(), kInnerRules.end()},
                {.doc = "by action=\"factor\", the control whose window actions multiply; its options are taken, too"})
        .add("factor_exponent", &O::factor_exponent,
             {.doc = "by action=\"factor\", an action a is a factor of 2^(factor_exponent * a)",
              .least = 0,
              .most = kMostFactorExponent,
              .above = true})
        .add("rate_least_bps", &O::rate_least_bps,
             {.unit = "bit/s", .doc = "of payload, by action=\"absolute\"", .least = 1e3, .most = 1e13})
        .add("rate_most_bps", &O::rate_most_bps,
             {.unit = "bit/s", .doc = "of payload, by action=\"absolute\"", .least = 1e3, .most = 1e13})
        .add("wake_us", &O::wake_us,
             {.unit = "us",
              .doc = "decisions are at multiples of it, as of an agent that wakes for all flows; 0: when due",
              .least = 0,
              .most = 1e6})
        .choice("features", &O::features, feature_sets(), {.doc = "what a policy sees of an interval"})
        .add("frames", &O::frames, {.doc = "intervals that a policy sees", .least = 1, .most = double{kMostFrames}})
        .choice("spacing", &O::spacing, {"every", "doubled"},
                {.doc = "intervals back of these frames: 1, 2, 3, 4 or 1, 2, 4, 8"})
        .choice("extremes", &O::extremes, {"lifetime", "windowed", "windowed+drain"},
                {.doc = "how long the largest throughput and the least RTT are remembered: a connection's "
                        "life, 10 s, or 10 s with half a window before the least RTT is forgotten (not by "
                        "action=\"factor\")"})
        .choice("startup", &O::startup, {"slow_start", "none"},
                {.doc = "until the policy decides: slow start up to the first queue, or nothing; by "
                        "action=\"factor\" the inner control's own"})
        .add("alpha", &O::alpha,
             {.doc = "the largest change of the window at a decision, as a share of it",
              .least = 0,
              .most = 0.5,
              .above = true})
        .choice("arithmetic", &O::arithmetic, {"float32", "int16"},
                {.doc = "of a trained policy: 32-bit floats, or the whole numbers of a kernel"})
        .choice("agent", &O::agent, {"thread", "kernel"},
                {.doc = "who decides for flows of the kernel's TCP: a thread of the engine, or the program in the "
                        "kernel, which needs a trained policy in whole numbers"});
    return t;
  }();
  return rows;
}

CongestionKind astraea_kind() {
  CongestionKind kind;
  kind.name = kControl;
  kind.needs = signal::rtt | signal::delivery_rate | signal::recovery;
  kind.options = AstraeaOptions::table().describe();
  for (OptionInfo& row : inner_options()) kind.options.push_back(std::move(row));
  kind.choose = choose;
  kind.note = note;
  kind.in_kernel = [](const OptionValues& values) {
    Plan plan = kernel_plan_of(values);
    return plan.options.agent == Seat::kernel ? make_kernel_watch(std::move(plan)) : make_kernel_agent(std::move(plan));
  };
  return kind;
}

}  // namespace loomnet::astraea
