// A training job without the training: every rank computes for a model's time, hands each bucket of gradients
// over when backward has produced it, and begins the next iteration when all sums are there, as DDP does.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collective/sum_urgency.hpp"
#include "engine/network.hpp"
#include "traffic/bucket_sums.hpp"

namespace loomnet {

struct ModelTrafficConfig {
  JobId job{};
  std::vector<NodeId> hosts;  // job rank r runs on hosts[r]
  std::vector<std::uint64_t> buckets;  // bytes of each, the front-most first; multiples of 4
  std::uint32_t iterations = 1;
  Picoseconds start{};
  Picoseconds stop = kNever;  // no iteration begins then or later
  Picoseconds compute{};      // of one iteration
  double forward = 1.0 / 3;   // share of `compute` before backward begins
  double jitter = 0;          // each rank's compute of an iteration is up to this share longer or shorter
  BitsPerSecond link{1};      // rate at which a rank's host sends
  PriorityMode priority = PriorityMode::full;
  AskPriority ask;  // in place of `priority`, where it is given
};

class ModelTraffic final : public EventHandler, private BucketSums::Sink {
 public:
  struct Iteration {
    Picoseconds begin, end;
  };
  struct Failure {
    JobRank rank{};
    Picoseconds at{};
    std::string message;
  };

  // Throws std::invalid_argument. `sums` must outlive the traffic.
  ModelTraffic(Network& network, BucketSums& sums, const ModelTrafficConfig& config);
  ~ModelTraffic() override;

  // Schedules the first iteration; call when `sums` can begin.
  void start();

  bool done() const { return finished_ == ranks_.size(); }
  Picoseconds ended() const { return ended_; }  // when the last rank was through so far
  // Iterations of a rank, in order: from the begin of forward to the last sum.
  const std::vector<Iteration>& iterations(JobRank rank) const;
  // Compute times of a rank's iterations that have begun, in order.
  const std::vector<Picoseconds>& computed(JobRank rank) const;
  // Ranks that got no sum, in the order of time.
  const std::vector<Failure>& failures() const { return failures_; }

  void on_event(std::uint64_t what, Picoseconds now) override;

 private:
  class Rank;
  // Event numbers: a rank's number where the gradients of its next bucket are computed; kBegin + the rank's
  // number where its next iteration begins.
  static constexpr std::uint64_t kBegin = 1ull << 32;
  void summed(JobRank rank, std::uint32_t number, Picoseconds now) override;
  void failed(JobRank rank, const std::string& reason, Picoseconds now) override;

  Network& network_;
  BucketSums& sums_;
  ModelTrafficConfig config_;
  std::uint64_t bytes_ = 0;               // of all buckets
  std::vector<std::uint64_t> from_back_;  // by bucket: bytes of it and of all behind it
  ObjectId id_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::uint32_t rounds_;       // iterations that begin: `iterations`, or fewer because of `stop`
  std::uint32_t decided_ = 0;  // iterations after which it has been decided whether another begins
  std::size_t finished_ = 0;
  Picoseconds ended_{};
  std::vector<Failure> failures_;
};

}  // namespace loomnet
