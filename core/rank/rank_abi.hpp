// The memory that a rank process and its emulated NIC share: header, state words, five rings and
// the staging area, all in one sealed memfd. Both sides map it; neither trusts what it reads there.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace loomnet::rank {

inline constexpr std::uint64_t kMagic = 0x4b4e41524d4f4f4cull;  // "LOOMRANK"
inline constexpr std::uint32_t kAbiVersion = 11;
inline constexpr std::size_t kPage = 4096;
inline constexpr std::size_t kCacheLine = 64;
inline constexpr std::uint32_t kMaxWorld = 4096;  // below 2^16, see NoticeKind::came
inline constexpr std::uint32_t kMaxChannels = 64;

// What a rank is doing. The state word is `epoch << 8 | state`; every change adds one to epoch, so
// that reading the same word twice proves that nothing changed in between.
enum class State : std::uint8_t {
  starting = 0,   // memory made, no process attached
  computing = 1,  // attached; may post at any moment
  waiting = 2,    // every thread that communicates is blocked; only an entry from the NIC wakes it
  gone = 3,       // left of its own accord
  outside = 4,    // virtual clock: all its threads sleep, at least one in what the NIC cannot see
};
inline constexpr State kLastState = State::outside;
// How a rank rests, as the engine sees it.
enum class Rest : std::uint8_t { none, waiting, outside };
constexpr std::uint64_t state_word(std::uint64_t epoch, State state) {
  return epoch << 8 | static_cast<std::uint8_t>(state);
}

// Capacity of the notice ring. A member of a group of all ranks hears of every other one at once, and of
// their ends as well; some more notices may lie there unread.
constexpr std::uint32_t notices_for(std::uint32_t world) {
  std::uint32_t entries = 256;
  while (world <= kMaxWorld && entries < 4 * world) entries *= 2;
  return entries;
}

// Sizes that fix the layout; ring capacities are powers of two, counted in entries.
struct Geometry {
  std::uint32_t rank = 0;      // of this process in the run
  std::uint32_t world = 0;     // ranks in the run
  std::uint32_t channels = 1;  // queue pairs towards each peer
  std::uint32_t submissions = 4096;
  std::uint32_t completions = 4096;
  std::uint32_t arrivals = 16384;
  std::uint32_t marks = 4096;
  std::uint32_t notices = 256;
  // The collective executor's share of the staging area (StagingConfig), equal on all ranks.
  std::uint32_t slots = 8;
  std::uint32_t slot_payload = 32768;
  std::uint32_t slot_channels = 16;
  std::uint32_t sum_slots = 0;  // 0: the network makes no sums
  std::uint32_t sum_values = 0;
  std::uint32_t sum_window = 0;
  std::uint32_t sum_scale = 0;
  std::uint32_t sum_floats = 0;   // 1: what sum_scale cannot hold is summed as float32
  std::uint32_t staging_key = 1;  // under which the rank's own NIC knows the staging area
  std::uint32_t sum_servers = 1, sum_reach = 2;  // of StagingConfig
  std::uint32_t unused = 0;                      // staging_bytes begins at a multiple of 8
  std::uint64_t staging_bytes = 0;
};
static_assert(sizeof(Geometry) == 88);

// Rank to NIC: one write, or one part of a sum (kSumOpcode). Offsets count from the start of a staging area:
// the rank's own for `local_offset`, the peer's for `remote_offset`. The remote key is the NIC's to know.
// A sum's result goes to the rank's own staging area, and its peer is the rank itself; its immediate is that of
// SumRequest.
struct Submission {
  std::uint64_t id;
  std::uint64_t local_offset;  // kNoData: lengths only
  std::uint64_t remote_offset;
  std::int64_t posted_ns;      // the rank's monotonic clock
  std::uint64_t step_offset, step_bytes;  // this and what bears a name of Attributes is as there
  std::uint32_t peer;
  std::uint32_t length;
  std::uint32_t immediate;
  std::uint32_t framing;       // leading bytes that may not be lost
  std::uint32_t communicator, sequence, ring_step, tag;
  float loss_tolerance;
  std::uint16_t channel;
  std::uint16_t layer;
  std::uint16_t ring_rank, ring_size;
  std::int16_t priority;
  std::uint8_t opcode;         // loomnet::Opcode or kSumOpcode
  std::uint8_t reserved;       // 0
};
static_assert(sizeof(Submission) == 96);
inline constexpr std::uint64_t kNoData = ~0ull;
inline constexpr std::uint8_t kSumOpcode = 0x80;

