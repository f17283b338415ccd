// TIMELY: a sending rate from round trip times alone. Mittal et al., "TIMELY: RTT-based Congestion
// Control for the Datacenter", SIGCOMM 2015, Algorithm 1, with what the authors' published code snippet
// adds to it: updates that come sooner than a minimum round trip count by their share of it, and no
// update takes more than half of the rate.
//
// Marks and notifications change nothing. RoCE gives a round trip per acknowledgement that was asked for.
#pragma once

#include "transport/congestion.hpp"

namespace loomnet::congestion {

struct TimelyOptions {
  Picoseconds low = microseconds(50);    // T_low, of the publication's 64 KB segments
  Picoseconds high = microseconds(500);  // T_high
  // The publication divides gradients by a minimum round trip of 20 us; 0: the flow's own.
  Picoseconds min_rtt = microseconds(20);
  double ewma = 0.02;                      // weight of a new difference: the authors' code
  double beta = 0.8;                       // share of the rate that a cut takes
  std::uint64_t increment = 10'000'000;    // delta, bit/s
  std::uint32_t hyper_after = 5;           // completions in a row without a rising round trip ...
  std::uint32_t hyper_times = 5;           // ... from which on the increment counts so many times
  std::uint64_t minimum_rate = 10'000'000;  // bit/s; the authors' code leaves it open
  static const OptionTable<TimelyOptions>& table();
};

class Timely : public CongestionControl {
 public:
  // Begins at the line rate: the publication begins at its share among the host's flows, which a queue
  // pair does not know. Throws std::invalid_argument for thresholds out of order, or no line rate.
  Timely(FlowLimits& limits, const TimelyOptions& options, const FlowContext& flow);
  std::string_view name() const override { return "timely"; }
  void on_ack(const AckSample& sample) override;
  void on_congestion(const CongestionEvent&) override {}
  void observe(Observer& out) const override;
  double rate() const { return rate_; }
  double gradient() const { return difference_us_ / min_rtt_us_; }  // normalized, smoothed

 private:
  double updated(double rtt_us, double share) const;

  const TimelyOptions options_;
  double line_, least_, min_rtt_us_, rate_;
  double previous_us_ = -1;  // none yet
  double difference_us_ = 0;
  std::uint32_t falling_ = 0;  // samples in a row whose round trip fell
  Picoseconds updated_at_{}, floor_since_ = kNever;
};

}  // namespace loomnet::congestion
