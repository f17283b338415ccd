// The largest throughput and the least round trip that a flow remembers, over its whole life or over the
// last 10 s. All flows' windows turn at the same times of the engine's clock, so that flows which empty
// their queue to measure the path anew do so together.
#pragma once

#include <array>
#include <cstdint>

#include "clock/time.hpp"
#include "transport/congestion/astraea/features.hpp"

namespace loomnet::astraea {

enum class Lifetime : std::uint8_t {
  connection,      // the publication's: from the flow's first packet on
  windowed,        // the last 10 s; without a drain, flows that keep a queue raise min_rtt window by window
  windowed_drain,  // the last 10 s, and the window is halved before the least round trip is forgotten
};

class Extremes {
 public:
  static constexpr Picoseconds kBucket = seconds(1);
  static constexpr std::size_t kBuckets = 10;

  explicit Extremes(Lifetime lifetime) : lifetime_(lifetime) {}
  // Takes in an interval that ended now. `least_rtt_us`: the least RTT sample in it; 0: none.
  void update(double avg_thr_Bps, double least_rtt_us, Picoseconds now);
  const Range& range() const { return range_; }
  // Whether min_rtt is forgotten within `ahead` from now, and only then: no later sample equals it.
  bool forgets_min_rtt(Picoseconds now, Picoseconds ahead) const;

 private:
  void forget(std::int64_t bucket);

  Lifetime lifetime_;
  Range range_;
  std::int64_t bucket_ = -1;  // number of the newest, since time 0
  std::array<Range, kBuckets> buckets_{};
};

}  // namespace loomnet::astraea
