// Reading the lateness histogram.
#include "live/lateness.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace loomnet {

std::uint64_t LatenessHistogram::upper_of(std::size_t index) {
  if (index < (1u << kSubBits)) return index;
  const std::size_t exponent = (index >> kSubBits) - 1;
  const std::uint64_t mantissa = (index & ((1u << kSubBits) - 1)) + (1u << kSubBits);
  return ((mantissa + 1) << exponent) - 1;
}

Picoseconds LatenessHistogram::percentile(double p) const {
  if (count_ == 0) return {};
  const auto wanted = static_cast<std::uint64_t>(std::ceil(p * static_cast<double>(count_)));
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    seen += buckets_[i];
    if (seen >= std::max<std::uint64_t>(wanted, 1)) {
      return std::min(max_, nanoseconds(static_cast<std::int64_t>(upper_of(i))) + Picoseconds{999});
    }
  }
  return max_;
}

std::uint64_t LatenessHistogram::beyond(Picoseconds limit) const {
  const std::size_t last = index_of(static_cast<std::uint64_t>(std::max<std::int64_t>(limit.count, 0)) / 1000);
  return std::accumulate(buckets_.begin() + static_cast<long>(last) + 1, buckets_.end(), std::uint64_t{0});
}

void LatenessHistogram::merge(const LatenessHistogram& other) {
  for (std::size_t i = 0; i < buckets_.size(); ++i) buckets_[i] += other.buckets_[i];
  count_ += other.count_;
  max_ = std::max(max_, other.max_);
}

}  // namespace loomnet
