// Distribution of lateness in fixed logarithmic buckets: 16 per doubling, so a percentile is right
// to 6 % from a nanosecond to an hour, and recording costs a few instructions and no memory.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "clock/time.hpp"

namespace loomnet {

struct LatenessSummary {
  std::uint64_t count = 0;
  Picoseconds p50{}, p99{}, p999{}, max{};
};

class LatenessHistogram {
 public:
  // Early (negative) counts as on time.
  void record(Picoseconds lateness) {
    const std::uint64_t ns = lateness.count > 0 ? static_cast<std::uint64_t>(lateness.count) / 1000 : 0;
    ++buckets_[index_of(ns)];
    ++count_;
    if (lateness > max_) max_ = lateness;
  }
  std::uint64_t count() const { return count_; }
  Picoseconds max() const { return max_; }
  // Upper bound of the bucket that holds the share `p` of all records, at most max(); 0 when empty.
  Picoseconds percentile(double p) const;
  // How many records are in buckets above that of `limit`.
  std::uint64_t beyond(Picoseconds limit) const;
  LatenessSummary summary() const { return {count_, percentile(0.5), percentile(0.99), percentile(0.999), max_}; }
  void merge(const LatenessHistogram& other);
  void clear() { *this = LatenessHistogram(); }

 private:
  static constexpr int kSubBits = 4;  // 16 buckets per doubling
  static constexpr std::size_t kBuckets = (42 - kSubBits + 1) << kSubBits;  // up to 2^42 ns
  static std::size_t index_of(std::uint64_t ns) {
    if (ns < (1u << kSubBits)) return ns;
    const int exponent = std::bit_width(ns) - 1 - kSubBits;
    const std::size_t index = (static_cast<std::size_t>(exponent) << kSubBits) + (ns >> exponent);
    return index < kBuckets ? index : kBuckets - 1;
  }
  static std::uint64_t upper_of(std::size_t index);

  std::array<std::uint64_t, kBuckets> buckets_{};
  std::uint64_t count_ = 0;
  Picoseconds max_{};
};

}  // namespace loomnet
