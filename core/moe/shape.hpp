// How a mixture of experts is placed on servers: the experts and their tensor-parallel groups fill the servers of a
// region, each stage of the pipeline is a region, and replicas follow one another.
#pragma once

#include <cstdint>
#include <vector>

#include "circuits/demand.hpp"

namespace loomnet::moe {

struct Shape {
  std::uint32_t experts = 8;  // ranks of expert parallelism
  std::uint32_t tensor = 1, stages = 1, replicas = 1;
  std::uint32_t gpus = 8;            // of a server
  std::uint32_t micro_batches = 1;   // of a replica, in an iteration
  std::vector<std::uint32_t> layers{1};  // of each stage

  // Throws std::invalid_argument.
  void check() const;
  std::uint32_t servers() const { return experts * tensor / gpus; }  // of a region
  std::uint32_t regions() const { return stages * replicas; }
  std::uint32_t region(std::uint32_t replica, std::uint32_t stage) const { return replica * stages + stage; }
  std::uint32_t stage(std::uint32_t region) const { return region % stages; }
  std::uint32_t replica(std::uint32_t region) const { return region / stages; }
  circuits::Placement placement() const { return {tensor, gpus}; }
};

// Tokens that gates route. Where the job has more iterations, micro-batches, regions or layers than these counts, the
// counts are repeated from the first.
struct GateCounts {
  std::uint32_t iterations = 1, micro_batches = 1, regions = 1, layers = 1, experts = 0;
  std::vector<std::uint32_t> counts;  // [iteration][micro_batch][region][layer][source][destination]

  // Throws std::invalid_argument.
  void check() const;
  circuits::Tokens tokens(std::uint32_t iteration, std::uint32_t micro_batch, std::uint32_t region,
                          std::uint32_t layer) const;
};

// Bytes that one GPU sends to another of its region in an all-to-all. A GPU is named by its server and its number there.
struct GpuFlow {
  std::uint32_t source = 0, destination = 0;  // servers
  std::uint32_t from = 0, to = 0;  // GPUs of these
  std::uint64_t bytes = 0;
};
// `per_rank`: bytes that each GPU sends in all, including those that stay on it. `back`: a combine, which sends what a
// dispatch received. Flows from a GPU to itself are left out.
std::vector<GpuFlow> gpu_flows(const circuits::Tokens& tokens, const circuits::Placement& placement,
                               std::uint64_t per_rank, bool back);

}  // namespace loomnet::moe
