// All-reduces whose sums the network makes (in-network aggregation). A tensor is cut into blocks, one for each
// fragment; each block goes out as integers and comes back as the sum of all ranks' integers.
//
// A float's block needs the largest exponent of all ranks' blocks before it becomes integers (block exponents,
// see quantise.hpp). The exponents of an operation's first `ahead` blocks travel on their own; the fragment of a
// later block b carries those of block b + ahead. With ahead of more than two windows, the exponents come
// back before the window has room for the block, also where a worker may go on to two windows behind its oldest
// missing fragment, as SwitchML's does.
//
// With a fixed scale a block may hold more than an int32 can. It can be summed once more as float32, which the
// job's server adds and no switch ("ATP: In-network Aggregation for Multi-tenant Learning", NSDI 2021). Which
// blocks, all ranks learn from the results of their operation, so its floats come after those.
//
// Requests are posted in one order that follows from the order of operations alone, because request n of every
// rank must be part of the same sum. An operation's requests follow those of the one before at once.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "collective/communicator.hpp"
#include "collective/staging.hpp"
#include "collective/types.hpp"
#include "collective/verbs.hpp"

namespace loomnet {

struct SumCounters {
  std::uint64_t sums = 0;         // operations that have ended well
  std::uint64_t requests = 0, bytes = 0;
  std::uint64_t overflows = 0;    // blocks with a value or a sum beyond the range of an int32
  std::uint64_t as_floats = 0;    // of these, blocks summed as float32
  std::uint64_t not_finite = 0;   // blocks in which some rank had NaN or infinity
  std::uint64_t stray = 0;        // completions of requests that were never posted, or given up
};

// Where an executor's sums go.
struct SumPlace {
  const StagingLayout& layout;
  std::uint8_t* staging;  // null: lengths alone
  Verbs& verbs;
  SumCounters& counters;
};

class SumRun {
 public:
  // The communicator is of all ranks of the job, two at least.
  SumRun(Communicator& communicator, const SumPlace& place);

  // Whether the operation can be a sum. All ranks answer alike.
  static bool takes(const Operation& operation);
  // `sequence`: number of the operation on its communicator.
  void start(OperationId id, Operation operation, std::uint32_t sequence);
  void on_sum(std::uint64_t id, WriteStatus status);
  void fail_all(const OperationResult& result);

  std::size_t unfinished() const { return operations_.size(); }
  bool holds(OperationId id) const;
  // The operation of this number, where it is under way here.
  const Operation* find(std::uint32_t sequence) const;

 private:
  enum class Part : std::uint8_t { head, exponents, values, floats };
  struct Active {
    OperationId id;
    Operation operation;
    std::uint32_t sequence = 0;
    std::uint64_t blocks = 0;
    std::uint64_t ahead = 0;   // blocks whose exponents travel before any value; 0: no exponents
    bool headed = false;
    std::uint64_t told = 0;    // of these, blocks whose own exponent has been posted
    std::uint64_t known = 0;   // blocks whose largest exponent is known
    std::uint64_t sent = 0, held = 0;    // blocks of values
    std::vector<std::uint64_t> beyond;   // blocks to be summed as floats
    std::uint64_t floats_sent = 0, floats_held = 0;  // of them
    std::vector<std::int8_t> exponents;  // the largest of all ranks, of known blocks
  };
  struct Posted {
    std::uint64_t id = 0;
    std::uint32_t slot = 0;
    Part part = Part::head;
    std::uint32_t fragments = 0;
    std::uint32_t framing = 0;
    bool ended = false;  // its results are there
  };
  static constexpr std::size_t kHeadWords = 4;
  using Head = std::array<std::int32_t, kHeadWords>;
  using Block = std::array<float, 256>;

  void proceed();
  bool may_read(std::size_t index) const;
  void send_head(Active& active);
  void send_exponents(Active& active);
  void send_values(Active& active);
  void send_floats(Active& active);
  void post(const Active& active, Part part, std::uint32_t fragments, std::uint32_t framing, std::uint64_t bytes);
  void received(const Posted& posted);
  void take(Active& active, const Posted& posted, const std::uint8_t* result);
  bool take_head(const Active& active, const std::uint8_t* result);
  void learn(Active& active, const std::uint8_t* framing, std::uint32_t fragments);
  void take_values(Active& active, const Posted& posted, const std::uint8_t* result);
  void take_floats(Active& active, const Posted& posted, const std::uint8_t* result);
  void end();

  Head head_of(const Active& active) const;
  std::uint32_t count_of(const Active& active, std::uint64_t block) const;  // values
  std::span<const float> load(const Active& active, std::uint64_t block);
  void store(const Active& active, std::uint64_t block, std::span<float> values);
  std::uint8_t exponent(const Active& active, std::uint64_t block);
  std::uint8_t quantise_block(const Active& active, std::uint64_t block, std::int32_t* out);
  bool has_bytes() const { return place_.staging != nullptr; }
  // Null without bytes.
  std::uint8_t* request() { return has_bytes() ? place_.staging + place_.layout.sum_request(next_slot_) : nullptr; }

  Communicator& communicator_;
  const SumPlace place_;
  const std::uint32_t values_, chunk_, workers_;
  const double fixed_;  // 0: block exponents
  const bool floats_;   // blocks that a fixed scale cannot hold are summed as floats
  std::deque<Active> operations_;
  std::size_t posting_ = 0;  // of operations_: the first whose requests are not all posted
  std::deque<Posted> posted_;
  std::uint64_t next_id_ = 1;
  std::uint32_t next_slot_ = 0;
  Block block_{};  // values of one block as floats
};

}  // namespace loomnet
