// The sender's PSN table: what is in flight, acknowledged or waiting to be sent again, kept in a
// ring by PSN and in a list by time of sending. OCP MRC 1.0.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "clock/time.hpp"
#include "transport/mrc/entropy.hpp"
#include "transport/mrc/psn.hpp"

namespace loomnet::mrc {

enum class SentState : std::uint8_t { none, flying, queued, acked };

struct Sent {
  Picoseconds time{};         // of the latest copy
  std::uint64_t message = 0;  // absolute number of its message
  std::uint32_t nominal = 0;  // bytes charged to the window
  // Bytes SACKed that were sent after this packet and before the next one of the list, so that
  // "SACKed and sent later" of any packet is a sum from it to the tail.
  std::uint32_t later = 0;
  EvIndex ev = kNoEv;                    // of the latest copy
  EvIndex blamed = kNoEv;                // condemned when a copy was declared lost
  std::uint16_t previous = 0, next = 0;  // list in order of sending
  std::uint16_t payload = 0;  // bytes
  std::uint8_t copies = 0;
  SentState state = SentState::none;
};

class SendWindow {
 public:
  void start(PsnCount first) { una_ = next_ = first; }

  PsnCount una() const { return una_; }    // oldest not cumulatively acknowledged
  PsnCount next() const { return next_; }  // first never sent
  std::uint64_t inflight() const { return inflight_; }
  std::uint64_t payload_inflight() const { return payload_inflight_; }
  bool any_flying() const { return head_ != kNil; }
  PsnCount oldest_flying() const { return psn_of(head_); }
  std::size_t queued() const { return queued_; }
  std::uint32_t acked_beyond() const { return acked_beyond_; }  // acknowledged from una() on
  bool contains(PsnCount n) const { return n >= una_ && n < next_; }
  bool acknowledged(PsnCount n) const {  // n: sent
    return n < una_ || at(n).state == SentState::acked;
  }
  Sent& at(PsnCount n) { return ring_[n & (ring_.size() - 1)]; }
  const Sent& at(PsnCount n) const { return ring_[n & (ring_.size() - 1)]; }

  // A new packet at next(); grows the ring when the window has outgrown it.
  Sent& append(std::uint64_t message, std::uint32_t nominal, std::uint32_t payload);
  void fly(PsnCount n, EvIndex ev, Picoseconds now);
  // Takes a flying packet back for retransmission.
  void requeue(PsnCount n);
  PsnCount lowest_queued() const;  // requires queued() > 0
  // Marks as received; returns the state before.
  SentState acknowledge(PsnCount n);
  // Moves una() to cack + 1; everything below must be acknowledged.
  void advance(PsnCount cack);
  // Bits of PSNs [from, from + 64) that are acknowledged above una().
  std::uint64_t acked_bits(PsnCount from) const { return ring_window(acked_, from); }
  bool ready() const { return !ring_.empty(); }
  const void* place(PsnCount n) const { return ring_.empty() ? nullptr : &at(n); }

  // Calls lost(psn) for each packet whose later-sent, SACKed bytes reach `threshold` (SLEEK).
  template <typename Lost>
  void infer(std::uint64_t threshold, Lost&& lost) {
    while (infers(threshold)) lost(psn_of(head_));
  }
  bool infers(std::uint64_t threshold) const { return head_ != kNil && later_total_ >= threshold; }
  // Calls lost(psn) for flying packets in order of sending while `test(sent)`.
  template <typename Test, typename Lost>
  void oldest_while(Test&& test, Lost&& lost) {
    while (head_ != kNil && test(ring_[head_])) lost(psn_of(head_));
  }
  // Visits every packet from una() to next().
  template <typename Visit>
  void each(Visit&& visit) {
    for (PsnCount n = una_; n < next_; ++n) visit(at(n));
  }
  // Visits flying packets in order of sending until visit(psn, sent) is false. No change inside.
  template <typename Visit>
  void each_flying(Visit&& visit) const {
    for (std::uint16_t i = head_; i != kNil; i = ring_[i].next) {
      if (!visit(psn_of(i), ring_[i])) return;
    }
  }

 private:
  static constexpr std::uint16_t kNil = 0xffff;
  static constexpr std::size_t kFirstCapacity = 64;
  PsnCount psn_of(std::uint16_t i) const { return una_ + ((i - una_) & (ring_.size() - 1)); }
  void grow();
  void link(std::uint16_t i);
  void unlink(std::uint16_t i, std::uint32_t acked_bytes);

  std::vector<Sent> ring_;
  std::vector<std::uint64_t> acked_, queued_bits_;
  PsnCount una_ = 0, next_ = 0;
  std::uint64_t inflight_ = 0, payload_inflight_ = 0, later_total_ = 0;
  std::size_t queued_ = 0;
  std::uint32_t acked_beyond_ = 0;
  std::uint16_t head_ = kNil, tail_ = kNil;
};

}  // namespace loomnet::mrc
