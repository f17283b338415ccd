// Deadlocks of Priority-based Flow Control: paused links that wait for one another in a circle, so
// that none can ever send (a cyclic buffer dependency).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace loomnet {

class Network;

// A half of a link, by its number: 2 * link for the direction from its first end, plus one for the
// other.
using HalfId = std::uint32_t;

// The circle that holds the paused half-link `from`, each waiting for the next; empty if there is
// none, or if any byte has left since the pauses were last said.
std::vector<HalfId> pause_cycle(Network& network, HalfId from);
// The first such circle of a network.
std::vector<HalfId> pause_cycle(Network& network);

}  // namespace loomnet
