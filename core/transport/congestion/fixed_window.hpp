// A window that reacts to nothing: what other controls are compared with.
#pragma once

#include "transport/congestion.hpp"

namespace loomnet::congestion {

struct FixedWindowOptions {
  std::uint64_t bytes = 0;  // 0: 1.5 bandwidth-delay products
  static const OptionTable<FixedWindowOptions>& table();
};

class FixedWindow final : public CongestionControl {
 public:
  FixedWindow(FlowLimits& limits, const FixedWindowOptions& options, const FlowContext& flow);
  std::string_view name() const override { return "fixed_window"; }
  void on_ack(const AckSample&) override {}
  void on_congestion(const CongestionEvent&) override {}
};

}  // namespace loomnet::congestion
