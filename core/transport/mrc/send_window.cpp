// PSN table of a sender; see send_window.hpp.
#include "transport/mrc/send_window.hpp"

#include <cassert>

namespace loomnet::mrc {

void SendWindow::grow() {
  // Order of sending survives: the list is replayed into the larger ring.
  std::vector<Sent> old = std::move(ring_);
  const std::size_t capacity = old.empty() ? kFirstCapacity : old.size() * 2;
  assert(capacity <= 32'768 && "indices are 16 bits; mpr bounds the window");
  std::vector<PsnCount> order;
  for (std::uint16_t i = head_; i != kNil; i = old[i].next) {
    order.push_back(una_ + ((i - una_) & (old.size() - 1)));
  }
  ring_.assign(capacity, Sent{});
  acked_.assign(capacity / 64, 0);
  queued_bits_.assign(capacity / 64, 0);
  for (PsnCount n = una_; n < next_; ++n) {
    at(n) = old[n & (old.size() - 1)];
    if (at(n).state == SentState::acked) ring_set(acked_, n);
    if (at(n).state == SentState::queued) ring_set(queued_bits_, n);
  }
  head_ = tail_ = kNil;
  for (const PsnCount n : order) {
    const std::uint32_t later = at(n).later;
    link(static_cast<std::uint16_t>(n & (capacity - 1)));
    at(n).later = later;
  }
}

void SendWindow::link(std::uint16_t i) {
  ring_[i].previous = tail_;
  ring_[i].next = kNil;
  ring_[i].later = 0;
  (tail_ == kNil ? head_ : ring_[tail_].next) = i;
  tail_ = i;
}

void SendWindow::unlink(std::uint16_t i, std::uint32_t acked_bytes) {
  Sent& s = ring_[i];
  if (s.previous == kNil) {
    head_ = s.next;
    later_total_ -= s.later;
  } else {
    ring_[s.previous].next = s.next;
    ring_[s.previous].later += s.later + acked_bytes;
    later_total_ += acked_bytes;
  }
  (s.next == kNil ? tail_ : ring_[s.next].previous) = s.previous;
}

Sent& SendWindow::append(std::uint64_t message, std::uint32_t nominal, std::uint32_t payload) {
  if (next_ - una_ >= ring_.size()) grow();
  Sent& s = at(next_);
  s = Sent{};
  s.message = message;
  s.nominal = nominal;
  s.payload = static_cast<std::uint16_t>(payload);
  ++next_;
  return s;
}

void SendWindow::fly(PsnCount n, EvIndex ev, Picoseconds now) {
  Sent& s = at(n);
  if (s.state == SentState::queued) {
    ring_clear(queued_bits_, n);
    --queued_;
  }
  s.state = SentState::flying;
  s.time = now;
  s.ev = ev;
  if (s.copies < 255) ++s.copies;
  inflight_ += s.nominal;
  payload_inflight_ += s.payload;
  link(static_cast<std::uint16_t>(n & (ring_.size() - 1)));
}

void SendWindow::requeue(PsnCount n) {
  Sent& s = at(n);
  assert(s.state == SentState::flying);
  unlink(static_cast<std::uint16_t>(n & (ring_.size() - 1)), 0);
  inflight_ -= s.nominal;
  payload_inflight_ -= s.payload;
  s.state = SentState::queued;
  ring_set(queued_bits_, n);
  ++queued_;
}

PsnCount SendWindow::lowest_queued() const {
  for (PsnCount n = una_;; n += 64) {
    if (const std::uint64_t bits = ring_window(queued_bits_, n)) {
      return n + static_cast<unsigned>(std::countr_zero(bits));
    }
    assert(n < next_);
  }
}

SentState SendWindow::acknowledge(PsnCount n) {
  Sent& s = at(n);
  const SentState before = s.state;
  if (before == SentState::flying) {
    unlink(static_cast<std::uint16_t>(n & (ring_.size() - 1)), s.nominal);
    inflight_ -= s.nominal;
    payload_inflight_ -= s.payload;
  } else if (before == SentState::queued) {
    ring_clear(queued_bits_, n);
    --queued_;
  }
  if (s.state != SentState::acked) ++acked_beyond_;
  s.state = SentState::acked;
  ring_set(acked_, n);
  return before;
}

void SendWindow::advance(PsnCount cack) {
  for (; una_ <= cack; ++una_) {
    ring_clear(acked_, una_);
    if (at(una_).state == SentState::acked) --acked_beyond_;
    at(una_).state = SentState::none;
  }
}

}  // namespace loomnet::mrc
