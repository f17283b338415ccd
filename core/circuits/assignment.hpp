// Which servers of a region are joined by how many circuits, from the bytes that they exchange: the greedy
// rule of MixNet (SIGCOMM 2025, doi 10.1145/3718958.3750465) and rules it is compared with. All
// arithmetic is in integers, so that rounding decides nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace loomnet::circuits {

enum class Rule : std::uint8_t {
  // One circuit at a time to the pair with the longest completion time: infinite while it has demand and no
  // circuit, else demand over circuits. Pairs where a server has no free port are passed over.
  skip,
  literal,  // as the publication prints the loop: it ends where skip would pass over a pair
  htsim,    // the authors' simulator: a pair's demand is divided by 100 n when it gets its n-th circuit
  share,    // highest averages: demand divided by the number of circuits plus one, never infinite
  random,   // ports are joined at random, whatever the demand
};
// Throws std::invalid_argument, which lists the known names.
Rule rule_named(std::string_view name);

// Which of equal pairs comes first; then that of the lower numbers.
enum class Ties : std::uint8_t {
  // The pair one of whose servers has most free ports, then the pair with most at both together: servers that ask
  // for the same get the same number of circuits.
  free,
  index,  // the lower numbers first: where all pairs are equal, the last server is left without a circuit
};
// Throws std::invalid_argument.
Ties ties_named(std::string_view name);

struct Assignment {
  std::size_t servers = 0;
  std::vector<std::uint32_t> circuits;  // by servers i * servers + j: symmetrical, zeros on the diagonal
  std::vector<std::pair<std::uint32_t, std::uint32_t>> order;  // each circuit (i < j), as it was granted

  std::uint32_t at(std::size_t i, std::size_t j) const { return circuits[i * servers + j]; }
};

// `demand`: by servers i * servers + j, symmetrical, zeros on the diagonal. `free`: ports of each server; a
// failed server has 0. `seed`: of rule random. Throws std::invalid_argument naming the entry at fault.
Assignment assign(std::span<const std::uint64_t> demand, std::span<const std::uint32_t> free, Rule rule,
                  std::uint64_t seed = 0, Ties ties = Ties::free);

}  // namespace loomnet::circuits
