// A rule without training: each flow keeps a few packets of its own in the queue. It is what a trained
// policy must beat, what training begins by imitating, and the control's default.
#pragma once

#include "transport/congestion/astraea/features.hpp"

namespace loomnet::astraea {

// The action, -1 to 1, for an interval. The target is 5 % of the flow's bandwidth-delay product and 4
// packets at least; half of the distance to it is made good per round trip. Above 2 % of loss the window
// falls at full speed. Without an RTT sample the window stays.
double teacher_action(const Measured& m, const Range& range, double interval_us, double alpha);

}  // namespace loomnet::astraea
