// Whether every other thread of this process sleeps. A thread that waits for a C++ future (DDP's
// reducer does) never tells the session so; the kernel knows.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace loomnet::rank {

class SleepWatch {
 public:
  // True if all threads but the caller's were asleep at one moment during the call: two readings
  // of their states, with no thread having run in between.
  bool others_asleep();

 private:
  using Slices = std::vector<std::pair<int, std::uint64_t>>;  // thread, times it was scheduled
  static bool read(Slices& out);
  Slices before_, after_;
};

}  // namespace loomnet::rank
