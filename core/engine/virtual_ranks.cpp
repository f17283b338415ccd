// Freeze, listen, and once every rank rests: the next instant of the network or of a rank's alarm.
#include "engine/virtual_ranks.hpp"

#include <algorithm>
#include <utility>

#include "rank/rank_memory.hpp"

namespace loomnet {
namespace {

constexpr int kRaceLookMs = 1;  // between two steps of a clock that goes with the machine's

}  // namespace

VirtualRanks::VirtualRanks(Network& network) : network_(network) {}

void VirtualRanks::add(RankBridge& bridge, std::uint32_t job) {
  for (Rank& other : ranks_) {
    if (!other.bridge->shares_nic(bridge)) continue;
    other.bridge->hold();
    bridge.hold();
  }
  ranks_.push_back({&bridge, true});
  wakers_.push_back(&bridge.engine_wake());
  meetings_.add(bridge, job);
  bridge.use_virtual_clock();
}

bool VirtualRanks::poll(bool& marked) {
  bool found = false;
  for (Rank& rank : ranks_) {
    found |= rank.bridge->poll(network_.now(), 0, 1.0);
    marked |= rank.bridge->has_marks();
    rank.bridge->flush(network_.now());
  }
  return found;
}

bool VirtualRanks::submit() {
  bool any = false;
  for (Rank& rank : ranks_) any |= rank.bridge->submit(network_.now());
  return any;
}

bool VirtualRanks::news() {
  bool any = false;
  for (Rank& rank : ranks_) any |= rank.bridge->take_news();
  return any;
}

rank::Rest VirtualRanks::rest() {
  rank::Rest all = rank::Rest::waiting;
  for (Rank& rank : ranks_) {
    if (!rank.present || rank.bridge->fault() != RankFault::none) continue;
    const rank::Rest one = rank.bridge->port().rest();
    if (one == rank::Rest::none) return one;
    if (one == rank::Rest::outside) all = one;
  }
  return all;
}

bool VirtualRanks::others_wait(const std::vector<std::size_t>& but) {
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const Rank& rank = ranks_[i];
    if (!rank.present || rank.bridge->fault() != RankFault::none) continue;
    if (std::find(but.begin(), but.end(), i) != but.end()) continue;
    if (rank.bridge->port().rest() == rank::Rest::none) return false;
  }
  submit();
  return true;
}

void VirtualRanks::strand() {
  for (Rank& rank : ranks_) {
    if (!rank.present) continue;
    rank.bridge->tell({.kind = static_cast<std::uint32_t>(rank::NoticeKind::stranded)}, network_.now());
  }
}

// Numbers of groups are given while every rank rests, so that they do not depend on which asked first.
bool VirtualRanks::settle_meetings() {
  if (!meetings_.asked()) return false;
  meetings_.settle(network_.now());
  return true;
}

VirtualRanks::Due VirtualRanks::alarms() const {
  Due due;
  for (const Rank& rank : ranks_) {
    if (!rank.present || rank.bridge->fault() != RankFault::none) continue;
    // The alarm of a rank that did not move when it rang does not ring again: the rank's words are not trusted.
    if (rank.rung != 0 && rank.rung == rank.bridge->port().state_word()) continue;
    const auto alarms = rank.bridge->port().alarms();
    due.asked = std::min(due.asked, std::max(alarms.asked, network_.now()));
    due.limit = std::min(due.limit, std::max(alarms.limit, network_.now()));
  }
  return due;
}

// Rings for every rank whose alarm is due.
bool VirtualRanks::ring() {
  bool any = false;
  for (Rank& rank : ranks_) {
    if (!rank.present || rank.bridge->fault() != RankFault::none) continue;
    rank::Rest rests = rank.bridge->port().rest();
    const std::uint64_t word = rank.bridge->port().state_word();
    const auto alarms = rank.bridge->port().alarms();
    if (rests == rank::Rest::none || rank.rung == word || std::min(alarms.asked, alarms.limit) > network_.now()) {
      continue;
    }
    rank.rung = word;
    any = true;
    rank.bridge->tell({.kind = static_cast<std::uint32_t>(rank::NoticeKind::alarm)}, network_.now());
  }
  return any;
}

