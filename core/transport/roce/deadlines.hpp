// ACK timers of one NIC: a heap that is touched when a timer starts from nothing or fires, never
// per packet. A timer that was extended or stopped keeps its old entry until that time comes.
#pragma once

#include <algorithm>
#include <vector>

#include "clock/time.hpp"

namespace loomnet::roce {

template <typename T>
class Deadlines {
 public:
  void reserve(std::size_t n) { heap_.reserve(n); }
  Picoseconds next() const { return heap_.empty() ? kNever : heap_.front().at; }
  void push(Picoseconds at, T* owner) {
    heap_.push_back({at, ++order_, owner});
    std::push_heap(heap_.begin(), heap_.end(), later);
  }
  T* pop() {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    T* owner = heap_.back().owner;
    heap_.pop_back();
    return owner;
  }

 private:
  struct Entry {
    Picoseconds at;
    std::uint64_t order;  // equal times fire in the order they were set
    T* owner;
  };
  static bool later(const Entry& a, const Entry& b) { return a.at != b.at ? a.at > b.at : a.order > b.order; }

  std::vector<Entry> heap_;
  std::uint64_t order_ = 0;
};

}  // namespace loomnet::roce
