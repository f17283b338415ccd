// One event, and sorting a few of them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "clock/time.hpp"

namespace loomnet {

struct Event {
  Picoseconds at;     // never negative
  std::uint64_t key;  // object id << 40 | sequence
  std::uint64_t what;
  // Total order (time, object id, sequence) as one 128-bit comparison, without a branch.
  bool before(const Event& o) const { return rank() < o.rank(); }
  unsigned __int128 rank() const {
    return static_cast<unsigned __int128>(static_cast<std::uint64_t>(at.count)) << 64 | key;
  }
};

inline void sort_events(Event* begin, Event* end) {
  if (end - begin > 24) {
    std::sort(begin, end, [](const Event& a, const Event& b) { return a.before(b); });
    return;
  }
  for (Event* at = begin + 1; at < end; ++at) {
    const Event event = *at;
    Event* to = at;
    for (; to > begin && event.before(to[-1]); --to) *to = to[-1];
    *to = event;
  }
}

}  // namespace loomnet
