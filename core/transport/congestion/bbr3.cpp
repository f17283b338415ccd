// BBR version 3: its model of the path and the limits that follow; see bbr3.hpp. Titles in comments
// are those of the draft's sections.
#include "transport/congestion/bbr3.hpp"

#include <algorithm>

namespace loomnet::congestion {
namespace {
constexpr Picoseconds kMinRttWindow = seconds(10), kProbeRttInterval = seconds(5);
constexpr double kProbeRttGain = 0.5;
constexpr std::uint64_t kBbr3Purpose = 0x62627233;  // "bbr3"
// Linux, versions 2 and 3: bbr_ecn_alpha_gain, bbr_ecn_factor.
constexpr double kEcnGain = 1.0 / 16, kEcnFactor = 1.0 / 3;

std::uint64_t share_of(std::uint64_t a, double share) {
  return static_cast<std::uint64_t>(static_cast<double>(a) * share);
}
}  // namespace

const OptionTable<Bbr3Options>& Bbr3Options::table() {
  static const OptionTable<Bbr3Options> rows = [] {
    OptionTable<Bbr3Options> t("TcpOptions");
    t.add("bbr3_ecn", &Bbr3Options::ecn,
          {.doc = "every packet is ECN-capable, and marks lower what is in flight, as losses do"});
    return t;
  }();
  return rows;
}

Bbr3::Bbr3(FlowLimits& limits, const Bbr3Options& options, const FlowContext& flow)
    : BbrBase(limits, {.owns_window = true, .accurate_ecn = options.ecn, .sees_losses = true}, flow, kStartupGain,
              kBbr3Purpose, 1),
      ecn_(options.ecn) {
  enter_startup();
}

void Bbr3::observe(Observer& out) const {
  const auto bytes = [](std::uint64_t n) { return n == kNoLimit ? 0 : static_cast<double>(n); };
  out.value("phase", static_cast<double>(state_));  // of State, from 0
  out.value("bottleneck_bps", 8 * max_bw());
  out.value("rtprop_ps", min_rtt_ == kNever ? 0 : static_cast<double>(min_rtt_.count));
  out.value("pacing_gain", pacing_gain_);
  out.value("bw_lo_bps", bw_lo_ == kNoRate ? 0 : 8 * bw_lo_);
  out.value("inflight_hi", bytes(inflight_hi_));
  out.value("inflight_lo", bytes(inflight_lo_));
}

void Bbr3::on_established(Picoseconds rtt, Picoseconds now) {
  min_rtt_ = probe_rtt_min_ = rtt;
  min_rtt_stamp_ = probe_rtt_stamp_ = aggregation_begin_ = now;
  pace_initial_window(rtt);
}

// "Per-ACK Steps"
void Bbr3::on_ack(const AckSample& s) {
  delivered_ = s.delivered_total;
  if (!has_rtt_ && s.srtt.count > 0) pace_initial_window(s.srtt);
  if (s.lost > 0) ++loss_events_;
  update_latest(s);
  update_congestion_signals(s);
  update_ack_aggregation(s, bw_);
  check_full_bw(s);
  check_startup_done(s);
  check_drain(s);
  update_probe_bw(s);
  update_min_rtt(s);
  check_probe_rtt(s);
  if (loss_round_start_) {  // "When not Probing for Bandwidth": the next round's maxima begin
    bw_latest_ = s.rate() / 8;
    inflight_latest_ = s.delivered_total - s.prior_delivered;
    loss_events_ = 0;
  }
  bw_ = std::min(max_bw(), bw_lo_);
  set_pacing_rate(pacing_gain_, bw_);
  set_window(s);
}

// --- the model -----------------------------------------------------------------------------------

// "When not Probing for Bandwidth": what one round trip delivers.
void Bbr3::update_latest(const AckSample& s) {
  loss_round_start_ = false;
  if (s.rate_interval.count <= 0) return;
  bw_latest_ = std::max(bw_latest_, s.rate() / 8);
  inflight_latest_ = std::max(inflight_latest_, s.delivered_total - s.prior_delivered);
  if (s.prior_delivered < loss_round_delivered_) return;
  loss_round_delivered_ = s.delivered_total;
  loss_round_start_ = true;
}

void Bbr3::update_congestion_signals(const AckSample& s) {
  update_max_bw(s);
  if (ecn_) update_ecn(s);
  if (!loss_round_start_) return;
  if (!probing_bw()) adapt_lower_bounds();
  loss_in_round_ = ecn_in_round_ = false;
}

void Bbr3::update_max_bw(const AckSample& s) {
  update_round(s);
  if (round_start_) ++rounds_since_probe_;
  const double rate = s.rate() / 8;
  if (rate > 0 && (rate >= max_bw() || !limited(s))) max_bw_[1] = std::max(max_bw_[1], rate);
}

// The filtered share of marks, per round (as DCTCP's, RFC 8257 3.3).
void Bbr3::update_ecn(const AckSample& s) {
  ecn_marked_ += s.ce_delivered;
  ecn_delivered_ += s.delivered;
  ecn_in_round_ = ecn_in_round_ || s.ce_delivered > 0;
  if (!round_start_ || ecn_delivered_ == 0) return;
  ecn_share_ = static_cast<double>(ecn_marked_) / static_cast<double>(ecn_delivered_);
  ecn_alpha_ += kEcnGain * (ecn_share_ - ecn_alpha_);
  ecn_marked_ = ecn_delivered_ = 0;
}

// Once per round with losses or marks, where it does not probe.
void Bbr3::adapt_lower_bounds() {
  if (!loss_in_round_ && !ecn_in_round_) return;
  if (inflight_lo_ == kNoLimit) inflight_lo_ = limits_.cwnd;
  std::uint64_t by_marks = kNoLimit;
  if (ecn_in_round_) by_marks = share_of(inflight_lo_, 1 - ecn_alpha_ * kEcnFactor);
  if (loss_in_round_) {
    if (bw_lo_ == kNoRate) bw_lo_ = max_bw();
    bw_lo_ = std::max(bw_latest_, kBeta * bw_lo_);
    inflight_lo_ = std::max(inflight_latest_, share_of(inflight_lo_, kBeta));
    ++reactions_.cuts;
  }
  inflight_lo_ = std::min(inflight_lo_, by_marks);
}

void Bbr3::reset_short_term_model() {
  bw_lo_ = kNoRate;
  inflight_lo_ = kNoLimit;
}

void Bbr3::reset_congestion_signals() {
  loss_in_round_ = ecn_in_round_ = false;
  bw_latest_ = 0;
  inflight_latest_ = 0;
}

// "Exiting Acceleration Based on Bandwidth Plateau"
void Bbr3::check_full_bw(const AckSample& s) {
  if (full_bw_now_ || !round_start_ || limited(s)) return;
  full_bw_now_ = plateau(s.rate() / 8);
  filled_pipe_ = filled_pipe_ || full_bw_now_;
}

// "ProbeRTT Logic": the least of the last 5 s decides when to probe, that of 10 s is the path's own.
void Bbr3::update_min_rtt(const AckSample& s) {
  probe_rtt_expired_ = s.now > probe_rtt_stamp_ + kProbeRttInterval;
  if (s.rtt != kNever && (s.rtt < probe_rtt_min_ || probe_rtt_expired_)) {
    probe_rtt_min_ = s.rtt;
    probe_rtt_stamp_ = s.now;
  }
  if (probe_rtt_min_ < min_rtt_ || s.now > min_rtt_stamp_ + kMinRttWindow) {
    min_rtt_ = probe_rtt_min_;
    min_rtt_stamp_ = probe_rtt_stamp_;
  }
}

// --- losses --------------------------------------------------------------------------------------

// "Saving State Upon Loss Recovery"
void Bbr3::save_state_upon_loss() {
  save_window(repair_ != Repair::none || state_ == State::probe_rtt);
  undo_ = {.bw_lo = bw_lo_, .inflight_lo = inflight_lo_, .inflight_hi = inflight_hi_};
}

// "Probing for Bandwidth In ProbeBW"
void Bbr3::on_lost(const LostPacket& p) {
  delivered_ = p.delivered_total;
  if (!loss_in_round_) {
    loss_round_delivered_ = p.delivered_total;
    save_state_upon_loss();
  }
  loss_in_round_ = true;
  if (!bw_probe_sample_) return;
  if (static_cast<double>(p.lost) > kLossThresh * static_cast<double>(p.in_flight)) {
    handle_inflight_too_high(inflight_at_loss(p), p.app_limited, p.now);
  }
}

double Bbr3::inflight_at_loss(const LostPacket& p) {
  const double size = static_cast<double>(p.bytes);
  const double before = static_cast<double>(p.in_flight) - size;
  const double lost = static_cast<double>(p.lost) - size;
  return before + (kLossThresh * before - lost) / (1 - kLossThresh);
}

void Bbr3::on_congestion(const CongestionEvent& e) {
  if (e.kind == Congestion::ecn) return;
  if (!loss_in_round_) save_state_upon_loss();
  if (repair_ == Repair::none) repair_round_ = round_count_;
  repair_ = e.kind == Congestion::timeout ? Repair::timeout : Repair::recovery;
  if (e.kind == Congestion::timeout) limits_.cwnd = limits_.mss;
}

void Bbr3::on_recovered(Picoseconds) {
  repair_ = Repair::none;
  restore_window();
}

// "Handling a Spurious Loss Recovery"
void Bbr3::on_undo(Picoseconds) {
  repair_ = Repair::none;
  restore_window();
  loss_in_round_ = false;
  restart_plateau(0);
  full_bw_now_ = false;
  bw_lo_ = std::max(bw_lo_, undo_.bw_lo);
  inflight_lo_ = std::max(inflight_lo_, undo_.inflight_lo);
  inflight_hi_ = std::max(inflight_hi_, undo_.inflight_hi);
  if (undo_.state == State::startup && state_ != State::startup) {
    filled_pipe_ = false;
    if (state_ != State::probe_rtt) enter_startup();
  } else if (undo_.state == State::up && state_ != State::up && state_ != State::probe_rtt) {
    start_refill();
  }
  undo_.state = State::drain;
}

// "Actions when Restarting from Idle"
void Bbr3::on_restart(Picoseconds now) {
  idle_restart_ = true;
  aggregation_begin_ = now;
  if (in_probe_bw()) {
    set_pacing_rate(1, bw_);
  } else if (state_ == State::probe_rtt && probe_rtt_time_over(now)) {
    exit_probe_rtt(now);
  }
}

// --- limits --------------------------------------------------------------------------------------

// "Computing BBR.max_inflight"
std::uint64_t Bbr3::bdp(double rate, double gain) const {
  if (min_rtt_ == kNever || rate <= 0) return initial_window_;
  return static_cast<std::uint64_t>(gain * rate * min_rtt_.seconds());
}

std::uint64_t Bbr3::quantized(std::uint64_t bytes) const {
  bytes = std::max({bytes, 3 * send_quantum(), min_window()});
  return state_ == State::up ? bytes + 2 * limits_.mss : bytes;
}

std::uint64_t Bbr3::inflight_with_headroom() const {
  if (inflight_hi_ == kNoLimit) return kNoLimit;
  const std::uint64_t headroom = std::max<std::uint64_t>(limits_.mss, share_of(inflight_hi_, kHeadroom));
  return inflight_hi_ > headroom + min_window() ? inflight_hi_ - headroom : min_window();
}

std::uint64_t Bbr3::probe_rtt_window() const { return std::max(bdp(bw_, kProbeRttGain), min_window()); }

// "cwnd Adjustment Mechanism" and the three bounds that follow it.
void Bbr3::set_window(const AckSample& s) {
  if (s.delivered > 0) {
    const std::uint64_t most = quantized(bdp(bw_, cwnd_gain_) + aggregated(bw_));
    if (filled_pipe_) {
      limits_.cwnd = std::min(limits_.cwnd + s.delivered, most);
    } else if (limits_.cwnd < most || s.delivered_total < initial_window_) {
      limits_.cwnd += s.delivered;
    }
    limits_.cwnd = std::max(limits_.cwnd, min_window());
  }
  if (state_ == State::probe_rtt) limits_.cwnd = std::min(limits_.cwnd, probe_rtt_window());
  std::uint64_t cap = kNoLimit;
  if (state_ == State::probe_rtt || state_ == State::cruise) {
    cap = inflight_with_headroom();
  } else if (in_probe_bw()) {
    cap = inflight_hi_;
  }
  cap = std::max(std::min(cap, inflight_lo_), min_window());
  limits_.cwnd = std::min(limits_.cwnd, cap);
}

}  // namespace loomnet::congestion
