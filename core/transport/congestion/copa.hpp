// Copa: a window that moves towards the rate 1 / (delta x queueing delay). Arun and Balakrishnan,
// "Copa: Practical delay-based congestion control for the Internet", NSDI 2018, section 2.
//
// The velocity goes on doubling only where five in six ACKs of a window moved it in its direction: else what
// was meant for one direction overshoots in the other. The authors' code takes the direction of most ACKs. Like
// that code the velocity is at most delta x cwnd, with which a round trip doubles the window or empties it.
//
// A loss changes nothing but in competitive mode, where 1/delta halves at a loss and grows by one per round
// trip without. Beside the publication, the authors' code takes the window to 0.7 where more than 30 % of two
// round trips' packets were lost. What a timeout does is left open there: here it begins slow start anew.
#pragma once

#include "transport/congestion.hpp"
#include "transport/congestion/windowed_best.hpp"

namespace loomnet::congestion {

struct CopaOptions {
  double delta = 0.5;
  bool mode_switch = false;
  static const OptionTable<CopaOptions>& table();
};

class Copa final : public CongestionControl {
 public:
  Copa(FlowLimits& limits, const CopaOptions& options, const FlowContext& flow);
  std::string_view name() const override { return "copa"; }
  void on_ack(const AckSample& sample) override;
  void on_congestion(const CongestionEvent& event) override;
  void observe(Observer& out) const override;

  bool slow_start() const { return slow_start_; }
  bool competitive() const { return competitive_; }
  double delta() const { return delta_; }
  double velocity() const { return velocity_; }
  Picoseconds queue_delay() const;

 private:
  void measure(const AckSample& s);
  void switch_mode(const AckSample& s);
  void update_velocity(const AckSample& s);
  void heed_heavy_loss(const AckSample& s);
  void move(double packets);

  const CopaOptions options_;
  bool slow_start_ = true, competitive_ = false;
  double delta_, velocity_ = 1;
  double fraction_ = 0;  // bytes of the window below one
  // RTTstanding, RTTmin and RTTmax of the publication, picoseconds.
  WindowedMin standing_, least_;
  WindowedMax most_;
  // The window of data, for the velocity.
  bool began_ = false;
  std::uint64_t window_end_ = 0, window_begin_cwnd_ = 0;
  int direction_ = 0, same_direction_ = 0;
  std::uint32_t above_ = 0, below_ = 0;  // ACKs of the window, by where the rate was of the target
  // Losses, and what they are a share of, since `judged_at_`.
  std::uint64_t lost_bytes_ = 0, judged_bytes_ = 0;
  Picoseconds judged_at_{};
  // Competitive mode.
  Picoseconds empty_at_ = kNever, delta_at_{};
  bool lost_ = false;
};

}  // namespace loomnet::congestion
