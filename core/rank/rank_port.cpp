#include "rank/rank_port.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>

namespace loomnet {

using rank::ArrivalEntry;
using rank::CompletionEntry;
using rank::MarkEntry;
using rank::NoticeEntry;
using rank::Submission;

std::string_view to_string(RankFault fault) {
  switch (fault) {
    case RankFault::none:
      return "none";
    case RankFault::ring_index:
      return "ring index corrupted";
    case RankFault::bad_descriptor:
      return "malformed work request";
    case RankFault::unknown_peer:
      return "work request to an unknown peer";
    case RankFault::out_of_region:
      return "work request outside its memory region";
    case RankFault::bad_mark:
      return "malformed mark";
    case RankFault::bad_state:
      return "state word corrupted";
    case RankFault::flooded:
      return "flood of work requests or marks";
    // A live rank that a debugger or a signal has stopped comes to these.
    case RankFault::completion_ring_full:
      return "completion queue overrun: its process took nothing from the queue; was it stopped?";
    case RankFault::arrival_ring_full:
      return "arrival queue overrun: its process took nothing from the queue; was it stopped?";
    case RankFault::notice_ring_full:
      return "notice queue overrun: its process took nothing from the queue; was it stopped?";
    case RankFault::bad_sum:
      return "malformed part of a sum";
    case RankFault::too_many_groups:
      return "too many groups: a job makes 1,048,576 at most, and 4,096 of a rank may still lack members; use a group "
             "again instead of making it anew";
    case RankFault::too_many_operations:
      return "flood of work requests or marks: more than 16,777,216 operations or 4,194,304 optimizer steps in a run; "
             "let the script take fewer";
    case RankFault::too_many_at_once:
      return "flood of work requests or marks: more than 1,048,576 operations or 65,536 optimizer steps at one instant "
             "of emulated time; wait for operations before starting more, and let compute= give each step some time";
    case RankFault::too_many_per_second:
      return "flood of work requests or marks: more than 25,000 operations a second, which a live run cannot record; "
             "send fewer, larger ones";
  }
  return "unknown";
}

RankPort::RankPort(const rank::Memory& memory, rank::Waker& rank_wake)
    : memory_(memory),
      rank_wake_(rank_wake),
      submissions_(memory.ring_words(rank::kSubmissions), memory.ring_entries(rank::kSubmissions),
                   memory.geometry().submissions),
      marks_(memory.ring_words(rank::kMarks), memory.ring_entries(rank::kMarks), memory.geometry().marks),
      completions_(memory.ring_words(rank::kCompletions), memory.ring_entries(rank::kCompletions),
                   memory.geometry().completions),
      arrivals_(memory.ring_words(rank::kArrivals), memory.ring_entries(rank::kArrivals), memory.geometry().arrivals),
      notices_(memory.ring_words(rank::kNotices), memory.ring_entries(rank::kNotices), memory.geometry().notices),
      targets_(std::size_t{memory.geometry().world} * memory.geometry().channels) {
  routes_.reserve(targets_.size());
  if (memory.geometry().sum_slots == 0) return;
  const StagingLayout layout(rank::staging_of(memory.geometry()));
  if (layout.total_bytes() > memory.geometry().staging_bytes) {
    throw std::invalid_argument("memory of a rank: staging area smaller than its part for sums");
  }
  sums_begin_ = layout.sums_at();
  sums_end_ = sums_begin_ + layout.sums_bytes();
}

void RankPort::bind(std::uint32_t peer, std::uint16_t channel, QpNumber qp, std::uint32_t remote_key) {
  const auto& g = memory_.geometry();
  if (peer >= g.world || peer == g.rank) throw std::invalid_argument("bind: peer");
  if (channel >= g.channels) throw std::invalid_argument("bind: channel");
  if (qp == 0) throw std::invalid_argument("bind: qp");
  targets_[std::size_t{peer} * g.channels + channel] = {qp, remote_key};
  routes_[qp] = {peer, channel};
}

void RankPort::bind_sum(QpNumber qp, std::uint32_t key) {
  if (sums_end_ == 0) throw std::invalid_argument("bind_sum: the geometry has no sums");
  if (qp == 0) throw std::invalid_argument("bind_sum: qp");
  sums_.add(qp);
  sums_key_ = key;
  routes_[qp] = {rank(), 0};
}

namespace {

// The bytes behind the framing lie within the ring step, where there is one, and the rank is one of its ring.
bool step_sound(const Submission& s) {
  if (s.step_bytes == 0) {
    return s.step_offset == 0 && s.ring_step == 0 && s.ring_rank == 0 && s.ring_size == 0;
  }
  if (s.ring_rank >= s.ring_size) return false;
  return s.step_offset <= s.step_bytes && s.length - s.framing <= s.step_bytes - s.step_offset;
}

bool priority_sound(const Submission& s) { return s.priority >= kNoPriority && s.priority <= 255; }

// What a transport may rely on: whole int32 behind the framing, which has a byte for each fragment or none; or
// framing alone.
bool sum_sound(const Submission& s, std::uint32_t fragment_values) {
  if (s.length == 0 || s.framing > s.length || (s.length - s.framing) % 4 != 0) return false;
  const std::uint32_t values = (s.length - s.framing) / 4;
  const std::uint32_t fragments = values / fragment_values + (values % fragment_values != 0);
  return s.framing == 0 || s.framing >= fragments;
}

// The rank's clock may read anything: this saturates rather than overflows.
Picoseconds posted_at(const Submission& s) {
  return nanoseconds(std::clamp<std::int64_t>(s.posted_ns, 0, kNever.count / 1000));
}

}  // namespace

RankFault RankPort::check_sum(const Submission& s, RankWork& out) {
  // The transport refuses floats that no server can add by throwing, and a rank must not end the run so.
  const std::uint32_t most = kSumContinues | (memory_.geometry().sum_floats ? kSumFloats : 0u);
  const bool plain = s.peer == rank() && s.channel == 0 && (s.immediate & ~most) == 0 && s.ring_step == 0 &&
                     s.step_offset == 0 && s.step_bytes == 0 && s.ring_rank == 0 && s.ring_size == 0 &&
                     s.loss_tolerance == 0 && priority_sound(s) && s.reserved == 0;
  const bool floats_of_none = s.immediate & kSumFloats && s.length == s.framing;
  if (sums_.empty() || !plain || floats_of_none || !sum_sound(s, memory_.geometry().sum_values))
    return RankFault::bad_sum;
  const std::uint8_t* local = resolve_sum(s.local_offset, s.length);
  if (!local || !resolve_sum(s.remote_offset, s.length)) return RankFault::out_of_region;
  out.peer = s.peer;
  out.channel = 0;
  bool first = !(s.immediate & kSumContinues);
  out.qp = sums_.deal(first);
  out.request = {.id = s.id,
                 .local = local,
                 .remote_address = s.remote_offset,
                 .remote_key = sums_key_,
                 .length = s.length,
                 .immediate = (s.immediate & kSumFloats) | (first ? 0u : kSumContinues),
                 .framing = s.framing,
                 .attributes = {.communicator = s.communicator,
                                .sequence = s.sequence,
                                .tag = s.tag,
                                .layer = s.layer,
                                .priority = s.priority},
                 .posted = posted_at(s)};
  return RankFault::none;
}

RankFault RankPort::check(const Submission& s, RankWork& out) {
  if (s.opcode == rank::kSumOpcode) return check_sum(s, out);
  const auto& g = memory_.geometry();
  if (s.channel >= g.channels || s.opcode > static_cast<std::uint8_t>(Opcode::write_with_immediate) ||
      !(s.loss_tolerance >= 0.0f && s.loss_tolerance <= 1.0f) ||  // NaN is refused too
      s.framing > s.length || !step_sound(s) || !priority_sound(s) || s.reserved != 0) {
    return RankFault::bad_descriptor;
  }
  if (s.peer >= g.world || s.peer == g.rank) return RankFault::unknown_peer;
  const Target& target = targets_[std::size_t{s.peer} * g.channels + s.channel];
  if (target.qp == 0) return RankFault::unknown_peer;
  const std::uint8_t* local = nullptr;
  if (s.local_offset != rank::kNoData) {
    local = resolve(s.local_offset, s.length);
    if (!local) return RankFault::out_of_region;
  }
  out.peer = s.peer;
  out.channel = s.channel;
  out.qp = target.qp;
  out.request = {.id = s.id,
                 .local = local,
                 .remote_address = s.remote_offset,
                 .remote_key = target.remote_key,
                 .length = s.length,
                 .immediate = s.immediate,
                 .opcode = static_cast<Opcode>(s.opcode),
                 .framing = s.framing,
                 .attributes = {.step_offset = s.step_offset,
                                .step_bytes = s.step_bytes,
                                .ring_step = s.ring_step,
                                .communicator = s.communicator,
                                .sequence = s.sequence,
                                .tag = s.tag,
                                .loss_tolerance = s.loss_tolerance,
                                .layer = s.layer,
                                .ring_rank = s.ring_rank,
                                .ring_size = s.ring_size,
                                .priority = s.priority},
                 .posted = posted_at(s)};
  return RankFault::none;
}

std::size_t RankPort::poll(std::span<RankWork> out) {
  if (fault_ != RankFault::none) return 0;
  std::array<Submission, 64> batch;
  std::size_t n = 0;
  while (n < out.size()) {
    const std::size_t want = std::min(batch.size(), out.size() - n);
    const std::size_t got = submissions_.pop(std::span(batch).first(want));
    if (submissions_.corrupt()) fail(RankFault::ring_index);
    for (std::size_t i = 0; i < got; ++i) {
      RankFault bad = check(batch[i], out[n]);
      // Every request must find room for its completion, or the ring could not be bounded.
      if (bad == RankFault::none && outstanding_ >= memory_.geometry().completions) {
        bad = RankFault::flooded;
      }
      if (bad != RankFault::none) {
        fail(bad);
        return n;
      }
      ++outstanding_;
      ++counters_.requests;
      counters_.request_bytes += out[n].request.length;
      ++n;
    }
    if (got < want) break;
  }
  return n;
}

std::size_t RankPort::poll_marks(std::span<MarkEntry> out) {
  if (fault_ != RankFault::none) return 0;
  const std::size_t n = marks_.pop(out);
  if (marks_.corrupt()) fail(RankFault::ring_index);
  for (std::size_t i = 0; i < n; ++i) {
    const auto kind = static_cast<rank::MarkKind>(out[i].kind);
    const bool numbered = kind == rank::MarkKind::step || kind == rank::MarkKind::hash;
    if (out[i].kind == 0 || kind > rank::kLastMark || (numbered && out[i].value > rank::kMaxStep)) {
      fail(RankFault::bad_mark);
      return i;
    }
  }
  counters_.marks += n;
  return n;
}

bool RankPort::alive() {
  if (fault_ == RankFault::none) return true;
  ++counters_.refused_after_fault;
  return false;
}

void RankPort::complete(const Completion& completion, Picoseconds now) {
  if (outstanding_ > 0) --outstanding_;
  if (!alive()) return;
  const auto route = routes_.find(completion.qp);
  if (route == routes_.end()) return;
  const Missing& missing = completion.missing;
  const CompletionEntry entry{.id = completion.id,
                              .at_ps = now.count,
                              .missing_extents = {missing.extents[0], missing.extents[1]},
                              .missing_bytes = missing.bytes,
                              .missing_extent = missing.extent,
                              .peer = route->second.peer,
                              .length = completion.length,
                              .channel = route->second.channel,
                              .status = static_cast<std::uint8_t>(completion.status),
                              .reserved = {}};
  if (!completions_.push(entry)) {
    return fail(completions_.corrupt() ? RankFault::ring_index : RankFault::completion_ring_full);
  }
  ++counters_.completions;
}

void RankPort::arrived(const Arrival& arrival, Picoseconds now) {
  if (!alive()) return;
  const auto route = routes_.find(arrival.qp);
  if (route == routes_.end()) return;
  const Missing& missing = arrival.missing;
  const ArrivalEntry entry{.offset = arrival.address,
                           .at_ps = now.count,
                           .missing_extents = {missing.extents[0], missing.extents[1]},
                           .missing_bytes = missing.bytes,
                           .missing_extent = missing.extent,
                           .peer = route->second.peer,
                           .length = arrival.length,
                           .immediate = arrival.immediate,
                           .channel = route->second.channel};
  if (!arrivals_.push(entry)) {
    return fail(arrivals_.corrupt() ? RankFault::ring_index : RankFault::arrival_ring_full);
  }
  ++counters_.arrivals;
  counters_.arrival_bytes += arrival.length;
  counters_.missing_bytes += missing.bytes;
}

void RankPort::notify(const NoticeEntry& notice) {
  if (!alive()) return;
  if (!notices_.push(notice)) {
    return fail(notices_.corrupt() ? RankFault::ring_index : RankFault::notice_ring_full);
  }
  ++counters_.notices;
}

void RankPort::fail(RankFault fault) {
  if (fault_ == RankFault::none) fault_ = fault;
}

// A ring of the engine's asks for the rank's index only when the ring is full; this asks at once.
bool RankPort::indices_sound() {
  completions_.room();
  arrivals_.room();
  notices_.room();
  if (!completions_.corrupt() && !arrivals_.corrupt() && !notices_.corrupt() && !submissions_.corrupt() &&
      !marks_.corrupt()) {
    return true;
  }
  fail(RankFault::ring_index);
  return false;
}

void RankPort::cut_off(RankFault fault, Picoseconds now) {
  fail(fault);
  flush(now);
}

void RankPort::flush(Picoseconds now) {
  if (fault_ == RankFault::none) indices_sound();
  if (fault_ != RankFault::none && !told_) {
    told_ = true;
    // Best effort: a rank with a full or corrupted notice ring cannot be told.
    notices_.push({.kind = static_cast<std::uint32_t>(rank::NoticeKind::cut_off),
                   .peer = rank(),
                   .reason = static_cast<std::uint32_t>(fault_),
                   .reserved = 0});
  }
  // Before the entries: a rank that reads one must not find an older time beside it.
  memory_.engine_words().now_ps.store(now.count, std::memory_order_relaxed);
  const bool fresh = static_cast<unsigned>(completions_.publish()) | static_cast<unsigned>(arrivals_.publish()) |
                     static_cast<unsigned>(notices_.publish());
  if (!fresh) return;
  // Pairs with the rank's store of `sleeping` before its last look at the rings: one of the two
  // sides must see the other's write.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (memory_.rank_words().sleeping.load(std::memory_order_relaxed) != 0) {
    memory_.rank_words().sleeping.store(0, std::memory_order_relaxed);
    ++counters_.wakes;
    rank_wake_.raise();
  }
}

