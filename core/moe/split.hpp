// Divides the bytes that two servers exchange between their circuits and the electrical fabric.
#pragma once

#include <cstdint>
#include <span>

namespace loomnet::moe {

enum class Split : std::uint8_t {
  all_or_nothing,  // all by circuits where there is one, as the authors of MixNet simulate it
  weighted,        // divided so that circuits and electrical ports of all servers end at the same time
};

// Seconds that the exchange takes when every pair of servers (i * servers + j, one direction) sends by its
// circuits as much as it can in that time, and the rest by its electrical ports. Rates: bits per second of a
// circuit and of all of a server's electrical ports. HUGE_VAL: the electrical rate is 0 and a pair has no
// circuit.
double weighted_seconds(std::uint32_t servers, std::span<const std::uint64_t> bytes,
                        std::span<const std::uint32_t> circuits, double circuit_rate, double electrical_rate);

}  // namespace loomnet::moe
