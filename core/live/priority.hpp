// The scheduling of threads that the machine's other work must not hold up.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <string>

namespace loomnet {

struct ThreadPriority {
  bool fifo = false;
  std::string text;  // "SCHED_FIFO 1", "nice -20: …", "normal: …"
};

// Gives the calling thread SCHED_FIFO 1, or nice -20 where that is refused, and says which.
ThreadPriority take_realtime_priority();

// A thread that the live loop waits for has SCHED_FIFO 1 meanwhile: behind the machine's other work it would hold
// up emulated time for milliseconds. Nothing happens where that is refused.
class BorrowedPriority {
 public:
  void take();       // for the calling thread
  void give_back();  // any thread; idempotent

 private:
  pid_t thread_ = 0;  // 0: nothing is borrowed
  int policy_ = SCHED_OTHER;
  sched_param before_{};
};

}  // namespace loomnet
