// What servers of a region exchange in one all-to-all of experts, from the tokens that a layer's gate routes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace loomnet::circuits {

// Tokens of source rank s for expert d: by ranks s * experts + d. All rows have one sum, above 0.
struct Tokens {
  std::size_t experts = 0;
  std::vector<std::uint64_t> counts;
  std::uint64_t row_sum = 0;
  std::uint64_t at(std::size_t s, std::size_t d) const { return counts[s * experts + d]; }
};
// Throws std::invalid_argument naming the row that is not as the first.
Tokens tokens_of(std::size_t experts, std::vector<std::uint64_t> counts);

// Experts on GPUs: rank r of expert e's tensor-parallel group is on GPU e * tensor_parallel + r of the region.
struct Placement {
  std::size_t tensor_parallel = 1, gpus_per_server = 8;
  std::size_t server(std::size_t expert, std::size_t rank) const {
    return (expert * tensor_parallel + rank) / gpus_per_server;
  }
  std::size_t servers(std::size_t experts) const {
    return (experts * tensor_parallel + gpus_per_server - 1) / gpus_per_server;
  }
};

// Bytes from one GPU to another of the same rank: ceil(per_rank * tokens / row sum). `per_rank`: bytes that a
// GPU sends in all. Combine phases send the transpose.
std::uint64_t gpu_bytes(const Tokens& tokens, std::size_t source, std::size_t destination, std::uint64_t per_rank);

// Tokens from server to server, by servers i * servers + j, own ones left out: each expert's are divided over
// the GPUs of its group, so the unit is a token's part on one GPU.
std::vector<std::uint64_t> server_tokens(const Tokens& tokens, const Placement& placement);

enum class Duplex : std::uint8_t {
  sum,  // both directions together, as the publication has it
  max,  // the busier direction, which sets the pace of a full-duplex circuit
};
// Demand of pairs of servers, symmetrical, zeros on the diagonal: the same for all four phases of a layer.
std::vector<std::uint64_t> pair_demand(std::span<const std::uint64_t> server_tokens, std::size_t servers,
                                       Duplex duplex = Duplex::sum);

}  // namespace loomnet::circuits
