// Which things of a run a bounded recording keeps: those whose hash, keyed by the run's seed, lies
// below a limit. Each time the recording is full the limit is halved, so that what stays is what a
// recording with the smaller share would have held from the start.
#pragma once

#include <cstdint>

#include "clock/random.hpp"

namespace loomnet {

class Sampler {
 public:
  Sampler(std::uint64_t seed, std::uint64_t purpose) : seed_(seed), purpose_(purpose) {}

  bool keeps(std::uint64_t id) const { return hash_key(seed_, id, purpose_) <= limit_; }
  // Halves the share that is kept.
  void tighten() {
    limit_ >>= 1;
    ++halvings_;
  }
  // The share is 2^-halvings().
  int halvings() const { return halvings_; }

 private:
  std::uint64_t seed_, purpose_;
  std::uint64_t limit_ = ~0ull;
  int halvings_ = 0;
};

}  // namespace loomnet
