// One communicator of one rank: its members, the channels that serve it, and whether it has
// failed. The two kinds of traffic run side by side in CollectiveRun and PointToPoint; CollectiveRun leaves
// what the network sums to SumRun.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "collective/channels.hpp"
#include "collective/ring_steps.hpp"
#include "collective/schedule.hpp"
#include "collective/types.hpp"

namespace loomnet {

class CollectiveRun;
class PointToPoint;
class SumRun;
struct SumPlace;

struct FinishedOperation {
  OperationId id;
  OperationResult result;
};

struct CommunicatorCounters {
  std::uint64_t collectives = 0, messages_sent = 0, messages_received = 0;
  std::uint64_t fused_chunks = 0;       // reduced straight into a send slot
  std::uint64_t unfused_chunks = 0;     // could have been, but no slot was free
  std::uint64_t unexpected_messages = 0, stalled_messages = 0, cleared_messages = 0;
};

class Communicator {
 public:
  Communicator(Channels& channels, std::uint32_t id, std::vector<JobRank> members, JobRank self, bool await_sends,
               CommunicatorCounters& counters, std::vector<FinishedOperation>& finished, const RingSteps& rings = {});
  ~Communicator();

  std::uint32_t id() const { return id_; }
  GroupRank rank() const { return rank_; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(members_.size()); }
  JobRank member(GroupRank rank) const { return members_[rank].job_rank; }
  bool has(JobRank rank) const { return by_job_rank_.contains(rank); }
  // Operations started and not finished.
  std::size_t unfinished() const;
  bool failed() const { return status_ != OperationStatus::ok; }
  OperationStatus status() const { return status_; }
  const std::string& fault() const { return fault_; }

  // --- for the executor and the runs --------------------------------------------------------------
  void set_planner(SchedulePlanner planner) { planner_ = std::move(planner); }
  const SchedulePlanner& planner() const { return planner_; }
  void watch_steps(StepWatch* watch) { watch_ = watch; }
  StepWatch* step_watch() const { return watch_; }
  const RingSteps& rings() const { return rings_; }
  void release_steps(std::uint32_t end);
  // From the first operation on, all-reduces that can be sums of the network are.
  void use_sums(const SumPlace& place);
  void start(OperationId id, Operation operation);
  bool cancel_receive(OperationId id);
  bool holds(OperationId id) const;
  void on_opened(JobRank peer, Traffic traffic, std::uint16_t channel);
  void on_data(JobRank peer, Traffic traffic);
  // A slot towards the peer became free.
  void on_room(JobRank peer, Traffic traffic);
  // A write to the peer has completed.
  void on_sent(JobRank peer, Traffic traffic, unsigned slot);
  void on_clear(JobRank peer, std::uint32_t message);
  // A request for a sum has completed.
  void on_sum(std::uint64_t request, WriteStatus status);

  // The first fault stays; the executor picks it up after each call. `culprit`: a member that broke
  // the protocol itself, so that its queue pair is given up as well.
  void raise(OperationStatus status, std::string message, GroupRank culprit = kAnySource);
  bool take_fresh_fault(GroupRank* culprit);
  // Finishes everything with the fault and stops listening.
  void fail_all();
  void close_channels();

  Channels& channels() { return channels_; }
  CommunicatorCounters& counters() { return counters_; }
  // Outbound channel to a member, opened on first use; -1 while all serve others: on_room() follows.
  int outbound(GroupRank to, Traffic traffic);
  int inbound(GroupRank from, Traffic traffic) const;
  // Slots towards a member whose writes an operation must await before it ends, one bit each.
  std::uint64_t unsent(GroupRank to, Traffic traffic) const;
  void finish(OperationId id, OperationResult result) { finished_.push_back({id, std::move(result)}); }
  // "rank 2" or "rank 2 (job rank 6)".
  std::string name(GroupRank rank) const;

 private:
  struct Member {
    JobRank job_rank = 0;
    std::int16_t out[2] = {-1, -1}, in[2] = {-1, -1};
  };

  int owned(GroupRank to, Traffic traffic) const;  // the outbound channel it has now, or -1
  void stop_listening();

  Channels& channels_;
  std::uint32_t id_;
  bool await_sends_;
  GroupRank rank_ = 0;
  std::vector<Member> members_;
  std::unordered_map<JobRank, GroupRank> by_job_rank_;
  CommunicatorCounters& counters_;
  std::vector<FinishedOperation>& finished_;
  const RingSteps rings_;
  StepWatch* watch_ = nullptr;
  SchedulePlanner planner_;
  OperationStatus status_ = OperationStatus::ok;
  std::string fault_;
  GroupRank culprit_ = kAnySource;
  bool fresh_fault_ = false;
  std::unique_ptr<SumRun> sums_;  // null: none of this communicator
  std::unique_ptr<CollectiveRun> collectives_;
  std::unique_ptr<PointToPoint> messages_;
};

}  // namespace loomnet
