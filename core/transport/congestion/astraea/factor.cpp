// Factors of an inner rule's window; see factor.hpp.
#include "transport/congestion/astraea/factor.hpp"

#include <algorithm>
#include <array>

#include "transport/congestion/cubic.hpp"
#include "transport/congestion/vegas.hpp"

namespace loomnet::astraea {

FactorControl::FactorControl(std::unique_ptr<CongestionControl> inner, FlowLimits& limits,
                             const AstraeaOptions& options, const AgentOptions& agent, NamedPolicy policy,
                             const FlowContext& flow)
    : Decider(limits, inner->traits, options, agent, std::move(policy), flow),
      inner_(std::move(inner)),
      exponent_(options.factor_exponent),
      cwnd_min_(agent.cwnd_min),
      cwnd_max_(agent.cwnd_max) {}

void FactorControl::on_ack(const AckSample& s) {
  inner_->on_ack(s);
  meter_.on_ack(s);
  if (factor_ == 1 || s.now < factor_at_) return;
  apply(s.reducing ? limits_.ssthresh : limits_.cwnd);
  factor_ = 1;
}

// Within the least and the largest window, where the inner rule is within them.
void FactorControl::apply(std::uint64_t& window) {
  if (window == kNoLimit) return;
  const std::uint64_t least = std::min(window, bytes(cwnd_min_));
  const std::uint64_t most = std::max(window, std::min(bytes(cwnd_max_), limits_.cwnd_most));
  const double to = static_cast<double>(window) * factor_;
  window = static_cast<std::uint64_t>(std::clamp(to, static_cast<double>(least), static_cast<double>(most)));
}

void FactorControl::on_restart(Picoseconds now) {
  inner_->on_restart(now);
  Decider::on_restart(now);
}

// A window that was not used does not grow.
void FactorControl::decide(double action) {
  agent_.acted(action);
  const double factor = map_factor(action, exponent_);
  factor_ = factor > 1 && !filled(packets(limits_.cwnd), most_out()) ? 1 : factor;
  factor_at_ = taken_at();
}

// The rule asks for a factor of the window, whatever the actions of a policy are.
void FactorControl::decide_by_rule(double action) { decide(factor_action(map_rate(1, action, alpha_), exponent_)); }

// An inner rule that does not pace sends its window in a round trip.
double FactorControl::sending_rate() const { return limits_.pacing_rate > 0 ? limits_.pacing_rate : rate_of_window(); }

void FactorControl::observe(Observer& out) const {
  inner_->observe(out);
  Decider::observe(out);
}

// --- inner rules -----------------------------------------------------------------------------------

namespace {

// In the order of InnerRule.
const std::array<CongestionKind, kInnerRules.size()>& inner_kinds() {
  using namespace congestion;
  const auto kind = [](InnerRule rule) { return std::string(to_string(rule)); };
  static const std::array<CongestionKind, kInnerRules.size()> kinds = {
      congestion_kind<Cubic>(kind(InnerRule::cubic), 0, CubicOptions::table()),
      congestion_kind<Reno>(kind(InnerRule::reno), 0, RenoOptions::table()),
      congestion_kind<Vegas>(kind(InnerRule::vegas), 0, VegasOptions::table()),
  };
  return kinds;
}

}  // namespace

std::vector<OptionInfo> inner_options() {
  std::vector<OptionInfo> rows;
  for (const CongestionKind& kind : inner_kinds()) rows.insert(rows.end(), kind.options.begin(), kind.options.end());
  return rows;
}

CongestionMake choose_inner(InnerRule rule, const OptionValues& options) {
  const auto has = [](const CongestionKind& kind, const std::string& option) {
    return std::ranges::any_of(kind.options, [&](const OptionInfo& row) { return row.name == option; });
  };
  for (const auto& [name, value] : options) {
    if (std::ranges::none_of(inner_kinds(), [&, &option = name](const auto& kind) { return has(kind, option); })) {
      refuse_option("astraea", "no option " + name);
    }
  }
  CongestionMake made;
  for (std::size_t i = 0; i < kInnerRules.size(); ++i) {
    const CongestionKind& kind = inner_kinds()[i];
    OptionValues own;
    for (const auto& [name, value] : options) {
      if (has(kind, name)) own.emplace_back(name, value);
    }
    CongestionMake make = kind.choose(own);  // of another rule: refused where it is wrong, else unused
    if (i == static_cast<std::size_t>(rule)) made = std::move(make);
  }
  return made;
}

}  // namespace loomnet::astraea
