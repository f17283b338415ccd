// Facts of a real rank's sums from what it is seen to do.
#include "collective/sum_urgency.hpp"

#include <algorithm>

namespace loomnet {

void SumUrgency::stepped(Picoseconds now) {
  if (open_ > 0) waited_ = waited_ + (now - open_since_);
  open_since_ = now;
  if (began_) {
    const Picoseconds length = now - *began_;
    // Compute that hides behind the network is not seen: what is left is the time with no sum under way.
    const Picoseconds compute = std::max(length - waited_, Picoseconds{});
    if (!pace_) pace_.emplace(compute);
    pace_->computed(compute);
    pace_->iterated(length);
  }
  began_ = now;
  waited_ = Picoseconds{};
  layers_ = std::exchange(sums_, 0);
  before_bytes_ = std::exchange(bytes_, 0);
  ++steps_;
}

std::int16_t SumUrgency::of_part(std::uint32_t communicator, std::uint32_t sequence, std::uint64_t bytes,
                                 Picoseconds now) {
  if (open_++ == 0) open_since_ = now;
  bytes_ += bytes;
  const std::uint64_t operation = std::uint64_t{communicator} << 32 | sequence;
  if (operation == operation_) return priority_;
  operation_ = operation;
  const std::uint32_t number = sums_++;
  if (!pace_ || layers_ == 0) return priority_ = kNoPriority;
  const auto left = static_cast<std::uint32_t>(config_.steps - std::min<std::uint64_t>(steps_, config_.steps));
  const Urgency urgency{pace_->remaining_s(left), pace_->communication_ratio(before_bytes_, config_.link), layers_,
                        layers_ - 1 - std::min(number, layers_ - 1)};
  const auto iteration = static_cast<std::uint32_t>(steps_);
  if (!config_.ask) {
    return priority_ = priority_of(config_.mode, urgency, {config_.seed, config_.job, iteration});
  }
  const double over = (number + 1.0) / layers_;
  return priority_ = config_.ask({config_.rank, iteration + 1, std::min(over, 1.0), bytes, urgency});
}

void SumUrgency::part_ended(Picoseconds now) {
  if (open_ == 0 || --open_ > 0) return;
  waited_ = waited_ + (now - open_since_);
}

}  // namespace loomnet
