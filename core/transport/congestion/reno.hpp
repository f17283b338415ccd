// Reno: slow start and congestion avoidance (RFC 5681), counted in bytes (RFC 3465 with L unbounded,
// as Linux does where pacing or SACK bound the burst). DCTCP and CUBIC build on it.
#pragma once

#include "transport/congestion.hpp"

namespace loomnet::congestion {

struct RenoOptions {
  static const OptionTable<RenoOptions>& table();
};

class Reno : public CongestionControl {
 public:
  explicit Reno(FlowLimits& limits, Traits traits = {}) : CongestionControl(limits, traits) {}
  Reno(FlowLimits& limits, const RenoOptions&, const FlowContext&) : Reno(limits) {}
  std::string_view name() const override { return "reno"; }
  void on_ack(const AckSample& sample) override;
  void on_congestion(const CongestionEvent& event) override;
  void observe(Observer& out) const override;

 protected:
  // Bytes of `delivered` that slow start has not used up.
  std::uint64_t slow_start(std::uint64_t delivered);
  void grow(double bytes);  // adds what may be a fraction

 private:
  double fraction_ = 0;
};

}  // namespace loomnet::congestion
