// BBR version 3, as the IETF's draft-ietf-ccwg-bbr gives it (text of August 2026). Names follow the
// draft, but for its inflight_longterm, inflight_shortterm and bw_shortterm, which are inflight_hi,
// inflight_lo and bw_lo here as in the authors' code and talks.
//
// The draft leaves the response to ECN open. With `bbr3_ecn` it is that of the authors' versions 2 and
// 3 for Linux (presented to the IETF's iccrg and ccwg): the filtered share of marks, as DCTCP has it,
// lowers inflight_lo by a third of it in each round with marks, and a round of which half is marked
// ends a probe.
#pragma once

#include <limits>

#include "transport/congestion/bbr_base.hpp"

namespace loomnet::congestion {

struct Bbr3Options {
  bool ecn = false;
  static const OptionTable<Bbr3Options>& table();
};

class Bbr3 final : public BbrBase {
 public:
  enum class State : std::uint8_t { startup, drain, down, cruise, refill, up, probe_rtt };
  static constexpr double kStartupGain = 2.77, kLossThresh = 0.02, kBeta = 0.7, kHeadroom = 0.15;
  Bbr3(FlowLimits& limits, const Bbr3Options& options, const FlowContext& flow);

  std::string_view name() const override { return "bbr3"; }
  void on_ack(const AckSample& sample) override;
  void on_lost(const LostPacket& packet) override;
  void on_congestion(const CongestionEvent& event) override;
  void on_recovered(Picoseconds now) override;
  void on_undo(Picoseconds now) override;
  void on_established(Picoseconds rtt, Picoseconds now) override;
  void on_restart(Picoseconds now) override;
  void observe(Observer& out) const override;

  State phase() const { return state_; }
  double max_bw() const { return std::max(max_bw_[0], max_bw_[1]); }  // bytes of stream per second
  double bw_lo() const { return bw_lo_; }
  std::uint64_t inflight_hi() const { return inflight_hi_; }
  std::uint64_t inflight_lo() const { return inflight_lo_; }
  Picoseconds min_rtt() const { return min_rtt_; }
  double ecn_alpha() const { return ecn_alpha_; }
  // The bytes in flight at which losses crossed the threshold, for a packet lost.
  static double inflight_at_loss(const LostPacket& packet);

 private:
  static constexpr double kNoRate = std::numeric_limits<double>::infinity();
  // What the ACKs tell, with respect to the probe for bandwidth.
  enum class Acks : std::uint8_t { init, refilling, probe_starting, probe_feedback, probe_stopping };
  struct Undo {
    State state = State::drain;  // startup or up: the state that the losses ended
    double bw_lo = kNoRate;
    std::uint64_t inflight_lo = kNoLimit, inflight_hi = kNoLimit;
  };

  // --- the model (bbr3.cpp)
  void update_latest(const AckSample& s);
  void update_congestion_signals(const AckSample& s);
  void update_max_bw(const AckSample& s);
  void update_ecn(const AckSample& s);
  void adapt_lower_bounds();
  void reset_short_term_model();
  void reset_congestion_signals();
  void check_full_bw(const AckSample& s);
  void update_min_rtt(const AckSample& s);
  void save_state_upon_loss();
  // --- limits (bbr3.cpp)
  std::uint64_t bdp(double rate, double gain) const;
  std::uint64_t quantized(std::uint64_t bytes) const;
  std::uint64_t inflight(double rate, double gain) const { return quantized(bdp(rate, gain)); }
  std::uint64_t inflight_with_headroom() const;
  std::uint64_t target_inflight() const { return std::min(bdp(bw_, 1), limits_.cwnd); }
  std::uint64_t probe_rtt_window() const;
  std::uint64_t min_window() const { return kMinPipe * limits_.mss; }
  void set_window(const AckSample& s);
  // --- the state machine (bbr3_probe.cpp)
  void enter(State state);
  void enter_startup() { enter(State::startup); }
  void check_startup_done(const AckSample& s);
  void check_drain(const AckSample& s);
  void update_probe_bw(const AckSample& s);
  bool adapt_long_term_model(const AckSample& s);
  bool lost_too_much(const AckSample& s) const;
  bool marked_too_much(const AckSample& s) const;
  void handle_inflight_too_high(double in_flight, bool app_limited, Picoseconds now);
  void raise_inflight_hi_slope();
  void probe_inflight_hi_upward(const AckSample& s);
  bool probe_if_due(Picoseconds now);
  bool time_to_cruise(const AckSample& s) const;
  bool time_to_go_down(const AckSample& s);
  void start_down(Picoseconds now);
  void start_refill();
  void start_up(const AckSample& s);
  void check_probe_rtt(const AckSample& s);
  void exit_probe_rtt(Picoseconds now);
  bool in_probe_bw() const { return state_ >= State::down && state_ <= State::up; }
  bool probing_bw() const { return state_ == State::startup || state_ == State::refill || state_ == State::up; }

  const bool ecn_;
  State state_ = State::startup;
  std::uint64_t delivered_ = 0;  // at the latest ACK or loss
  // Long-term model: the best rate of the cycle before and of this one.
  std::array<double, 2> max_bw_{};
  std::uint64_t inflight_hi_ = kNoLimit;
  // Short-term model, until the next probe.
  double bw_ = 0, bw_lo_ = kNoRate, bw_latest_ = 0;
  std::uint64_t inflight_lo_ = kNoLimit, inflight_latest_ = 0;
  bool full_bw_now_ = false;
  // Losses and marks, per round.
  bool loss_in_round_ = false, loss_round_start_ = false, ecn_in_round_ = false;
  std::uint64_t loss_round_delivered_ = 0;
  int loss_events_ = 0, ecn_startup_rounds_ = 0;
  std::uint64_t repair_round_ = 0;  // in which the sender began to repair losses
  double ecn_alpha_ = 1, ecn_share_ = 0;
  std::uint64_t ecn_delivered_ = 0, ecn_marked_ = 0;
  // The probe for bandwidth.
  Acks acks_ = Acks::init;
  bool bw_probe_sample_ = false, prev_probe_too_high_ = false, prev_probe_precautionary_ = false;
  std::uint64_t probe_up_acked_ = 0, probe_up_acked_per_inc_ = kNoLimit;
  std::uint32_t probe_up_rounds_ = 0;
  std::uint64_t rounds_since_probe_ = 0, drain_start_round_ = 0;
  Picoseconds cycle_stamp_{}, probe_wait_{};
  // The round trip.
  Picoseconds min_rtt_ = kNever, min_rtt_stamp_{};
  Picoseconds probe_rtt_min_ = kNever, probe_rtt_stamp_{};
  bool probe_rtt_expired_ = false;
  Undo undo_;
};

}  // namespace loomnet::congestion
