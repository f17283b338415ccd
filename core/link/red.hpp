// Random early detection (Floyd and Jacobson, 1993) on the queue's length at dequeue, as switches
// mark ECN-capable packets.
#pragma once

#include <cstdint>

#include "clock/random.hpp"

namespace loomnet {

struct RedMarker {
  std::uint64_t low = 0;   // bytes: no mark up to here
  std::uint64_t high = 0;  // every packet from here on; 0: no marking
  double share = 1;        // probability just below `high`

  // Whether a packet is marked that leaves when `queued` bytes waited, itself included.
  bool marks(std::uint64_t queued, RandomStream& random) const {
    if (high == 0 || queued <= low) return false;
    const double p = queued < high ? static_cast<double>(queued - low) / static_cast<double>(high - low) * share : 1.0;
    return p >= 1 || random.uniform() < p;
  }
};

}  // namespace loomnet
