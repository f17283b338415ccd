// The two messages between ranks and the controller of their region: a rank reports the tokens that its gate routes,
// and the controller answers with the region's circuits. All fields are little-endian.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "clock/time.hpp"

namespace loomnet::circuits {

// The counts of one rank's gate. The phases of a layer are 0 dispatch, 1 combine, 2 the gradient of the combine, and
// 3 the gradient of the dispatch.
struct DemandReport {
  static constexpr std::uint32_t kMagic = 0x4D46444D;
  static constexpr std::uint8_t kVersion = 1;
  static constexpr std::size_t kHeader = 24, kMostExperts = 1018;

  std::uint8_t phase = 0;
  std::uint16_t layer = 0;
  std::uint32_t iteration = 0;
  std::uint16_t micro_batch = 0, region = 0, source = 0;
  std::uint32_t token_bytes = 0;
  std::vector<std::uint32_t> tokens;  // to each expert rank

  // Checks the bytes and returns the report; nullopt where they are not a valid report.
  static std::optional<DemandReport> parse(std::span<const std::uint8_t> bytes);
  std::vector<std::uint8_t> serialize() const;
  friend bool operator==(const DemandReport&, const DemandReport&) = default;
};

struct MappedCircuit {
  std::uint16_t i = 0, j = 0;          // servers of the region, the lower number first
  std::uint8_t nic_i = 0, nic_j = 0;   // optical NICs of these
  bool unchanged = false;              // since the answer before: the circuit joins the same two ports
  friend bool operator==(const MappedCircuit&, const MappedCircuit&) = default;
};

// The controller's answer: the circuits of the region, which have light from `usable_ns` on.
struct CircuitMap {
  static constexpr std::uint32_t kMagic = 0x4D464349;
  static constexpr std::uint8_t kVersion = 1;
  static constexpr std::size_t kHeader = 32, kCircuit = 8;

  bool predicted = false, failure = false;
  std::uint16_t region = 0;
  std::uint64_t generation = 0;  // of the panel
  std::uint64_t usable_ns = 0;
  std::uint16_t layer = 0, micro_batch = 0;
  std::vector<MappedCircuit> circuits;

  static std::optional<CircuitMap> parse(std::span<const std::uint8_t> bytes);
  std::vector<std::uint8_t> serialize() const;
  friend bool operator==(const CircuitMap&, const CircuitMap&) = default;
};

}  // namespace loomnet::circuits
