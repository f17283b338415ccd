// What a flow does from one decision to the next, counted at its acknowledgements: what features are made of.
#pragma once

#include "transport/congestion.hpp"
#include "transport/congestion/astraea/agent.hpp"

namespace loomnet::astraea {

// The slope of values over time, by least squares: Dong et al., "PCC Vivace", NSDI 2018, section 4.2, take the
// latency gradient of a monitor interval so.
struct Slope {
  double count = 0, x = 0, y = 0, xx = 0, xy = 0;
  void add(double at, double value);
  double slope() const;  // 0: of fewer than two different times
};

class Meter {
 public:
  Meter(const FlowLimits& limits, const FlowContext& flow);

  // An interval begins; what was counted so far is gone.
  void begin(Picoseconds now);
  Picoseconds began() const { return began_; }
  void on_ack(const AckSample& s);
  // Of the interval up to now. `pacing_bps`: the rate at which the flow sends, headers not counted.
  Measured measure(Picoseconds now, double pacing_bps) const;
  double least_rtt_us() const { return rtts_.least_us; }  // of the interval; 0: no sample
  // Packets in flight during the interval, the most.
  std::uint32_t most_out() const { return std::max(most_out_, packets_out_); }
  // Nothing came back since the interval began, and nothing is on its way.
  bool paused() const { return acks_ == 0 && packets_out_ == 0 && limits_.sent == sent_then_; }
  std::uint32_t packets(std::uint64_t bytes) const;

  // As of the last acknowledgement.
  Picoseconds srtt() const { return srtt_; }
  std::uint32_t packets_out() const { return packets_out_; }

 private:
  const FlowLimits& limits_;
  const double mtu_share_;  // bytes of a full packet over those of its payload
  // Of the interval.
  Picoseconds began_{};
  double rate_sum_Bps_ = 0;
  std::uint64_t rates_ = 0, acks_ = 0, delivered_ = 0;
  std::uint32_t most_out_ = 0;
  RttSamples rtts_;
  Slope rtt_over_time_;
  std::uint64_t lost_before_ = 0, sent_before_ = 0;
  // As of the last acknowledgement.
  std::uint64_t sent_then_ = 0, lost_total_ = 0;
  std::uint32_t packets_out_ = 0, retransmissions_out_ = 0;
  bool acked_ = false;  // there was one
  Picoseconds srtt_{};
};

}  // namespace loomnet::astraea
