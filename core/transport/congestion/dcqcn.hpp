// DCQCN: the sending rate of one RoCE queue pair. Zhu et al., "Congestion Control for Large-Scale
// RDMA Deployments", SIGCOMM 2015, 3.1, and its constants.
//
// Switches mark (congestion point), the receiver sends at most one CNP per gap (notification
// point, in the transport), the sender (reaction point, here) cuts its rate at each and raises it by
// time and by bytes.
#pragma once

#include <cstdint>

#include "transport/congestion.hpp"

namespace loomnet::congestion {

struct DcqcnOptions {
  double g = 1.0 / 256;
  Picoseconds alpha_timer = microseconds(55);
  Picoseconds rate_timer = microseconds(55);
  std::uint64_t byte_counter = 10'000'000;  // 0: the timer alone raises the rate
  std::uint32_t fast_recovery = 5;           // F: stages that halve the way back to the target
  std::uint64_t additive_rate = 40'000'000;  // R_AI, bit/s
  std::uint64_t hyper_rate = 400'000'000;    // R_HAI, bit/s; the publication leaves it open
  std::uint64_t minimum_rate = 100'000'000;  // bit/s, as NICs and simulators have it
  // What the simulators' model of NICs does otherwise than the publication. Defaults: the publication.
  Picoseconds decrease_interval{};  // a cut at most once per interval; 0: at each CNP
  bool alpha_sampled = false;  // alpha moves once per alpha_timer, by whether a CNP came, not at each CNP
  bool clamp_target = true;    // each cut takes the target down; false: the first one after a raise
  bool alpha_restart = true;   // alpha is 1 again at the first CNP after the limiter was let go
  static const OptionTable<DcqcnOptions>& table();
};

// Window: none. A queue pair begins at the line rate, without pacing and without timers.
class Dcqcn : public CongestionControl {
 public:
  // Throws std::invalid_argument where the flow has no line rate.
  Dcqcn(FlowLimits& limits, const DcqcnOptions& options, const FlowContext& flow);

  std::string_view name() const override { return "dcqcn"; }
  void on_ack(const AckSample&) override {}
  void on_congestion(const CongestionEvent& event) override;
  void on_tick(Picoseconds now) override;
  void observe(Observer& out) const override;

  // Of what has been seen so far.
  double rate() const { return rate_; }
  double target() const { return target_; }
  double alpha() const { return alpha_; }
  bool limited() const { return limited_; }

 private:
  Picoseconds next_due() const;
  void advance(Picoseconds now);  // runs the timers that have expired
  void decay(Picoseconds until);  // alpha's timer, which has expired once or more
  void cut(Picoseconds now);
  void raise(Picoseconds now);
  double floor() const;
  void publish(Picoseconds now);

  const DcqcnOptions& options_;
  double line_;
  bool limited_ = false;  // false: at line rate, and no timer runs
  double rate_, target_, alpha_ = 1;
  std::uint64_t counted_from_ = 0;            // FlowLimits::sent when the byte counter last expired
  std::uint32_t by_time_ = 0, by_bytes_ = 0;  // expiries since the last cut
  Picoseconds alpha_due_{}, raise_due_{};
  bool notified_ = false;          // a CNP came since alpha's timer expired
  Picoseconds cut_due_ = kNever;   // of a CNP that came within decrease_interval of a cut
  Picoseconds last_cut_{};
  Picoseconds floor_since_ = kNever;  // the rate is at its minimum, counted up to then
};

}  // namespace loomnet::congestion
