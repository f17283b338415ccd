// BBR's model of the path and its state machine; section numbers are the draft's.
#include "transport/congestion/bbr.hpp"

#include <algorithm>
#include <array>

namespace loomnet::congestion {
namespace {
constexpr double kHighGain = 2.885;         // 2/ln 2 (4.3.2)
constexpr std::uint64_t kBtlBwWindow = 10;  // rounds (4.1.1.3)
constexpr Picoseconds kRtpropWindow = seconds(10);
constexpr std::array<double, 8> kCycle = {1.25, 0.75, 1, 1, 1, 1, 1, 1};  // 4.3.4
constexpr std::uint64_t kBbrPurpose = 0x626272;                              // "bbr"
}  // namespace

const OptionTable<BbrOptions>& BbrOptions::table() {
  static const OptionTable<BbrOptions> rows("bbr");
  return rows;
}

Bbr::Bbr(FlowLimits& limits, const BbrOptions&, const FlowContext& flow)
    : BbrBase(limits, {.owns_window = true}, flow, kHighGain, kBbrPurpose, kAggregationRounds), btl_bw_(kBtlBwWindow) {
  enter_startup();
}

void Bbr::observe(Observer& out) const {
  out.value("phase", static_cast<double>(state_));  // of State, from 0
  out.value("bottleneck_bps", 8 * bottleneck_rate());
  out.value("rtprop_ps", rtprop_ == kNever ? 0 : static_cast<double>(rtprop_.count));
  out.value("pacing_gain", pacing_gain_);
  out.value("policed", policed() ? 1 : 0);
}

void Bbr::on_established(Picoseconds rtt, Picoseconds now) {
  rtprop_ = rtt;
  rtprop_stamp_ = now;
  pace_initial_window(rtt);
}

void Bbr::enter_startup() {
  state_ = State::startup;
  pacing_gain_ = cwnd_gain_ = kHighGain;
}

void Bbr::on_ack(const AckSample& s) {
  if (!has_rtt_ && s.srtt.count > 0) pace_initial_window(s.srtt);
  update_bottleneck(s);
  update_ack_aggregation(s, path_rate());
  check_cycle_phase(s);
  check_full_pipe(s);
  check_drain(s);
  update_rtprop(s);
  check_probe_rtt(s);
  set_pacing_rate(pacing_gain_, path_rate());
  set_window(s);
}

// --- the model (4.1) -----------------------------------------------------------------------------

void Bbr::update_bottleneck(const AckSample& s) {
  update_round(s);
  if (round_start_) packet_conservation_ = false;
  const double rate = s.rate() / 8;
  if (s.rate_interval.count > 0) judge_policer(s);
  if (rate > 0 && (rate >= btl_bw_.best() || !limited(s))) btl_bw_.update(rate, round_count_);
}

void Bbr::judge_policer(const AckSample& s) {
  const bool lost = s.lost > 0 || timed_out_, round = round_start_ || timed_out_;
  timed_out_ = false;
  switch (policer_.on_ack(s, round, lost, limited(s), state_ == State::probe_bw)) {
    case BbrPolicer::Change::none:
      break;
    case BbrPolicer::Change::begun:
      if (state_ == State::probe_bw) pacing_gain_ = 1;
      break;
    case BbrPolicer::Change::ended:
      enter_probe_bw(s.now);
      break;
  }
}

void Bbr::update_rtprop(const AckSample& s) {
  rtprop_expired_ = s.now > rtprop_stamp_ + kRtpropWindow;
  // Not where it is equal, as the draft has it: a flow that keeps its queue empty would never
  // give the others room to measure (Linux since 5.17).
  if (s.rtt != kNever && (s.rtt < rtprop_ || rtprop_expired_)) {
    rtprop_ = s.rtt;
    rtprop_stamp_ = s.now;
  }
}

// 4.2.3.2, with Linux's rounding: whole segments, an even number of them, two more while probing.
std::uint64_t Bbr::inflight(double rate, double gain, std::uint64_t more) const {
  const std::uint64_t mss = limits_.mss;
  std::uint64_t bytes = initial_window_;
  if (rtprop_ != kNever && rate > 0) {
    bytes = static_cast<std::uint64_t>(gain * rate * rtprop_.seconds()) + more;
  }
  std::uint64_t segments = (bytes + 3 * send_quantum() + mss - 1) / mss;
  segments = (segments + 1) & ~std::uint64_t{1};
  if (state_ == State::probe_bw && cycle_index_ == 0) segments += 2;
  return segments * mss;
}

// --- the state machine (4.3)
// -----------------------------------------------------------------------

void Bbr::check_full_pipe(const AckSample& s) {
  if (filled_pipe_ || !round_start_ || limited(s)) return;
  filled_pipe_ = plateau(btl_bw_.best());
}

void Bbr::check_drain(const AckSample& s) {
  if (state_ == State::startup && filled_pipe_) {
    state_ = State::drain;
    pacing_gain_ = 1 / kHighGain;
    cwnd_gain_ = kHighGain;
  }
  if (state_ == State::drain && s.in_flight <= inflight(btl_bw_.best(), 1)) enter_probe_bw(s.now);
}

void Bbr::enter_probe_bw(Picoseconds now) {
  state_ = State::probe_bw;
  pacing_gain_ = 1;
  cwnd_gain_ = 2;
  // Any phase but the one that drains; advance_cycle moves on by one.
  cycle_index_ = static_cast<int>(kCycle.size()) - 1 - static_cast<int>(random_.below(7));
  advance_cycle(now);
}

void Bbr::advance_cycle(Picoseconds now) {
  cycle_stamp_ = now;
  cycle_index_ = (cycle_index_ + 1) % static_cast<int>(kCycle.size());
  pacing_gain_ = policer_.in_use() ? 1 : kCycle[static_cast<std::size_t>(cycle_index_)];
}

void Bbr::check_cycle_phase(const AckSample& s) {
  if (state_ != State::probe_bw || rtprop_ == kNever) return;
  const bool full_length = s.now - cycle_stamp_ > rtprop_;
  bool next = full_length;
  if (pacing_gain_ > 1)
    next = full_length && (s.lost > 0 || s.prior_in_flight >= inflight(btl_bw_.best(), pacing_gain_));
  if (pacing_gain_ < 1) next = full_length || s.prior_in_flight <= inflight(btl_bw_.best(), 1);
  if (next) advance_cycle(s.now);
}

void Bbr::check_probe_rtt(const AckSample& s) {
  if (state_ != State::probe_rtt && rtprop_expired_ && !idle_restart_) {
    state_ = State::probe_rtt;
    pacing_gain_ = cwnd_gain_ = 1;
    save_window(true);
    begin_probe_rtt();
  }
  if (state_ == State::probe_rtt && probe_rtt_over(s, kMinPipe * limits_.mss)) {
    rtprop_stamp_ = s.now;
    restore_window();
    if (filled_pipe_) {
      enter_probe_bw(s.now);
    } else {
      enter_startup();
    }
  }
  idle_restart_ = false;
}

// --- control (4.2)
// -----------------------------------------------------------------------------------

// 4.2.3.4: a round of packet conservation when a recovery begins, and back to the window before it
// when it ends. One that begins with the ACK which ended another goes on with it.
void Bbr::follow_repair(const AckSample& s) {
  const std::uint64_t mss = limits_.mss;
  if (s.lost > 0) limits_.cwnd = limits_.cwnd > s.lost + mss ? limits_.cwnd - s.lost : mss;
  if (repair_ == Repair::recovery && followed_ != Repair::recovery) {
    packet_conservation_ = true;
    begin_round(s.delivered_total);
    limits_.cwnd = s.in_flight + s.delivered;
  } else if (repair_ == Repair::none && followed_ != Repair::none) {
    packet_conservation_ = false;
    restore_window();
  }
  followed_ = repair_;
}

void Bbr::set_window(const AckSample& s) {
  const std::uint64_t mss = limits_.mss;
  if (s.delivered > 0) {
    follow_repair(s);
    if (packet_conservation_) {
      limits_.cwnd = std::max(limits_.cwnd, s.in_flight + s.delivered);
    } else {
      const std::uint64_t more = filled_pipe_ ? aggregated(path_rate()) : 0;
      const std::uint64_t target = inflight(path_rate(), cwnd_gain_, more);
      if (filled_pipe_) {
        limits_.cwnd = std::min(limits_.cwnd + s.delivered, target);
      } else if (limits_.cwnd < target || s.delivered_total < initial_window_) {
        limits_.cwnd += s.delivered;
      }
      limits_.cwnd = std::max(limits_.cwnd, kMinPipe * mss);
    }
  }
  if (state_ == State::probe_rtt) limits_.cwnd = std::min(limits_.cwnd, kMinPipe * mss);
}

void Bbr::on_congestion(const CongestionEvent& e) {
  if (e.kind == Congestion::ecn) return;
  save_window(followed_ != Repair::none || state_ == State::probe_rtt);
  repair_ = Repair::recovery;
  if (e.kind == Congestion::timeout) {  // Linux (bbr_set_state): whether the pipe is full is open
    repair_ = followed_ = Repair::timeout;
    forget_plateau();
    timed_out_ = true;
    limits_.cwnd = limits_.mss;
  }
}

void Bbr::on_recovered(Picoseconds) { repair_ = Repair::none; }

// Linux (bbr_undo_cwnd): what slowed it down was no loss, so the pipe may not be full.
void Bbr::on_undo(Picoseconds) {
  repair_ = Repair::none;
  restart_plateau(0);
  policer_ = {};
}

void Bbr::on_restart(Picoseconds) {  // 4.4.3
  idle_restart_ = true;
  if (state_ == State::probe_bw) set_pacing_rate(1, path_rate());
}

}  // namespace loomnet::congestion
