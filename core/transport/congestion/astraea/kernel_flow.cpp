// See kernel_flow.hpp.
#include "transport/congestion/astraea/kernel_flow.hpp"

#include <algorithm>

#include "transport/congestion/astraea/slot.hpp"
#include "transport/congestion/astraea/teacher.hpp"

namespace loomnet::astraea {
namespace {

constexpr std::uint32_t kInLoss = 4;  // TCP_CA_Loss

// A mean of sums and numbers that only grow, between two readings; 0: no sample.
double mean(std::uint64_t sum, std::uint32_t count) { return count > 0 ? static_cast<double>(sum) / count : 0; }

}  // namespace

KernelFlow::KernelFlow(const Plan& plan, const astraea_slot& first)
    : plan_(&plan),
      agent_(plan.agent),
      gen_(first.gen),
      netns_(first.netns),
      local_port_(first.local_port),
      remote_port_(first.remote_port),
      epoch_(first.epoch) {}

std::uint32_t KernelFlow::window() const {
  // While the window grows back after a timeout, actions are on the window that it grows to.
  return last_.ca_state == kInLoss && command_ > 0 ? command_ : last_.cwnd;
}

void KernelFlow::begin(const astraea_slot& read, Picoseconds now) {
  under_way_ = true;
  began_ = now;
  base_ = read;
  ++epoch_;
  agent_.begin(now);
}

bool KernelFlow::look(const astraea_slot& read, Picoseconds now) {
  ended_ = commands_ = false;
  refused_ = !plausible(last_, read);
  if (refused_) {  // nothing is measured by it: the interval begins anew
    last_ = base_ = read;
    last_.mode = std::min<std::uint32_t>(last_.mode, ASTRAEA_FALLBACK);
    under_way_ = false;
    return false;
  }
  if (read.mode == ASTRAEA_FALLBACK && last_.mode != ASTRAEA_FALLBACK) {
    // The kernel took over while no command came in time. The agent goes on from the kernel's window.
    set(read.cwnd);
    under_way_ = false;
  }
  if (!under_way_) {
    // The kernel publishes at acknowledgements, so the first one begins the first interval.
    if (read.acks == last_.acks) return false;
    begin(last_, now);
  }
  judge_start(read);
  last_ = read;
  if (now < agent_.due()) return false;
  // A pause has no intervals: its first acknowledgement begins the next one.
  if (read.acks == base_.acks && read.packets_out == 0) {
    under_way_ = false;
    return false;
  }
  ended_ = true;
  seen_ = measure(read, now);
  most_out_ = std::max(read.packets_out, read.epoch == epoch_ ? read.epoch_most_out : 0);
  const bool acts = agent_.observe(seen_, read.epoch == epoch_ ? read.epoch_least_rtt_us : 0, now);
  began_ = now;
  base_ = read;
  ++epoch_;
  if (!acts) {
    if (const std::uint32_t to = agent_.command_without_policy(window(), now); to > 0) set(to);
  }
  return acts;
}

void KernelFlow::judge_start(const astraea_slot& read) {
  if (agent_.mode() != Agent::Mode::start) return;
  RttSamples rtts;
  rtts.count = read.rtt_cnt - last_.rtt_cnt;
  rtts.sum_us = static_cast<double>(read.rtt_sum_us - last_.rtt_sum_us);
  rtts.least_us = read.min_rtt_us;
  // A flow whose former agent ended has left its start already.
  const bool started = read.mode != ASTRAEA_START, lost = read.lost != 0 && !started;
  agent_.judge_start(rtts, lost || started, read.cwnd);
  if (agent_.mode() == Agent::Mode::start) return;
  // The first command ends the start in the kernel, too.
  std::uint64_t to = read.cwnd;
  if (lost && read.mss > 0) {
    const std::uint32_t rates = read.rate_cnt - last_.rate_cnt;
    const double rate = rates > 0 ? mean(read.rate_sum_Bps - last_.rate_sum_Bps, rates) : -1;
    const std::uint64_t path = path_after_start(rate, agent_.start_least_us());
    if (path > 0) to = std::min(to, path / read.mss);
  }
  set(static_cast<std::uint32_t>(to));
}

Measured KernelFlow::measure(const astraea_slot& read, Picoseconds now) const {
  const double seconds = std::max((now - began_).seconds(), 1e-6);
  Measured m;
  m.avg_thr_Bps = mean(read.rate_sum_Bps - base_.rate_sum_Bps, read.rate_cnt - base_.rate_cnt);
  m.avg_urtt_us = mean(read.rtt_sum_us - base_.rtt_sum_us, read.rtt_cnt - base_.rtt_cnt);
  m.srtt_x8_us = read.srtt_x8_us;
  m.loss_Bps = static_cast<double>(read.lost - base_.lost) * read.mss / seconds;
  m.packets_out = read.packets_out;
  m.retrans_out = read.retrans_out;
  m.cwnd = read.cwnd;
  m.pacing_Bps = static_cast<double>(read.pacing_Bps);
  return m;
}

void KernelFlow::act_by_rule() {
  double action = 0;
  if (plan_->policy.rule == Rule::teacher) {
    action = teacher_action(seen_, agent_.range(), agent_.interval().microseconds(), plan_->agent.alpha);
  }
  take(agent_.command(action, window()));
}
void KernelFlow::act(float action) { take(agent_.command(action, window())); }
void KernelFlow::act_int16(std::int16_t q) { take(agent_.command_int(q, window())); }

// A window that was not used does not grow.
void KernelFlow::take(std::uint32_t to) {
  if (to <= window() || filled(window(), most_out_)) set(to);
}

void KernelFlow::set(std::uint32_t to) {
  command_ = std::clamp(to, plan_->agent.cwnd_min, plan_->agent.cwnd_max);
  commands_ = true;
}

KernelDecision KernelFlow::decision() const {
  KernelDecision d;
  d.netns = netns_;
  d.local_port = local_port_;
  d.remote_port = remote_port_;
  d.window = static_cast<std::uint32_t>(seen_.cwnd);
  d.commanded = command_;
  d.mode = last_.mode;
  d.fallbacks = last_.fallbacks;
  d.throughput_Bps = seen_.avg_thr_Bps;
  d.rtt_us = seen_.avg_urtt_us;
  d.least_rtt_us = agent_.range().min_rtt_us;
  d.loss_Bps = seen_.loss_Bps;
  d.queue_packets = agent_.queue();
  d.action = agent_.action();
  return d;
}

}  // namespace loomnet::astraea
