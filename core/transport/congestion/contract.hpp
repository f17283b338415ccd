// What every congestion control owes its sender after each call, checked from outside.
#pragma once

#include <string>

#include "transport/congestion.hpp"

namespace loomnet {

// What the limits break at `now`, in words that name the field; empty: nothing. `tick_may_wait`: a tick
// may be overdue, as that of a lazy control is until the next packet leaves.
std::string breach_of_contract(const FlowLimits& limits, Picoseconds now, bool tick_may_wait = false);

}  // namespace loomnet
