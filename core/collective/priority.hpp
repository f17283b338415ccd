// How urgent a bucket of gradients is, in 8 bits that travel with its packets: 255 is the most urgent.
//
// ESA raises the priority of jobs with little time left, of jobs that communicate much for their compute,
// and of front layers, which the next iteration needs first (Wang et al., "Efficient Data-Plane Memory
// Scheduling for In-Network Aggregation", 2022). The publication's abstract names no formula, width or
// scale: those are this project's.
#pragma once

#include <cstdint>
#include <string_view>

#include "clock/time.hpp"

namespace loomnet {

// full is the product of three factors, and each of the next three is one factor alone. none and fifo are one
// constant for all: what came first keeps its place. random draws by job, iteration and layer.
enum class PriorityMode : std::uint8_t { full, trem, ratio, layer, none, fifo, random };
// "esa" is full.
std::string_view to_string(PriorityMode mode);
// Throws std::invalid_argument.
PriorityMode priority_mode_named(std::string_view name);

struct Urgency {
  double remaining_s = 1;          // until the job ends
  double communication_ratio = 1;  // time that an iteration's gradients take at link rate, over its compute time
  std::uint32_t layers = 1;        // in which the gradients are sent …
  std::uint32_t layer = 0;         // … and which of them this is; 0 is the front-most
};

struct PriorityKey {  // what a random priority is drawn by
  std::uint64_t seed = 0;
  std::uint32_t job = 0;
  std::uint32_t iteration = 0;
};

inline constexpr std::uint8_t kLeastPriority = 1;      // 0 is left to switches that lower a priority
inline constexpr std::uint8_t kConstantPriority = 128;

// 1 to 255: the logarithm of remaining^-1 x ratio x layers / (layer + 1), from 2^-16 to 2^16, in steps of 9.1 %.
std::uint8_t priority_of(PriorityMode mode, const Urgency& urgency, const PriorityKey& key = {});

// What a rank knows of its own job's pace: means that give the latest iteration a weight of 1/4.
class JobPace {
 public:
  // `compute`: of an iteration, as the job states it, until one has been measured.
  explicit JobPace(Picoseconds compute) : stated_(compute.seconds()) {}

  void computed(Picoseconds compute) { blend(compute_, compute.seconds()); }
  void iterated(Picoseconds length) { blend(iteration_, length.seconds()); }

  double iteration_s() const { return iteration_ < 0 ? stated_ : iteration_; }
  // With this many iterations to come, and at most until `stop`, so long after now.
  double remaining_s(std::uint32_t iterations, Picoseconds stop = kNever) const;
  double communication_ratio(std::uint64_t gradient_bytes, BitsPerSecond link) const;

 private:
  static void blend(double& mean, double sample) { mean = mean < 0 ? sample : mean + 0.25 * (sample - mean); }
  double stated_;
  double compute_ = -1, iteration_ = -1;  // < 0: not measured yet
};

}  // namespace loomnet
