// How urgent the sums of a real rank are whose script does not say: the facts that a priority weighs, taken from the
// rank's own sums and training steps. The rank's word is not trusted: whatever it sends, a priority comes out.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "collective/priority.hpp"
#include "packet/attributes.hpp"

namespace loomnet {

// Facts of a bucket that is about to be summed, for a priority plug-in.
struct BucketFacts {
  std::uint32_t rank = 0;
  std::uint32_t iteration = 0;  // from 1
  double progress = 0;          // share of the iteration's compute that is over
  std::uint64_t bytes = 0;
  Urgency urgency;
};
using AskPriority = std::function<std::uint8_t(const BucketFacts&)>;

struct SumUrgencyConfig {
  std::uint32_t rank = 0, job = 0;
  std::uint64_t seed = 0;
  std::uint32_t steps = 1;     // that the job takes
  BitsPerSecond link{1};       // at which the rank's host sends
  PriorityMode mode = PriorityMode::full;
  AskPriority ask{};           // in place of `mode`, where it is given
};

class SumUrgency {
 public:
  explicit SumUrgency(SumUrgencyConfig config) : config_(std::move(config)) {}

  // The rank has taken a training step. Its sums since the one before are the layers of the next: backward makes
  // the front-most layer's gradients last.
  void stepped(Picoseconds now);
  // Of a part of a sum: those of one operation have one priority. kNoPriority until a step has told how many sums
  // an iteration has.
  std::int16_t of_part(std::uint32_t communicator, std::uint32_t sequence, std::uint64_t bytes, Picoseconds now);
  void part_ended(Picoseconds now);

 private:
  SumUrgencyConfig config_;
  std::optional<JobPace> pace_;       // from the first step on
  std::optional<Picoseconds> began_;  // the iteration
  std::uint64_t steps_ = 0;
  std::uint64_t open_ = 0;            // parts under way
  Picoseconds open_since_{}, waited_{};  // of this iteration: time with a part under way
  std::uint32_t sums_ = 0, layers_ = 0;  // of this iteration; of the one before
  std::uint64_t bytes_ = 0, before_bytes_ = 0;
  std::uint64_t operation_ = ~std::uint64_t{0};
  std::int16_t priority_ = kNoPriority;
};

}  // namespace loomnet