std::uint8_t* RankPort::resolve(std::uint64_t offset, std::uint64_t length) const {
  const std::uint64_t bytes = memory_.geometry().staging_bytes;
  if (offset > bytes || length > bytes - offset) return nullptr;
  return reinterpret_cast<std::uint8_t*>(memory_.staging().data()) + offset;
}

const std::uint8_t* RankPort::resolve_sum(std::uint64_t offset, std::uint64_t length) const {
  if (offset < sums_begin_ || offset > sums_end_ || length > sums_end_ - offset) return nullptr;
  return resolve(offset, length);
}

bool RankPort::announce_sleep() {
  memory_.engine_words().sleeping.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (fault_ != RankFault::none) return true;
  const bool nothing = submissions_.empty() && marks_.empty();
  if (submissions_.corrupt() || marks_.corrupt()) {
    fail(RankFault::ring_index);
  } else if (nothing) {
    return true;
  }
  cancel_sleep();
  return false;
}

void RankPort::cancel_sleep() { memory_.engine_words().sleeping.store(0, std::memory_order_relaxed); }

rank::State RankPort::state() const {
  const auto word = memory_.rank_words().state.load(std::memory_order_acquire) & 0xff;
  return word > static_cast<std::uint64_t>(rank::kLastState) ? rank::State::gone : static_cast<rank::State>(word);
}

