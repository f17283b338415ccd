// DCTCP (RFC 8257): the window shrinks by the share of marked bytes.
#pragma once

#include "transport/congestion/reno.hpp"

namespace loomnet::congestion {

struct DctcpOptions {
  double g = 1.0 / 16;  // RFC 8257 4.2
  static const OptionTable<DctcpOptions>& table();
};

class Dctcp final : public Reno {
 public:
  Dctcp(FlowLimits& limits, const DctcpOptions& options, const FlowContext& = {})
      : Reno(limits, {.accurate_ecn = true}), g_(options.g) {}
  std::string_view name() const override { return "dctcp"; }
  void on_ack(const AckSample& sample) override;
  void on_congestion(const CongestionEvent& event) override;
  void observe(Observer& out) const override;
  double alpha() const { return alpha_; }

 private:
  void count(const AckSample& sample);

  double g_, alpha_ = 1;  // RFC 8257 4.2: begins at 1
  std::uint64_t delivered_ = 0, marked_ = 0, window_end_ = 0;
  bool counted_ = false;  // the acknowledgement at hand, by a reduction before its on_ack
};

}  // namespace loomnet::congestion
