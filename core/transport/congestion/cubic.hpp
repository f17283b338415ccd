// CUBIC (RFC 9438), with HyStart in its slow start.
#pragma once

#include "transport/congestion/reno.hpp"

namespace loomnet::congestion {

struct CubicOptions {
  bool hystart = true;
  static const OptionTable<CubicOptions>& table();
};

// HyStart as Linux's CUBIC has it (Ha and Rhee, "Taming the elephants"): ends slow start when the
// RTT of a round rises, or when an unbroken train of ACKs has lasted half the smallest RTT, with an
// allowance for segmentation offload.
class HyStart {
 public:
  // True when slow start should end now.
  bool exit(const AckSample& sample, const FlowLimits& limits);
  void reset() { *this = HyStart(); }

 private:
  std::uint64_t round_end_ = 0;
  Picoseconds round_start_{}, last_ack_{}, round_min_ = kNever, delay_min_ = kNever;
  std::uint32_t samples_ = 0;
};

class Cubic final : public Reno {
 public:
  static constexpr double kC = 0.4, kBeta = 0.7;
  Cubic(FlowLimits& limits, const CubicOptions& options, const FlowContext& = {})
      : Reno(limits), hystart_on_(options.hystart) {}
  std::string_view name() const override { return "cubic"; }
  void on_ack(const AckSample& sample) override;
  void on_congestion(const CongestionEvent& event) override;
  void on_undo(Picoseconds now) override;
  void on_restart(Picoseconds now) override;
  void observe(Observer& out) const override;
  // W_cubic(t) in segments, `t` seconds since the epoch began (RFC 9438 4.2).
  static double window_at(double t, double k, double w_max) { return kC * (t - k) * (t - k) * (t - k) + w_max; }
  static double k_of(double w_max, double cwnd);  // 4.2, figure 2
  double w_max() const { return w_max_; }

 private:
  void begin_epoch(Picoseconds now);

  bool hystart_on_;
  HyStart hystart_;
  bool limit_seen_ = false;  // a loss or mark has told what the path holds
  Picoseconds epoch_ = kNever, last_ack_{};
  double w_max_ = 0, prior_w_max_ = 0, k_ = 0, w_est_ = 0, cwnd_prior_ = 0;  // segments, seconds
};

}  // namespace loomnet::congestion
