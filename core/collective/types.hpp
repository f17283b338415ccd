// What a collective is asked to do: data types, reduction operators, the operations themselves and
// how they end. Shared by ranks (real bytes) and by traffic models in the engine (lengths only).
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "packet/attributes.hpp"

namespace loomnet {

using JobRank = std::uint32_t;  // rank in the whole job; names a peer of Verbs
using GroupRank = std::uint32_t;  // rank inside one communicator
inline constexpr GroupRank kAnySource = 0xffff'ffffu;

// `opaque` is bytes of a type this library does not know; it moves, but does not reduce.
enum class DataType : std::uint8_t {
  opaque,
  boolean,
  uint8,
  int8,
  int16,
  int32,
  int64,
  float16,
  bfloat16,
  float32,
  float64,
};
inline constexpr std::size_t kDataTypes = 11;
std::size_t element_size(DataType type);
std::string_view to_string(DataType type);

// avg is sum, divided once by the number of ranks at the end; premul_sum multiplies each rank's
// input by Operation::factor first.
enum class ReduceOp : std::uint8_t { sum, avg, min, max, product, band, bor, bxor, premul_sum };
inline constexpr std::size_t kReduceOps = 9;
std::string_view to_string(ReduceOp op);
bool reducible(ReduceOp op, DataType type);

enum class Collective : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  reduce,
  all_to_all,
  barrier,
  gather,
  scatter,
  send,
  recv,
};
inline constexpr std::size_t kCollectives = 11;
std::string_view to_string(Collective collective);

// automatic: a tree where the message is small and hops dominate, else the pipelined ring or chain.
// All ranks must ask for the same one.
enum class Algorithm : std::uint8_t { automatic, ring, tree };

// A tensor, or one tensor per rank. One pointer: the blocks of the ranks lie one after the other
// (block sizes from Operation::count or ::input_counts / ::output_counts). Several pointers: one
// per rank of the communicator. None: lengths only.
struct Buffers {
  std::vector<std::uint8_t*> parts;

  Buffers() = default;
  explicit Buffers(void* contiguous) {
    if (contiguous != nullptr) parts.push_back(static_cast<std::uint8_t*>(contiguous));
  }
  explicit Buffers(std::vector<std::uint8_t*> list) : parts(std::move(list)) {}
};

// One operation on one communicator. Memory must stay valid until it has finished; input is not
// written unless it is also the output.
//
//   collective       count                 input                     output
//   all_reduce       elements              tensor                    tensor (may be input)
//   broadcast        elements              root: tensor              tensor (root: input or none)
//   reduce           elements              tensor                    root: tensor (may be input)
//   reduce_scatter   elements per rank     one block per rank        own block
//   all_gather       elements per rank     own block                 one block per rank
//   gather           elements per rank     own block                 root: one block per rank
//   scatter          elements per rank     root: one block per rank  own block
//   all_to_all       elements per pair     one block per rank        one block per rank
//   send             elements              tensor                    -
//   recv             elements              -                         tensor
//
// Uneven blocks: input_counts (reduce_scatter, scatter, all_to_all) and output_counts (all_gather,
// gather, all_to_all) replace count; each has one entry per rank. reduce_scatter and all_gather
// need the same list on all ranks; gather and scatter need it at the root, and `count` (the own
// block) elsewhere.
struct Operation {
  Collective collective = Collective::barrier;
  DataType type = DataType::opaque;
  ReduceOp reduce = ReduceOp::sum;
  Algorithm algorithm = Algorithm::automatic;
  double factor = 1.0;     // premul_sum only
  GroupRank root = 0;      // broadcast, reduce, gather, scatter
  GroupRank peer = 0;      // send, recv; kAnySource for recv from the first that comes
  std::uint32_t tag = 0;   // send, recv
  std::uint64_t cookie = 0;  // the caller's own; given back in the result
  // Layer, priority, loss tolerance and tag of what this rank sends for it; the executor fills the rest.
  Attributes attributes;
  std::uint64_t count = 0;
  std::vector<std::uint64_t> input_counts, output_counts;
  Buffers input, output;
};

struct OperationId {
  std::uint64_t value = 0;
  constexpr auto operator<=>(const OperationId&) const = default;
};

enum class OperationStatus : std::uint8_t {
  ok,
  mismatch,       // ranks disagree about what runs: operation, type, size or order
  peer_failed,    // a queue pair to a member failed
  peer_aborted,   // another member failed first and said so
  protocol,       // a member sent what no correct rank sends
  aborted,        // aborted here
  closed,         // its communicator was closed here while it ran
};
inline constexpr std::size_t kOperationStatuses = 7;
std::string_view to_string(OperationStatus status);

// Bytes of the caller's tensors for which a peer's bytes were lost; the lost bytes count as zeros.
struct MissingBytes {
  const std::uint8_t* at = nullptr;
  std::uint64_t length = 0;
};

// What an operation has received from its peers.
struct Received {
  std::uint64_t expected = 0;   // payload bytes that peers have sent for it
  std::uint64_t delivered = 0;  // of them, those that have arrived
  // In order of arrival, in whole elements: it may be more than what was lost. Empty in length-only runs.
  std::vector<MissingBytes> missing;

  void add(const Received& other) {
    expected += other.expected;
    delivered += other.delivered;
    missing.insert(missing.end(), other.missing.begin(), other.missing.end());
  }
};

struct OperationResult {
  OperationStatus status = OperationStatus::ok;
  GroupRank source = 0;     // recv: the sender
  std::uint32_t tag = 0;    // send, recv
  std::uint64_t cookie = 0; // Operation::cookie
  std::string message;      // empty when ok
  Received received;        // where ok
};

// "all_reduce(float32, 3 elements, sum)"
std::string describe(const Operation& operation);

}  // namespace loomnet
