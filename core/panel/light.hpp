// Optical power behind a panel, and the share of packets that a receiver loses at low power.
#pragma once

#include <cstdint>

namespace loomnet::panel {

inline constexpr double kTransmitDbm = 0;
inline constexpr double kSensitivityDbm = -6;  // at this power and above a receiver loses no packet
inline constexpr double kLosDbm = -10;         // loss of signal: below this power a receiver has no carrier

// Insertion loss between two ports in hundredths of a dB, drawn from the seed. It lies within 158 to 185, the range
// of the example in SONiC's OCS design.
constexpr int kLeastLoss = 158, kMostLoss = 185;
int insertion_loss(std::uint64_t seed, std::uint32_t a, std::uint32_t b);

// The probability that a packet is lost, times 2^32. The decadic logarithm of the probability is linear in the power:
// 0 at kLosDbm, -9 at kSensitivityDbm.
std::uint32_t drop_probability(double power_dbm);

}  // namespace loomnet::panel
