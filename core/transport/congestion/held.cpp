// The window that it begins with; see held.hpp.
#include "transport/congestion/held.hpp"

#include <algorithm>

namespace loomnet::congestion {

const OptionTable<HeldOptions>& HeldOptions::table() {
  static const OptionTable<HeldOptions> rows = [] {
    OptionTable<HeldOptions> t("HeldOptions");
    t.add("held_window", &HeldOptions::bytes,
          {.unit = "bytes", .doc = "the window until somebody sets it; 0: the transport's initial one"});
    return t;
  }();
  return rows;
}

Held::Held(FlowLimits& limits, const HeldOptions& options, const FlowContext& flow)
    : CongestionControl(limits, {.owns_window = true, .sees_acks = false, .shows_rtt = true}) {
  const std::uint64_t bytes = options.bytes > 0 ? options.bytes : flow.initial_window;
  limits_.cwnd = std::max<std::uint64_t>(flow.mss, bytes);
}

}  // namespace loomnet::congestion
