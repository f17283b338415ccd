// A region's controller on a real panel's state, without a network.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <vector>

#include "circuits/region_controller.hpp"

namespace loomnet::circuits {

using Demand = std::vector<std::uint64_t>;
using State = RegionController::State;
using Kind = RegionEvent::Kind;

// What eight servers exchange, from the publication's matrix with one expert on each.
inline const Demand kDemand = {0,    14616, 11915, 13939, 13136, 10365, 11049, 15831, 14616, 0,     6004, 9351,  9487,
                               8811, 6416,  10225, 11915, 6004,  0,     3720,  5390,  4110,  1792,  5791, 13939, 9351,
                               3720, 0,     6717,  6506,  5207,  9101,  13136, 9487,  5390,  6717,  0,    6936,  4911,
                               9476, 10365, 8811,  4110,  6506,  6936,  0,     4016,  9215,  11049, 6416, 1792,  5207,
                               4911, 4016,  0,     4806,  15831, 10225, 5791,  9101,  9476,  9215,  4806, 0};

// The same servers by other names: server i is server (i + by) mod 8.
inline Demand turned(std::size_t by) {
  Demand found(64);
  for (std::size_t i = 0; i < 8; ++i) {
    for (std::size_t j = 0; j < 8; ++j) found[(i + by) % 8 * 8 + (j + by) % 8] = kDemand[i * 8 + j];
  }
  return found;
}

struct World final : RegionWorld {
  panel::PanelDevice panel;
  std::set<ServerPair> held;
  bool busy = false, answers = true;
  int patches = 0;

  explicit World(std::string_view profile = "sim25", std::size_t ports = 48)
      : panel(ports, {.profile = panel::profile(profile)}) {}
  void hold(std::span<const ServerPair> pairs, Picoseconds) override {
    for (const ServerPair& pair : pairs) EXPECT_TRUE(held.insert(pair).second);
  }
  bool in_flight(std::span<const ServerPair>) override { return busy; }
  std::vector<panel::CrossConnect> cross_connects() override { return panel.cross_connects(); }
  Picoseconds patch(std::span<const panel::CrossConnect> remove, std::span<const panel::CrossConnect> add,
                    std::span<const panel::Port> all_dark, Picoseconds now) override {
    if (!answers) throw std::runtime_error("panel: no answer");
    ++patches;
    panel.change(remove, add, panel::Mode::safe, now, all_dark);
    return lit_from(now);
  }
  Picoseconds lit_from(Picoseconds now) override {
    Picoseconds lit = now;
    for (const panel::CrossConnect& one : panel.cross_connects()) lit = std::max(lit, panel.dark_until(one.a));
    return lit;
  }
  Picoseconds dark_time(std::size_t crosses) const override { return panel.options().profile.dark.mean(crosses); }
  void release(std::span<const ServerPair> pairs, const PortMap&, Picoseconds) override {
    for (const ServerPair& pair : pairs) EXPECT_EQ(held.erase(pair), 1u);
  }
};

inline DemandKey layer(std::uint16_t number, std::uint32_t iteration = 0) { return {iteration, number, 0, false}; }

inline RegionOptions options(std::uint32_t alpha = 6) { return {.servers = 8, .alpha = alpha}; }

inline std::vector<Kind> kinds(const std::vector<RegionEvent>& events) {
  std::vector<Kind> found;
  for (const RegionEvent& event : events) found.push_back(event.kind);
  return found;
}

inline void expect_patched(const RegionController& controller, World& world, std::size_t first = 0) {
  std::vector<panel::CrossConnect> wanted;
  for (std::size_t port = 0; port < controller.ports().peer.size(); ++port) {
    const std::int32_t peer = controller.ports().peer[port];
    if (peer != kNoPeer) {
      wanted.push_back(
          {static_cast<panel::Port>(first + port), static_cast<panel::Port>(first + static_cast<std::size_t>(peer))});
    }
  }
  std::vector<panel::CrossConnect> seen = world.panel.cross_connects();
  std::erase_if(seen, [&](const panel::CrossConnect& one) {
    return one.a < first || one.a >= first + controller.ports().peer.size();
  });
  EXPECT_EQ(seen, wanted);
}

}  // namespace loomnet::circuits
