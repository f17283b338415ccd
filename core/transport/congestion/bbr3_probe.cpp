// BBR version 3: its state machine, which probes for bandwidth and for the round trip; see bbr3.hpp.
#include <algorithm>

#include "transport/congestion/bbr3.hpp"

namespace loomnet::congestion {
namespace {
constexpr int kStartupLossEvents = 6;  // BBRStartupFullLossCnt, counted per ACK as Linux does
constexpr std::uint64_t kDrainRounds = 3;
constexpr double kProbeWaitLeast = 2, kProbeWaitMore = 1;  // seconds
constexpr std::uint64_t kRenoRounds = 63;
// Linux, versions 2 and 3: bbr_ecn_thresh, bbr_full_ecn_cnt.
constexpr double kEcnThresh = 0.5;
constexpr int kStartupEcnRounds = 2;
}  // namespace

// "Summary of Control Behavior in the State Machine"
void Bbr3::enter(State state) {
  constexpr std::array<double, 7> kPacing = {kStartupGain, 0.5, 0.9, 1, 1, 1.25, 1};
  constexpr std::array<double, 7> kWindow = {2, 2, 2, 2, 2, 2.25, 0.5};
  state_ = state;
  pacing_gain_ = kPacing[static_cast<std::size_t>(state)];
  cwnd_gain_ = kWindow[static_cast<std::size_t>(state)];
}

// "Exiting Startup Based on Packet Loss", and its like for marks.
void Bbr3::check_startup_done(const AckSample& s) {
  if (state_ != State::startup) return;
  if (ecn_ && round_start_) {
    ecn_startup_rounds_ = ecn_share_ >= kEcnThresh ? ecn_startup_rounds_ + 1 : 0;
  }
  const bool lossy = loss_round_start_ && repair_ != Repair::none && round_count_ > repair_round_ &&
                     loss_events_ >= kStartupLossEvents && lost_too_much(s);
  if (lossy || ecn_startup_rounds_ >= kStartupEcnRounds) {
    undo_.state = State::startup;
    filled_pipe_ = true;
    inflight_hi_ = std::max(bdp(bw_, 1), inflight_latest_);
  }
  if (!filled_pipe_) return;
  enter(State::drain);
  drain_start_round_ = round_count_;
}

void Bbr3::check_drain(const AckSample& s) {
  if (state_ != State::drain) return;
  if (s.in_flight <= inflight(bw_, 1) || round_count_ > drain_start_round_ + kDrainRounds) {
    start_down(s.now);
  }
}

// --- ProbeBW -------------------------------------------------------------------------------------

void Bbr3::start_down(Picoseconds now) {
  reset_congestion_signals();
  probe_up_acked_per_inc_ = kNoLimit;
  rounds_since_probe_ = random_.below(2);
  const double wait = kProbeWaitLeast + kProbeWaitMore * random_.uniform();
  probe_wait_ = Picoseconds{static_cast<std::int64_t>(wait * 1e12)};
  cycle_stamp_ = now;
  acks_ = Acks::probe_stopping;
  begin_round(delivered_);
  enter(State::down);
}

void Bbr3::start_refill() {
  reset_short_term_model();
  probe_up_rounds_ = 0;
  probe_up_acked_ = 0;
  prev_probe_precautionary_ = false;
  acks_ = Acks::refilling;
  begin_round(delivered_);
  enter(State::refill);
}

void Bbr3::start_up(const AckSample& s) {
  acks_ = Acks::probe_starting;
  begin_round(delivered_);
  restart_plateau(s.rate() / 8);
  full_bw_now_ = false;
  enter(State::up);
  raise_inflight_hi_slope();
}

// "ProbeBW Algorithm Details"
void Bbr3::update_probe_bw(const AckSample& s) {
  if (!filled_pipe_ || adapt_long_term_model(s)) return;
  switch (state_) {
    case State::down:
      if (!probe_if_due(s.now) && time_to_cruise(s)) enter(State::cruise);
      break;
    case State::cruise:
      probe_if_due(s.now);
      break;
    case State::refill:
      if (round_start_) {
        bw_probe_sample_ = true;
        start_up(s);
      }
      break;
    case State::up:
      if (time_to_go_down(s)) {
        prev_probe_too_high_ = false;
        start_down(s.now);
      }
      break;
    case State::startup:
    case State::drain:
    case State::probe_rtt:
      break;
  }
}

// "Design Considerations for Choosing Constant Parameters": 2 to 3 s, or as many rounds as Reno would
// take to grow by as much, 63 at most.
bool Bbr3::probe_if_due(Picoseconds now) {
  const std::uint64_t rounds = std::min(target_inflight() / limits_.mss, kRenoRounds);
  if (now <= cycle_stamp_ + probe_wait_ && rounds_since_probe_ < rounds) return false;
  start_refill();
  return true;
}

bool Bbr3::time_to_cruise(const AckSample& s) const {
  return s.in_flight <= inflight_with_headroom() && s.in_flight <= inflight(max_bw(), 1);
}

bool Bbr3::time_to_go_down(const AckSample& s) {
  if (prev_probe_too_high_ && s.in_flight >= inflight_hi_) {
    // "Precautionary Bandwidth Probing": no full round at what was too much.
    prev_probe_precautionary_ = true;
    return true;
  }
  if (s.cwnd_limited && limits_.cwnd >= inflight_hi_) {
    restart_plateau(s.rate() / 8);  // inflight_hi holds the rate back, not the path
    full_bw_now_ = false;
    return false;
  }
  return full_bw_now_;
}

bool Bbr3::adapt_long_term_model(const AckSample& s) {
  if (acks_ == Acks::probe_starting && round_start_) acks_ = Acks::probe_feedback;
  if (acks_ == Acks::probe_stopping && round_start_) {  // the last samples of the probe have come
    bw_probe_sample_ = false;
    acks_ = Acks::init;
    if (in_probe_bw() && !limited(s) && max_bw_[1] > 0) max_bw_ = {max_bw_[1], 0};
    if (in_probe_bw() && prev_probe_precautionary_ && !prev_probe_too_high_) {
      start_refill();
      return true;
    }
  }
  if (marked_too_much(s) && bw_probe_sample_) {  // losses are looked at packet by packet, in on_lost
    handle_inflight_too_high(static_cast<double>(s.sent_in_flight), limited(s), s.now);
    return true;
  }
  if (lost_too_much(s) || marked_too_much(s)) return false;
  if (inflight_hi_ == kNoLimit) return false;
  inflight_hi_ = std::max(inflight_hi_, s.sent_in_flight);
  if (state_ == State::up) probe_inflight_hi_upward(s);
  return false;
}

bool Bbr3::lost_too_much(const AckSample& s) const {
  const auto lost = static_cast<double>(s.lost_total - s.prior_lost);
  return s.delivered > 0 && lost > kLossThresh * static_cast<double>(s.sent_in_flight);
}

bool Bbr3::marked_too_much(const AckSample& s) const { return ecn_ && s.ce_delivered > 0 && ecn_share_ >= kEcnThresh; }

void Bbr3::handle_inflight_too_high(double in_flight, bool app_limited, Picoseconds now) {
  prev_probe_too_high_ = true;
  bw_probe_sample_ = false;  // once per probe
  if (!app_limited) {
    const double least = kBeta * static_cast<double>(target_inflight());
    inflight_hi_ = static_cast<std::uint64_t>(std::max(in_flight, least));
    ++reactions_.cuts;
  }
  if (state_ != State::up) return;
  undo_.state = State::up;
  start_down(now);
}

void Bbr3::raise_inflight_hi_slope() {
  const std::uint64_t growth = std::uint64_t{1} << probe_up_rounds_;
  probe_up_rounds_ = std::min(probe_up_rounds_ + 1, 30u);
  probe_up_acked_per_inc_ = std::max<std::uint64_t>(limits_.cwnd / growth, limits_.mss);
}

void Bbr3::probe_inflight_hi_upward(const AckSample& s) {
  if (!s.cwnd_limited || limits_.cwnd < inflight_hi_) return;
  probe_up_acked_ += s.delivered;
  if (probe_up_acked_ >= probe_up_acked_per_inc_) {
    const std::uint64_t steps = probe_up_acked_ / probe_up_acked_per_inc_;
    probe_up_acked_ -= steps * probe_up_acked_per_inc_;
    inflight_hi_ += steps * limits_.mss;
  }
  if (round_start_) raise_inflight_hi_slope();
}

// --- ProbeRTT ------------------------------------------------------------------------------------

void Bbr3::check_probe_rtt(const AckSample& s) {
  if (state_ != State::probe_rtt && probe_rtt_expired_ && !idle_restart_) {
    save_window(repair_ != Repair::none);
    enter(State::probe_rtt);
    begin_probe_rtt();
    acks_ = Acks::probe_stopping;
    begin_round(delivered_);
  }
  if (state_ == State::probe_rtt && probe_rtt_over(s, probe_rtt_window())) exit_probe_rtt(s.now);
  if (s.delivered > 0) idle_restart_ = false;
}

void Bbr3::exit_probe_rtt(Picoseconds now) {
  probe_rtt_stamp_ = now;
  restore_window();
  reset_short_term_model();
  if (filled_pipe_) {
    start_down(now);
    enter(State::cruise);
  } else {
    enter_startup();
  }
}

}  // namespace loomnet::congestion
