#include "circuits/demand.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace loomnet::circuits {
namespace {
constexpr std::uint64_t kMost = 1ull << 40;  // tokens of a row: sums over 2^20 ranks stay below 2^63
}

Tokens tokens_of(std::size_t experts, std::vector<std::uint64_t> counts) {
  if (experts == 0 || counts.size() != experts * experts) {
    throw std::invalid_argument("circuits: weights have " + std::to_string(counts.size()) + " entries, not " +
                                std::to_string(experts) + " x " + std::to_string(experts));
  }
  Tokens found{experts, std::move(counts), 0};
  for (std::size_t s = 0; s < experts; ++s) {
    std::uint64_t sum = 0;
    for (std::size_t d = 0; d < experts; ++d) {
      if (found.at(s, d) > kMost || (sum += found.at(s, d)) > kMost) {
        throw std::invalid_argument("circuits: weights of row " + std::to_string(s) + " are above 2^40");
      }
    }
    if (s == 0) found.row_sum = sum;
    if (sum != found.row_sum) {
      throw std::invalid_argument("circuits: weights of row " + std::to_string(s) + " sum to " + std::to_string(sum) +
                                  ", those of row 0 to " + std::to_string(found.row_sum) + "; all rows have one sum");
    }
  }
  if (found.row_sum == 0) throw std::invalid_argument("circuits: weights are all 0");
  return found;
}

std::uint64_t gpu_bytes(const Tokens& tokens, std::size_t source, std::size_t destination, std::uint64_t per_rank) {
  const auto whole = static_cast<unsigned __int128>(per_rank) * tokens.at(source, destination);
  return static_cast<std::uint64_t>((whole + tokens.row_sum - 1) / tokens.row_sum);
}

std::vector<std::uint64_t> server_tokens(const Tokens& tokens, const Placement& placement) {
  if (placement.tensor_parallel == 0 || placement.gpus_per_server == 0) {
    throw std::invalid_argument("circuits: tensor_parallel and gpus_per_server are at least 1");
  }
  const std::size_t servers = placement.servers(tokens.experts);
  std::vector<std::uint64_t> found(servers * servers);
  for (std::size_t s = 0; s < tokens.experts; ++s) {
    for (std::size_t d = 0; d < tokens.experts; ++d) {
      for (std::size_t r = 0; r < placement.tensor_parallel; ++r) {
        const std::size_t a = placement.server(s, r), b = placement.server(d, r);
        if (a != b) found[a * servers + b] += tokens.at(s, d);
      }
    }
  }
  return found;
}

std::vector<std::uint64_t> pair_demand(std::span<const std::uint64_t> tokens, std::size_t servers, Duplex duplex) {
  if (tokens.size() != servers * servers) {
    throw std::invalid_argument("circuits: tokens of " + std::to_string(tokens.size()) + " pairs, not of " +
                                std::to_string(servers) + " servers");
  }
  std::vector<std::uint64_t> found(tokens.size());
  for (std::size_t i = 0; i < servers; ++i) {
    for (std::size_t j = 0; j < servers; ++j) {
      if (i == j) continue;
      const std::uint64_t there = tokens[i * servers + j], back = tokens[j * servers + i];
      found[i * servers + j] = duplex == Duplex::sum ? there + back : std::max(there, back);
    }
  }
  return found;
}

}  // namespace loomnet::circuits
