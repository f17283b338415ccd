// DCTCP-like control of a sender without TCP's recovery: a window that shrinks by the share of marked
// packets, once per round trip (RFC 8257 3.3), and grows by one packet per fixed time.
//
// Simulations of Symphony (arXiv 2604.16880) need hosts that react to the marked share. That the window
// grows by time and not by round trips is our completion: the step is the same for every path.
#pragma once

#include "transport/congestion.hpp"

namespace loomnet::congestion {

struct DctcpLikeOptions {
  double gain = 1.0 / 16;                         // RFC 8257 4.2: g
  Picoseconds increase_every = microseconds(20);  // the window grows by a packet
  std::uint32_t least_packets = 1;                // the window never falls below
  static const OptionTable<DctcpLikeOptions>& table();
};

class DctcpLike : public CongestionControl {
 public:
  DctcpLike(FlowLimits& limits, const DctcpLikeOptions& options, const FlowContext& flow);
  std::string_view name() const override { return "dctcp_like"; }
  void on_ack(const AckSample& sample) override;
  void on_congestion(const CongestionEvent& event) override;
  void observe(Observer& out) const override;
  double alpha() const { return alpha_; }

 private:
  void count(const AckSample& sample);
  void grow(const AckSample& sample);
  void cut(double share, Picoseconds now);
  void note_floor(Picoseconds now);
  std::uint64_t least() const { return std::uint64_t{options_.least_packets} * limits_.mss; }

  const DctcpLikeOptions options_;
  double alpha_ = 1;  // RFC 8257 4.2: begins at 1
  std::uint64_t delivered_ = 0, marked_ = 0, window_end_ = 0;
  std::uint64_t reduced_until_ = 0;  // AckSample::acked_end that ends the round trip of the last cut
  Picoseconds grow_due_ = kNever;
  Picoseconds floor_since_ = kNever;
};

}  // namespace loomnet::congestion
