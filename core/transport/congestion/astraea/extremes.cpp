// The buckets of the last 10 s; see extremes.hpp.
#include "transport/congestion/astraea/extremes.hpp"

#include <algorithm>

namespace loomnet::astraea {
namespace {

void widen(Range& range, double throughput, double rtt) {
  range.max_tput_Bps = std::max(range.max_tput_Bps, throughput);
  if (rtt > 0) range.min_rtt_us = range.min_rtt_us > 0 ? std::min(range.min_rtt_us, rtt) : rtt;
}

std::size_t row(std::int64_t bucket) {
  return static_cast<std::size_t>(bucket % static_cast<std::int64_t>(Extremes::kBuckets));
}

}  // namespace

// Empties what a new bucket takes the place of, and the buckets between it and the last one.
void Extremes::forget(std::int64_t bucket) {
  const auto count = static_cast<std::int64_t>(kBuckets);
  for (std::int64_t b = std::max(bucket_ + 1, bucket - count + 1); b <= bucket; ++b) buckets_[row(b)] = {};
  bucket_ = bucket;
}

void Extremes::update(double avg_thr_Bps, double least_rtt_us, Picoseconds now) {
  if (lifetime_ == Lifetime::connection) return widen(range_, avg_thr_Bps, least_rtt_us);
  if (const std::int64_t bucket = now / kBucket; bucket != bucket_) forget(bucket);
  widen(buckets_[row(bucket_)], avg_thr_Bps, least_rtt_us);
  range_ = {};
  for (const Range& each : buckets_) widen(range_, each.max_tput_Bps, each.min_rtt_us);
}

bool Extremes::forgets_min_rtt(Picoseconds now, Picoseconds ahead) const {
  if (lifetime_ == Lifetime::connection || bucket_ < 0 || range_.min_rtt_us <= 0) return false;
  const auto count = static_cast<std::int64_t>(kBuckets);
  for (std::int64_t b = bucket_; b > bucket_ - count && b >= 0; --b) {
    if (buckets_[row(b)].min_rtt_us == range_.min_rtt_us) return now + ahead >= kBucket * (b + count);
  }
  return false;
}

}  // namespace loomnet::astraea
