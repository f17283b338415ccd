// The segments a sender has sent and not seen acknowledged in order, with what is known of each:
// in flight, taken for lost, or SACKed (RFC 2018). Totals are kept as states change.
#pragma once

#include <cstdint>

#include "clock/time.hpp"
#include "transport/ring.hpp"

namespace loomnet::tcp {

// Segments are numbered in order of their first transmission.
using SegmentNumber = std::uint64_t;

struct Segment {
  enum class State : std::uint8_t { in_flight, lost, sacked };
  std::uint64_t begin = 0;              // stream offset
  std::uint64_t message = 0;            // number of the message it belongs to
  SegmentNumber before = 0, after = 0;  // neighbours in order of transmission, while in flight
  std::uint32_t length = 0;
  std::uint32_t framing = 0;  // of `length`, bytes that are not payload
  Picoseconds sent{};  // last transmission
  // State of the connection when it was last sent, for the delivery rate.
  Picoseconds rate_start{}, delivered_at{};
  std::uint64_t delivered = 0, delivered_framing = 0, lost = 0;
  std::uint32_t in_flight = 0;  // bytes, its own included
  State state = State::in_flight;
  std::uint8_t retransmissions = 0;  // saturates
  bool app_limited = false;
  bool was_lost = false;  // taken for lost, if repaired since; until it is delivered or an undo
  std::uint64_t end() const { return begin + length; }
};

class Scoreboard {
 public:
  bool empty() const { return segments_.empty(); }
  std::uint32_t packets() const { return static_cast<std::uint32_t>(segments_.size()); }
  Segment& operator[](SegmentNumber n) { return segments_[n - first_]; }
  const Segment& operator[](SegmentNumber n) const { return segments_[n - first_]; }
  SegmentNumber first() const { return first_; }
  SegmentNumber end() const { return first_ + packets(); }

  std::uint64_t in_flight() const { return in_flight_; }
  std::uint64_t framing_in_flight() const { return framing_in_flight_; }
  std::uint64_t sacked() const { return sacked_; }
  std::uint64_t lost() const { return lost_; }
  std::uint32_t sacked_packets() const { return sacked_packets_; }
  std::uint32_t in_flight_packets() const { return in_flight_packets_; }
  std::uint32_t retransmissions_out() const { return retransmissions_out_; }
  // Taken for lost and not delivered yet, whether sent again or not: Linux's lost_out.
  std::uint32_t lost_out() const { return lost_out_; }

  // Appends a segment that is being sent for the first time.
  SegmentNumber push(Segment segment);
  // Takes the front out, whatever its state.
  Segment pop();
  // A lost segment is sent again at `now`: it goes to the end of the order of transmission. So does
  // one in flight that a tail loss probe repeats.
  void resent(SegmentNumber n, Picoseconds now);
  void mark_sacked(SegmentNumber n);
  void mark_lost(SegmentNumber n);
  // Nothing was lost (undo of a mistaken reduction): what has not been sent again yet counts as in
  // flight after all.
  void unmark_lost();
  // The receiver has thrown away what it had SACKed: all of it is lost.
  void renege();

  // In order of transmission, oldest first; valid while it is in flight. kNone ends the walk.
  static constexpr SegmentNumber kNone = ~SegmentNumber{0};
  SegmentNumber oldest() const { return oldest_; }
  SegmentNumber next_sent(SegmentNumber n) const { return (*this)[n].after; }
  // The lost segment with the lowest offset, or kNone.
  SegmentNumber next_lost();
  // First segment that ends after `offset`; end() if none.
  SegmentNumber find(std::uint64_t offset) const;

 private:
  void link(SegmentNumber n);  // at the end
  void unlink(SegmentNumber n);
  void leave(Segment& s);  // takes the segment out of its state's totals
  void fly(Segment& s);
  void taken_for_lost(Segment& s);
  void not_lost(Segment& s);

  Ring<Segment> segments_;
  SegmentNumber first_ = 0;
  SegmentNumber oldest_ = kNone, newest_ = kNone;
  SegmentNumber lost_hint_ = 0;  // no lost segment has a lower number
  std::uint64_t in_flight_ = 0, framing_in_flight_ = 0, sacked_ = 0, lost_ = 0;
  std::uint32_t sacked_packets_ = 0, in_flight_packets_ = 0, retransmissions_out_ = 0;
  std::uint32_t lost_out_ = 0;
};

}  // namespace loomnet::tcp
