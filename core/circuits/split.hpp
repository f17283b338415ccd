// Divides the bytes that two servers exchange between their circuits and the electrical fabric, and says how long an
// exchange then takes.
#pragma once

#include <cstdint>
#include <span>

namespace loomnet::circuits {

enum class Split : std::uint8_t {
  all_or_nothing,  // all by circuits where there is one, as the authors of MixNet simulate it
  weighted,        // divided so that circuits and electrical ports of all servers end at the same time
};

// Bits per second of one circuit, and of all of a server's electrical ports together.
struct ExchangeRates {
  double circuit = 0, electrical = 0;
};

// Seconds that the exchange takes when every pair of servers (i * servers + j, one direction) sends by its
// circuits as much as it can in that time, and the rest by its electrical ports. HUGE_VAL: the electrical rate is 0 and
// a pair has no circuit.
double weighted_seconds(std::uint32_t servers, std::span<const std::uint64_t> bytes,
                        std::span<const std::uint32_t> circuits, const ExchangeRates& rates);

// Seconds that the exchange takes with this split, where parallel circuits and parallel electrical ports share their
// bytes evenly: no flow meets another by a hash.
double exchange_seconds(Split split, std::uint32_t servers, std::span<const std::uint64_t> bytes,
                        std::span<const std::uint32_t> circuits, const ExchangeRates& rates);

}  // namespace loomnet::circuits
