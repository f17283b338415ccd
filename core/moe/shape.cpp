#include "moe/shape.hpp"

#include <stdexcept>
#include <string>

namespace loomnet::moe {

void Shape::check() const {
  if (experts == 0 || tensor == 0 || stages == 0 || replicas == 0 || gpus == 0 || micro_batches == 0) {
    throw std::invalid_argument("moe: experts, tensor, stages, replicas, gpus and micro_batches are 1 or more");
  }
  if (experts * tensor % gpus != 0) {
    throw std::invalid_argument("moe: " + std::to_string(experts) + " x " + std::to_string(tensor) +
                                " GPUs of a region do not fill servers of " + std::to_string(gpus));
  }
  if (layers.size() != stages) throw std::invalid_argument("moe: layers must name every stage");
  for (const std::uint32_t each : layers) {
    if (each == 0 || each > 0xffff) throw std::invalid_argument("moe: a stage has 1 to 65535 layers");
  }
}

void GateCounts::check() const {
  const std::size_t whole = std::size_t{iterations} * micro_batches * regions * layers * experts * experts;
  if (whole == 0 || counts.size() != whole) {
    throw std::invalid_argument("moe: gate counts of " + std::to_string(counts.size()) + " numbers, not " +
                                std::to_string(whole));
  }
}

circuits::Tokens GateCounts::tokens(std::uint32_t iteration, std::uint32_t micro_batch, std::uint32_t region,
                                    std::uint32_t layer) const {
  std::size_t at = iteration % iterations;
  at = at * micro_batches + micro_batch % micro_batches;
  at = at * regions + region % regions;
  at = at * layers + layer % layers;
  const std::size_t size = std::size_t{experts} * experts;
  const auto first = counts.begin() + static_cast<std::ptrdiff_t>(at * size);
  return circuits::tokens_of(experts, {first, first + static_cast<std::ptrdiff_t>(size)});
}

std::vector<GpuFlow> gpu_flows(const circuits::Tokens& tokens, const circuits::Placement& placement,
                               std::uint64_t per_rank, bool back) {
  std::vector<GpuFlow> found;
  found.reserve(tokens.experts * tokens.experts * placement.tensor_parallel);
  for (std::size_t s = 0; s < tokens.experts; ++s) {
    for (std::size_t d = 0; d < tokens.experts; ++d) {
      if (s == d) continue;
      const std::uint64_t bytes =
          back ? circuits::gpu_bytes(tokens, d, s, per_rank) : circuits::gpu_bytes(tokens, s, d, per_rank);
      if (bytes == 0) continue;
      for (std::size_t r = 0; r < placement.tensor_parallel; ++r) {
        const std::size_t from = s * placement.tensor_parallel + r, to = d * placement.tensor_parallel + r;
        const auto part = [&](std::size_t gpu) { return static_cast<std::uint32_t>(gpu); };
        found.push_back({part(from / placement.gpus_per_server), part(to / placement.gpus_per_server),
                         part(from % placement.gpus_per_server), part(to % placement.gpus_per_server), bytes});
      }
    }
  }
  return found;
}

}  // namespace loomnet::moe
