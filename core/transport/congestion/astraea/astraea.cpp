// A flow's counters, window and pacing under Astraea; see astraea.hpp.
#include "transport/congestion/astraea/astraea.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "transport/congestion/astraea/teacher.hpp"

namespace loomnet::astraea {
namespace {
constexpr std::uint64_t kLeastThreshold = 10;  // packets
constexpr double kRateWindow = 2;   // of what a round trip carries at the rate: a bound, as of BBR's
constexpr double kStartPacing = 1.25;  // so that the start-up fills the window before a round trip is over
}  // namespace

Astraea::Astraea(FlowLimits& limits, const AstraeaOptions& options, const AgentOptions& agent, NamedPolicy policy,
                 const FlowContext& flow)
    : CongestionControl(limits, {.owns_window = true}),
      wake_(options.wake()),
      arithmetic_(options.arithmetic),
      cwnd_min_(agent.cwnd_min),
      cwnd_max_(agent.cwnd_max),
      alpha_(agent.alpha),
      kind_(options.action),
      rate_least_(options.rate_least_bps),
      rate_most_(options.rate_most_bps),
      action_delay_(options.action_delay()),
      mtu_share_(static_cast<double>(flow.mss + flow.header) / static_cast<double>(flow.mss)),
      policy_(std::move(policy)),
      agent_(agent) {
  limits_.next_sent = 1;  // the first packet sent begins the first interval
}

std::uint32_t Astraea::packets(std::uint64_t bytes) const {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes / limits_.mss, kWindowBound));
}

// --- time ----------------------------------------------------------------------------------------

void Astraea::begin(Picoseconds now) {
  began_ = true;
  limits_.next_sent = kNoLimit;
  interval_ = {.began = now, .lost_before = lost_total_};
  agent_.begin(now);
  schedule(now);
}

// The first time on the grid of wake-ups at which the interval is over, or the next wake-up of a start-up.
void Astraea::schedule(Picoseconds now) {
  const Picoseconds step = wake_.count > 0 ? wake_ : agent_.due() - now;
  Picoseconds at = agent_.due();
  if (agent_.mode() == Agent::Mode::start) at = std::min(at, now + step);
  if (wake_.count > 0) at = wake_ * ((at + wake_ - Picoseconds{1}) / wake_);
  limits_.next_tick = at;
}

void Astraea::on_tick(Picoseconds now) {
  if (!began_) return begin(now);
  wake_up(now);
}

void Astraea::wake_up(Picoseconds now) {
  if (agent_.mode() == Agent::Mode::start) {
    agent_.judge_start(start_rtts_, lost_in_start_, packets(limits_.cwnd));
    start_rtts_ = {};
  }
  if (now >= agent_.due()) {
    // A pause has no intervals: its first packet begins the next one.
    if (paused()) {
      began_ = false;
      limits_.next_tick = kNever;
      limits_.next_sent = limits_.sent + 1;
      return;
    }
    end_interval(now);
  }
  schedule(now);
}

void Astraea::on_restart(Picoseconds now) {
  if (limits_.next_tick <= now) on_tick(now);
}

// Nothing came back since the interval began, and nothing is on its way.
bool Astraea::paused() const { return interval_.acks == 0 && packets_out_ == 0 && limits_.sent == sent_then_; }

// --- intervals -----------------------------------------------------------------------------------

Measured Astraea::measure(Picoseconds now) const {
  const double seconds = std::max((now - interval_.began).seconds(), 1e-6);
  const auto lost = static_cast<double>(lost_total_ - interval_.lost_before);
  Measured m;
  m.avg_thr_Bps = interval_.rates > 0 ? interval_.rate_sum_Bps / static_cast<double>(interval_.rates) : 0;
  m.avg_urtt_us = interval_.rtts.mean_us();
  m.srtt_x8_us = srtt_.microseconds() * 8;
  m.loss_Bps = lost / seconds;
  // Before the first acknowledgement the sender's own count is all there is.
  m.packets_out = acked_ ? packets_out_ : std::ceil(static_cast<double>(limits_.sent) / limits_.mss);
  m.retrans_out = retransmissions_out_;
  m.cwnd = packets(limits_.cwnd);
  m.pacing_Bps = limits_.pacing_rate / 8 * mtu_share_;
  return m;
}

