// Schedules without intermediate ranks: all-to-all, gather, scatter, and the dissemination barrier.
#include "collective/schedule.hpp"

namespace loomnet {
namespace {

void add_if_any(StepKind kind, GroupRank peer, Range a, Range out, std::uint64_t length, Schedule& schedule) {
  if (length == 0) return;
  Step step;
  step.kind = kind;
  step.peer = peer;
  step.length = length;
  step.a = a;
  step.out = out;
  schedule.add(step);
}

}  // namespace

void direct_all_to_all(const ScheduleRequest& request, Schedule& schedule) {
  const Operation& op = request.operation;
  const std::uint64_t size = element_size(op.type);
  const GroupRank self = request.rank;
  add_if_any(StepKind::copy, self, {Space::input, self}, {Space::output, self}, input_block(op, self) * size, schedule);
  // Each rank starts with another peer, so that no receiver meets all senders at once.
  for (std::uint32_t i = 1; i < request.size; ++i) {
    const GroupRank to = (self + i) % request.size;
    const GroupRank from = (self + request.size - i) % request.size;
    add_if_any(StepKind::send, to, {Space::input, to}, {}, input_block(op, to) * size, schedule);
    add_if_any(StepKind::recv, from, {}, {Space::output, from}, output_block(op, from) * size, schedule);
  }
}

void direct_gather(const ScheduleRequest& request, Schedule& schedule) {
  const Operation& op = request.operation;
  const std::uint64_t size = element_size(op.type);
  if (request.rank != op.root) {
    add_if_any(StepKind::send, op.root, {Space::input}, {}, op.count * size, schedule);
    return;
  }
  add_if_any(StepKind::copy, op.root, {Space::input}, {Space::output, op.root}, output_block(op, op.root) * size,
             schedule);
  for (std::uint32_t i = 1; i < request.size; ++i) {
    const GroupRank from = (op.root + i) % request.size;
    add_if_any(StepKind::recv, from, {}, {Space::output, from}, output_block(op, from) * size, schedule);
  }
}

void direct_scatter(const ScheduleRequest& request, Schedule& schedule) {
  const Operation& op = request.operation;
  const std::uint64_t size = element_size(op.type);
  if (request.rank != op.root) {
    add_if_any(StepKind::recv, op.root, {}, {Space::output}, op.count * size, schedule);
    return;
  }
  add_if_any(StepKind::copy, op.root, {Space::input, op.root}, {Space::output}, input_block(op, op.root) * size,
             schedule);
  for (std::uint32_t i = 1; i < request.size; ++i) {
    const GroupRank to = (op.root + i) % request.size;
    add_if_any(StepKind::send, to, {Space::input, to}, {}, input_block(op, to) * size, schedule);
  }
}

void dissemination_barrier(const ScheduleRequest& request, Schedule& schedule) {
  // Round k: signal rank + 2^k, wait for rank - 2^k (Hensgen, Finkel, Manber, "Two algorithms for
  // barrier synchronization"). A round's receive waits for the round before it, so that its
  // completion stands for all earlier ones.
  std::int32_t received = kNoStep;
  for (std::uint64_t distance = 1; distance < request.size; distance <<= 1) {
    const auto d = static_cast<std::uint32_t>(distance);
    Step send;
    send.kind = StepKind::send;
    send.peer = (request.rank + d) % request.size;
    send.after = received;
    schedule.add(send);
    Step recv;
    recv.kind = StepKind::recv;
    recv.peer = (request.rank + request.size - d) % request.size;
    recv.after = received;
    received = schedule.add(recv);
  }
}

}  // namespace loomnet
