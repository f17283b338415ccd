#include "circuits/assignment.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <queue>
#include <stdexcept>
#include <string>

#include "circuits/random_graph.hpp"

namespace loomnet::circuits {
namespace {

using Wide = unsigned __int128;

constexpr std::array<std::string_view, 5> kNames = {"skip", "literal", "htsim", "share", "random"};

struct Pair {
  std::uint64_t demand = 0;
  std::uint32_t circuits = 0, i = 0, j = 0;
};

// Compares a / (100 * 1) / (100 * 2) … with b / (100 * 1) / …, where each is divided once for each of its circuits.
int compare_htsim(const Pair& a, const Pair& b) {
  const bool swapped = a.circuits < b.circuits;
  const Pair& more = swapped ? b : a;
  const Pair& less = swapped ? a : b;
  Wide scaled = less.demand;
  for (std::uint32_t n = less.circuits + 1; n <= more.circuits; ++n) {
    scaled *= 100u * Wide{n};
    if (scaled > more.demand) break;  // the order is known: `scaled` only grows
  }
  const int order = scaled < more.demand ? 1 : scaled > more.demand ? -1 : 0;  // of more against less
  return swapped ? -order : order;
}

int compare(const Pair& a, const Pair& b, Rule rule) {
  if (rule == Rule::htsim) return compare_htsim(a, b);
  if (rule != Rule::share && (a.circuits == 0 || b.circuits == 0)) {
    if ((a.circuits == 0) != (b.circuits == 0)) return a.circuits == 0 ? 1 : -1;
    return a.demand < b.demand ? -1 : a.demand > b.demand;
  }
  const std::uint32_t plus = rule == Rule::share ? 1 : 0;
  const Wide left = Wide{a.demand} * (b.circuits + plus), right = Wide{b.demand} * (a.circuits + plus);
  return left < right ? -1 : left > right;
}

void check(std::span<const std::uint64_t> demand, std::size_t servers) {
  if (demand.size() != servers * servers) {
    throw std::invalid_argument("circuits: demand has " + std::to_string(demand.size()) + " entries, not " +
                                std::to_string(servers) + " x " + std::to_string(servers));
  }
  for (std::size_t i = 0; i < servers; ++i) {
    if (demand[i * servers + i] != 0) {
      throw std::invalid_argument("circuits: demand of server " + std::to_string(i) + " with itself is not 0");
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (demand[i * servers + j] == demand[j * servers + i]) continue;
      throw std::invalid_argument("circuits: demand of servers " + std::to_string(j) + " and " + std::to_string(i) +
                                  " is not the same both ways");
    }
  }
}

// Of equal pairs, by numbers, the one that comes first. A server with most free ports has fewest circuits yet.
std::vector<Pair>::iterator first_of(std::vector<Pair>& equal, std::span<const std::uint32_t> left) {
  const auto ports = [left](const Pair& pair) {
    return std::pair(std::max(left[pair.i], left[pair.j]), left[pair.i] + left[pair.j]);
  };
  return std::ranges::max_element(equal, {}, ports);
}

}  // namespace

Ties ties_named(std::string_view name) {
  if (name == "free") return Ties::free;
  if (name == "index") return Ties::index;
  throw std::invalid_argument("circuits: no ties \"" + std::string(name) + "\"; there are free and index");
}

Rule rule_named(std::string_view name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) {
    throw std::invalid_argument("circuits: no rule \"" + std::string(name) +
                                "\"; there are skip, literal, htsim, share and random");
  }
  return static_cast<Rule>(found - kNames.begin());
}

Assignment assign(std::span<const std::uint64_t> demand, std::span<const std::uint32_t> free, Rule rule,
                  std::uint64_t seed, Ties ties) {
  const std::size_t servers = free.size();
  check(demand, servers);
  Assignment found{servers, std::vector<std::uint32_t>(servers * servers), {}};
  const auto grant = [&](std::uint32_t i, std::uint32_t j) {
    ++found.circuits[i * servers + j];
    ++found.circuits[j * servers + i];
    found.order.emplace_back(i, j);
  };
  if (rule == Rule::random) {
    for (const auto& [i, j] : random_graph(free, seed)) grant(i, j);
    return found;
  }
  const auto later = [rule](const Pair& a, const Pair& b) {
    if (const int order = compare(a, b, rule)) return order < 0;
    return std::pair(a.i, a.j) > std::pair(b.i, b.j);
  };
  std::vector<Pair> pairs;
  for (std::uint32_t i = 0; i < servers; ++i) {
    for (std::uint32_t j = i + 1; j < servers; ++j) {
      if (demand[i * servers + j] > 0) pairs.push_back({demand[i * servers + j], 0, i, j});
    }
  }
  std::priority_queue queue(later, std::move(pairs));
  std::vector<std::uint32_t> left(free.begin(), free.end());
  const auto open = [&](const Pair& pair) { return left[pair.i] > 0 && left[pair.j] > 0; };
  // A pair that gets a circuit comes after all that were equal to it, so these are taken from the queue together.
  std::vector<Pair> equal;
  while (!queue.empty()) {
    equal.assign(1, queue.top());
    queue.pop();
    while (ties == Ties::free && !queue.empty() && compare(queue.top(), equal[0], rule) == 0) {
      equal.push_back(queue.top());
      queue.pop();
    }
    bool passed_over = false;
    while (true) {
      passed_over |= std::erase_if(equal, std::not_fn(open)) > 0;
      if (equal.empty()) break;
      const auto next = first_of(equal, left);
      Pair pair = *next;
      equal.erase(next);
      --left[pair.i];
      --left[pair.j];
      grant(pair.i, pair.j);
      ++pair.circuits;
      queue.push(pair);
    }
    if (passed_over && rule == Rule::literal) break;
  }
  return found;
}

}  // namespace loomnet::circuits
