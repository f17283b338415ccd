// One rule per line of the table at Operation.
#include "collective/validate.hpp"

#include <set>
#include <stdexcept>
#include <string>

#include "collective/executor.hpp"
#include "collective/wire.hpp"

namespace loomnet {
namespace {

// Keeps every sum of bytes far inside 64 bits, and every chunk number inside 32.
constexpr std::uint64_t kMaxBytes = 1ull << 37;

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument("collective: " + what); }

std::uint64_t total_bytes(const Operation& op, const std::vector<std::uint64_t>& uneven, std::uint64_t blocks) {
  const std::uint64_t element = element_size(op.type);
  if (uneven.empty()) {
    if (op.count > kMaxBytes / element / blocks) refuse(describe(op) + " is larger than 128 GiB");
    return op.count * element * blocks;
  }
  std::uint64_t total = 0;
  for (const std::uint64_t c : uneven) {
    if (c > kMaxBytes / element) refuse(describe(op) + " is larger than 128 GiB");
    total += c * element;
    if (total > kMaxBytes) refuse(describe(op) + " is larger than 128 GiB");
  }
  return total;
}

// One side of an operation: how many blocks it has, and which memory.
void check_side(const Operation& op, const char* side, const Buffers& buffers, const std::vector<std::uint64_t>& uneven,
                std::uint64_t blocks, std::uint32_t size, bool carries_bytes) {
  if (!uneven.empty() && (blocks != size || uneven.size() != size)) {
    refuse(describe(op) + ": " + side + "_counts needs one entry per rank (" + std::to_string(size) +
           ") and a side of one block per rank");
  }
  const std::uint64_t bytes = total_bytes(op, uneven, blocks);
  if (!carries_bytes || bytes == 0) return;
  if (buffers.parts.size() != 1 && buffers.parts.size() != blocks) {
    refuse(describe(op) + ": " + side + " needs one pointer, or one per block (" + std::to_string(blocks) + "), not " +
           std::to_string(buffers.parts.size()));
  }
  for (std::size_t k = 0; k < buffers.parts.size(); ++k) {
    const std::uint64_t count = uneven.empty() ? op.count : uneven[k];
    if (buffers.parts[k] == nullptr && (buffers.parts.size() == 1 || count > 0)) {
      refuse(describe(op) + ": " + side + " has a null pointer");
    }
  }
}

}  // namespace

void check_members(std::uint32_t id, std::span<const JobRank> members, JobRank self, std::uint32_t ranks) {
  if (id > kMaxCommunicatorId) refuse("communicator identifiers are below 2^20");
  std::set<JobRank> seen;
  for (const JobRank member : members) {
    if (member >= ranks) {
      refuse("member " + std::to_string(member) + " is outside the job of " + std::to_string(ranks));
    }
    if (!seen.insert(member).second) refuse("member " + std::to_string(member) + " is listed twice");
  }
  if (!seen.contains(self)) refuse("own rank " + std::to_string(self) + " is not among the members");
}

void check_operation(const Operation& op, GroupRank rank, std::uint32_t size, bool carries_bytes) {
  if (static_cast<std::size_t>(op.collective) >= kCollectives || element_size(op.type) == 0) {
    refuse("unknown operation or data type");
  }
  const auto input = [&](std::uint64_t blocks) {
    check_side(op, "input", op.input, op.input_counts, blocks, size, carries_bytes);
  };
  const auto output = [&](std::uint64_t blocks) {
    check_side(op, "output", op.output, op.output_counts, blocks, size, carries_bytes);
  };
  const auto rooted = [&] {
    if (op.root >= size) refuse(describe(op) + ": root outside the communicator of " + std::to_string(size));
    return op.root == rank;
  };
  const auto reduces = [&] {
    if (!reducible(op.reduce, op.type)) {
      refuse(describe(op) + ": " + std::string(to_string(op.reduce)) + " is not defined for " +
             std::string(to_string(op.type)));
    }
  };
  const auto message = [&](bool any) {
    if (op.peer == rank || (op.peer >= size && !(any && op.peer == kAnySource))) {
      refuse(describe(op) + ": peer must be another rank of the communicator of " + std::to_string(size));
    }
    if (!carries_bytes && op.tag > Immediate::kSequenceMask) {
      refuse(describe(op) + ": tags are below 8192 where only lengths move");
    }
  };
  if (!(op.attributes.loss_tolerance >= 0 && op.attributes.loss_tolerance <= 1)) {
    refuse(describe(op) + ": loss_tolerance must be a share from 0 to 1");
  }
  switch (op.collective) {
    case Collective::all_reduce:
      reduces();
      input(1);
      output(1);
      break;
    case Collective::reduce_scatter: {
      reduces();
      input(size);
      Operation own = op;
      if (!op.input_counts.empty()) own.count = op.input_counts[rank];
      check_side(own, "output", op.output, op.output_counts, 1, size, carries_bytes);
      break;
    }
    case Collective::all_gather: {
      output(size);
      Operation own = op;
      if (!op.output_counts.empty()) own.count = op.output_counts[rank];
      check_side(own, "input", op.input, op.input_counts, 1, size, carries_bytes);
      break;
    }
    case Collective::broadcast:
      rooted() ? input(1) : output(1);
      break;
    case Collective::reduce:
      reduces();
      input(1);
      if (rooted()) output(1);
      break;
    case Collective::all_to_all:
      input(size);
      output(size);
      break;
    case Collective::barrier:
      break;
    case Collective::gather: {
      const bool root = rooted();
      Operation own = op;
      if (root) output(size);
      if (root && !op.output_counts.empty()) own.count = op.output_counts[rank];
      check_side(own, "input", op.input, op.input_counts, 1, size, carries_bytes);
      break;
    }
    case Collective::scatter: {
      const bool root = rooted();
      Operation own = op;
      if (root) input(size);
      if (root && !op.input_counts.empty()) own.count = op.input_counts[rank];
      check_side(own, "output", op.output, op.output_counts, 1, size, carries_bytes);
      break;
    }
    case Collective::send:
      message(false);
      input(1);
      break;
    case Collective::recv:
      message(true);
      output(1);
      break;
  }
}

}  // namespace loomnet
