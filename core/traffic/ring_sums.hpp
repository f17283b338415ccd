// Buckets summed by all-reduce between the ranks: an executor each, on its host's NIC; lengths only.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "collective/staging.hpp"
#include "engine/network.hpp"
#include "traffic/bucket_sums.hpp"

namespace loomnet {

struct RingSumsConfig {
  JobId job{};
  std::vector<NodeId> hosts;     // job rank r runs on hosts[r]
  std::uint64_t longest = 0;     // bytes of the largest bucket
  bool await_sends = true;       // as CollectiveExecutor has it
  std::uint32_t slots = 8;
  std::uint32_t slot_payload = 65536;
};

class RingSums final : public BucketSums {
 public:
  RingSums(Network& network, const RingSumsConfig& config);
  ~RingSums() override;

  // Rank `rank` reaches `peer` by this queue pair of its host, which belongs to the job.
  void set_queue_pair(JobRank rank, JobRank peer, QpNumber qp);
  void begin(JobRank rank, const GradientBucket& bucket, Picoseconds now) override;

 private:
  class Member;
  StagingLayout layout_;
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace loomnet
