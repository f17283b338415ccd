// How the gradients of a training job's buckets are summed over its ranks: one implementation per way in
// which sums travel. A model job gives buckets in and hears when each rank has the sum.
#pragma once

#include <cstdint>
#include <string>

#include "clock/time.hpp"
#include "collective/types.hpp"

namespace loomnet {

struct GradientBucket {
  std::uint32_t number = 0;     // from the front of the model: 0 is the front-most
  std::uint64_t bytes = 0;      // a multiple of 4: float32
  Attributes attributes;        // its layer, which is its number, its priority, and which one of the rank's it is
};

class BucketSums {
 public:
  class Sink {
   public:
    virtual ~Sink() = default;
    // Rank `rank` has the whole sum of the oldest bucket of that number which it has given and not had.
    virtual void summed(JobRank rank, std::uint32_t number, Picoseconds now) = 0;
    // Rank `rank` will get no sum any more. Heard once or more often.
    virtual void failed(JobRank rank, const std::string& reason, Picoseconds now) = 0;
  };
  virtual ~BucketSums() = default;

  // Whom to tell; set before the first begin().
  void tell(Sink& sink) { sink_ = &sink; }
  // The bucket's gradients are there on this rank. Buckets are given in the same order on all ranks, the
  // back-most first; a rank may give several before it has the sum of the first, and it gives none of the next
  // iteration before it has all sums of this one. summed() may be called from inside.
  virtual void begin(JobRank rank, const GradientBucket& bucket, Picoseconds now) = 0;

 protected:
  Sink& sink() const { return *sink_; }

 private:
  Sink* sink_ = nullptr;
};

}  // namespace loomnet
