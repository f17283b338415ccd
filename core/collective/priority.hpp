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

// full is the product of three factors; trem, ratio and layer are one factor each. none and fifo give all buckets
// kConstantPriority. random draws a priority for each job, iteration and layer.
enum class PriorityMode : std::uint8_t { full, trem, ratio, layer, none, fifo, random };
// "esa" is full.
std::string_view to_string(PriorityMode mode);
// Throws std::invalid_argument.
PriorityMode priority_mode_named(std::string_view name);

struct Urgency {
  double remaining_s = 1;          // until the job ends
  double communication_ratio = 1;  // time that an iteration's gradients take at link rate, over its compute time
  std::uint32_t layers = 1;        // number of buckets of an iteration
  std::uint32_t layer = 0;         // number of this bucket; 0 is the front-most of the model
};

struct PriorityKey {  // keys of the draw of a random priority
  std::uint64_t seed = 0;
  std::uint32_t job = 0;
  std::uint32_t iteration = 0;
};

inline constexpr std::uint8_t kLeastPriority = 1;      // 0 is left to switches that lower a priority
inline constexpr std::uint8_t kConstantPriority = 128;

// 1 to 255: the logarithm of remaining^-1 x ratio x layers / (layer + 1), from 2^-16 to 2^16, in steps of 9.1 %.
std::uint8_t priority_of(PriorityMode mode, const Urgency& urgency, const PriorityKey& key = {});

// Mean times of a rank's iterations and of their compute. The latest iteration has a weight of 1/4.
class JobPace {
 public:
  // `compute`: the job's stated compute time, used for both means until an iteration has been measured.
  explicit JobPace(Picoseconds compute) : stated_(compute.seconds()) {}

  void computed(Picoseconds compute) { blend(compute_, compute.seconds()); }
  void iterated(Picoseconds length) { blend(iteration_, length.seconds()); }

  double iteration_s() const { return iteration_ < 0 ? stated_ : iteration_; }
  // Time for this many iterations, or fewer where `stop`, counted from now, comes before their end.
  double remaining_s(std::uint32_t iterations, Picoseconds stop = kNever) const;
  double communication_ratio(std::uint64_t gradient_bytes, BitsPerSecond link) const;

 private:
  static void blend(double& mean, double sample) { mean = mean < 0 ? sample : mean + 0.25 * (sample - mean); }
  double stated_;
  double compute_ = -1, iteration_ = -1;  // < 0: not measured yet
};

}  // namespace loomnet
