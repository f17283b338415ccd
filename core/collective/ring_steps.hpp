// How a communicator goes through the steps of its rings, and who learns of the steps that it has received.
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
  // What the rank receives in this step of the ring is there, and reduced where it is to be.
  virtual void step_received(std::uint32_t communicator, std::uint32_t ring_step) = 0;
};

}  // namespace loomnet
