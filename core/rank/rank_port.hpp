// The NIC's side of one rank: takes checked work requests and marks from shared memory, gives back
// completions, arrivals and notices. A rank that breaks the contract is cut off with a reason.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "collective/sum_pairs.hpp"
#include "rank/rank_abi.hpp"
#include "rank/rank_memory.hpp"
#include "rank/rank_ring.hpp"
#include "transport/transport.hpp"

namespace loomnet {

// Why a rank was cut off. Values are part of the ABI (NoticeKind::cut_off).
enum class RankFault : std::uint32_t {
  none = 0,
  ring_index,             // a ring word went backwards or past its capacity
  bad_descriptor,         // reserved bits, opcode, channel, framing or an attribute out of range
  unknown_peer,           // no such rank, itself, or no queue pair bound to it
  out_of_region,          // local bytes outside the staging area, or bytes of a sum outside its part for sums
  bad_mark,               // unknown mark, or a step past kMaxStep
  bad_state,              // state word makes no sense
  flooded,                // more requests outstanding than completions fit, or too many marks
  completion_ring_full,   // the rank does not read its completions
  arrival_ring_full,      // the rank does not read its arrivals
  notice_ring_full,       // the rank does not read its notices
  too_many_groups,        // more groups than can be numbered, or be waited for
  bad_sum,                // a sum where there are none, of an impossible shape, or with a field that sums lack
  too_many_operations,    // of the whole run, more than the engine keeps
  too_many_at_once,       // virtual clock: at one instant
  too_many_per_second,    // live
};
// Says in words which rule the rank has broken, for the error message. If an ordinary script can break the rule, the
// words also tell what the script did and how to avoid it.
std::string_view to_string(RankFault fault);

struct RankWork {
  std::uint32_t peer = 0;  // the rank itself: a part of a sum
  std::uint16_t channel = 0;
  QpNumber qp = 0;
  // `local` points into the rank's staging area; `posted` is on its own clock; Attributes::job is not set.
  WorkRequest request;
};

class RankPort {
 public:
  struct Counters {
    std::uint64_t requests = 0, request_bytes = 0, completions = 0, arrivals = 0, arrival_bytes = 0,
                  missing_bytes = 0,  // of arrivals
        marks = 0, notices = 0, wakes = 0, refused_after_fault = 0;
  };

  // `memory` and `rank_wake` must outlive the port. rank_wake is raised by flush() when the rank
  // sleeps and new entries are there for it.
  RankPort(const rank::Memory& memory, rank::Waker& rank_wake);

  std::uint32_t rank() const { return memory_.geometry().rank; }
  // Names the queue pair that carries (peer, channel) and the key under which the peer's NIC lets
  // this rank write. Throws std::invalid_argument out of range.
  void bind(std::uint32_t peer, std::uint16_t channel, QpNumber qp, std::uint32_t remote_key = 1);

  // Names a queue pair that carries the rank's parts of sums, in turn with those of earlier calls, and the key
  // under which the rank's own NIC writes results into the staging area. Throws std::invalid_argument where the geometry has no sums.
  void bind_sum(QpNumber qp, std::uint32_t key);

  bool sums_by(QpNumber qp) const { return sums_.has(qp); }

  // Copies out, checks and resolves up to out.size() requests; stops at the first bad one.
  std::size_t poll(std::span<RankWork> out);
  std::size_t poll_marks(std::span<rank::MarkEntry> out);

  // Queue results; they become visible at flush(). After a fault they are counted and dropped.
  void complete(const Completion& completion, Picoseconds now);
  void arrived(const Arrival& arrival, Picoseconds now);
  void notify(const rank::NoticeEntry& notice);
  void flush(Picoseconds now);

  // Bytes [offset, offset + length) of the staging area, or null if they are not all in it.
  std::uint8_t* resolve(std::uint64_t offset, std::uint64_t length) const;

  RankFault fault() const { return fault_; }
  // Breaks the contract on the rank's behalf: no more requests are taken, the rank is told.
  void cut_off(RankFault fault, Picoseconds now);

  // Asks the rank to raise the engine's eventfd at its next post or state change. Returns false
  // if entries wait already: do not sleep then.
  bool announce_sleep();
  void cancel_sleep();

  rank::State state() const;
  // How the rank rests; `none` as well while one side has not read all that the other wrote. A rank that waits
  // moves only when this side publishes an entry. Ports that are found waiting one after the other therefore
  // wait at the same time, provided that the caller publishes nothing in between.
  rank::Rest rest();
  bool quiescent() { return rest() == rank::Rest::waiting; }
  // The times at which a rank that rests wants to be woken, as its words say; kNever: not at all.
  struct Alarms {
    Picoseconds asked = kNever, limit = kNever;
  };
  Alarms alarms() const;
  // Changes whenever the rank's state does.
  std::uint64_t state_word() const { return memory_.rank_words().state.load(std::memory_order_acquire); }
  std::uint64_t polls() const { return memory_.rank_words().polls.load(std::memory_order_relaxed); }
  std::uint64_t strays() const { return memory_.rank_words().strays.load(std::memory_order_relaxed); }
  std::uint64_t sum_overflows() const { return memory_.rank_words().sum_overflows.load(std::memory_order_relaxed); }
  std::uint64_t sums_as_floats() const { return memory_.rank_words().sums_as_floats.load(std::memory_order_relaxed); }
  std::uint64_t outstanding() const { return outstanding_; }
  const Counters& counters() const { return counters_; }

 private:
  struct Route {
    std::uint32_t peer = 0;
    std::uint16_t channel = 0;
  };
  struct Target {
    QpNumber qp = 0;  // 0: not bound
    std::uint32_t remote_key = 0;
  };
  RankFault check(const rank::Submission& s, RankWork& out);
  RankFault check_sum(const rank::Submission& s, RankWork& out);
  // Bytes [offset, offset + length) of the part for sums, or null.
  const std::uint8_t* resolve_sum(std::uint64_t offset, std::uint64_t length) const;
  bool alive();
  bool indices_sound();
  void fail(RankFault fault);

  const rank::Memory& memory_;
  rank::Waker& rank_wake_;
  rank::RingConsumer<rank::Submission> submissions_;
  rank::RingConsumer<rank::MarkEntry> marks_;
  rank::RingProducer<rank::CompletionEntry> completions_;
  rank::RingProducer<rank::ArrivalEntry> arrivals_;
  rank::RingProducer<rank::NoticeEntry> notices_;
  std::vector<Target> targets_;  // [peer * channels + channel]
  SumPairs sums_;
  std::uint32_t sums_key_ = 0;
  std::uint64_t sums_begin_ = 0, sums_end_ = 0;  // of the staging area
  std::unordered_map<QpNumber, Route> routes_;
  std::uint64_t outstanding_ = 0;
  RankFault fault_ = RankFault::none;
  bool told_ = false;  // the cut_off notice has been queued
  Counters counters_;
};

}  // namespace loomnet
