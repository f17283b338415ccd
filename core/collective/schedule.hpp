// Schedules as data: what one rank sends, receives, reduces and copies, and what waits for what.
// Builders are pure functions; the executor knows no algorithm.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "collective/types.hpp"

namespace loomnet {

enum class Space : std::uint8_t { input, output, scratch };

// Bytes of the operation's memory: part k of Buffers (by rank; 0 for a single tensor), or scratch.
struct Range {
  Space space = Space::input;
  std::uint32_t part = 0;
  std::uint64_t offset = 0;
};

enum class StepKind : std::uint8_t {
  send,         // a -> peer
  recv,         // peer -> out
  recv_reduce,  // peer's bytes op a -> out
  copy,         // a -> out, here
};

inline constexpr std::int32_t kNoStep = -1;

// A step moves `length` bytes in chunks of one slot each; length 0 is one empty chunk (a signal).
// Steps towards one peer run in program order, as do steps from one peer; apart from that, a step
// waits for `after` alone. So the k-th send to a peer must be that peer's k-th receive from here.
struct Step {
  StepKind kind = StepKind::copy;
  // chunk i waits for chunk i of `after` (same length), instead of for all of it.
  bool chunkwise = false;
  // recv_reduce: only the chunkwise send that follows reads `out`; the executor may reduce
  // straight into that send's slot and leave `out` unwritten.
  bool transient = false;
  // recv_reduce: the value is complete; apply what ends the reduction (avg's division).
  bool finish = false;
  GroupRank peer = 0;
  std::int32_t after = kNoStep;
  // send and receive: number of the ring step, common to all ranks.
  std::int32_t ring_step = kNoStep;
  std::uint64_t length = 0;
  Range a, out;
};

struct Schedule {
  std::vector<Step> steps;
  std::uint64_t scratch_bytes = 0;
  std::uint32_t ring_steps = 0;  // what this operation adds to the communicator's step count
  void clear() {
    steps.clear();
    scratch_bytes = 0;
    ring_steps = 0;
  }
  std::int32_t add(const Step& step) {
    steps.push_back(step);
    return static_cast<std::int32_t>(steps.size()) - 1;
  }
};

struct ScheduleRequest {
  const Operation& operation;
  GroupRank rank = 0;
  std::uint32_t size = 1;
  // premul_sum: the executor has put factor × input into scratch, laid out block after block; the
  // schedule reads contributions from there.
  bool input_in_scratch = false;
};

// Replaces the built-in choice for a communicator, for hierarchical or in-network schedules: fills
// the schedule and returns true, or returns false to leave the operation to build_schedule. All
// members must decide alike.
using SchedulePlanner = std::function<bool(const ScheduleRequest&, Schedule&)>;

// Messages up to this many bytes go over a tree where Algorithm is automatic.
inline constexpr std::uint64_t kTreeBytes = 4096;

// Elements of rank k's block on the side named; the even or the uneven form.
std::uint64_t input_block(const Operation& operation, GroupRank k);
std::uint64_t output_block(const Operation& operation, GroupRank k);

// First element of block k when `count` elements are split over `size` ranks as evenly as can be.
std::uint64_t split_offset(std::uint64_t count, std::uint32_t size, GroupRank k);

// Fills `schedule` for any collective (not send, recv).
void build_schedule(const ScheduleRequest& request, Schedule& schedule);

// The families, each usable on its own. They append, so that larger schedules are compositions.
void ring_all_reduce(const ScheduleRequest& request, Schedule& schedule);
void ring_reduce_scatter(const ScheduleRequest& request, Schedule& schedule);
void ring_all_gather(const ScheduleRequest& request, Schedule& schedule);

// One rank's place in a tree or chain (a chain has one child per rank).
struct TreePlace {
  static constexpr GroupRank kNone = 0xffff'ffffu;
  GroupRank parent = kNone;
  std::vector<GroupRank> children;
};
TreePlace binomial_place(GroupRank rank, std::uint32_t size, GroupRank root);
TreePlace chain_place(GroupRank rank, std::uint32_t size, GroupRank root);
// Returns the step after which `source` (at the root) or the output (elsewhere) is complete.
std::int32_t tree_reduce(const ScheduleRequest& request, const TreePlace& place, Schedule& schedule);
void tree_broadcast(const ScheduleRequest& request, const TreePlace& place, Range source, std::int32_t after,
                    Schedule& schedule);

void direct_all_to_all(const ScheduleRequest& request, Schedule& schedule);
void direct_gather(const ScheduleRequest& request, Schedule& schedule);
void direct_scatter(const ScheduleRequest& request, Schedule& schedule);
void dissemination_barrier(const ScheduleRequest& request, Schedule& schedule);

}  // namespace loomnet
