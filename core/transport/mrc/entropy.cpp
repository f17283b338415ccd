// EV rotation and its state transitions; see entropy.hpp.
#include "transport/mrc/entropy.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "clock/random.hpp"

namespace loomnet::mrc {
namespace {

constexpr std::uint64_t kShufflePurpose = 0x4556;  // + plane; kMaxPlanes: order of planes; + 1: swaps

template <typename T>
void shuffle(std::span<T> items, RandomStream random) {
  for (std::size_t i = items.size(); i > 1; --i) {
    std::swap(items[i - 1], items[random.below(static_cast<std::uint32_t>(i))]);
  }
}

// The place after `i` in a ring of `size`. A division would cost as much as all else that is done to
// choose a packet's path.
std::size_t after(std::size_t i, std::size_t size) { return i + 1 < size ? i + 1 : 0; }

}  // namespace

EvSet::EvSet(const MrcOptions& options, std::span<const PlanePaths> planes, std::uint64_t object) {
  plane_count_ = static_cast<std::uint8_t>(planes.size());
  losses_to_bad_ = static_cast<std::uint8_t>(options.losses_to_bad);
  turns_ = options.plane_turns;
  settle_ = static_cast<std::uint16_t>(
      std::clamp<std::uint64_t>(2 * bytes_in(options.network_rtt, options.port_rate) / options.mtu, 1, 0xffff));
  coin_ = RandomStream(options.seed, object, kShufflePurpose + kMaxPlanes + 1);
  std::size_t usable = 0, paths = 0;
  for (const PlanePaths& p : planes) usable += !p.uplinks.empty(), paths += p.uplinks.size();
  const std::size_t wanted = std::min<std::size_t>(options.evs_per_qp, paths);
  const std::size_t per_plane = usable == 0 ? 0 : (wanted + usable - 1) / usable;

  for (std::uint8_t p = 0; p < plane_count_; ++p) {
    plane_order_[p] = p;
    std::vector<std::uint16_t> pool = planes[p].uplinks;
    shuffle<std::uint16_t>(pool, RandomStream(options.seed, object, kShufflePurpose + p));
    const std::size_t active = std::min(per_plane, pool.size());
    std::size_t backups = 0;
    if (pool.size() > active) {
      const auto share = static_cast<std::size_t>(options.backup_share * static_cast<double>(active));
      backups = options.backup_share > 0 ? std::max<std::size_t>(1, share) : 0;
      backups = std::min(backups, pool.size() - active);
    }
    Plane& plane = planes_[p];
    plane.first_ev = static_cast<std::uint16_t>(evs_.size());
    plane.evs = static_cast<std::uint16_t>(active + backups);
    plane.first_slot = static_cast<std::uint16_t>(slots_.size());
    plane.slots = static_cast<std::uint16_t>(active);
    capacity_[p] = planes[p].capacity;
    std::vector<std::uint16_t> drawn(pool.begin(), pool.begin() + static_cast<long>(active + backups));
    std::sort(drawn.begin(), drawn.end());
    for (const std::uint16_t u : drawn) evs_.push_back({u, p});
    const auto index = [&](std::uint16_t u) {
      return static_cast<EvIndex>(plane.first_ev + (std::lower_bound(drawn.begin(), drawn.end(), u) - drawn.begin()));
    };
    for (std::size_t i = 0; i < active; ++i) slots_.push_back(index(pool[i]));
    for (std::size_t i = active; i < active + backups; ++i) backups_.push_back(index(pool[i]));
  }
  shuffle<PlanePort>({plane_order_.data(), plane_count_},
                     RandomStream(options.seed, object, kShufflePurpose + kMaxPlanes));
  floor_ = static_cast<std::uint16_t>(
      std::max(1.0, std::floor(options.min_active_share * static_cast<double>(slots_.size()))));
  for (PlanePort p = 0; p < plane_count_; ++p) recount(p);
  evs_.shrink_to_fit();
  slots_.shrink_to_fit();
  backups_.shrink_to_fit();
}

std::vector<EvIndex> EvSet::succeed(const EvSet& old, PlaneMask same, const std::vector<bool>& needed) {
  std::vector<EvIndex> here(old.evs_.size(), kNoEv);
  for (EvIndex ev = 0; ev < old.evs_.size(); ++ev) {
    const Ev& was = old.evs_[ev];
    const EvIndex at = was.state != EvState::retired && same >> was.plane & 1 ? find(old.value(ev)) : kNoEv;
    if (at != kNoEv) {
      here[ev] = at;
    } else if (needed[ev]) {
      here[ev] = static_cast<EvIndex>(evs_.size());
      evs_.push_back({was.uplink, was.plane, EvState::retired});
    }
  }
  const auto kept = [&](EvIndex ev) { return here[ev] != kNoEv && evs_[here[ev]].state != EvState::retired; };
  // Oldest first, as they are probed.
  for (const EvIndex ev : old.bad_) {
    if (!kept(ev)) continue;
    condemn(here[ev], 0xff);
    evs_[here[ev]].failures = old.evs_[ev].failures;
  }
  for (EvIndex ev = 0; ev < old.evs_.size(); ++ev) {
    if (old.evs_[ev].state == EvState::denied && kept(ev)) deny(here[ev], true);
  }
  return here;
}

EvIndex EvSet::take_backup(PlanePort plane) {
  for (std::size_t i = 0; i < backups_.size(); ++i) {
    const EvIndex ev = backups_[i];
    if (evs_[ev].plane != plane || evs_[ev].state != EvState::good) continue;
    backups_.erase(backups_.begin() + static_cast<long>(i));
    return ev;
  }
  return kNoEv;
}

EvIndex EvSet::pick(PlanePort p, EvIndex avoid) {
  Plane& plane = planes_[p];
  const auto slots = slots_of(p);
  swap_if_marked(p);
  if (plane.settling > 0) --plane.settling;
  // The first pass may spend the token of every value.
  std::size_t i = plane.cursor;
  for (std::size_t k = 0; k < 2 * slots.size(); ++k, i = after(i, slots.size())) {
    Ev& ev = evs_[slots[i]];
    if (ev.state == EvState::skip) {
      ev.state = EvState::good;
    } else if (ev.state == EvState::good && slots[i] != avoid) {
      plane.cursor = static_cast<std::uint16_t>(after(i, slots.size()));
      return slots[i];
    }
  }
  return kNoEv;
}

bool EvSet::swap_marked(PlanePort p) {
  Plane& plane = planes_[p];
  const auto slots = slots_of(p);
  std::size_t next = slots.size();
  std::size_t i = plane.cursor;
  for (std::size_t k = 0; k < slots.size(); ++k, i = after(i, slots.size())) {
    const EvState state = evs_[slots[i]].state;
    if (state == EvState::good) return false;
    if (state == EvState::skip && next == slots.size()) next = i;
  }
  if (next == slots.size()) return false;
  // By the toss of a coin, and not again for as many packets as are under way (ours): two queue
  // pairs whose paths are marked together and that have the same backup would go on sharing one,
  // moving to and fro together.
  if (plane.settling > 0) return false;
  const bool has_backup = std::any_of(backups_.begin(), backups_.end(), [&](EvIndex ev) {
    return evs_[ev].plane == p && evs_[ev].state == EvState::good;
  });
  if (!has_backup) return false;
  plane.settling = settle_;
  if (coin_() & 1) return false;
  const EvIndex fresh = take_backup(p);
  evs_[slots[next]].state = EvState::good;
  backups_.push_back(slots[next]);
  slots[next] = swapped_ = fresh;
  plane.cursor = static_cast<std::uint16_t>(next);
  return true;
}

void EvSet::recount(PlanePort p) {
  const auto slots = slots_of(p);
  const auto active = static_cast<double>(
      std::count_if(slots.begin(), slots.end(), [&](EvIndex s) { return eligible(evs_[s].state); }));
  Plane& plane = planes_[p];
  plane.weight = 0;
  plane.turn_length = kTurn;
  if (active == 0) return;
  const double share = std::min(1.0, capacity_[p] * active / static_cast<double>(slots.size()));
  plane.weight = static_cast<std::uint16_t>(std::max(1.0, std::round(share * kWholePlane)));
  plane.turn_length = kTurn / plane.weight;
}

bool EvSet::usable(PlanePort p, EvIndex avoid) const {
  for (const EvIndex ev : slots_of(p)) {
    if (ev != avoid && eligible(evs_[ev].state)) return true;
  }
  return false;
}

bool EvSet::any_usable(PlaneMask allowed, EvIndex avoid) const {
  for (PlanePort p = 0; p < plane_count_; ++p) {
    if (allowed >> p & 1 && usable(p, avoid)) return true;
  }
  return false;
}

bool EvSet::passes_turn(PlanePort p, EvIndex avoid) {
  Plane& plane = planes_[p];
  const auto slots = slots_of(p);
  if (swap_if_marked(p) && slots[plane.cursor] != avoid) return false;
  std::size_t i = plane.cursor;
  for (std::size_t k = 0; k < slots.size(); ++k, i = after(i, slots.size())) {
    Ev& ev = evs_[slots[i]];
    if (slots[i] == avoid || !eligible(ev.state)) continue;
    if (ev.state == EvState::good) return false;
    ev.state = EvState::good;
    plane.cursor = static_cast<std::uint16_t>(after(i, slots.size()));
    return true;
  }
  return true;
}

int EvSet::next_turn(PlaneMask allowed, EvIndex avoid) const {
  if (std::has_single_bit(static_cast<unsigned>(allowed))) {  // the other ports are busy
    const auto only = static_cast<PlanePort>(std::countr_zero(static_cast<unsigned>(allowed)));
    return only < plane_count_ && usable(only, avoid) ? only : -1;
  }
  int best = -1;
  std::size_t at = plane_cursor_;
  for (unsigned k = 0; k < plane_count_; ++k, at = after(at, plane_count_)) {
    const PlanePort p = plane_order_[at];
    if (!(allowed >> p & 1) || !usable(p, avoid)) continue;
    if (best < 0 || planes_[p].turn < planes_[static_cast<std::size_t>(best)].turn) best = p;
  }
  return best;
}

int EvSet::preferred_plane(PlaneMask allowed, EvIndex avoid) {
  // Ends: each turn passed over spends a token, and one value is usable.
  for (;;) {
    const int next = next_turn(allowed, avoid);
    if (next < 0) return -1;
    const auto p = static_cast<PlanePort>(next);
    if (turns_ == PlaneTurns::equal || !passes_turn(p, avoid)) return p;
    advance_plane(p);
  }
}

void EvSet::advance_plane(PlanePort used) {
  for (std::uint8_t k = 0; k < plane_count_; ++k) {
    if (plane_order_[k] == used) plane_cursor_ = static_cast<std::uint8_t>(after(k, plane_count_));
  }
  if (turns_ == PlaneTurns::equal) return;
  Plane& plane = planes_[used];
  // A plane that could not be used for long, its port busy or down, is not owed the turns it missed.
  constexpr std::uint64_t kOwed = 2 * (kTurn / kWholePlane);  // turns of a whole plane
  plane.turn = std::max(plane.turn, turn_) + plane.turn_length;
  turn_ = std::max(turn_, plane.turn - std::min(plane.turn, kOwed));
}

bool EvSet::skip(EvIndex ev) {
  if (evs_[ev].state != EvState::good || !in_rotation(ev)) return false;
  evs_[ev].state = EvState::skip;
  return true;
}

bool EvSet::in_rotation(EvIndex ev) const {
  const auto slots = slots_of(evs_[ev].plane);
  return std::find(slots.begin(), slots.end(), ev) != slots.end();
}

EvChange EvSet::condemn(EvIndex ev, PlaneMask live, bool at_once) {
  EvChange change;
  Ev& e = evs_[ev];
  if (!eligible(e.state)) return change;
  if (!at_once && ++e.losses < losses_to_bad_) return change;
  e.losses = 0;
  e.state = EvState::assumed_bad;
  if (e.failures < 255) ++e.failures;
  bad_.push_back(ev);
  change.condemned = true;
  const auto slots = slots_of(e.plane);
  if (const auto slot = std::find(slots.begin(), slots.end(), ev); slot != slots.end()) {
    if (const EvIndex fresh = take_backup(e.plane); fresh != kNoEv) {
      *slot = fresh;
      change.swapped_in = fresh;
    }
  } else {
    std::erase(backups_, ev);
  }
  recount(e.plane);
  change.returned = keep_floor(live, ev);
  return change;
}

EvIndex EvSet::keep_floor(PlaneMask live, EvIndex except) {
  if (active(live) >= floor(live)) return kNoEv;
  // The oldest bad one on a live plane; the one just condemned only if there is no other.
  EvIndex chosen = kNoEv;
  for (const EvIndex ev : bad_) {
    if (!(live >> evs_[ev].plane & 1)) continue;
    chosen = ev;
    if (ev != except) break;
  }
  if (chosen != kNoEv) readmit(chosen);
  return chosen;
}

void EvSet::drop_bad(EvIndex ev) { std::erase(bad_, ev); }

void EvSet::readmit(EvIndex ev, bool marked) {
  Ev& e = evs_[ev];
  if (e.state != EvState::assumed_bad) return;
  drop_bad(ev);
  e.state = EvState::good;
  e.losses = 0;
  const auto slots = slots_of(e.plane);
  auto slot = std::find(slots.begin(), slots.end(), ev);
  if (slot == slots.end()) {
    slot = std::find_if(slots.begin(), slots.end(), [&](EvIndex s) { return !eligible(evs_[s].state); });
    if (slot == slots.end()) {
      backups_.push_back(ev);
      return;
    }
    *slot = ev;
  }
  recount(e.plane);
  if (marked) e.state = EvState::skip;
}

bool EvSet::deny(EvIndex ev, bool denied, PlaneMask live) {
  Ev& e = evs_[ev];
  if (denied == (e.state == EvState::denied)) return true;
  if (denied) {
    const auto instead = [&](EvIndex other) {
      const Ev& o = evs_[other];
      const bool bad = o.state == EvState::assumed_bad;
      return other != ev && live >> o.plane & 1 && (bad || (o.plane == e.plane && eligible(o.state)));
    };
    if (eligible(e.state) && in_rotation(ev) && live >> e.plane & 1 && active(live) <= floor(live) &&
        std::none_of(backups_.begin(), backups_.end(), instead) && std::none_of(bad_.begin(), bad_.end(), instead)) {
      return false;
    }
    drop_bad(ev);
    std::erase(backups_, ev);
    e.state = EvState::denied;
    const auto slots = slots_of(e.plane);
    if (const auto slot = std::find(slots.begin(), slots.end(), ev); slot != slots.end()) {
      if (const EvIndex fresh = take_backup(e.plane); fresh != kNoEv) *slot = fresh;
    }
    recount(e.plane);
  } else {
    e.state = EvState::assumed_bad;  // allowed again: straight back, as the controller vouches
    readmit(ev);
  }
  return true;
}

EvIndex EvSet::find(EntropyValue value) const {
  if (value.plane() >= plane_count_ || EntropyValue(value.plane(), value.uplink()) != value) {
    return kNoEv;
  }
  const Plane& plane = planes_[value.plane()];
  const auto begin = evs_.begin() + plane.first_ev, end = begin + plane.evs;
  const auto at =
      std::lower_bound(begin, end, value.uplink(), [](const Ev& e, unsigned uplink) { return e.uplink < uplink; });
  if (at == end || at->uplink != value.uplink()) return kNoEv;
  return static_cast<EvIndex>(at - evs_.begin());
}

std::size_t EvSet::active(PlaneMask live) const {
  return static_cast<std::size_t>(std::count_if(
      slots_.begin(), slots_.end(), [&](EvIndex s) { return eligible(evs_[s].state) && live >> evs_[s].plane & 1; }));
}

std::size_t EvSet::floor(PlaneMask live) const {
  std::size_t live_slots = 0;
  for (unsigned p = 0; p < plane_count_; ++p) {
    if (live >> p & 1) live_slots += planes_[p].slots;
  }
  if (live_slots == 0) return 0;
  return std::max<std::size_t>(1, floor_ * live_slots / slots_.size());
}

}  // namespace loomnet::mrc
