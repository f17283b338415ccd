// Sums of a training job's gradient buckets over its ranks: one implementation for each value of `allreduce`.
// ModelTraffic calls begin(), and the implementation calls the sink when a rank has the sum.
#pragma once

#include <cstdint>
#include <string>

#include "clock/time.hpp"
#include "collective/types.hpp"

namespace loomnet {

struct GradientBucket {
  std::uint32_t number = 0;     // from the front of the model: 0 is the front-most
  std::uint64_t bytes = 0;      // a multiple of 4: float32
  Attributes attributes;        // layer (= number), priority, sequence (of all buckets of the rank)
};

class BucketSums {
 public:
  class Sink {
   public:
    virtual ~Sink() = default;
    // Rank `rank` has the sum of the bucket `number` of its current iteration.
    virtual void summed(JobRank rank, std::uint32_t number, Picoseconds now) = 0;
    // Rank `rank` gets no sum from now on. May be called several times for one rank.
    virtual void failed(JobRank rank, const std::string& reason, Picoseconds now) = 0;
  };
  virtual ~BucketSums() = default;

  // Sets the sink of all ranks; call before the first begin().
  void tell(Sink& sink) { sink_ = &sink; }
  // Rank `rank` has computed the gradients of the bucket. All ranks begin the buckets of an iteration in the same
  // order, the back-most first, and may have several under way. No rank begins a bucket of the next iteration
  // before it has all sums of this one. The implementation may call summed() inside begin().
  virtual void begin(JobRank rank, const GradientBucket& bucket, Picoseconds now) = 0;

 protected:
  Sink& sink() const { return *sink_; }

 private:
  Sink* sink_ = nullptr;
};

}  // namespace loomnet
