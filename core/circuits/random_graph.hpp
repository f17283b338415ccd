// Joins ports of servers at random.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace loomnet::circuits {

using Edge = std::pair<std::uint32_t, std::uint32_t>;  // the lower number first

// A random graph in which server i has free[i] edges, or fewer where no such graph exists. Parallel edges between two
// servers are avoided as far as possible. The result is sorted, and the same for the same seed.
std::vector<Edge> random_graph(std::span<const std::uint32_t> free, std::uint64_t seed);

}  // namespace loomnet::circuits
