// The scheduling of threads that the machine's other work must not hold up.
#pragma once

#include <string>

namespace loomnet {

struct ThreadPriority {
  bool fifo = false;
  std::string text;  // "SCHED_FIFO 1", "nice -20: …", "normal: …"
};

// Gives the calling thread SCHED_FIFO 1, or nice -20 where that is refused, and says which.
ThreadPriority take_realtime_priority();

}  // namespace loomnet
