// The entropy values of one queue pair: which paths are in rotation, which wait as backups, which
// are out. OCP MRC 1.0.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "clock/random.hpp"
#include "transport/mrc/options.hpp"
#include "transport/transport.hpp"

namespace loomnet::mrc {

// retired: of paths that the queue pair had before; packets under way may still have gone by it.
enum class EvState : std::uint8_t { good, skip, assumed_bad, denied, retired };

// Index of an entropy value inside its EvSet; stable for the life of the set.
using EvIndex = std::uint16_t;
inline constexpr EvIndex kNoEv = 0xffff;
using PlaneMask = std::uint8_t;

// What a transition did, for events and counters.
struct EvChange {
  bool condemned = false;      // GOOD or SKIP became ASSUMED_BAD
  EvIndex swapped_in = kNoEv;  // backup that took the slot
  EvIndex returned = kNoEv;    // oldest bad one, back in exchange (floor)
};

class EvSet {
 public:
  EvSet() = default;
  // Draws min(ceil(E/P), uplinks) values per plane and their backups, per-QP pseudo-random.
  EvSet(const MrcOptions& options, std::span<const PlanePaths> planes, std::uint64_t object);

  // Takes the place of `old`: values out of rotation stay out on planes of the mask `same`, and values
  // that are no longer drawn but `needed` follow the others, retired. Returns the index here of each
  // value there; kNoEv: it has none.
  std::vector<EvIndex> succeed(const EvSet& old, PlaneMask same, const std::vector<bool>& needed);

  // Next value of `plane` in rotation, kNoEv if none; spends SKIP tokens as it passes them. Where
  // all values are marked, a backup of the plane takes the place of one. `avoid` is never returned.
  EvIndex pick(PlanePort plane, EvIndex avoid = kNoEv);
  // True if pick(plane, avoid) would find one.
  bool usable(PlanePort plane, EvIndex avoid = kNoEv) const;
  bool any_usable(PlaneMask allowed, EvIndex avoid = kNoEv) const;
  // The plane among `allowed` whose turn it is; -1 if none has a usable value. With PlaneTurns::paths
  // a plane whose next value is marked SKIP spends the token and passes its turn to the next plane, so
  // that marks move load between planes, not only inside one; pick() of the plane returned gives its
  // next value.
  int preferred_plane(PlaneMask allowed, EvIndex avoid = kNoEv);
  void advance_plane(PlanePort used);

  // One pass over it; does not stack: false where that changes nothing.
  bool skip(EvIndex ev);
  // Counts a loss; at `losses_to_bad` the value leaves the rotation. `live` bounds the floor.
  EvChange lost(EvIndex ev, PlaneMask live) { return condemn(ev, live, false); }
  EvChange condemn(EvIndex ev, PlaneMask live, bool at_once = true);
  // ASSUMED_BAD back to GOOD (or SKIP): into a slot if its plane is short, else to the backups.
  void readmit(EvIndex ev, bool marked = false);
  // The controller's word. False where taking it out would leave less than the floor of live values.
  bool deny(EvIndex ev, bool denied, PlaneMask live = 0xff);
  void clear_losses(EvIndex ev) { evs_[ev].losses = 0; }
  // Keeps at least the floor of live active values; returns the value given back, if any.
  EvIndex keep_floor(PlaneMask live, EvIndex except = kNoEv);

