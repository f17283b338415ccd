// Buckets summed by the ranks' collective executors, each on its host's NIC: over a ring, lengths only; or by
// switches, where every rank has a queue pair for that.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "collective/staging.hpp"
#include "engine/network.hpp"
#include "traffic/bucket_sums.hpp"
#include "traffic/nic_executor.hpp"
#include "traffic/summed_values.hpp"

namespace loomnet {

struct ExecutorSumsConfig {
  JobId job{};
  std::vector<NodeId> hosts;     // job rank r runs on hosts[r]
  std::uint64_t longest = 0;     // bytes of the largest bucket
  bool await_sends = true;       // as CollectiveExecutor has it
  std::uint32_t slots = 8;
  std::uint32_t slot_payload = 65536;
  std::optional<SumShape> sums{};  // switches sum
  bool payload = false;            // real floats, whose sums are checked; only where switches sum
};

class ExecutorSums final : public BucketSums {
 public:
  ExecutorSums(Network& network, const ExecutorSumsConfig& config);
  ~ExecutorSums() override;

  // Rank `rank` reaches `peer` by this queue pair of its host, which belongs to the job.
  void set_queue_pair(JobRank rank, JobRank peer, QpNumber qp);
  // Rank `rank` has its part in sums of switches by this queue pair of its host.
  void set_sum_pair(JobRank rank, QpNumber qp);
  void begin(JobRank rank, const GradientBucket& bucket, Picoseconds now) override;

  // Elements that differed from the sum of all ranks', over all buckets; nothing without payload.
  std::optional<std::uint64_t> wrong() const { return payload_ ? std::optional(wrong_) : std::nullopt; }

 private:
  class Member;
  StagingLayout layout_;
  SummedValues values_;
  bool payload_;
  std::vector<std::unique_ptr<Member>> members_;
  std::uint64_t wrong_ = 0;
};

}  // namespace loomnet
