// Events of the near future by window of time, each window's unsorted in blocks that are written and
// read from end to end.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "clock/event.hpp"

namespace loomnet {

class WindowRing {
 public:
  using Window = std::uint64_t;  // its begin over the width
  static constexpr Window kWindows = 1024;
  static constexpr Window kHeld = kWindows - 1;  // at once, from any one on or the one before it

  explicit WindowRing(Picoseconds width) : width_(static_cast<std::uint64_t>(width.count)) { heads_.fill(kNone); }

  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  Window window_of(Picoseconds at) const { return static_cast<std::uint64_t>(at.count) / width_; }
  Picoseconds begin_of(Window window) const { return {static_cast<std::int64_t>(window * width_)}; }

  void insert(Window window, const Event& event) {
    const std::uint64_t slot = window % kWindows;
    std::uint32_t head = heads_[slot];
    if (head == kNone || blocks_[head].count == kBlock) [[unlikely]]
      head = extend(slot);
    Block& block = blocks_[head];
    block.events[block.count++] = event;
    ++size_;
  }
  // The first window at or after `from` that holds any; the ring must not be empty.
  Window first(Window from) const {
    std::uint64_t word = from % kWindows / 64;
    std::uint64_t bits = occupied_[word] & ~0ull << from % 64;
    while (!bits) bits = occupied_[word = (word + 1) % occupied_.size()];
    const std::uint64_t slot = word * 64 + static_cast<std::uint64_t>(std::countr_zero(bits));
    return from + (slot - from) % kWindows;
  }
  template <class Look>
  void each(Window window, Look&& look) const {
    for (std::uint32_t b = heads_[window % kWindows]; b != kNone; b = blocks_[b].next) {
      const Block& block = blocks_[b];
      for (std::uint32_t i = 0; i < block.count; ++i) look(block.events[i]);
    }
  }
  // Calls take(event) for each of a window, which is empty afterwards. `take` must not insert.
  template <class Take>
  void drain(Window window, Take&& take) {
    const std::uint64_t slot = window % kWindows;
    each(window, take);
    for (std::uint32_t b = heads_[slot]; b != kNone;) {
      Block& block = blocks_[b];
      size_ -= block.count;
      const std::uint32_t next = block.next;
      block.next = free_;
      free_ = b;
      b = next;
    }
    heads_[slot] = kNone;
    occupied_[slot / 64] &= ~(1ull << slot % 64);
  }
  template <class Take>
  void drain_all(Take&& take) {
    for (Window window = 0; window < kWindows; ++window) drain(window, take);
  }

 private:
  static constexpr std::uint32_t kNone = ~0u, kBlock = 42;  // of 1,016 bytes
  struct Block {
    std::uint32_t next = kNone, count = 0;
    std::array<Event, kBlock> events;
  };

  // A block for a window whose others are full.
  std::uint32_t extend(std::uint64_t slot) {
    std::uint32_t b = free_;
    if (b == kNone) {
      b = static_cast<std::uint32_t>(blocks_.size());
      blocks_.emplace_back();
    } else {
      free_ = blocks_[b].next;
    }
    blocks_[b].next = heads_[slot];
    blocks_[b].count = 0;
    heads_[slot] = b;
    occupied_[slot / 64] |= 1ull << slot % 64;
    return b;
  }

  std::uint64_t width_;  // ps
  std::size_t size_ = 0;
  std::vector<Block> blocks_;
  std::uint32_t free_ = kNone;
  std::array<std::uint32_t, kWindows> heads_;
  std::array<std::uint64_t, kWindows / 64> occupied_{};
};

}  // namespace loomnet
