// How many frames a second this machine carries through XDP switches while the engine stays in time: measured on
// a small fabric of its own.
#pragma once

#include <cstdint>
#include <vector>

#include "clock/time.hpp"

namespace loomnet {

struct BudgetStep {
  double offered = 0;  // frames a second that the sources send into the first switch, times the switches
  double carried = 0;  // frames a second that came back from a switch
  Picoseconds p50{}, p99{};  // lateness of packets, of all switches of their way together
};

// Offers 50,000 frames a second, then at each step 30 % more, until the p99 lateness of a step is above `bound` four
// times running, or `most` is reached. Returns all steps. A step takes 0.14 s, the whole about 2 s.
// Throws LiveError.
std::vector<BudgetStep> probe_budget(Picoseconds bound, double most = 600'000);

}  // namespace loomnet
