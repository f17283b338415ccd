// Ring schedules: rank r sends to r+1 and receives from r-1. A block is reduced in one place and
// then only copied, so all ranks end with the same bits (Patarasuk, Yuan, "Bandwidth optimal
// all-reduce algorithms for clusters of workstations").
#include "collective/schedule.hpp"

namespace loomnet {
namespace {

// (rank + distance) mod size, for distances down to -size.
GroupRank around(const ScheduleRequest& request, std::int64_t distance) {
  const std::int64_t n = request.size;
  return static_cast<GroupRank>(((request.rank + distance) % n + n) % n);
}

struct Block {
  std::uint64_t offset, length;  // bytes
};

Block split(const ScheduleRequest& request, GroupRank k) {
  const std::uint64_t size = element_size(request.operation.type);
  const std::uint64_t from = split_offset(request.operation.count, request.size, k);
  const std::uint64_t to = split_offset(request.operation.count, request.size, k + 1);
  return {from * size, (to - from) * size};
}

void copy_if_any(Range from, Range to, std::uint64_t length, Schedule& schedule) {
  if (length == 0) return;
  Step step;
  step.kind = StepKind::copy;
  step.length = length;
  step.a = from;
  step.out = to;
  schedule.add(step);
}

// Where this rank stands, and the three things it does in a step of the ring, a block at a time. An
// empty block is neither sent nor received.
class Ring {
 public:
  Ring(const ScheduleRequest& request, Schedule& schedule)
      : schedule_(schedule), next_(around(request, 1)), previous_(around(request, -1)) {}

  // To the next rank, each chunk as soon as it has come in the step before.
  void pass_on(Range block, std::uint64_t length, std::uint32_t ring_step) {
    if (length == 0) return;
    Step send;
    send.kind = StepKind::send;
    send.peer = next_;
    send.ring_step = static_cast<std::int32_t>(ring_step);
    send.length = length;
    send.a = block;
    send.after = received_;
    send.chunkwise = true;
    schedule_.add(send);
  }
  // From the rank before, into `out`.
  void take(Range out, std::uint64_t length, std::uint32_t ring_step) {
    receive({.kind = StepKind::recv, .out = out}, length, ring_step);
  }
  // The same, with this rank's contribution added; `last` completes the sum.
  void reduce(Range contribution, Range out, std::uint64_t length, std::uint32_t ring_step, bool last) {
    receive({.kind = StepKind::recv_reduce, .transient = !last, .finish = last, .a = contribution, .out = out}, length,
            ring_step);
  }

 private:
  void receive(Step recv, std::uint64_t length, std::uint32_t ring_step) {
    received_ = kNoStep;
    if (length == 0) return;
    recv.peer = previous_;
    recv.ring_step = static_cast<std::int32_t>(ring_step);
    recv.length = length;
    received_ = schedule_.add(recv);
  }

  Schedule& schedule_;
  GroupRank next_, previous_;
  std::int32_t received_ = kNoStep;  // what the next block to be passed on came in
};

}  // namespace

void ring_all_reduce(const ScheduleRequest& request, Schedule& schedule) {
  const std::uint32_t n = request.size;
  const Space input = request.input_in_scratch ? Space::scratch : Space::input;
  if (n == 1) {
    copy_if_any({input}, {Space::output}, split(request, 0).length, schedule);
    return;
  }
  Ring ring(request, schedule);
  // Reduce-scatter: in step s the block that started at rank b has come s ranks far. Partial sums
  // that find no free slot wait in the output, which this block's final value overwrites later: it
  // cannot come before the partial has left, since it contains it.
  for (std::uint32_t s = 0; s + 1 < n; ++s) {
    const Block out = split(request, around(request, -static_cast<std::int64_t>(s)));
    ring.pass_on({s == 0 ? input : Space::output, 0, out.offset}, out.length, s);
    const Block in = split(request, around(request, -static_cast<std::int64_t>(s) - 1));
    ring.reduce({input, 0, in.offset}, {Space::output, 0, in.offset}, in.length, s, s + 2 == n);
  }
  // All-gather: rank r starts with the block that is complete here, r+1.
  for (std::uint32_t s = 0; s + 1 < n; ++s) {
    const Block out = split(request, around(request, 1 - static_cast<std::int64_t>(s)));
    ring.pass_on({Space::output, 0, out.offset}, out.length, n - 1 + s);
    const Block in = split(request, around(request, -static_cast<std::int64_t>(s)));
    ring.take({Space::output, 0, in.offset}, in.length, n - 1 + s);
  }
  schedule.ring_steps += 2 * (n - 1);
}

void ring_reduce_scatter(const ScheduleRequest& request, Schedule& schedule) {
  const Operation& op = request.operation;
  const std::uint64_t size = element_size(op.type);
  const std::uint32_t n = request.size;

  // Scratch: the scaled input if there is one, then a place for each partial sum. Offsets of both
  // run over the blocks in order.
  std::vector<std::uint64_t> offsets(n + 1, 0);
  for (GroupRank k = 0; k < n; ++k) offsets[k + 1] = offsets[k] + input_block(op, k) * size;
  const std::uint64_t partials = schedule.scratch_bytes + (request.input_in_scratch ? offsets[n] : 0);
  const auto contribution = [&](GroupRank k) -> Range {
    return request.input_in_scratch ? Range{Space::scratch, 0, offsets[k]} : Range{Space::input, k, 0};
  };
  if (n == 1) {
    copy_if_any(contribution(0), {Space::output}, input_block(op, 0) * size, schedule);
    schedule.scratch_bytes = partials;
    return;
  }
  // Block b leaves rank b+1 first and is complete at rank b after n-1 steps.
  const auto partial = [&](GroupRank k) { return Range{Space::scratch, 0, partials + offsets[k]}; };
  Ring ring(request, schedule);
  for (std::uint32_t s = 0; s + 1 < n; ++s) {
    const GroupRank out = around(request, -1 - static_cast<std::int64_t>(s));
    ring.pass_on(s == 0 ? contribution(out) : partial(out), input_block(op, out) * size, s);
    const GroupRank in = around(request, -2 - static_cast<std::int64_t>(s));
    const bool last = s + 2 == n;
    ring.reduce(contribution(in), last ? Range{Space::output} : partial(in), input_block(op, in) * size, s, last);
  }
  schedule.scratch_bytes = partials + (n > 2 ? offsets[n] : 0);
  schedule.ring_steps += n - 1;
}

void ring_all_gather(const ScheduleRequest& request, Schedule& schedule) {
  const Operation& op = request.operation;
  const std::uint64_t size = element_size(op.type);
  const std::uint32_t n = request.size;
  copy_if_any({Space::input}, {Space::output, request.rank}, output_block(op, request.rank) * size, schedule);
  Ring ring(request, schedule);
  for (std::uint32_t s = 0; s + 1 < n; ++s) {
    const GroupRank out = around(request, -static_cast<std::int64_t>(s));
    ring.pass_on(s == 0 ? Range{Space::input} : Range{Space::output, out}, output_block(op, out) * size, s);
    const GroupRank in = around(request, -1 - static_cast<std::int64_t>(s));
    ring.take({Space::output, in}, output_block(op, in) * size, s);
  }
  schedule.ring_steps += n - 1;
}

}  // namespace loomnet
