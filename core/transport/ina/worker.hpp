// A worker of ATP or ESA: which fragments to send when, what to send again, and when a result counts.
// Sans-I/O: time, packets and deadlines are arguments and answers. Rules, by their names in comments:
//   W1  a fragment is sent once it is submitted and the window has room
//   W2  the first result of a fragment stops its timer, gives the index of a window later, and moves the window
//   W3  a timer that runs out sends the fragment again (RESEND) and doubles, up to a bound
//   W4  a NAK sends it again, once per round trip at most
//   W5  a contribution is kept until its result is there
//   W6  with ResultPath::root, two windows of contributions are kept, for NAKs of other workers
#pragma once

#include <optional>
#include <vector>

#include "clock/random.hpp"
#include "transport/ina/fragment.hpp"
#include "transport/ina/index_table.hpp"
#include "transport/ring.hpp"
#include "transport/timer_heap.hpp"

namespace loomnet::ina {

class Worker {
 public:
  // `number`: a bit of job.workers. Throws std::invalid_argument.
  Worker(const InaOptions& options, const InaJob& job, unsigned number, std::uint64_t seed);

  // Fragments are submitted in the order that is the same on all workers, as far as there is room:
  // up to a window ahead of the oldest without a result. Throws std::logic_error where there is none.
  bool room() const { return submitted_ < base_ + window_; }
  Sequence submit(const Contribution& contribution);

  // The next packet, or nothing until a packet or a deadline comes, or a fragment is submitted.
  std::optional<Outgoing> pull(Picoseconds now);
  bool wants() const { return !again_.empty() || may_send(); }

  // Fragment n travels by tree n mod `count` from here on. Fragments under way went by the earlier trees, so no
  // gap among them counts.
  void set_trees(std::size_t count);
  Received on_packet(const aggregate_header& header, Bytes payload, Picoseconds now);
  void on_deadline(Picoseconds now);
  Picoseconds deadline() const { return timers_.next(); }

  Sequence base() const { return base_; }            // oldest without a result
  Sequence next() const { return next_; }            // first that has not been sent
  Sequence submitted() const { return submitted_; }  // number of the next one
  // The oldest whose contribution is still needed (W5, W6).
  Sequence keeps_from() const;
  std::uint32_t cwnd() const { return cwnd_; }
  Picoseconds srtt() const { return srtt_; }  // 0: none measured
  // Of the oldest without a result, in a row: how a caller sees a fragment that never finishes.
  std::uint32_t timeouts() const { return base_ < next_ ? at(base_).timeouts : 0; }
  const WorkerCounters& counters() const { return counters_; }

 private:
  struct Entry {
    Contribution contribution;
    Sequence tensor = 0;  // first fragment of its tensor
    Sequence number = 0;
    Picoseconds sent{}, rto{};
    Picoseconds asked = -kNever;  // last NAK that was answered
    std::uint32_t timeouts = 0;
    bool held = false;            // its result
    bool sent_again = false;
    bool queued = false;          // in again_
    bool by_nak = false;          // the queued retransmission is a NAK's
    bool overtaken = false;       // its timer is that of a gap
  };
  Entry& at(Sequence n) { return ring_[static_cast<std::size_t>(n) & (ring_.size() - 1)]; }
  const Entry& at(Sequence n) const { return ring_[static_cast<std::size_t>(n) & (ring_.size() - 1)]; }
  std::uint32_t slot(Sequence n) const {
    return static_cast<std::uint32_t>(static_cast<std::size_t>(n) & (ring_.size() - 1));
  }
  bool may_send() const { return next_ < submitted_ && next_ < base_ + cwnd_; }
  Picoseconds first_timeout(const Entry& entry) const;
  void send_again(Entry& entry, bool by_nak);
  Outgoing packet(const Entry& entry, std::uint32_t type, Picoseconds now) const;
  Received on_result(const aggregate_header& header, Bytes payload, Sequence n, Picoseconds now);
  Received on_nak(const aggregate_header& header, Sequence n, Picoseconds now);
  void first_result(Sequence tensor, Picoseconds now);
  void fill_gaps(Sequence overtaking, Picoseconds now);
  bool may_repair();
  void control(Sequence n, bool marked);

  const InaOptions options_;
  const InaJob job_;
  const unsigned number_;
  const Sequence first_;
  const std::int64_t window_;
  Sequence base_, next_, submitted_;
  Sequence tensor_;       // first fragment of the tensor that is being submitted
  Sequence answered_;     // of the youngest tensor with a result: its first fragment
  std::vector<Sequence> gaps_from_;  // of each tree: its fragments below have been asked for
  std::uint32_t repairs_ = 0;  // ESA: gaps that may be sent again until another result is known to be lost
  std::int64_t patience_ = 4;    // ESA: round trips that a gap has before it is sent again
  Sequence boundary_;     // its result ends the window of congestion control
  std::uint32_t cwnd_;
  std::uint32_t step_;    // packets that a window without a mark adds
  bool marked_ = false;
  Picoseconds srtt_{};
  IndexTable indices_;
  std::vector<Entry> ring_;
  Ring<Sequence> again_;
  TimerHeap timers_;  // by place in ring_
  RandomStream jitter_;
  WorkerCounters counters_;
};

}  // namespace loomnet::ina
