// Power of the light that comes out of a panel, and what a receiver loses when there is little of it.
#pragma once

#include <cstdint>

namespace loomnet::panel {

inline constexpr double kTransmitDbm = 0;
inline constexpr double kSensitivityDbm = -6;  // from here on a receiver loses nothing
inline constexpr double kLosDbm = -10;         // below it a receiver has no carrier

// Insertion loss between two ports in hundredths of a dB: 158 to 185, the range of the SONiC OCS design's
// example, the same for the same seed.
constexpr int kLeastLoss = 158, kMostLoss = 185;
int insertion_loss(std::uint64_t seed, std::uint32_t a, std::uint32_t b);

// The probability that a packet is lost, times 2^32: its decadic logarithm falls from 0 at the loss of
// signal to -9 at the sensitivity, in a straight line.
std::uint32_t drop_probability(double power_dbm);

}  // namespace loomnet::panel
