// A faulty pipe of the test bed: rate, delay and everything that can happen to a packet.
#pragma once

#include <cstdint>

#include "clock/time.hpp"

namespace loomnet::testbed {

// One direction of a host's link on one plane. Fields may change while the bed runs.
struct Pipe {
  BitsPerSecond rate{};  // 0: no (second) serialisation
  Picoseconds delay = microseconds(1);
  double loss = 0;         // probability that a packet vanishes
  double duplication = 0;  // probability of a second copy, `jitter` later at most
  double corruption = 0;   // probability of damage: the NIC's FCS check drops it
  double reorder = 0;      // probability of an extra delay, uniform in (0, jitter]
  Picoseconds jitter = microseconds(5);
  std::uint64_t queue_limit = 0;  // bytes waiting in a down pipe's data queue; 0: no limit
  bool silent_down = false;       // loses everything without telling anyone
  std::uint64_t sent = 0, lost = 0, duplicated = 0, corrupted = 0, delayed = 0, overflowed = 0, trimmed = 0;
};

}  // namespace loomnet::testbed
