// Checks the shape once; all offsets are then plain arithmetic.
#include "collective/staging.hpp"

#include <stdexcept>
#include <string>

namespace loomnet {
namespace {

void require(bool ok, const char* what, std::uint64_t value) {
  if (!ok) throw std::invalid_argument("staging: " + std::string(what) + ", not " + std::to_string(value));
}

constexpr std::uint64_t round_up(std::uint64_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

StagingLayout::StagingLayout(const StagingConfig& config) : config_(config) {
  require(config.ranks >= 1 && config.ranks <= (1u << 16), "ranks must be 1..65536", config.ranks);
  require(config.slots >= 1 && config.slots <= 64, "slots must be 1..64", config.slots);
  require(config.channels >= 1 && config.channels <= 256, "channels must be 1..256", config.channels);
  require(config.slot_payload >= 64 && config.slot_payload % 64 == 0 && config.slot_payload <= (1u << 30),
          "slot_payload must be a multiple of 64 bytes up to 1 GiB", config.slot_payload);
  // Largest product: 2^17 rows of 2^14 slots of 2^30 bytes, within 64 bits.
  stride_ = round_up(slot_bytes());
  if (config.sum_slots == 0) return;
  require(config.sum_slots <= 64, "sum_slots must be 0..64", config.sum_slots);
  require(config.sum_values == 64 || config.sum_values == 128 || config.sum_values == 256,
          "sum_values must be 64, 128 or 256", config.sum_values);
  require(config.sum_window >= 1 && config.sum_window <= 32768, "sum_window must be 1..32768", config.sum_window);
  require(config.sum_servers >= 1 && config.sum_servers <= 64, "sum_servers must be 1..64", config.sum_servers);
  require(config.sum_reach >= 2 && config.sum_reach <= 1024, "sum_reach must be 2..1024", config.sum_reach);
  sum_stride_ = round_up(sum_framing(sum_chunk()) + std::uint64_t{4} * config.sum_values * sum_chunk());
}

}  // namespace loomnet
