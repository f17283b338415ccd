// Buckets summed by switches: each rank posts to its queue pair of transport "ina".
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/network.hpp"
#include "traffic/bucket_sums.hpp"
#include "traffic/sum_poster.hpp"

namespace loomnet {

struct SwitchSumsConfig {
  JobId job{};
  std::vector<NodeId> hosts;  // job rank r runs on hosts[r]
  SumShape shape;             // its members are the ranks
  bool payload = false;       // real int32, whose sums are checked
};

class SwitchSums final : public BucketSums {
 public:
  SwitchSums(Network& network, const SwitchSumsConfig& config);
  ~SwitchSums() override;

  // Rank `rank` has its part in sums by this queue pair of its host, which belongs to the job.
  void set_sum_pair(JobRank rank, QpNumber qp);
  void begin(JobRank rank, const GradientBucket& bucket, Picoseconds now) override;

  // Elements and exponents that differed from the sum of all ranks', over all buckets (payload only).
  std::uint64_t wrong() const { return wrong_; }

 private:
  class Member;
  Network& network_;
  SwitchSumsConfig config_;
  std::vector<std::unique_ptr<Member>> members_;
  std::uint64_t wrong_ = 0;
};

}  // namespace loomnet