rank::Rest RankPort::rest() {
  const auto& state = memory_.rank_words().state;
  const std::uint64_t before = state.load(std::memory_order_seq_cst);
  const auto word = before & 0xff;
  if (word > static_cast<std::uint64_t>(rank::kLastState)) fail(RankFault::bad_state);
  const bool waits = word == static_cast<std::uint64_t>(rank::State::waiting);
  if (!waits && word != static_cast<std::uint64_t>(rank::State::outside)) return rank::Rest::none;
  if (!indices_sound()) return rank::Rest::none;
  const bool quiet =
      submissions_.empty() && marks_.empty() && completions_.drained() && arrivals_.drained() && notices_.drained();
  if (!quiet || state.load(std::memory_order_seq_cst) != before) return rank::Rest::none;
  return waits ? rank::Rest::waiting : rank::Rest::outside;
}

RankPort::Alarms RankPort::alarms() const {
  const auto& words = memory_.rank_words();
  const auto read = [](const std::atomic<std::int64_t>& word) {
    const std::int64_t at = word.load(std::memory_order_acquire);
    // One beyond half of all time is none: a rank cannot send the clock to its end.
    return at > kNever.count / 2 ? kNever : Picoseconds{std::max<std::int64_t>(at, 0)};
  };
  return {read(words.alarm_ps), read(words.limit_ps)};
}

}  // namespace loomnet
