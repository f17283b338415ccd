// BBR version 1, as draft-cardwell-iccrg-bbr-congestion-control-00 gives it (and Cardwell et al.,
// "BBR: congestion-based congestion control"), with what Linux has added since: pacing 1 % below
// the estimate, room for aggregated ACKs, a new smallest RTT only where it is smaller. Names follow
// the draft.
#pragma once

#include <array>

#include "clock/random.hpp"
#include "transport/congestion.hpp"
#include "transport/congestion/bbr_policer.hpp"
#include "transport/congestion/windowed_max.hpp"

namespace loomnet::congestion {

struct BbrOptions {
  static const OptionTable<BbrOptions>& table();
};

class Bbr final : public CongestionControl {
 public:
  enum class State : std::uint8_t { startup, drain, probe_bw, probe_rtt };
  Bbr(FlowLimits& limits, const BbrOptions& options, const FlowContext& flow);

  std::string_view name() const override { return "bbr"; }
  void on_ack(const AckSample& sample) override;
  void on_congestion(const CongestionEvent& event) override;
  void on_recovered(Picoseconds now) override;
  void on_undo(Picoseconds now) override;
  void on_established(Picoseconds rtt, Picoseconds now) override;
  void on_restart(Picoseconds now) override;
  void observe(Observer& out) const override;

  State phase() const { return state_; }
  double pacing_gain() const { return pacing_gain_; }
  double bottleneck_rate() const { return btl_bw_.best(); }  // bytes of stream per second
  Picoseconds rtprop() const { return rtprop_; }
  bool policed() const { return policer_.in_use(); }

 private:
  void update_round(const AckSample& s);
  void update_bottleneck(const AckSample& s);
  void judge_policer(const AckSample& s);
  void update_ack_aggregation(const AckSample& s);
  void check_cycle_phase(const AckSample& s);
  void check_full_pipe(const AckSample& s);
  void check_drain(const AckSample& s);
  void update_rtprop(const AckSample& s);
  void check_probe_rtt(const AckSample& s);
  void enter_startup();
  void enter_probe_bw(Picoseconds now);
  void advance_cycle(Picoseconds now);
  void set_pacing_rate(double gain);
  void set_window(const AckSample& s);
  bool limited(const AckSample& s) const { return s.app_limited || s.prior_delivered < limited_until_; }
  void pace_initial_window(Picoseconds rtt);
  // Bytes per second that windows and pacing go by; probing goes by the bottleneck's all the same.
  double path_rate() const { return policer_.in_use() ? policer_.rate() : btl_bw_.best(); }
  std::uint64_t inflight(double rate, double gain, std::uint64_t more = 0) const;
  std::uint64_t send_quantum() const;
  std::uint64_t aggregated() const;
  void follow_repair(const AckSample& s);
  void save_window();
  void restore_window();

  const std::uint64_t initial_window_;
  RandomStream random_;
  State state_ = State::startup;
  WindowedMax btl_bw_;
  double pacing_gain_ = 1, cwnd_gain_ = 1;
  Picoseconds rtprop_ = kNever, rtprop_stamp_{};
  bool rtprop_expired_ = false;
  std::uint64_t round_count_ = 0, next_round_delivered_ = 0;
  bool round_start_ = false;
  bool filled_pipe_ = false;
  double full_bw_ = 0;
  int full_bw_count_ = 0;
  int cycle_index_ = 0;
  Picoseconds cycle_stamp_{};
  std::uint64_t prior_cwnd_ = 0;
  BbrPolicer policer_;
  bool timed_out_ = false;  // since the last rate sample
  enum class Repair : std::uint8_t { none, recovery, timeout };
  Repair repair_ = Repair::none, followed_ = Repair::none;  // the sender's now, and at the last ACK
  bool packet_conservation_ = false;
  Picoseconds probe_rtt_done_ = kNever;
  bool probe_rtt_round_done_ = false;
  std::uint64_t limited_until_ = 0;  // rates of what was sent before this much was delivered are low
  // ACKs in excess of what the estimate expects: largest of this and the last five rounds.
  Picoseconds aggregation_begin_{};
  std::uint64_t aggregation_acked_ = 0;
  std::array<std::uint64_t, 2> extra_acked_{};
  int extra_acked_rounds_ = 0, extra_acked_index_ = 0;
  bool idle_restart_ = false;
  bool has_rtt_ = false;
};

}  // namespace loomnet::congestion
