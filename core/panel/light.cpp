// Insertion loss and the packets that weak light loses.
#include "panel/light.hpp"

#include <algorithm>
#include <cmath>

#include "clock/random.hpp"

namespace loomnet::panel {

int insertion_loss(std::uint64_t seed, std::uint32_t a, std::uint32_t b) {
  constexpr std::uint64_t kPurpose = 0x1055;
  RandomStream random(seed, static_cast<std::uint64_t>(a) << 32 | b, kPurpose);
  return kLeastLoss + static_cast<int>(random.below(kMostLoss - kLeastLoss + 1));
}

std::uint32_t drop_probability(double power_dbm) {
  if (power_dbm >= kSensitivityDbm) return 0;
  const double decades = -9 * (power_dbm - kLosDbm) / (kSensitivityDbm - kLosDbm);
  const double scaled = std::pow(10, std::min(decades, 0.0)) * 0x1p32;
  return static_cast<std::uint32_t>(std::min(scaled, 0x1p32 - 1));
}

}  // namespace loomnet::panel
