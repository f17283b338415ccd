// Loops that compilers vectorise: no call and no branch for a value.
#include "collective/quantise.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace loomnet {

BlockExponent exponent_of(std::span<const float> block) {
  // As integers the magnitudes of floats are ordered, NaN above infinity.
  std::uint32_t most = 0;
  for (const float x : block) most = std::max(most, std::bit_cast<std::uint32_t>(x) & 0x7fffffffu);
  const auto biased = static_cast<int>(most >> 23);  // of 2^(biased - 127) <= |x| < 2^(biased - 126)
  if (biased > 253) return {127, false};
  return {static_cast<std::int8_t>(std::max<int>(biased - 126, kLeastExponent)), true};
}

double scale_of(std::int8_t exponent, unsigned workers) {
  const double n = workers;
  return (2147483647.0 - n) / (n * std::ldexp(1.0, exponent));
}

bool quantise(std::span<const float> block, double scale, std::int32_t* out) {
  constexpr double kMost = 2147483647.0, kLeast = -2147483648.0;
  unsigned outside = 0;
  for (std::size_t i = 0; i < block.size(); ++i) {
    const double exact = static_cast<double>(block[i]) * scale;
    // In this order a NaN becomes 0 in both, and no conversion below is undefined.
    const double low = exact > kLeast ? exact : exact == exact ? kLeast : 0.0;
    const double in = low < kMost ? low : kMost;
    outside |= static_cast<unsigned>(!(in == exact));
    const auto whole = static_cast<std::int32_t>(in);
    const double rest = in - whole;
    out[i] = whole + static_cast<std::int32_t>(rest >= 0.5) - static_cast<std::int32_t>(rest <= -0.5);
  }
  return outside != 0;
}

void dequantise(std::span<const std::int32_t> sum, double scale, float* out) {
  for (std::size_t i = 0; i < sum.size(); ++i) out[i] = static_cast<float>(sum[i] / scale);
}

}  // namespace loomnet
