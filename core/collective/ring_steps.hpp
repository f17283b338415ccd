// Settings of a communicator's ring steps: their numbers and when a rank may send one; and a watch of them.
#pragma once

#include <cstdint>

namespace loomnet {

// A ring step is numbered from the communicator's first one on, modulo 2^32; all ranks agree on the numbers,
// since they run the same collectives in the same order.
struct RingSteps {
  std::uint32_t first = 0;  // number of the communicator's first step
  // A rank sends a step once the step before has come whole; otherwise each chunk as soon as it has come.
  bool whole = false;
  // A rank sends a step, besides, only once CollectiveExecutor::release_steps has let it; goes with `whole`.
  bool paced = false;
};

// Called from inside the executor's own calls: it may not call the executor.
class StepWatch {
 public:
  virtual ~StepWatch() = default;
  // The rank has received all bytes of this ring step, and reduced them where the collective sums.
  virtual void step_received(std::uint32_t communicator, std::uint32_t ring_step) = 0;
};

}  // namespace loomnet
