// Packets that a kernel-placed switch holds, by uid: each comes back, or stands here until a sweep
// calls it missing. Open addressing, Robin Hood order: uids are handed out in order and fill long
// runs of slots, each at its home, so a removal must be able to stop at the first neighbour at
// home.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "packet/ethernet.hpp"
#include "packet/packet.hpp"

namespace loomnet {

class UidTable {
 public:
  struct Entry {
    std::uint64_t uid = 0;  // 0: empty
    PacketPtr packet;
    std::int64_t given = 0;  // wall nanoseconds
    std::uint32_t node = 0;  // index of the switch, for the reckoning
    MacAddress source{};     // a panel's: what the uid stood in for
    bool bytes = false;      // the packet has payload bytes, and those that come back replace them
  };

  explicit UidTable(std::size_t initial = 4096) : entries_(round_up(initial)) {}

  std::size_t size() const { return size_; }

  void put(Entry entry) {
    if ((size_ + 1) * 2 > entries_.size()) grow();
    std::size_t at = entry.uid & mask();
    for (std::size_t distance = 0; entries_[at].uid; ++distance, at = (at + 1) & mask()) {
      const std::size_t other = distance_of(at);
      if (other < distance) {  // the one nearer to its home moves on
        std::swap(entry, entries_[at]);
        distance = other;
      }
    }
    entries_[at] = std::move(entry);
    ++size_;
  }

  // The entry, taken out; uid 0 in it if there is none.
  Entry take(std::uint64_t uid) {
    if (uid == 0) return {};
    for (std::size_t at = uid & mask(); entries_[at].uid; at = (at + 1) & mask()) {
      if (entries_[at].uid == uid) return remove(at);
    }
    return {};
  }

  // Looks at the next `slots` slots and takes out, through `lost(Entry&&)`, what was given before
  // `since`.
  template <typename Lost>
  void sweep(std::size_t slots, std::int64_t since, Lost lost) {
    for (std::size_t i = 0; i < slots && size_; ++i) {
      cursor_ &= mask();
      // Removing may move another entry here: look again.
      while (entries_[cursor_].uid && entries_[cursor_].given < since) lost(remove(cursor_));
      ++cursor_;
    }
  }
  std::size_t slots() const { return entries_.size(); }

 private:
  static std::size_t round_up(std::size_t n) {
    std::size_t p = 16;
    while (p < n) p *= 2;
    return p;
  }
  std::size_t mask() const { return entries_.size() - 1; }

  std::size_t distance_of(std::size_t at) const { return (at - entries_[at].uid) & mask(); }

  Entry remove(std::size_t at) {
    Entry out = std::move(entries_[at]);
    entries_[at].uid = 0;
    --size_;
    for (std::size_t next = (at + 1) & mask(); entries_[next].uid && distance_of(next); next = (next + 1) & mask()) {
      entries_[at] = std::move(entries_[next]);
      entries_[next].uid = 0;
      at = next;
    }
    return out;
  }

  void grow() {
    std::vector<Entry> old(entries_.size() * 2);
    old.swap(entries_);
    size_ = 0;
    for (Entry& e : old) {
      if (e.uid) put(std::move(e));
    }
  }

  std::vector<Entry> entries_;
  std::size_t size_ = 0;
  std::size_t cursor_ = 0;
};

}  // namespace loomnet
