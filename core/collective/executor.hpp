// Runs collectives and point-to-point messages of one rank over Verbs. Sans-I/O: no thread, no
// clock, no system call; progress is driven by the events fed in.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collective/fill.hpp"
#include "collective/ring_steps.hpp"
#include "collective/schedule.hpp"
#include "collective/staging.hpp"
#include "collective/types.hpp"
#include "collective/verbs.hpp"
#include "packet/missing.hpp"

namespace loomnet {

// Chosen by the caller: the same on all members, unique in the job for its whole life, never used
// again after close(). Below 2^20. Members may create their communicators in any order.
using CommunicatorId = std::uint32_t;
inline constexpr CommunicatorId kMaxCommunicatorId = (1u << 20) - 1;

// Learns of finished operations. Called from inside the executor's own calls, after its state is
// consistent; it may call start(), abort() and close().
class OperationSink {
 public:
  virtual ~OperationSink() = default;
  virtual void finished(OperationId id, const OperationResult& result) = 0;
};

struct CollectiveCounter {
  std::string_view name;
  std::uint64_t value;
};

class Communicator;

class CollectiveExecutor {
 public:
  // `staging`: this rank's staging memory of layout.total_bytes(), or null to move lengths only.
  // Where the layout has an area for sums, all-reduces of the first communicator that holds all ranks of the
  // job in their order (PyTorch's default group) are sums of the network, as far as SumRun::takes them.
  // `await_sends`: an operation ends when its writes have completed too, as RDMA has it; false:
  // when they are posted, as a socket's send does. All references must outlive the executor.
  CollectiveExecutor(const StagingLayout& layout, JobRank self, std::uint8_t* staging, Verbs& verbs,
                     OperationSink& sink, bool await_sends = true);
  ~CollectiveExecutor();
  CollectiveExecutor(const CollectiveExecutor&) = delete;
  CollectiveExecutor& operator=(const CollectiveExecutor&) = delete;

  // `members` in group-rank order, this rank among them. `rings`: alike on all members. Throws
  // std::invalid_argument.
  void create(CommunicatorId id, std::span<const JobRank> members, const RingSteps& rings = {});
  // Communicators that are created from now on report their ring steps to `watch`; null: they do not.
  void watch_steps(StepWatch* watch);
  // Ring steps below this number may be sent by a communicator whose steps are paced; more than before.
  void release_steps(CommunicatorId id, std::uint32_t end);
  // Aborts what still runs, then forgets the communicator and gives its channels back.
  void close(CommunicatorId id);
  // Null if unknown. Include collective/communicator.hpp to ask it for rank, size or its fault.
  const Communicator* find(CommunicatorId id) const;
  // Replaces the choice of schedules from the next operation on; alike on all members.
  void set_planner(CommunicatorId id, SchedulePlanner planner);

  // Collectives of one communicator run in the order of start(); sends and receives are independent
  // of them. The operation may finish inside this call. Throws std::invalid_argument for what is
  // malformed here (unknown communicator, rank out of range, type that does not reduce, …).
  OperationId start(CommunicatorId id, Operation operation);
  // Ends a receive that nothing has matched yet with OperationStatus::aborted; anything else that
  // is not finished aborts its communicator, since its peers may already be part of it. False:
  // unknown or finished.
  bool cancel(OperationId id);
  // Fails every operation of the communicator here and, by a message, at its other members. It
  // stays failed until closed.
  void abort(CommunicatorId id, const std::string& reason);

  // --- events -----------------------------------------------------------------------------------
  // A peer's write-with-immediate was executed here; in the peer's posting order. `length` and
  // `immediate` are the peer's word and are checked: garbage fails the peer, by name. Missing bytes of the
  // payload are filled before they are used.
  void on_arrival(JobRank peer, std::uint32_t immediate, std::uint32_t length, const Missing& missing = {});
  // `missing` are bytes of the write that have not reached the peer.
  void on_completion(JobRank peer, std::uint64_t write_id, WriteStatus status, const Missing& missing = {});
  // A request of Verbs::post_sum has completed.
  void on_sum(std::uint64_t id, WriteStatus status);
  // The peer is gone for a reason only the caller knows.
  void on_peer_failure(JobRank peer, const std::string& reason);

  // What takes the place of missing bytes from now on; without it zeros.
  void set_fill(Fill fill);

  // No operation is unfinished.
  bool idle() const;
  // Every posted write has completed: only then may the rank leave without hurting its peers.
  bool quiescent() const;
  void counters(std::vector<CollectiveCounter>& out) const;
  // Blocks of sums with a value, or a sum, beyond the range of an int32.
  std::uint64_t sum_overflows() const;
  std::uint64_t sums_as_floats() const;  // of these, blocks that were summed as float32

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace loomnet
