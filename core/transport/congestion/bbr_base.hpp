// What BBR's versions 1 and 3 have in common: rounds, the plateau that says that the pipe is full,
// pacing by the estimate, room for aggregated ACKs, the window that a repair of losses gives back,
// and how long a probe of the round trip lasts.
#pragma once

#include <array>

#include "clock/random.hpp"
#include "transport/congestion.hpp"

namespace loomnet::congestion {

class BbrBase : public CongestionControl {
 public:
  double pacing_gain() const { return pacing_gain_; }
  bool filled_pipe() const { return filled_pipe_; }

 protected:
  static constexpr std::uint64_t kMinPipe = 4;     // segments
  static constexpr int kAggregationRounds = 5;  // Linux: bbr_extra_acked_win_rtts

  // `startup_gain`: paces the first window. `purpose`: of the random stream.
  // `startup_rounds`: for which aggregated ACKs are remembered before the pipe is full.
  BbrBase(FlowLimits& limits, Traits traits, const FlowContext& flow, double startup_gain, std::uint64_t purpose,
          int startup_rounds);

  void pace_initial_window(Picoseconds rtt);

  // --- rounds
  void update_round(const AckSample& s);
  void begin_round(std::uint64_t delivered) { next_round_delivered_ = delivered; }
  bool limited(const AckSample& s) const { return s.app_limited || s.prior_delivered < limited_until_; }

  // --- the full pipe
  // Of one round: true after three in a row without a quarter more.
  bool plateau(double rate);
  void restart_plateau(double rate) {
    full_bw_ = rate;
    full_bw_count_ = 0;
  }
  void forget_plateau() { full_bw_ = 0; }

  // --- aggregated ACKs
  void update_ack_aggregation(const AckSample& s, double rate);
  std::uint64_t aggregated(double rate) const;

  // --- limits
  void set_pacing_rate(double gain, double rate);
  std::uint64_t send_quantum() const;
  // `own`: the window is that of a repair or of a probe of the round trip.
  void save_window(bool own) { prior_cwnd_ = own ? std::max(prior_cwnd_, limits_.cwnd) : limits_.cwnd; }
  void restore_window() { limits_.cwnd = std::max(limits_.cwnd, prior_cwnd_); }

  // --- the probe of the round trip
  void begin_probe_rtt() { probe_rtt_done_ = kNever; }
  // True when it is over: 200 ms and a round after no more than `most` bytes were in flight.
  bool probe_rtt_over(const AckSample& s, std::uint64_t most);
  bool probe_rtt_time_over(Picoseconds now) const { return now > probe_rtt_done_; }

  const std::uint64_t initial_window_;
  const double startup_gain_;
  const int startup_rounds_;
  RandomStream random_;
  double pacing_gain_ = 1, cwnd_gain_ = 1;
  std::uint64_t round_count_ = 0;
  bool round_start_ = false;
  bool filled_pipe_ = false;
  bool has_rtt_ = false;
  bool idle_restart_ = false;
  enum class Repair : std::uint8_t { none, recovery, timeout };
  Repair repair_ = Repair::none;  // the sender's now
  Picoseconds aggregation_begin_{};

 private:
  std::uint64_t next_round_delivered_ = 0;
  // Rates of what was sent before this much was delivered are low.
  std::uint64_t limited_until_ = 0;
  double full_bw_ = 0;
  int full_bw_count_ = 0;
  std::uint64_t prior_cwnd_ = 0;
  Picoseconds probe_rtt_done_ = kNever;
  bool probe_rtt_round_done_ = false;
  // ACKs in excess of what the estimate expects: largest of this and the last five rounds.
  std::uint64_t aggregation_acked_ = 0;
  std::array<std::uint64_t, 2> extra_acked_{};
  int extra_acked_rounds_ = 0, extra_acked_index_ = 0;
};

}  // namespace loomnet::congestion
