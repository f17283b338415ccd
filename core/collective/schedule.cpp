// Block arithmetic and the choice of an algorithm.
#include "collective/schedule.hpp"

#include <algorithm>

namespace loomnet {

std::uint64_t input_block(const Operation& operation, GroupRank k) {
  return operation.input_counts.empty() ? operation.count : operation.input_counts[k];
}

std::uint64_t output_block(const Operation& operation, GroupRank k) {
  return operation.output_counts.empty() ? operation.count : operation.output_counts[k];
}

std::uint64_t split_offset(std::uint64_t count, std::uint32_t size, GroupRank k) {
  const std::uint64_t remainder = count % size;
  return count / size * k + std::min<std::uint64_t>(k, remainder);
}

void build_schedule(const ScheduleRequest& request, Schedule& schedule) {
  const Operation& op = request.operation;
  const std::uint64_t bytes = op.count * element_size(op.type);
  const bool tree = op.algorithm == Algorithm::tree || (op.algorithm == Algorithm::automatic && bytes <= kTreeBytes);
  const auto place = [&](GroupRank root) {
    return tree ? binomial_place(request.rank, request.size, root) : chain_place(request.rank, request.size, root);
  };
  switch (op.collective) {
    case Collective::all_reduce:
      // Up to two ranks the ring is the tree, and moves half the bytes.
      if (tree && request.size > 2) {
        const std::int32_t reduced = tree_reduce(request, place(0), schedule);
        tree_broadcast(request, place(0), {Space::output}, reduced, schedule);
      } else {
        ring_all_reduce(request, schedule);
      }
      break;
    case Collective::reduce_scatter:
      ring_reduce_scatter(request, schedule);
      break;
    case Collective::all_gather:
      ring_all_gather(request, schedule);
      break;
    case Collective::broadcast:
      tree_broadcast(request, place(op.root), {Space::input}, kNoStep, schedule);
      break;
    case Collective::reduce:
      tree_reduce(request, place(op.root), schedule);
      break;
    case Collective::all_to_all:
      direct_all_to_all(request, schedule);
      break;
    case Collective::gather:
      direct_gather(request, schedule);
      break;
    case Collective::scatter:
      direct_scatter(request, schedule);
      break;
    case Collective::barrier:
      dissemination_barrier(request, schedule);
      break;
    case Collective::send:
    case Collective::recv:
      break;
  }
}

}  // namespace loomnet
