// The event queue: a 4-ary heap of 24-byte events.
#include "clock/event_queue.hpp"

#include <stdexcept>

namespace loomnet {

ObjectId EventQueue::add(EventHandler& handler) {
  if (handlers_.size() >= (1u << 24)) throw std::length_error("event queue: more than 2^24 objects");
  handlers_.push_back(&handler);
  return static_cast<ObjectId>(handlers_.size() - 1);
}

void EventQueue::push(const Event& event) {
  std::size_t i = heap_.size();
  heap_.push_back(event);
  while (i > 0) {
    const std::size_t parent = (i - 1) / 4;
    if (!event.before(heap_[parent])) break;
    heap_[i] = heap_[parent];
    i = parent;
  }
  heap_[i] = event;
}

EventQueue::Event EventQueue::pop() {
  const Event top = heap_.front();
  const Event last = heap_.back();
  heap_.pop_back();
  const std::size_t n = heap_.size();
  if (n > 0) {
    std::size_t i = 0;
    for (;;) {
      const std::size_t first = 4 * i + 1;
      if (first >= n) break;
      std::size_t best = first;
      const std::size_t end = first + 4 < n ? first + 4 : n;
      for (std::size_t c = first + 1; c < end; ++c) {
        if (heap_[c].before(heap_[best])) best = c;
      }
      if (!heap_[best].before(last)) break;
      heap_[i] = heap_[best];
      i = best;
    }
    heap_[i] = last;
  }
  return top;
}

void EventQueue::dispatch(const Event& event) {
  now_ = event.at;
  ++processed_;
  handlers_[event.key >> kSequenceBits]->on_event(event.what, event.at);
}

bool EventQueue::step() {
  if (heap_.empty()) return false;
  dispatch(pop());
  return true;
}

bool EventQueue::run_until(Picoseconds end, std::uint64_t most) {
  stopped_ = false;
  while (!heap_.empty() && heap_.front().at <= end) {
    if (most-- == 0) return false;
    dispatch(pop());
    if (stopped_) return false;
  }
  if (now_ < end) now_ = end;
  return true;
}

}  // namespace loomnet