  EvIndex find(EntropyValue value) const;
  EntropyValue value(EvIndex ev) const { return {evs_[ev].plane, evs_[ev].uplink}; }
  EvState state(EvIndex ev) const { return evs_[ev].state; }
  // Times the value has left the rotation for what its path did.
  unsigned failures(EvIndex ev) const { return evs_[ev].failures; }
  void forgive(EvIndex ev) { evs_[ev].failures = 0; }
  // Takes back one failure: the packet declared lost has arrived after all.
  void take_back_failure(EvIndex ev) { evs_[ev].failures -= evs_[ev].failures > 0; }
  bool in_rotation(EvIndex ev) const;
  std::size_t size() const { return evs_.size(); }
  std::size_t active(PlaneMask live = 0xff) const;  // GOOD or SKIP in a slot
  // A plane's part in a queue pair's packets: by what the values in rotation carry of what the hosts
  // below the leaf can send. A plane that has more paths than it needs loses some without losing
  // weight; one without any has none.
  std::uint32_t weight_in(PlanePort plane) const { return planes_[plane].weight; }
  // The backup that pick() or preferred_plane() has swapped in since the last call, or kNoEv.
  EvIndex take_swapped() { return std::exchange(swapped_, kNoEv); }
  std::size_t slots() const { return slots_.size(); }
  std::size_t floor(PlaneMask live) const;
  std::array<const void*, 2> places() const { return {evs_.data(), slots_.data()}; }
  // Values out of rotation until probed, oldest first.
  std::span<const EvIndex> bad() const { return bad_; }

 private:
  struct Ev {
    std::uint16_t uplink;
    std::uint8_t plane;
    EvState state = EvState::good;
    std::uint8_t failures = 0, losses = 0;
  };
  struct Plane {
    std::uint16_t first_ev = 0, evs = 0;      // evs_[first_ev ..], sorted by uplink
    std::uint16_t first_slot = 0, slots = 0;  // slots_[first_slot ..]
    std::uint16_t cursor = 0;
    std::uint16_t weight = 0;  // see weight_in()
    std::uint16_t settling = 0;  // packets until a mark may swap again
    std::uint64_t turn = 0;    // grows by turn_length with each turn; the least is next
    std::uint64_t turn_length = 0;  // kTurn / weight
  };
  static constexpr std::uint64_t kTurn = 1u << 24;
  static constexpr std::uint16_t kWholePlane = 1u << 10;
  static bool eligible(EvState s) { return s == EvState::good || s == EvState::skip; }
  std::span<EvIndex> slots_of(PlanePort p) { return {slots_.data() + planes_[p].first_slot, planes_[p].slots}; }
  std::span<const EvIndex> slots_of(PlanePort p) const {
    return {slots_.data() + planes_[p].first_slot, planes_[p].slots};
  }
  // True if the plane's next value was marked (now it is not), or if it has none.
  bool passes_turn(PlanePort plane, EvIndex avoid);
  int next_turn(PlaneMask allowed, EvIndex avoid) const;
  // Puts a backup in the place of the next value if that and all others in rotation are marked.
  bool swap_if_marked(PlanePort p) {
    const Plane& plane = planes_[p];
    if (plane.slots == 0 || evs_[slots_[plane.first_slot + plane.cursor]].state == EvState::good) [[likely]] {
      return false;
    }
    return swap_marked(p);
  }
  bool swap_marked(PlanePort plane);  // for a plane with a next value that is not GOOD
  void recount(PlanePort plane);
  // A GOOD backup of the plane, taken off the list; kNoEv if none.
  EvIndex take_backup(PlanePort plane);
  void drop_bad(EvIndex ev);

  std::vector<Ev> evs_;
  std::vector<EvIndex> slots_, backups_, bad_;
  std::array<Plane, kMaxPlanes> planes_{};
  static_assert(sizeof(Plane) == 32);  // two in a cache line: every packet looks at one
  std::array<PlanePort, kMaxPlanes> plane_order_{};
  std::uint8_t plane_count_ = 0, plane_cursor_ = 0;
  std::uint16_t floor_ = 1;
  std::uint8_t losses_to_bad_ = 1;
  PlaneTurns turns_ = PlaneTurns::paths;
  std::uint64_t turn_ = 0;  // no plane in use lies further back
  EvIndex swapped_ = kNoEv;
  RandomStream coin_;
  std::uint16_t settle_ = 1;  // packets that a port sends in two round trips
  std::array<double, kMaxPlanes> capacity_{};  // of all slots' paths of a plane together, see PlanePaths
};

}  // namespace loomnet::mrc
