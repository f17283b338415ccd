// Deadlines of many owners, one each: a binary heap that knows where each owner stands. Setting a
// later time than the one held is free: the early wake-up finds nothing due and asks again.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "clock/time.hpp"

namespace loomnet {

class TimerHeap {
 public:
  Picoseconds next() const { return heap_.empty() ? kNever : heap_.front().at; }
  std::uint32_t front() const { return heap_.front().owner; }
  const void* memory() const { return heap_.data(); }

  // Wakes `owner` at `at` or earlier.
  void at_latest(std::uint32_t owner, Picoseconds at) {
    if (owner < place_.size() && place_[owner] != kAbsent && heap_[place_[owner]].at <= at) [[likely]] {
      return;
    }
    bring_forward(owner, at);
  }
  // Sets exactly; kNever takes the owner out.
  void set(std::uint32_t owner, Picoseconds at) {
    if (owner < place_.size() && place_[owner] != kAbsent) remove(place_[owner]);
    at_latest(owner, at);
  }

 private:
  struct Entry {
    Picoseconds at;
    std::uint32_t owner;
    bool before(const Entry& o) const { return at != o.at ? at < o.at : owner < o.owner; }
  };
  static constexpr std::uint32_t kAbsent = ~0u;

  [[gnu::noinline]] void bring_forward(std::uint32_t owner, Picoseconds at) {
    if (owner >= place_.size()) place_.resize(owner + 1, kAbsent);
    const std::uint32_t i = place_[owner];
    if (i == kAbsent) {
      if (at == kNever) return;
      place_[owner] = static_cast<std::uint32_t>(heap_.size());
      heap_.push_back({at, owner});
      up(heap_.size() - 1);
    } else if (at < heap_[i].at) {
      heap_[i].at = at;
      up(i);
    }
  }

  void put(std::size_t i, const Entry& e) {
    heap_[i] = e;
    place_[e.owner] = static_cast<std::uint32_t>(i);
  }
  void up(std::size_t i) {
    const Entry e = heap_[i];
    for (; i > 0 && e.before(heap_[(i - 1) / 2]); i = (i - 1) / 2) put(i, heap_[(i - 1) / 2]);
    put(i, e);
  }
  void down(std::size_t i) {
    const Entry e = heap_[i];
    while (true) {
      std::size_t child = 2 * i + 1;
      if (child >= heap_.size()) break;
      if (child + 1 < heap_.size() && heap_[child + 1].before(heap_[child])) ++child;
      if (!heap_[child].before(e)) break;
      put(i, heap_[child]);
      i = child;
    }
    put(i, e);
  }
  void remove(std::size_t i) {
    place_[heap_[i].owner] = kAbsent;
    const Entry last = heap_.back();
    heap_.pop_back();
    if (i == heap_.size()) return;
    heap_[i] = last;
    place_[last.owner] = static_cast<std::uint32_t>(i);
    up(i);
    down(place_[last.owner]);
  }

  std::vector<Entry> heap_;
  std::vector<std::uint32_t> place_;
};

}  // namespace loomnet
