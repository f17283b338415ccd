// A panel's reference model, written from the definition alone, and random requests and failures that are
// put to both.
#pragma once

#include <map>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "ebpf/panel.h"
#include "panel/panel_device.hpp"

namespace loomnet::panel {

// A panel by definition: maps of ports, without generations or events.
struct Model {
  std::map<Port, Port> to;
  std::map<Port, Picoseconds> dark_until;
  std::map<std::pair<Port, bool>, int> closed;  // bits: 1 override, 2 shutter, 4 failed

  bool apply(const std::vector<CrossConnect>& remove, const std::vector<CrossConnect>& add, Mode mode, Picoseconds now,
             Picoseconds dark) {
    std::map<Port, Port> next = mode == Mode::overwrite ? std::map<Port, Port>{} : to;
    if (mode != Mode::overwrite) {
      for (const CrossConnect& one : remove) {
        if (next.contains(one.a) && next[one.a] == one.b) next.erase(one.a);
      }
    }
    const std::map<Port, Port> before = next;
    std::map<Port, int> a_named, b_named;
    for (const CrossConnect& one : add) {
      if (a_named[one.a]++ || b_named[one.b]++) return false;
      for (const auto& [a, b] : before) {
        if ((a == one.a) == (b == one.b)) continue;
        if (mode == Mode::safe) return false;
        next.erase(a);
      }
    }
    for (const CrossConnect& one : add) next[one.a] = one.b;
    for (const auto& [a, b] : next) {
      if (!to.contains(a) || to[a] != b) dark_until[a] = now + dark;
    }
    to = next;
    return true;
  }
  int bits(Port port, bool out) const {
    const auto found = closed.find({port, out});
    return found == closed.end() ? 0 : found->second;
  }
  panel_verdict verdict(Port a, Picoseconds now) const {
    const auto found = to.find(a);
    if (found == to.end()) return PANEL_DROP_UNMAPPED;
    if (bits(a, false) | bits(found->second, true)) return PANEL_DROP_BLOCKED;
    return now < dark_until.at(a) ? PANEL_DROP_DARK : PANEL_FORWARD;
  }
  Status status(Port port, bool out, Picoseconds now) const {
    if (bits(port, out) & 4) return Status::failed;
    std::optional<CrossConnect> mine;
    for (const auto& [a, b] : to) {
      if ((out ? b : a) == port) mine = {a, b};
    }
    if (!mine || (bits(mine->a, false) | bits(mine->b, true))) return Status::blocked;
    return now < dark_until.at(mine->a) ? Status::tuning : Status::tuned;
  }
};

// One request or failure, to the device and to the model. False where one takes it and the other does not.
inline bool random_step(RandomStream& random, PanelDevice& panel, Model& model, std::size_t ports, Picoseconds now) {
  const auto port = [&] { return static_cast<Port>(random.below(static_cast<std::uint32_t>(ports))); };
  const std::uint32_t what = random.below(10);
  if (what < 6) {
    std::vector<CrossConnect> add(random.below(4)), remove(random.below(3));
    for (CrossConnect& one : add) one = {port(), port()};
    for (CrossConnect& one : remove) one = {port(), port()};
    const auto mode = static_cast<Mode>(random.below(3));
    bool done = true;
    try {
      panel.change(remove, add, mode, now);
    } catch (const std::invalid_argument&) {
      done = false;
    }
    return model.apply(remove, add, mode, now, milliseconds(25)) == done;
  }
  const Simplex at{port(), random.below(2) == 1};
  int& bits = model.closed[{at.port, at.out}];
  const int bit = 1 << random.below(3);
  bits ^= bit;
  const bool on = bits & bit;
  if (bit == 1) panel.set_override(at, on ? Override::force_blocked : Override::normal, now);
  if (bit == 2) panel.set_shutter(at, on, now);
  if (bit == 4) panel.set_failed(at, on, now);
  return true;
}

}  // namespace loomnet::panel