// NIC to rank: a write of this rank ended, or a part of a sum: its peer is the rank itself.
struct CompletionEntry {
  std::uint64_t id;
  std::int64_t at_ps;
  std::uint64_t missing_extents[2];  // this and the two that follow: loomnet::Missing
  std::uint32_t missing_bytes;
  std::uint32_t missing_extent;
  std::uint32_t peer;
  std::uint32_t length;
  std::uint16_t channel;
  std::uint8_t status;  // loomnet::Status
  std::uint8_t reserved[5];
};
static_assert(sizeof(CompletionEntry) == 56);

// NIC to rank: a peer's write-with-immediate has been placed.
struct ArrivalEntry {
  std::uint64_t offset;
  std::int64_t at_ps;
  std::uint64_t missing_extents[2];  // as in CompletionEntry
  std::uint32_t missing_bytes;
  std::uint32_t missing_extent;
  std::uint32_t peer;
  std::uint32_t length;
  std::uint32_t immediate;
  std::uint32_t channel;
};
static_assert(sizeof(ArrivalEntry) == 56);

// Rank to run: what the job did, whichever transport carries its traffic.
enum class MarkKind : std::uint32_t {
  step = 1,        // value = step number that ended
  hash = 2,        // value = step, a and b = 128 bits of the parameter hash
  optimizer = 3,   // the script has made an optimizer, so steps will follow
  // An operation became outstanding; value = its number in this rank, a = its communicator,
  // b = collectives it consists of << 8 | 1 + Collective of the first (0: not known).
  work_begin = 4,
  work_end = 5,    // it ended: value = its number, a = its start (ns), b = payload bytes, status
  failure = 6,     // the rank's script failed or a collective did; value = OperationStatus or 255
  // The rank makes a group: value = its rank in the group << 32 | its number of this request, a and b =
  // 128 bits that name the group, alike at all members, status = how many members it has, kDefaultGroup added
  // where it is the default group that the rank makes.
  meet = 7,
  // A part of a report to the controller of the rank's region: value = report_part(), a and b = its bytes.
  report = 8,
  // What the rank receives in a step of a ring is there: value = number of the ring step, a = its communicator.
  ring_step = 9,
};
inline constexpr MarkKind kLastMark = MarkKind::ring_step;
inline constexpr std::uint32_t kDefaultGroup = 1u << 31;
// Reports and answers are bytes. A report's marks carry 16 of them each, an answer's notices 8, in order.
inline constexpr std::uint32_t kReportPart = 16, kAnswerPart = 8;
inline constexpr std::uint32_t kMostReport = 4096, kMostAnswer = 1024;
// Number of the report in this rank << 32 | offset of the part << 16 | bytes of the whole.
constexpr std::uint64_t report_part(std::uint32_t number, std::uint32_t offset, std::uint32_t bytes) {
  return std::uint64_t{number} << 32 | offset << 16 | bytes;
}
inline constexpr std::uint64_t kMaxStep = 1ull << 31;  // a notice names a later one in 32 bits
struct MarkEntry {
  std::uint32_t kind;
  std::uint32_t status;  // 0 = ok
  std::int64_t at_ns;    // the rank's monotonic clock
  std::uint64_t value;
  std::uint64_t a, b;
};
static_assert(sizeof(MarkEntry) == 40);