// How far the clock may go while a rank sleeps outside: as far as the machine's clock has gone since the rank was
// first found there.
Picoseconds VirtualRanks::race_limit() {
  const std::int64_t now_ns = rank::monotonic_ns();
  if (!std::exchange(racing_, true)) {
    race_began_ns_ = now_ns;
    wall_paced_from_ = network_.now();
    waited_for_.clear();
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      const bool undecided = std::find(undecided_.begin(), undecided_.end(), i) != undecided_.end();
      if (undecided || (ranks_[i].present && ranks_[i].bridge->port().rest() == rank::Rest::outside)) {
        waited_for_.push_back(i);
      }
    }
  }
  return std::max(network_.now(), wall_paced_from_ + Picoseconds{(now_ns - race_began_ns_) * 1000});
}

// Until a rank posts, marks or changes its state, `most_ms` at most. `found`: how the ranks rested when the
// caller looked.
void VirtualRanks::sleep(int most_ms, rank::Rest found) {
  bool asleep = true;
  for (Rank& rank : ranks_) {
    if (rank.present) asleep &= rank.bridge->port().announce_sleep();
  }
  // A rank that changed its state before it could see that the engine sleeps has raised nothing.
  if (asleep && rest() == found) rank::EventFd::wait_any(wakers_, most_ms);
  for (Rank& rank : ranks_) {
    if (rank.present) rank.bridge->port().cancel_sleep();
  }
}

VirtualRanks::Stop VirtualRanks::run(Picoseconds end, int wall_ms) {
  const std::int64_t until_ns = rank::monotonic_ns() + std::int64_t{wall_ms} * 1'000'000;
  // Asked on every way round: a rank can keep the engine busy without letting the clock move.
  const auto over = [&] { return rank::monotonic_ns() > until_ns; };
  bool marked = false;
  for (;;) {
    if (over()) return Stop::waiting;
    // Posts are taken at one instant, whatever order they were made in; those for one NIC when every rank rests.
    while (poll(marked) && !over()) {
    }
    if (marked) return Stop::marked;
    const rank::Rest rests = rest();
    if (rests == rank::Rest::none) {
      racing_ = false;
      const std::int64_t left_ns = until_ns - rank::monotonic_ns();
      if (left_ns <= 0) return Stop::waiting;
      sleep(static_cast<int>(left_ns / 1'000'000) + 1, rests);
      continue;
    }
    if (submit()) continue;
    if (settle_meetings()) continue;
    const Due alarm = alarms();
    Picoseconds next = std::min(network_.events().next(), alarm.asked);
    const bool stuck = next == kNever && rests == rank::Rest::waiting;
    // A limit that the script did not choose ends an operation that takes too long. It does not hide a deadlock.
    if (stuck && undecided_.empty()) return Stop::stuck;
    const bool waits = rests == rank::Rest::waiting && !stuck;
    if (waits) racing_ = false;
    next = std::min(next, alarm.limit);
    const Picoseconds began = network_.now();
    const Picoseconds limit = waits ? end : std::min(end, race_limit());
    if (next > limit) {
      network_.run_until(limit);
      if (!waits) wall_paced_ = wall_paced_ + (network_.now() - began);
      if (limit == end) return Stop::reached;
      sleep(kRaceLookMs, rests);
      continue;
    }
    bool late = false;
    if (network_.events().next() > next) {
      network_.run_until(next);
      ring();
    } else {
      // Whole instants, until one of them has news for a rank, with a look at the wall clock: a
      // large network may take long between two.
      const Picoseconds bound = std::min({limit, alarm.asked, alarm.limit});
      unsigned instants = 0;
      do {
        network_.run_until(network_.events().next());
        if (network_.events().stopped()) break;
        late = (++instants % 1024 == 0 || std::exchange(look_soon_, false)) && over();
        next = network_.events().next();
      } while (!late && !news() && next != kNever && next <= bound);
    }
    if (!waits) wall_paced_ = wall_paced_ + (network_.now() - began);
    if (network_.events().stopped()) return Stop::stopped;
    if (late) return Stop::waiting;
  }
}

}  // namespace loomnet
