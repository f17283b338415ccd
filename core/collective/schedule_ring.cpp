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

}  // namespace

void ring_all_reduce(const ScheduleRequest& request, Schedule& schedule) {
  const GroupRank next = around(request, 1), previous = around(request, -1);
  const std::uint32_t n = request.size;
  const Space input = request.input_in_scratch ? Space::scratch : Space::input;
  if (n == 1) {
    copy_if_any({input}, {Space::output}, split(request, 0).length, schedule);
    return;
  }
  // Reduce-scatter: in step s the block that started at rank b has come s ranks far. Partial sums
  // that find no free slot wait in the output, which this block's final value overwrites later: it
  // cannot come before the partial has left, since it contains it.
  std::int32_t received = kNoStep;
  std::uint32_t ring_step = 0;
  for (std::uint32_t s = 0; s < n; ++s, ++ring_step) {
    const Block out = split(request, around(request, -static_cast<std::int64_t>(s)));
    if (s < n - 1 && out.length > 0) {
      Step send;
      send.kind = StepKind::send;
      send.peer = next;
      send.ring_step = static_cast<std::int32_t>(ring_step);
      send.length = out.length;
      send.a = {s == 0 ? input : Space::output, 0, out.offset};
      send.after = received;
      send.chunkwise = true;
      schedule.add(send);
    }
    if (s == n - 1) break;
    const Block in = split(request, around(request, -static_cast<std::int64_t>(s) - 1));
    received = kNoStep;
    if (in.length == 0) continue;
    Step recv;
    recv.kind = StepKind::recv_reduce;
    recv.peer = previous;
    recv.length = in.length;
    recv.a = {input, 0, in.offset};
    recv.out = {Space::output, 0, in.offset};
    recv.transient = s + 2 < n;
    recv.finish = s + 2 == n;
    received = schedule.add(recv);
  }
  // All-gather: rank r starts with the block that is complete here, r+1.
  for (std::uint32_t s = 0; s + 1 < n; ++s) {
    const Block out = split(request, around(request, 1 - static_cast<std::int64_t>(s)));
    if (out.length > 0) {
      Step send;
      send.kind = StepKind::send;
      send.peer = next;
      send.ring_step = static_cast<std::int32_t>(n - 1 + s);
      send.length = out.length;
      send.a = {Space::output, 0, out.offset};
      send.after = received;
      send.chunkwise = true;
      schedule.add(send);
    }
    const Block in = split(request, around(request, -static_cast<std::int64_t>(s)));
    received = kNoStep;
    if (in.length == 0) continue;
    Step recv;
    recv.kind = StepKind::recv;
    recv.peer = previous;
    recv.length = in.length;
    recv.out = {Space::output, 0, in.offset};
    received = schedule.add(recv);
  }
  schedule.ring_steps += 2 * (n - 1);
}

void ring_reduce_scatter(const ScheduleRequest& request, Schedule& schedule) {
  const Operation& op = request.operation;
  const std::uint64_t size = element_size(op.type);
  const std::uint32_t n = request.size;
  const GroupRank next = around(request, 1), previous = around(request, -1);

  // Scratch: the scaled input if there is one, then a place for each partial sum. Offsets of both
  // run over the blocks in order.
  std::vector<std::uint64_t> offsets(n + 1, 0);
  for (GroupRank k = 0; k < n; ++k) offsets[k + 1] = offsets[k] + input_block(op, k) * size;
  const std::uint64_t partials =
      schedule.scratch_bytes + (request.input_in_scratch ? offsets[n] : 0);
  const auto contribution = [&](GroupRank k) -> Range {
    return request.input_in_scratch ? Range{Space::scratch, 0, offsets[k]}
                                    : Range{Space::input, k, 0};
  };
  if (n == 1) {
    copy_if_any(contribution(0), {Space::output}, input_block(op, 0) * size, schedule);
    schedule.scratch_bytes = partials;
    return;
  }
  // Block b leaves rank b+1 first and is complete at rank b after n-1 steps.
  std::int32_t received = kNoStep;
  for (std::uint32_t s = 0; s + 1 < n; ++s) {
    const GroupRank out = around(request, -1 - static_cast<std::int64_t>(s));
    if (input_block(op, out) > 0) {
      Step send;
      send.kind = StepKind::send;
      send.peer = next;
      send.ring_step = static_cast<std::int32_t>(s);
      send.length = input_block(op, out) * size;
      send.a = s == 0 ? contribution(out) : Range{Space::scratch, 0, partials + offsets[out]};
      send.after = received;
      send.chunkwise = true;
      schedule.add(send);
    }
    const GroupRank in = around(request, -2 - static_cast<std::int64_t>(s));
    received = kNoStep;
    if (input_block(op, in) == 0) continue;
    const bool last = s + 2 == n;
    Step recv;
    recv.kind = StepKind::recv_reduce;
    recv.peer = previous;
    recv.length = input_block(op, in) * size;
    recv.a = contribution(in);
    recv.out = last ? Range{Space::output} : Range{Space::scratch, 0, partials + offsets[in]};
    recv.transient = !last;
    recv.finish = last;
    received = schedule.add(recv);
  }
  schedule.scratch_bytes = partials + (n > 2 ? offsets[n] : 0);
  schedule.ring_steps += n - 1;
}

void ring_all_gather(const ScheduleRequest& request, Schedule& schedule) {
  const Operation& op = request.operation;
  const std::uint64_t size = element_size(op.type);
  const std::uint32_t n = request.size;
  const GroupRank next = around(request, 1), previous = around(request, -1);
  copy_if_any({Space::input}, {Space::output, request.rank}, output_block(op, request.rank) * size,
              schedule);
  std::int32_t received = kNoStep;
  for (std::uint32_t s = 0; s + 1 < n; ++s) {
    const GroupRank out = around(request, -static_cast<std::int64_t>(s));
    if (output_block(op, out) > 0) {
      Step send;
      send.kind = StepKind::send;
      send.peer = next;
      send.ring_step = static_cast<std::int32_t>(s);
      send.length = output_block(op, out) * size;
      send.a = s == 0 ? Range{Space::input} : Range{Space::output, out};
      send.after = received;
      send.chunkwise = true;
      schedule.add(send);
    }
    const GroupRank in = around(request, -1 - static_cast<std::int64_t>(s));
    received = kNoStep;
    if (output_block(op, in) == 0) continue;
    Step recv;
    recv.kind = StepKind::recv;
    recv.peer = previous;
    recv.length = output_block(op, in) * size;
    recv.out = {Space::output, in};
    received = schedule.add(recv);
  }
  schedule.ring_steps += n - 1;
}

}  // namespace loomnet