// NIC to rank: what the rank should know and no completion says.
enum class NoticeKind : std::uint32_t {
  peer_gone = 1,   // peer = its rank, reason = GoneReason, reserved = its exit status or signal, 0: not known
  cut_off = 2,     // this rank broke the contract, reason = Fault
  run_ended = 3,   // the run is over, reason = GoneReason
  last_step = 4,   // the job ends itself after the training step whose number is `reason`
  alarm = 5,       // the emulated time that the rank asked for in its words has come
  // A member of a group that this rank makes has come: peer = the number of this rank's request,
  // reason = the member's rank in the group << 16 | its job rank, reserved = 1 + the group's number once all have come, else 0.
  came = 6,
  // Nothing is under way in the network and every rank waits: what still needs a rank that has left
  // will not end.
  stranded = 7,
  // Of the answer to a report of this rank, peer = the report's number. First its length in bytes, reserved = 1;
  // then parts of it, reason and reserved = 8 bytes.
  answer = 8,
  // Another rank claims the place of this rank in a group that both make, and neither is a member of it: peer =
  // the number of this rank's request, reason = the other's job rank, reserved = 1 with the last of them.
  same_place = 9,
};
enum class GoneReason : std::uint32_t {
  exited = 1,
  killed = 2,
  cut_off = 3,
  stalled = 4,
  stopped = 5,
  failed = 6,  // it ended by itself, with an exit status that is not 0
};
struct NoticeEntry {
  std::uint32_t kind;
  std::uint32_t peer;
  std::uint32_t reason;
  std::uint32_t reserved;
};
static_assert(sizeof(NoticeEntry) == 16);
std::string_view to_string(GoneReason reason);

struct alignas(kCacheLine) RingWord {
  std::atomic<std::uint64_t> value;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
struct RingWords {
  RingWord produced;  // entries ever published
  RingWord consumed;  // entries ever taken
};

enum RingId : std::size_t { kSubmissions, kCompletions, kArrivals, kMarks, kNotices, kRings };

// First page, written by the engine before anyone else maps it.
struct Header {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t header_bytes;
  std::uint64_t total_bytes;
  Geometry geometry;
};

// Second page, written by the rank.
struct RankWords {
  alignas(kCacheLine) std::atomic<std::uint64_t> state;  // state_word()
  alignas(kCacheLine) std::atomic<std::int64_t> local_ns;  // when it last posted or changed state
  alignas(kCacheLine) std::atomic<std::uint32_t> sleeping;  // wants its wake word raised
  alignas(kCacheLine) std::atomic<std::uint64_t> marks_lost;  // mark ring was full
  // Virtual clock: emulated times at which a rank that waits wants to be woken; kNoAlarm: none. The first
  // is of time limits and pauses that the script asked for, the second of limits that it did not choose.
  alignas(kCacheLine) std::atomic<std::int64_t> alarm_ps, limit_ps;
  // Of the rank's whole life. Polls that found nothing; threads that began to communicate while the rank counted as waiting.
  alignas(kCacheLine) std::atomic<std::uint64_t> polls, strays;
  // Blocks of sums with a value, or a sum, beyond the range of an int32; of these, those summed as float32.
  std::atomic<std::uint64_t> sum_overflows, sums_as_floats;
};
inline constexpr std::int64_t kNoAlarm = 0x7fff'ffff'ffff'ffff;

// Third page, written by the engine.
struct EngineWords {
  alignas(kCacheLine) std::atomic<std::uint32_t> sleeping;  // wants its eventfd raised
  alignas(kCacheLine) std::atomic<std::int64_t> now_ps;  // emulated time of the last flush
  alignas(kCacheLine) std::atomic<std::uint32_t> rank_wake;  // WakeWord: the rank sleeps on it
  std::atomic<std::uint32_t> virtual_clock;  // 1: emulated time stands while a rank computes
};

// Where everything is; a function of the geometry alone.
struct Layout {
  std::size_t rank_words = 0, engine_words = 0, ring_words = 0;
  std::size_t entries[kRings] = {};
  std::size_t staging = 0, total = 0;
};
// False (with the field's name in `why`) for a geometry outside the limits.
bool make_layout(const Geometry& geometry, Layout& layout, std::string_view& why);

}  // namespace loomnet::rank
