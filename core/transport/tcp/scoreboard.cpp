// Bookkeeping of segments and of the order in which they were sent.
#include "transport/tcp/scoreboard.hpp"

#include <algorithm>
#include <utility>

namespace loomnet::tcp {

using State = Segment::State;

void Scoreboard::link(SegmentNumber n) {
  Segment& s = (*this)[n];
  s.before = newest_;
  s.after = kNone;
  (newest_ == kNone ? oldest_ : (*this)[newest_].after) = n;
  newest_ = n;
}

void Scoreboard::unlink(SegmentNumber n) {
  const Segment& s = (*this)[n];
  (s.before == kNone ? oldest_ : (*this)[s.before].after) = s.after;
  (s.after == kNone ? newest_ : (*this)[s.after].before) = s.before;
}

void Scoreboard::leave(Segment& s) {
  switch (s.state) {
    case State::in_flight:
      in_flight_ -= s.length;
      framing_in_flight_ -= s.framing;
      --in_flight_packets_;
      if (s.retransmissions > 0) --retransmissions_out_;
      break;
    case State::lost:
      lost_ -= s.length;
      break;
    case State::sacked:
      sacked_ -= s.length;
      --sacked_packets_;
      break;
  }
}

void Scoreboard::fly(Segment& s) {
  s.state = State::in_flight;
  in_flight_ += s.length;
  framing_in_flight_ += s.framing;
  ++in_flight_packets_;
}

void Scoreboard::taken_for_lost(Segment& s) {
  s.state = State::lost;
  lost_ += s.length;
  if (!s.was_lost) ++lost_out_;
  s.was_lost = true;
}

void Scoreboard::not_lost(Segment& s) {
  if (s.was_lost) --lost_out_;
  s.was_lost = false;
}

SegmentNumber Scoreboard::push(Segment segment) {
  const SegmentNumber n = end();
  fly(segment);
  segments_.push(std::move(segment));
  link(n);
  return n;
}

Segment Scoreboard::pop() {
  Segment& s = segments_.front();
  if (s.state == State::in_flight) unlink(first_);
  leave(s);
  not_lost(s);
  ++first_;
  lost_hint_ = std::max(lost_hint_, first_);
  return segments_.pop();
}

void Scoreboard::resent(SegmentNumber n, Picoseconds now) {
  Segment& s = (*this)[n];
  if (s.state == State::in_flight) unlink(n);
  leave(s);
  fly(s);
  s.sent = now;
  if (s.retransmissions < 0xff) ++s.retransmissions;
  ++retransmissions_out_;
  link(n);
}

void Scoreboard::mark_sacked(SegmentNumber n) {
  Segment& s = (*this)[n];
  if (s.state == State::sacked) return;
  if (s.state == State::in_flight) unlink(n);
  leave(s);
  not_lost(s);
  s.state = State::sacked;
  sacked_ += s.length;
  ++sacked_packets_;
}

void Scoreboard::mark_lost(SegmentNumber n) {
  Segment& s = (*this)[n];
  if (s.state != State::in_flight) return;
  unlink(n);
  leave(s);
  taken_for_lost(s);
  lost_hint_ = std::min(lost_hint_, n);
}

void Scoreboard::unmark_lost() {
  // Both sequences are ordered by time of transmission, so one walk merges them.
  SegmentNumber at = oldest_;
  for (SegmentNumber n = first_; n != end(); ++n) {
    Segment& s = (*this)[n];
    not_lost(s);
    if (s.state != State::lost) continue;
    leave(s);
    fly(s);
    if (s.retransmissions > 0) ++retransmissions_out_;
    while (at != kNone && (*this)[at].sent <= s.sent) at = (*this)[at].after;
    while (true) {  // a segment sent more often may be out of turn: step back
      const SegmentNumber p = at == kNone ? newest_ : (*this)[at].before;
      if (p == kNone || (*this)[p].sent <= s.sent) break;
      at = p;
    }
    if (at == kNone) {
      link(n);
      continue;
    }
    s.after = at;
    s.before = (*this)[at].before;
    (s.before == kNone ? oldest_ : (*this)[s.before].after) = n;
    (*this)[at].before = n;
  }
  lost_hint_ = end();
}

void Scoreboard::renege() {
  for (SegmentNumber n = first_; n != end(); ++n) {
    Segment& s = (*this)[n];
    if (s.state != State::sacked) continue;
    leave(s);
    taken_for_lost(s);
  }
  lost_hint_ = first_;
}

SegmentNumber Scoreboard::next_lost() {
  if (lost_ == 0) return kNone;
  while ((*this)[lost_hint_].state != State::lost) ++lost_hint_;
  return lost_hint_;
}

SegmentNumber Scoreboard::find(std::uint64_t offset) const {
  std::uint32_t low = 0, high = packets();
  while (low < high) {
    const std::uint32_t middle = low + (high - low) / 2;
    if (segments_[middle].end() <= offset) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return first_ + low;
}

}  // namespace loomnet::tcp
