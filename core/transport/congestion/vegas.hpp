// TCP Vegas: a window that keeps a few packets of its own in the queues of the path, by round-trip
// times. Brakmo, O'Malley and Peterson, "TCP Vegas: New techniques for congestion detection and
// avoidance", SIGCOMM 1994; Brakmo and Peterson, "TCP Vegas: end to end congestion avoidance on a
// global Internet", IEEE JSAC 13(8), 1995.
//
// Slow start doubles in every other round trip. In those between the window stays, so that the round trip
// of the last packet is one of a whole window, and slow start ends where it finds more than gamma packets
// queued. Linux doubles in every round trip and compares with the window's least round trip, which packets
// had that were sent before it grew: the window overshoots where the buffer lets it (`vegas_as_linux`).
//
// Where the publication leaves a choice, or has one that SACK and fine timers have overtaken, this is
// Linux's: alpha 2, beta 4, gamma 1; the least round trip of a window is what counts; slow start ends at
// the rate that it measured; losses are repaired as Reno's.
#pragma once

#include "transport/congestion/reno.hpp"

namespace loomnet::congestion {

struct VegasOptions {
  std::uint32_t alpha = 2, beta = 4, gamma = 1;  // packets in queues
  bool as_linux = false;  // slow start
  // Throws std::invalid_argument where alpha is above beta.
  void check() const;
  static const OptionTable<VegasOptions>& table();
};

class Vegas final : public Reno {
 public:
  Vegas(FlowLimits& limits, const VegasOptions& options, const FlowContext& flow);
  std::string_view name() const override { return "vegas"; }
  void on_ack(const AckSample& sample) override;
  void on_congestion(const CongestionEvent& event) override;
  void on_recovered(Picoseconds now) override;
  void on_restart(Picoseconds now) override;
  void observe(Observer& out) const override;
  double queued() const { return queued_; }  // packets, of the last window

 private:
  void adjust(const AckSample& s);
  void grow(const AckSample& s);
  void begin_window(std::uint64_t sent_end);

  const VegasOptions options_;
  bool began_ = false;
  bool doubling_ = true;  // slow start, in this round trip
  std::uint64_t window_end_ = 0;
  Picoseconds base_rtt_ = kNever, window_min_ = kNever;
  std::uint32_t samples_ = 0;
  double queued_ = 0;
};

}  // namespace loomnet::congestion
