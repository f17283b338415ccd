// Freeze, listen, and when nobody can move but by the network: the next instant of the network.
#include "engine/virtual_ranks.hpp"

#include <algorithm>

#include "nic/rank_memory.hpp"

namespace loomnet {

bool VirtualRanks::poll(bool& marked) {
  bool found = false;
  for (Rank& rank : ranks_) {
    found |= rank.bridge->poll(network_.now(), 0, 1.0);
    marked |= rank.bridge->has_marks();
    rank.bridge->flush(network_.now());
  }
  return found;
}

bool VirtualRanks::news() {
  bool any = false;
  for (Rank& rank : ranks_) any |= rank.bridge->take_news();
  return any;
}

bool VirtualRanks::quiescent() {
  for (Rank& rank : ranks_) {
    if (rank.present && rank.bridge->fault() == RankFault::none && !rank.bridge->port().quiescent()) return false;
  }
  return true;
}

bool VirtualRanks::others_wait(const std::vector<std::size_t>& but) {
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const Rank& rank = ranks_[i];
    if (!rank.present || rank.bridge->fault() != RankFault::none) continue;
    if (std::find(but.begin(), but.end(), i) != but.end()) continue;
    if (!rank.bridge->port().quiescent()) return false;
  }
  return true;
}

VirtualRanks::Stop VirtualRanks::run(Picoseconds end, int wall_ms) {
  const std::int64_t until_ns = rank::monotonic_ns() + std::int64_t{wall_ms} * 1'000'000;
  std::vector<rank::EventFd*> wakers;
  for (const Rank& rank : ranks_) wakers.push_back(&rank.bridge->engine_wake());
  bool marked = false;
  for (;;) {
    // Posts are taken in rank order and at one instant, whatever order they were made in.
    while (poll(marked)) {
    }
    if (marked) return Stop::marked;
    if (quiescent()) {
      const Picoseconds next = network_.events().next();
      if (next > end) {
        if (next == kNever && end == kNever) return Stop::stuck;
        network_.run_until(end);
        return Stop::reached;
      }
      // Whole instants, until one of them has news for a rank, with a look at the wall clock: a
      // large network may take long between two.
      unsigned instants = 0;
      bool late = false;
      do {
        network_.run_until(network_.events().next());
        late = ++instants % 1024 == 0 && rank::monotonic_ns() > until_ns;
      } while (!late && !news() && network_.events().next() <= end);
      if (late) return Stop::waiting;
      continue;
    }
    const std::int64_t left_ns = until_ns - rank::monotonic_ns();
    if (left_ns <= 0) return Stop::waiting;
    bool asleep = true;
    for (Rank& rank : ranks_) {
      if (rank.present) asleep &= rank.bridge->port().announce_sleep();
    }
    if (asleep && !quiescent()) rank::EventFd::wait_any(wakers, static_cast<int>(left_ns / 1'000'000) + 1);
    for (Rank& rank : ranks_) {
      if (rank.present) rank.bridge->port().cancel_sleep();
    }
  }
}

}  // namespace loomnet
