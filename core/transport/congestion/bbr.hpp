// BBR version 1, as draft-cardwell-iccrg-bbr-congestion-control-00 gives it (and Cardwell et al.,
// "BBR: congestion-based congestion control"), with what Linux has added since: pacing 1 % below
// the estimate, room for aggregated ACKs, a new smallest RTT only where it is smaller. Names follow
// the draft.
#pragma once

#include "transport/congestion/bbr_base.hpp"
#include "transport/congestion/bbr_policer.hpp"
#include "transport/congestion/windowed_best.hpp"

namespace loomnet::congestion {

struct BbrOptions {
  static const OptionTable<BbrOptions>& table();
};

class Bbr final : public BbrBase {
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
  double bottleneck_rate() const { return btl_bw_.best(); }  // bytes of stream per second
  Picoseconds rtprop() const { return rtprop_; }
  bool policed() const { return policer_.in_use(); }

 private:
  void update_bottleneck(const AckSample& s);
  void judge_policer(const AckSample& s);
  void check_cycle_phase(const AckSample& s);
  void check_full_pipe(const AckSample& s);
  void check_drain(const AckSample& s);
  void update_rtprop(const AckSample& s);
  void check_probe_rtt(const AckSample& s);
  void enter_startup();
  void enter_probe_bw(Picoseconds now);
  void advance_cycle(Picoseconds now);
  void set_window(const AckSample& s);
  // Bytes per second that windows and pacing go by; probing goes by the bottleneck's all the same.
  double path_rate() const { return policer_.in_use() ? policer_.rate() : btl_bw_.best(); }
  std::uint64_t inflight(double rate, double gain, std::uint64_t more = 0) const;
  void follow_repair(const AckSample& s);

  State state_ = State::startup;
  WindowedMax btl_bw_;
  Picoseconds rtprop_ = kNever, rtprop_stamp_{};
  bool rtprop_expired_ = false;
  int cycle_index_ = 0;
  Picoseconds cycle_stamp_{};
  BbrPolicer policer_;
  bool timed_out_ = false;  // since the last rate sample
  Repair followed_ = Repair::none;  // the sender's at the last ACK
  bool packet_conservation_ = false;
};

}  // namespace loomnet::congestion
