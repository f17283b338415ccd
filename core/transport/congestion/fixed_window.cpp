// The window's size; see fixed_window.hpp.
#include "transport/congestion/fixed_window.hpp"

#include <algorithm>

namespace loomnet::congestion {

const OptionTable<FixedWindowOptions>& FixedWindowOptions::table() {
  static const OptionTable<FixedWindowOptions> rows = [] {
    OptionTable<FixedWindowOptions> t("MrcOptions");
    t.add("fixed_window", &FixedWindowOptions::bytes,
          {.unit = "bytes", .doc = "the window; 0: 1.5 bandwidth-delay products"});
    return t;
  }();
  return rows;
}

FixedWindow::FixedWindow(FlowLimits& limits, const FixedWindowOptions& options, const FlowContext& flow)
    : CongestionControl(limits, {.owns_window = true, .sees_acks = false}) {
  const double bdp = static_cast<double>(flow.line_rate) / 8e6 * flow.network_rtt.microseconds();
  const double bytes = options.bytes > 0 ? static_cast<double>(options.bytes) : 1.5 * bdp;
  limits_.cwnd = limits_.cwnd_most = static_cast<std::uint64_t>(std::max<double>(flow.mss, bytes));
}

}  // namespace loomnet::congestion
