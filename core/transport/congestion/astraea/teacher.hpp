// A rule without training: each flow keeps a few packets of its own in the queue. It is what a trained
// policy must beat, what training begins by imitating, and the control's default.
#pragma once

#include "transport/congestion/astraea/features.hpp"

namespace loomnet::astraea {

// The action, -1 to 1, for an interval. Half of the distance to the target queue is made good per round
// trip. Above 2 % of loss the window falls at full speed; without an RTT sample it stays.
//
// The target is 4 packets, and above a share of 80 packets on a path of 30 ms, 32 Mb/s, it grows with the
// root of the share's rate: of the rate, not of the packets on the path, of which a long one holds more. With 5 % of the share in its place any split between flows would last: measured, three flows on
// 100 Mb/s and 30 ms had a Jain index of 0.76 instead of 0.99. A flow whose queue is below half of its
// target gains up to 2.5 % of its share per round trip, so that long paths fill as fast as short ones.
double teacher_action(const Measured& m, const Range& range, double interval_us, double alpha);

}  // namespace loomnet::astraea
