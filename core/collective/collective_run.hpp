// Executes the schedules of one communicator's collectives, one operation after the other, each as
// a dataflow: a chunk moves as soon as it has a slot and a credit and the steps before it have ended. Sums of the
// network run several at a time, but not beside other collectives: an operation may read what the one before
// it writes.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "collective/channels.hpp"
#include "collective/communicator.hpp"
#include "collective/held_operations.hpp"
#include "collective/schedule.hpp"
#include "collective/sum_run.hpp"

namespace loomnet {

class CollectiveRun {
 public:
  explicit CollectiveRun(Communicator& communicator);
  void use_sums(SumRun& sums) { sums_ = &sums; }

  void start(OperationId id, Operation operation);
  void on_data(GroupRank from);
  void on_room(GroupRank to);
  void on_sent(GroupRank to, unsigned slot) { held_.on_sent(to, slot); }
  // A sum may have ended.
  void on_sum() {
    next();
    run();
  }
  // Ring steps below this number may be sent, where they are paced.
  void release_steps(std::uint32_t end);
  void fail_all(const OperationResult& result);
  std::size_t unfinished() const {
    return queue_.size() + (active_ ? 1 : 0) + held_.size() + (sums_ ? sums_->unfinished() : 0);
  }
  bool holds(OperationId id) const;

 private:
  struct Queued {
    OperationId id;
    Operation operation;
  };

  // A lane is the ordered list of steps that share a direction and a peer: sends to rank r are lane
  // r, receives from it lane size + r, local copies lane 2 × size.
  std::uint32_t lane_of(const Step& step) const;
  std::uint32_t receive_lane(GroupRank from) const { return size_ + from; }

  void next();
  void begin();
  void end();
  void index_schedule();
  void run();
  void touch(std::uint32_t lane);
  void run_sends(GroupRank to);
  void run_receives(GroupRank from);
  void run_copies();
  void receive_chunk(std::uint32_t index, const Chunk& chunk);
  bool forward_fused(std::uint32_t index, const std::uint8_t* incoming, std::uint32_t length);
  void transmit(std::uint32_t index, std::uint16_t channel, std::uint32_t length);
  void advance(std::uint32_t index);
  std::int64_t head(std::uint32_t lane) const;
  bool ready(std::uint32_t index) const;
  bool released(const Step& step) const;

  std::uint32_t chunks_of(const Step& step) const;
  std::uint32_t chunk_length(const Step& step, std::uint32_t chunk) const;
  std::uint8_t* resolve(const Range& range, std::uint64_t offset);
  const std::uint8_t* in_tensors(const Step& recv, std::uint64_t offset);
  SlotHeader header_of(const Step& step, std::uint32_t number, std::uint32_t chunk) const;
  bool front_agrees(GroupRank from, const Chunk& chunk, std::int64_t step);
  void prepare_memory(bool scaled);

  Communicator& communicator_;
  SumRun* sums_ = nullptr;  // null: no operation is a sum
  std::uint32_t size_;
  std::deque<Queued> queue_;
  HeldOperations held_;

  bool active_ = false;
  bool running_ = false;
  OperationId id_;
  Operation operation_;
  Received received_;            // of the active operation
  std::uint32_t sequence_ = 0;   // number of the active, or else of the next operation
  std::uint32_t ring_base_;      // number of this operation's first ring step
  std::uint32_t released_;       // ring steps below this number may be sent, where they are paced
  std::uint64_t agreed_count_ = 0;
  Schedule schedule_;
  std::uint32_t remaining_ = 0;  // steps not complete

  std::vector<std::uint32_t> done_;                          // chunks, per step
  std::vector<std::uint32_t> lane_begin_, lane_at_, lane_steps_;  // lanes as ranges of lane_steps_
  std::vector<std::uint32_t> waiter_begin_, waiters_;         // steps that wait for a step
  std::vector<std::uint32_t> work_;                          // lanes to look at
  std::vector<std::uint8_t> in_work_;
  std::vector<std::uint64_t> input_offsets_, output_offsets_;  // bytes before each uneven block
  std::unique_ptr<std::uint8_t[]> scratch_;
  std::uint64_t scratch_capacity_ = 0;
};

}  // namespace loomnet
