// Ports of servers joined at random.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace loomnet::circuits {

using Edge = std::pair<std::uint32_t, std::uint32_t>;  // the lower number first

// A graph in which server i has free[i] edges, as far as such a graph exists, and two servers have no more
// edges between them than they must. The same for the same seed; sorted.
std::vector<Edge> random_graph(std::span<const std::uint32_t> free, std::uint64_t seed);

}  // namespace loomnet::circuits
