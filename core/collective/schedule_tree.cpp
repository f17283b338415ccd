// Broadcast and reduce along a tree: binomial where hops dominate, a chain where bytes do. Both are
// pipelined chunk by chunk, and the order of additions is fixed by the schedule.
#include <algorithm>

#include "collective/schedule.hpp"

namespace loomnet {

TreePlace binomial_place(GroupRank rank, std::uint32_t size, GroupRank root) {
  // In ranks relative to the root, r's parent is r without its lowest set bit.
  const std::uint32_t relative = (rank + size - root) % size;
  TreePlace place;
  if (relative != 0) place.parent = (root + (relative & (relative - 1))) % size;
  for (std::uint64_t bit = 1; relative + bit < size && (relative & bit) == 0; bit <<= 1) {
    place.children.push_back(static_cast<GroupRank>((root + relative + bit) % size));
  }
  // The largest subtree first.
  std::reverse(place.children.begin(), place.children.end());
  return place;
}

TreePlace chain_place(GroupRank rank, std::uint32_t size, GroupRank root) {
  const std::uint32_t relative = (rank + size - root) % size;
  TreePlace place;
  if (relative != 0) place.parent = (rank + size - 1) % size;
  if (relative + 1 < size) place.children.push_back((rank + 1) % size);
  return place;
}

std::int32_t tree_reduce(const ScheduleRequest& request, const TreePlace& place, Schedule& schedule) {
  const Operation& op = request.operation;
  const std::uint64_t bytes = op.count * element_size(op.type);
  if (bytes == 0) return kNoStep;
  const bool root = place.parent == TreePlace::kNone;
  const Range contribution{request.input_in_scratch ? Space::scratch : Space::input, 0, 0};
  // Only the root's output may be written (Operation: reduce), so partial sums live in scratch.
  const Range partial{Space::scratch, 0, schedule.scratch_bytes + (request.input_in_scratch ? bytes : 0)};
  const Range result = root ? Range{Space::output} : partial;
  schedule.scratch_bytes = partial.offset + (root || place.children.empty() ? 0 : bytes);
  if (root && place.children.empty()) {
    Step copy;
    copy.kind = StepKind::copy;
    copy.length = bytes;
    copy.a = contribution;
    copy.out = result;
    return schedule.add(copy);
  }
  // Children in the reverse order of a broadcast: the smallest subtree is ready first.
  std::int32_t last = kNoStep;
  for (auto child = place.children.rbegin(); child != place.children.rend(); ++child) {
    Step recv;
    recv.kind = StepKind::recv_reduce;
    recv.peer = *child;
    recv.length = bytes;
    recv.a = last == kNoStep ? contribution : result;
    recv.out = result;
    recv.after = last;
    recv.chunkwise = true;
    recv.transient = !root && std::next(child) == place.children.rend();
    recv.finish = root && std::next(child) == place.children.rend();
    last = schedule.add(recv);
  }
  if (!root) {
    Step send;
    send.kind = StepKind::send;
    send.peer = place.parent;
    send.length = bytes;
    send.a = last == kNoStep ? contribution : result;
    send.after = last;
    send.chunkwise = true;
    schedule.add(send);
  }
  return last;
}

void tree_broadcast(const ScheduleRequest& request, const TreePlace& place, Range source, std::int32_t after,
                    Schedule& schedule) {
  const Operation& op = request.operation;
  const std::uint64_t bytes = op.count * element_size(op.type);
  if (bytes == 0) return;
  const bool root = place.parent == TreePlace::kNone;
  Range from = source;
  if (!root) {
    Step recv;
    recv.kind = StepKind::recv;
    recv.peer = place.parent;
    recv.length = bytes;
    recv.out = {Space::output};
    after = schedule.add(recv);
    from = {Space::output};
  } else if (source.space == Space::input) {
    Step copy;
    copy.kind = StepKind::copy;
    copy.length = bytes;
    copy.a = source;
    copy.out = {Space::output};
    schedule.add(copy);
  }
  for (const GroupRank child : place.children) {
    Step send;
    send.kind = StepKind::send;
    send.peer = child;
    send.length = bytes;
    send.a = from;
    send.after = after;
    send.chunkwise = true;
    schedule.add(send);
  }
}

}  // namespace loomnet
