// Which servers of a region are joined by how many circuits, from the bytes that they exchange: the greedy
// rule of MixNet (SIGCOMM 2025, doi 10.1145/3718958.3750465) and rules it is compared with. Integers
// throughout: no rounding decides a tie.
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
  // circuit, else demand over circuits. A pair of which a server has no free port is passed over.
  skip,
  literal,  // as printed in the publication: ends where skip passes over a pair
  htsim,    // of the authors' simulator: the n-th circuit of a pair divides its demand by 100 n
  share,    // demand over circuits and one more, without infinity: highest averages
  random,   // ports are joined at random, whatever the demand
};
// Throws std::invalid_argument listing the names there are.
Rule rule_named(std::string_view name);

struct Assignment {
  std::size_t servers = 0;
  std::vector<std::uint32_t> circuits;  // by servers i * servers + j: symmetrical, zeros on the diagonal
  std::vector<std::pair<std::uint32_t, std::uint32_t>> order;  // each circuit (i < j), as it was granted

  std::uint32_t at(std::size_t i, std::size_t j) const { return circuits[i * servers + j]; }
};

// `demand`: by servers i * servers + j, symmetrical, zeros on the diagonal. `free`: ports of each server; a
// failed server has 0. `seed`: of rule random. Throws std::invalid_argument naming the entry at fault.
Assignment assign(std::span<const std::uint64_t> demand, std::span<const std::uint32_t> free, Rule rule,
                  std::uint64_t seed = 0);

}  // namespace loomnet::circuits
