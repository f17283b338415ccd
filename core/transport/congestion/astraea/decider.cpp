// Decisions at the ends of intervals; see decider.hpp.
#include "transport/congestion/astraea/decider.hpp"

#include <algorithm>
#include <stdexcept>

#include "transport/congestion/astraea/teacher.hpp"

namespace loomnet::astraea {

Decider::Decider(FlowLimits& limits, Traits traits, const AstraeaOptions& options, const AgentOptions& agent,
                 NamedPolicy policy, const FlowContext& flow)
    : CongestionControl(limits, traits),
      agent_(agent),
      meter_(limits, flow),
      alpha_(agent.alpha),
      wake_(options.wake()),
      arithmetic_(options.arithmetic),
      action_delay_(options.action_delay()),
      policy_(std::move(policy)) {
  limits_.next_sent = 1;  // the first packet sent begins the first interval
}

double Decider::rate_of_window() const {
  if (meter_.srtt().count <= 0) return 0;
  return 8 * static_cast<double>(std::max(limits_.cwnd, bytes(meter_.packets_out()))) / meter_.srtt().seconds();
}

void Decider::begin(Picoseconds now) {
  began_ = true;
  limits_.next_sent = kNoLimit;
  meter_.begin(now);
  agent_.begin(now);
  schedule(now);
}

// The first time on the grid of wake-ups at which the interval is over, or the next wake-up of a start-up.
void Decider::schedule(Picoseconds now) {
  const Picoseconds step = wake_.count > 0 ? wake_ : agent_.due() - now;
  Picoseconds at = agent_.due();
  if (agent_.mode() == Agent::Mode::start) at = std::min(at, now + step);
  if (wake_.count > 0) at = wake_ * ((at + wake_ - Picoseconds{1}) / wake_);
  limits_.next_tick = at;
}

void Decider::on_tick(Picoseconds now) {
  if (!began_) return begin(now);
  wake_up(now);
}

void Decider::wake_up(Picoseconds now) {
  if (agent_.mode() == Agent::Mode::start) judge_start();
  if (now >= agent_.due()) {
    // A pause has no intervals: its first packet begins the next one.
    if (meter_.paused()) {
      began_ = false;
      limits_.next_tick = kNever;
      limits_.next_sent = limits_.sent + 1;
      return;
    }
    end_interval(now);
  }
  schedule(now);
}

void Decider::on_restart(Picoseconds now) {
  if (limits_.next_tick <= now) on_tick(now);
}

void Decider::end_interval(Picoseconds now) {
  const Measured m = meter_.measure(now, sending_rate());
  most_out_ = meter_.most_out();
  const bool acts = agent_.observe(m, meter_.least_rtt_us(), now);
  seen_ = {.begin = meter_.began(),
           .end = now,
           .throughput_Bps = m.avg_thr_Bps,
           .rtt_us = m.avg_urtt_us,
           .least_rtt_us = agent_.range().min_rtt_us,
           .loss_Bps = m.loss_Bps,
           .pacing_Bps = m.pacing_Bps,
           .window_packets = m.cwnd,
           .most_throughput_Bps = agent_.range().max_tput_Bps};
  meter_.begin(now);
  waits_ = acts && policy_.rule == Rule::outside;
  if (!acts) {
    undecided(now);
  } else if (policy_.rule == Rule::teacher) {
    decide_by_rule(teacher_action(m, agent_.range(), agent_.interval().microseconds(), alpha_));
  } else if (policy_.rule == Rule::hold) {
    decide(0);
  } else if (policy_.rule == Rule::trained && arithmetic_ == Arithmetic::int16) {
    std::int16_t q = 0;
    policy_.trained->act_int16(agent_.input(), {&q, 1});
    decide_int(q);
  } else if (policy_.rule == Rule::trained) {
    float a = 0;
    policy_.trained->act(agent_.input(), {&a, 1});
    decide(a);
  }
}

void Decider::act(double action) {
  if (!waits_) throw std::logic_error("astraea: nobody waits for an action");
  if (!(action >= -1 && action <= 1)) throw std::invalid_argument("astraea: an action is -1 to 1");
  waits_ = false;
  decide(action);
}

void Decider::observe(Observer& out) const {
  out.value("action", agent_.action());
  out.value("queue_packets", agent_.queue());
  out.value("mode", static_cast<double>(agent_.mode()));  // 0 start-up, 1 policy, 2 drain
  out.value("min_rtt_us", agent_.range().min_rtt_us);
  out.value("max_tput_bps", 8 * agent_.range().max_tput_Bps);
}

}  // namespace loomnet::astraea
