// The parameter server of one job under ATP or ESA: it finishes what the switches leave unfinished, keeps
// results for those that ask again and, under ESA, fetches partial sums that lie in a switch for too long.
// Sans-I/O: time, packets and deadlines are arguments and answers. Rules for a contribution, by their names in
// comments:
//   P1  a fragment two windows behind the newest is forgotten, and its contributions are dropped
//   P2  of a fragment that is done, a RESEND gets the result again
//   P3  flags are joined, and the largest exponent counts
//   P4  it is kept beside parts that it does not overlap, or in place of parts that it covers; else discarded
//   P5  once all workers are there, the result goes out
//   P6  until then a timer runs, after which the switches are reminded and workers asked (NAK)
#pragma once

#include <optional>
#include <vector>

#include "transport/ina/fragment.hpp"
#include "transport/ina/index_table.hpp"
#include "transport/ina/partial_sums.hpp"
#include "transport/ring.hpp"
#include "transport/timer_heap.hpp"

namespace loomnet::ina {

class ParameterServer {
 public:
  ParameterServer(const InaOptions& options, const InaJob& job);

  // Reminders go to these switches from now on. Throws std::invalid_argument.
  void set_trees(std::vector<std::vector<std::uint16_t>> trees);

  void on_packet(const aggregate_header& header, Bytes payload, Picoseconds now);
  void on_deadline(Picoseconds now);
  Picoseconds deadline() const { return timers_.next(); }
  // The next packet, or nothing until a packet or a deadline comes.
  std::optional<Outgoing> pull(Picoseconds now);
  bool wants() const { return !out_.empty(); }

  Sequence highest() const { return highest_; }    // seen; one below the first at the start
  Sequence base() const { return base_; }          // oldest that is not complete
  Sequence completed() const { return completed_; }  // highest complete one
  Picoseconds srtt() const { return srtt_; }
  // Of the oldest fragment that is not complete, of which some part has come: workers whose parts have not.
  std::uint64_t missing() const {
    for (Sequence n = base_; n <= highest_; ++n) {
      if (const Entry& entry = ring_[place(n)]; !entry.done && entry.have) return mask() & ~entry.have;
    }
    return 0;
  }
  const ServerCounters& counters() const { return counters_; }

  // For tests and reports. Fragments the server no longer has, or has not seen: nothing.
  struct Part {
    std::uint64_t workers = 0;
    Bytes values;
  };
  std::vector<Part> parts(Sequence n) const;
  std::size_t buffers() const { return sums_.allocated(); }

 private:
  struct Entry {
    Sequence number = -1;
    std::uint64_t have = 0;        // workers in all parts
    std::uint64_t asked = 0;       // workers that the result is to be sent to, one by one
    Picoseconds due = kNever;      // of the timer
    Picoseconds delay{};           // 0: the first one
    Picoseconds reminded{};        // when the last round of reminders began
    std::uint32_t parts = PartialSums::kNone;
    std::uint32_t reminders = 0;
    std::uint32_t next_hop = ~0u;  // in hops_of(number), of the round that is being sent
    std::uint16_t index = 0, next_index = AGGREGATE_NO_INDEX;
    std::uint16_t values = 0;
    std::int8_t exponent = -128;
    std::uint8_t flags = 0;        // sticky ones, COLLISION, BOOT, FLOATS
    bool known = false;            // any part has come: `values` and BOOT are the fragment's
    bool done = false;
    bool multicast = false;        // the result is to be sent to all
    bool nak = false;              // a NAK is to be sent
    bool timing = false;           // `reminded` is the time of a reminder without an answer
  };
  std::size_t place(Sequence n) const { return static_cast<std::size_t>(static_cast<std::uint64_t>(n) % ring_.size()); }
  Entry& at(Sequence n) { return ring_[place(n)]; }
  const std::vector<std::uint16_t>& hops_of(Sequence n) const;
  std::uint64_t mask() const { return job_.workers; }
  Picoseconds first_delay() const {
    return std::max(srtt_ * options_.remind_rtts, std::max(options_.remind_min, Picoseconds{1}));
  }
  bool believed(const aggregate_header& header, Sequence n);
  void advance(Sequence n);
  void store(Entry& entry, const aggregate_header& header, Bytes payload);
  void complete(Entry& entry, const aggregate_header& last);
  void remind(Entry& entry, Picoseconds now);
  void start_timer(Entry& entry, Picoseconds now);
  void queue(const Entry& entry);
  Outgoing packet(const Entry& entry, std::uint32_t type, std::uint64_t to, Picoseconds now) const;
  std::optional<Outgoing> pull(Entry& entry, Picoseconds now);

  const InaOptions options_;
  InaJob job_;
  const Sequence first_;
  const std::int64_t window_;
  Sequence highest_, base_, completed_;
  Sequence early_from_;  // fragments below need no early reminder
  Picoseconds srtt_;     // from REMIND to REPLY
  IndexTable indices_;
  PartialSums sums_;
  std::vector<Entry> ring_;      // fragments (highest - 2 W, highest]
  std::vector<bool> queued_;     // by place in ring_: it stands in out_
  Ring<std::uint32_t> out_;      // places of fragments with packets to send
  TimerHeap timers_;             // by place; may wake early
  ServerCounters counters_;
};

}  // namespace loomnet::ina
