#include "circuits/random_graph.hpp"

#include <algorithm>

#include "clock/random.hpp"

namespace loomnet::circuits {
namespace {

constexpr std::uint64_t kPurpose = 0x7267726170;  // "rgrap"
constexpr std::size_t kSwaps = 32;  // exchanges tried for each edge: far more than it takes to mix small graphs

Edge sorted(std::uint32_t a, std::uint32_t b) { return {std::min(a, b), std::max(a, b)}; }

// Edges by the rule of Havel and Hakimi: the server with the most free ports is joined once to each of the servers
// that have the next most. This is repeated until no two servers have free ports.
std::vector<Edge> some_graph(std::span<const std::uint32_t> free) {
  std::vector<std::uint32_t> left(free.begin(), free.end());
  std::vector<std::vector<std::uint32_t>> between(free.size(), std::vector<std::uint32_t>(free.size()));
  std::vector<Edge> edges;
  for (;;) {
    const auto most = std::max_element(left.begin(), left.end());
    if (most == left.end() || *most == 0) return edges;
    const auto first = static_cast<std::uint32_t>(most - left.begin());
    std::uint32_t second = first;
    for (std::uint32_t other = 0; other < left.size(); ++other) {
      if (other == first || left[other] == 0) continue;
      if (second == first || between[first][other] < between[first][second] ||
          (between[first][other] == between[first][second] && left[other] > left[second])) {
        second = other;
      }
    }
    if (second == first) return edges;
    --left[first];
    --left[second];
    ++between[first][second];
    ++between[second][first];
    edges.push_back(sorted(first, second));
  }
}

}  // namespace

std::vector<Edge> random_graph(std::span<const std::uint32_t> free, std::uint64_t seed) {
  std::vector<Edge> edges = some_graph(free);
  const std::size_t servers = free.size();
  std::vector<std::uint32_t> between(servers * servers);
  std::uint32_t most = 0;
  for (const auto& [a, b] : edges) most = std::max(most, ++between[a * servers + b]);
  RandomStream random(seed, servers, kPurpose);
  // Two edges exchange ends, which leaves every server its number of edges.
  for (std::size_t n = kSwaps * edges.size(); n > 0 && edges.size() > 1; --n) {
    Edge& one = edges[random.below(static_cast<std::uint32_t>(edges.size()))];
    Edge& two = edges[random.below(static_cast<std::uint32_t>(edges.size()))];
    auto [a, b] = one;
    auto [c, d] = two;
    if (random() & 1) std::swap(c, d);
    if (a == d || b == c || &one == &two) continue;
    const Edge first = sorted(a, d), second = sorted(b, c);
    if (first == second) continue;
    if (between[first.first * servers + first.second] >= most ||
        between[second.first * servers + second.second] >= most) {
      continue;
    }
    --between[one.first * servers + one.second];
    --between[two.first * servers + two.second];
    ++between[first.first * servers + first.second];
    ++between[second.first * servers + second.second];
    one = first;
    two = second;
  }
  std::sort(edges.begin(), edges.end());
  return edges;
}

}  // namespace loomnet::circuits
