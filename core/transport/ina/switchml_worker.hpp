// A worker of SwitchML (Sapio et al., NSDI 2021): two sets of W slots, and the result of fragment P
// releases fragment P + W. Sans-I/O, with the calls of Worker.
#pragma once

#include <optional>
#include <vector>

#include "transport/ina/fragment.hpp"
#include "transport/ring.hpp"
#include "transport/timer_heap.hpp"

namespace loomnet::ina {

class SwitchMlWorker {
 public:
  // Throws std::invalid_argument.
  SwitchMlWorker(const InaOptions& options, const InaJob& job, unsigned number);

  // As Worker::submit; two windows ahead of the oldest without a result. Slots know nothing of one another: the
  // others go on, far beyond one that waits for its timer, as in the public clients.
  bool room() const {
    return submitted_ < base_ + 2 * window_ || (submitted_ <= furthest_ + window_ && submitted_ < base_ + kAhead);
  }
  Sequence submit(const Contribution& contribution);

  std::optional<Outgoing> pull(Picoseconds now);
  bool wants() const { return !ready_.empty(); }
  Received on_packet(const aggregate_header& header, Bytes payload, Picoseconds now);
  void on_deadline(Picoseconds now);
  Picoseconds deadline() const { return timers_.next(); }

  Sequence base() const { return base_; }  // oldest without a result; its contribution is kept
  Sequence keeps_from() const { return base_; }
  Sequence submitted() const { return submitted_; }
  Picoseconds timeout() const;  // the longest of its threads'
  // Of the oldest without a result: a switch that has lost its slots can leave a fragment without end.
  std::uint32_t timeouts() const { return base_ < submitted_ ? at(base_).timeouts : 0; }
  const WorkerCounters& counters() const { return counters_; }

 private:
  struct Entry {
    Contribution contribution;
    Sequence number = -1;
    std::uint32_t timeouts = 0;
    bool sent = false, held = false;
  };
  // Counts the timeouts of its own slots. The timeout doubles and the count begins again each time it has
  // passed a threshold, which grows.
  struct Thread {
    Picoseconds timeout{};
    std::uint64_t count = 0, threshold = 0;
  };
  static constexpr Sequence kAhead = 1 << 16;  // bounds the memory of what waits for the oldest
  Thread& thread_of(Sequence n) { return threads_[pair_of(n) % threads_.size()]; }
  // Of the two slots that take turns, one of either set: one fragment of a pair is under way at a time.
  std::uint32_t pair_of(Sequence n) const {
    return static_cast<std::uint32_t>(static_cast<std::uint64_t>(n) % static_cast<std::uint64_t>(window_));
  }
  Entry& at(Sequence n) { return ring_[static_cast<std::size_t>(n) & (ring_.size() - 1)]; }
  const Entry& at(Sequence n) const { return ring_[static_cast<std::size_t>(n) & (ring_.size() - 1)]; }
  void grow();

  const InaOptions options_;
  const InaJob job_;
  const unsigned number_;
  const Sequence first_;
  const std::int64_t window_;
  Sequence base_, submitted_;
  Sequence furthest_;  // the latest with a result
  std::vector<Thread> threads_;
  std::vector<Entry> ring_;
  Ring<Sequence> ready_;
  std::vector<Sequence> under_way_;  // by pair of slots, the fragment sent last
  TimerHeap timers_;                 // by pair of slots
  WorkerCounters counters_;
};

}  // namespace loomnet::ina
