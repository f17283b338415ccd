// A flow's window and pacing under Astraea; see astraea.hpp.
#include "transport/congestion/astraea/astraea.hpp"

#include <algorithm>

namespace loomnet::astraea {
namespace {
constexpr std::uint64_t kLeastThreshold = 10;  // packets
constexpr double kRateWindow = 2;   // of what a round trip carries at the rate: a bound, as of BBR's
constexpr double kStartPacing = 1.25;  // so that the start-up fills the window before a round trip is over
}  // namespace

Astraea::Astraea(FlowLimits& limits, const AstraeaOptions& options, const AgentOptions& agent, NamedPolicy policy,
                 const FlowContext& flow)
    : Decider(limits, {.owns_window = true}, options, agent, std::move(policy), flow),
      cwnd_min_(agent.cwnd_min),
      cwnd_max_(agent.cwnd_max),
      kind_(options.action),
      rate_least_(options.rate_least_bps),
      rate_most_(options.rate_most_bps) {}

// --- decisions -----------------------------------------------------------------------------------

void Astraea::judge_start() {
  agent_.judge_start(start_rtts_, lost_in_start_, packets(limits_.cwnd));
  start_rtts_ = {};
}

void Astraea::undecided(Picoseconds now) {
  if (const std::uint32_t to = agent_.command_without_policy(window(), now); to > 0) command(to);
}

void Astraea::decide(double action) {
  if (kind_ != ActionKind::window) return decide_rate(action);
  take(agent_.command(action, window()));
}

void Astraea::decide_int(std::int16_t q) {
  if (kind_ != ActionKind::window) return decide_rate(static_cast<double>(q) / kFullAction);
  take(agent_.command_int(q, window()));
}

// The first action is on the rate that the window gives. A rate that was not used does not grow.
void Astraea::decide_rate(double action) {
  agent_.acted(action);
  const Picoseconds srtt = meter_.srtt();
  if (srtt.count <= 0) return;
  const double now = rate_ > 0 ? rate_ : 8 * static_cast<double>(bytes(window())) / srtt.seconds();
  double to = kind_ == ActionKind::rate ? map_rate(now, action, alpha_) : rate_between(rate_least_, rate_most_, action);
  if (to > now && 16 * last_interval().throughput_Bps < now) to = now;
  rate_ = std::clamp(to, kLeastPacing, kPacingBound / 2);
  const double packets = kRateWindow * rate_ / 8 * srtt.seconds() / limits_.mss;
  command(static_cast<std::uint32_t>(std::clamp<double>(packets, cwnd_min_, cwnd_max_)));
}

// What a policy commands. A window that was not used does not grow.
void Astraea::take(std::uint32_t to) {
  if (to <= window() || filled(window(), most_out())) command(to);
}

void Astraea::command(std::uint32_t to) {
  command_ = to;
  command_due_ = true;
  command_at_ = taken_at();
}

// --- the window ----------------------------------------------------------------------------------

void Astraea::take_window(std::uint64_t to) {
  if (to < limits_.cwnd) {
    ++reactions_.cuts;
    if (to <= bytes(cwnd_min_)) ++reactions_.floors;
  }
  limits_.cwnd = to;
}

void Astraea::on_ack(const AckSample& s) {
  meter_.on_ack(s);
  if (agent_.mode() == Agent::Mode::start && s.rtt != kNever && s.rtt.count > 0) {
    start_rtts_.add(s.rtt.microseconds());
  }
  if (after_timeout_) {
    limits_.cwnd = std::min(bytes(command_), limits_.cwnd + s.delivered);
  } else if (command_due_ && s.now >= command_at_) {
    command_due_ = false;
    take_window(bytes(command_));
  } else if (agent_.mode() == Agent::Mode::start && !left_start_) {
    lost_in_start_ = lost_in_start_ || s.lost > 0;  // on_congestion may have told of it
    if (lost_in_start_) {
      leave_start(s);
    } else if (s.cwnd_limited || filled(packets(limits_.cwnd), s.packets_out)) {
      limits_.cwnd = std::max(limits_.cwnd, std::min(limits_.cwnd + s.acked, bytes(cwnd_max_)));
    }
  }
  pace();
}

void Astraea::leave_start(const AckSample& s) {
  left_start_ = true;
  const double least_us = agent_.start_least_us() > 0 ? agent_.start_least_us() : start_rtts_.least_us;
  const std::uint64_t path = path_after_start(s.rate_interval.count > 0 ? s.rate() / 8 : -1, least_us);
  if (path > 0) take_window(std::min(limits_.cwnd, std::max(path, bytes(cwnd_min_))));
}

void Astraea::pace() {
  if (meter_.srtt().count <= 0) return;
  if (rate_ > 0) {
    if (!command_due_) limits_.pacing_rate = agent_.mode() == Agent::Mode::drain ? rate_ / 2 : rate_;
    return;
  }
  const double rate = rate_of_window();
  limits_.pacing_rate =
      std::clamp(agent_.mode() == Agent::Mode::start ? kStartPacing * rate : rate, kLeastPacing, kPacingBound / 2);
}

void Astraea::on_congestion(const CongestionEvent& event) {
  lost_in_start_ = lost_in_start_ || event.kind != Congestion::ecn;
  limits_.ssthresh = std::max(limits_.cwnd, kLeastThreshold * limits_.mss);
  if (event.kind != Congestion::timeout) return;
  if (!after_timeout_ && !command_due_) command_ = std::max(packets(limits_.cwnd), cwnd_min_);
  after_timeout_ = true;
  command_due_ = false;
  take_window(limits_.mss);
}

void Astraea::on_recovered(Picoseconds) {
  if (!after_timeout_) return;
  after_timeout_ = false;
  command_due_ = true;
}

void Astraea::on_undo(Picoseconds) {
  if (!after_timeout_) return;
  after_timeout_ = false;
  limits_.cwnd = bytes(command_);
}

}  // namespace loomnet::astraea
