// A collective repeated by every host of a job, run inside the engine: the traffic of training
// without the training. Real bytes (checked at the end of each repeat) or lengths only.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collective/executor.hpp"
#include "collective/step_log.hpp"
#include "engine/network.hpp"
#include "traffic/nic_executor.hpp"
#include "traffic/summed_values.hpp"

namespace loomnet {

struct CollectiveTrafficConfig {
  JobId job{};
  std::vector<NodeId> hosts;  // job rank r runs on hosts[r]
  Collective collective = Collective::all_reduce;
  std::uint64_t bytes = 0;    // of each rank's tensor (all_to_all, all_gather: of the whole output)
  // all_to_all only, not 0: rank r sends everything to rank r + shift alone, and so receives from
  // rank r - shift: send and receive as one operation.
  std::uint32_t shift = 0;
  std::uint32_t repeat = 1;
  Picoseconds start{};
  Picoseconds stop = kNever;  // no repeat begins then or later
  Picoseconds compute{};      // between the end of one repeat and the start of the next
  // Per-repeat compute times measured live and replayed here; empty: `compute`.
  std::vector<Picoseconds> gaps;
  Attributes attributes;  // layer, priority, loss tolerance and tag of every operation
  bool payload = false;
  bool await_sends = true;  // as CollectiveExecutor has it
  std::uint32_t slots = 8;
  std::uint32_t slot_payload = 65536;
  // all_reduce only: switches sum, and every rank has a queue pair for that alone (set_sum_pair).
  std::optional<SumShape> sums{};

  // Ring collectives only, as is all that follows. Rings, each with a communicator, queue pairs and a share of
  // the data of its own.
  std::uint32_t channels = 1;
  std::uint32_t first_step = 0;  // number of each ring's first step
  bool whole_steps = false;      // a rank sends a step once the step before has come whole
  // Mean time that a rank computes between a step's arrival and the next step's departure, exponential; above
  // 0, it goes with whole_steps.
  Picoseconds step_compute{};
  // Repeats after which the communicators are closed and made anew, one incarnation on; 0: never.
  std::uint32_t renew_every = 0;
};

class CollectiveTraffic final : public EventHandler {
 public:
  static constexpr std::uint32_t kMostChannels = 64;
  struct Iteration {
    Picoseconds begin, end;
  };

  // Every rank becomes a client of its host's NIC, with a staging region of the job.
  CollectiveTraffic(Network& network, const CollectiveTrafficConfig& config);
  ~CollectiveTraffic() override;

  std::uint32_t staging_key(JobRank rank, std::uint32_t channel = 0) const;
  // Rank `rank` reaches `peer` by this queue pair of its host, which belongs to the job. Throws
  // std::invalid_argument where it is another job's or another client's.
  void set_queue_pair(JobRank rank, JobRank peer, QpNumber qp, std::uint32_t channel = 0);
  // Ring steps from `rank` to `peer` take these queue pairs, (number at rank, number at peer), in turn, each as a
  // new one. Call it after set_queue_pair of both.
  void take_by_step(JobRank rank, JobRank peer, const std::vector<std::pair<QpNumber, QpNumber>>& pairs,
                    std::uint32_t channel = 0);
  // Rank `rank` has its part in sums by this queue pair of its host.
  void set_sum_pair(JobRank rank, QpNumber qp);
  // Schedules the first repeat; call after every queue pair is connected.
  void start();

  bool done() const { return finished_ == members_.size(); }
  Picoseconds ended() const { return ended_; }  // when the last rank was through so far
  // Repeats of rank r, in order.
  const std::vector<Iteration>& iterations(JobRank rank) const;
  // Repeats of the job, one after the other: rank 0's; of a broadcast, whose rank 0 receives nothing, each until
  // all ranks are through.
  const std::vector<Iteration>& iterations() const { return iterations_; }
  // Elements that differed from the expected result, over all ranks and repeats (payload only).
  std::uint64_t wrong() const { return wrong_; }
  // Payload bytes that the ranks' finished repeats were sent, and those of them that arrived.
  std::uint64_t expected_bytes() const { return expected_bytes_; }
  std::uint64_t delivered_bytes() const { return delivered_bytes_; }
  // Ranks whose operation failed, in the order of time.
  struct Failure {
    JobRank rank{};
    Picoseconds at{};
    std::string message;
  };
  const std::vector<Failure>& failures() const { return failures_; }
  std::uint64_t errors() const { return failures_.size(); }
  std::string first_error() const { return failures_.empty() ? std::string{} : failures_.front().message; }

  const StepLog& steps() const { return steps_; }

  void on_event(std::uint64_t what, Picoseconds now) override;

 private:
  class Member;
  // Event: kRelease | channel << 32 | rank, a rank's computing between two ring steps is over; else a rank's
  // number: its next repeat begins.
  static constexpr std::uint64_t kRelease = 1ull << 63;
  void through(JobRank rank);  // a rank has finished a repeat

  Network& network_;
  CollectiveTrafficConfig config_;
  StagingLayout layout_;
  RingSteps rings_;
  SummedValues values_;  // of sums in the network
  ObjectId id_;
  std::vector<std::unique_ptr<Member>> members_;
  std::vector<Iteration> iterations_;
  std::deque<std::size_t> through_;  // ranks that have finished each repeat that others have not
  std::uint32_t rounds_;  // repeats that begin: `repeat`, or fewer because of `stop`
  std::uint32_t decided_ = 0;  // repeats after which it has been decided whether another begins
  std::size_t finished_ = 0;
  Picoseconds ended_{};
  std::uint64_t wrong_ = 0;
  std::uint64_t expected_bytes_ = 0, delivered_bytes_ = 0;
  std::vector<Failure> failures_;
  StepLog steps_;
};

}  // namespace loomnet
