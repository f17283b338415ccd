// Depth-first search over paused half-links; see pause_cycle.hpp.
#include "engine/pause_cycle.hpp"

#include <algorithm>

#include "engine/network.hpp"

namespace loomnet {
namespace {

Endpoint far_end(Network& network, HalfId half) {
  const auto ends = network.ends(half / 2);
  return half % 2 ? ends.first : ends.second;
}

bool stuck(Network& network, HalfId half) {
  const Endpoint to = far_end(network, half);
  PauseControl* pauses = network.pauses(to.node);
  return network.half(half / 2, half % 2 == 0).paused() && pauses && pauses->stuck(to.port);
}

// Half-links whose queues hold what came in by `half` and that are stuck themselves.
std::vector<HalfId> waits_for(Network& network, HalfId half) {
  std::vector<HalfId> found;
  const Endpoint to = far_end(network, half);
  for (std::uint16_t port = 0; port < network.ports(to.node); ++port) {
    HalfLink* out = network.egress(to.node, port);
    if (!out || !out->holds_from(to.port)) continue;
    const HalfId next = network.egress_half(to.node, port);
    if (stuck(network, next)) found.push_back(next);
  }
  return found;
}

}  // namespace

std::vector<HalfId> pause_cycle(Network& network, HalfId from) {
  if (!stuck(network, from)) return {};
  struct Step {
    HalfId half;
    std::vector<HalfId> next;
  };
  std::vector<Step> path{{from, waits_for(network, from)}};
  std::vector<HalfId> seen{from};
  while (!path.empty()) {
    if (path.back().next.empty()) {
      path.pop_back();
      continue;
    }
    const HalfId half = path.back().next.back();
    path.back().next.pop_back();
    if (half == from) {
      std::vector<HalfId> circle;
      for (const Step& step : path) circle.push_back(step.half);
      return circle;
    }
    if (std::find(seen.begin(), seen.end(), half) != seen.end()) continue;
    seen.push_back(half);
    path.push_back({half, waits_for(network, half)});
  }
  return {};
}

std::vector<HalfId> pause_cycle(Network& network) {
  for (HalfId half = 0; half < 2 * network.links(); ++half) {
    if (auto circle = pause_cycle(network, half); !circle.empty()) return circle;
  }
  return {};
}

}  // namespace loomnet
