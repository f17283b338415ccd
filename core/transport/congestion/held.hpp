// A window and a rate that no acknowledgement and no loss changes, only a call of Transport::on_limits.
#pragma once

#include "transport/congestion.hpp"

namespace loomnet::congestion {

struct HeldOptions {
  std::uint64_t bytes = 0;  // 0: the transport's initial window
  static const OptionTable<HeldOptions>& table();
};

class Held final : public CongestionControl {
 public:
  Held(FlowLimits& limits, const HeldOptions& options, const FlowContext& flow);
  std::string_view name() const override { return "held"; }
  void on_ack(const AckSample&) override {}
  void on_congestion(const CongestionEvent&) override {}
};

}  // namespace loomnet::congestion