void Astraea::end_interval(Picoseconds now) {
  const Measured m = measure(now);
  const double least = interval_.rtts.least_us;
  most_out_ = std::max(interval_.most_out, packets_out_);
  const bool acts = agent_.observe(m, least, now);
  seen_ = {interval_.began,           now,        m.avg_thr_Bps, m.avg_urtt_us,
           agent_.range().min_rtt_us, m.loss_Bps, m.pacing_Bps,  m.cwnd};
  interval_ = {.began = now, .lost_before = lost_total_};
  waits_ = acts && policy_.rule == Rule::outside;
  if (!acts) {
    if (const std::uint32_t to = agent_.command_without_policy(window(), now); to > 0) command(to);
  } else if (policy_.rule == Rule::teacher) {
    decide(teacher_action(m, agent_.range(), agent_.interval().microseconds(), alpha_));
  } else if (policy_.rule == Rule::hold) {
    decide(0);
  } else if (policy_.rule == Rule::trained && arithmetic_ == Arithmetic::int16) {
    std::int16_t q = 0;
    policy_.trained->act_int16(agent_.input(), {&q, 1});
    take(agent_.command_int(q, window()));
  } else if (policy_.rule == Rule::trained) {
    float a = 0;
    policy_.trained->act(agent_.input(), {&a, 1});
    decide(a);
  }
}

void Astraea::act(double action) {
  if (!waits_) throw std::logic_error("astraea: nobody waits for an action");
  if (!(action >= -1 && action <= 1)) throw std::invalid_argument("astraea: an action is -1 to 1");
  waits_ = false;
  decide(action);
}

void Astraea::decide(double action) {
  if (kind_ != ActionKind::window) return decide_rate(action);
  take(agent_.command(action, window()));
}

// The first action is on the rate that the window gives. A rate that was not used does not grow.
void Astraea::decide_rate(double action) {
  agent_.acted(action);
  if (srtt_.count <= 0) return;
  const double now = rate_ > 0 ? rate_ : 8 * static_cast<double>(bytes(window())) / srtt_.seconds();
  double to = kind_ == ActionKind::rate ? map_rate(now, action, alpha_) : rate_between(rate_least_, rate_most_, action);
  if (to > now && 16 * seen_.throughput_Bps < now) to = now;
  rate_ = std::clamp(to, kLeastPacing, kPacingBound / 2);
  const double packets = kRateWindow * rate_ / 8 * srtt_.seconds() / limits_.mss;
  command(static_cast<std::uint32_t>(std::clamp<double>(packets, cwnd_min_, cwnd_max_)));
}

// What a policy commands. A window that was not used does not grow.
void Astraea::take(std::uint32_t to) {
  if (to <= window() || filled(window(), most_out_)) command(to);
}

void Astraea::command(std::uint32_t to) {
  command_ = to;
  command_due_ = true;
  command_at_ = seen_.end + action_delay_;
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
  ++interval_.acks;
  if (s.rate_interval.count > 0) {
    interval_.rate_sum_Bps += s.rate() / 8;
    ++interval_.rates;
  }
  if (s.rtt != kNever && s.rtt.count > 0) {
    interval_.rtts.add(s.rtt.microseconds());
    if (agent_.mode() == Agent::Mode::start) start_rtts_.add(s.rtt.microseconds());
  }
  acked_ = true;
  sent_then_ = limits_.sent;
  lost_total_ = s.lost_total;
  packets_out_ = s.packets_out;
  interval_.most_out = std::max(interval_.most_out, packets_out_);
  retransmissions_out_ = s.retransmissions_out;
  srtt_ = s.srtt;
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
  if (srtt_.count <= 0) return;
  if (rate_ > 0) {
    if (!command_due_) limits_.pacing_rate = agent_.mode() == Agent::Mode::drain ? rate_ / 2 : rate_;
    return;
  }
  const double window = static_cast<double>(std::max(limits_.cwnd, bytes(packets_out_)));
  const double rate = 8 * window / srtt_.seconds();
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

void Astraea::observe(Observer& out) const {
  out.value("action", agent_.action());
  out.value("queue_packets", agent_.queue());
  out.value("mode", static_cast<double>(agent_.mode()));  // 0 start-up, 1 policy, 2 drain
  out.value("min_rtt_us", agent_.range().min_rtt_us);
  out.value("max_tput_bps", 8 * agent_.range().max_tput_Bps);
}

}  // namespace loomnet::astraea
