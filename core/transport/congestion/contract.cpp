// The bounds of each limit; see contract.hpp.
#include "transport/congestion/contract.hpp"

#include <cmath>

namespace loomnet {

std::string breach_of_contract(const FlowLimits& l, Picoseconds now, bool tick_may_wait) {
  if (std::isnan(l.pacing_rate)) return "the pacing rate is not a number";
  if (std::isinf(l.pacing_rate)) return "the pacing rate is infinite";
  if (l.pacing_rate < 0) return "the pacing rate is negative";
  // Below it a packet takes hours, and times of slower ones are beyond what can be counted.
  if (l.pacing_rate > 0 && l.pacing_rate < kLeastPacing) return "the pacing rate is below 1 bit/s";
  // Transports divide by it as a whole number of bits per second.
  if (l.pacing_rate >= kPacingBound) return "the pacing rate is beyond what can be counted";
  if (l.cwnd == 0) return "the window is 0: nothing could ever leave";
  if (l.cwnd < l.mss && l.pacing_rate == 0) {
    return "the window of " + std::to_string(l.cwnd) + " bytes is below one packet of " + std::to_string(l.mss) +
           " without a pacing rate, which would say when one may leave";
  }
  if (l.cwnd > l.cwnd_most) return "the window is above the largest that the control has named";
  if (l.next_tick <= now && !tick_may_wait) {
    return "the next tick, at " + std::to_string(l.next_tick.count) + " ps, is not after now, " +
           std::to_string(now.count) + " ps";
  }
  if (l.next_sent <= l.sent) return "the count of sent bytes that makes a tick due has passed";
  return {};
}

}  // namespace loomnet
