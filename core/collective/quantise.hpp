// Gradients as integers that a switch can add, and back. Blocks of one fragment each share an exponent
// (Sapio et al., "Scaling Distributed Machine Learning with In-Network Aggregation", NSDI 2021, 3.7), with
// constants under which the sum of `workers` such blocks never leaves the range of an int32.
#pragma once

#include <cstdint>
#include <span>

namespace loomnet {

// The least exponent, of a block of zeros and of the smallest numbers.
inline constexpr std::int8_t kLeastExponent = -126;

struct BlockExponent {
  std::int8_t exponent = kLeastExponent;  // 2^exponent is above every |x| of the block
  bool finite = true;  // false: NaN, infinity, or |x| of 2^127 and more
};
BlockExponent exponent_of(std::span<const float> block);

// What a value is multiplied by: (2^31 - 1 - workers) / (workers * 2^exponent). `exponent` is the largest
// of all workers' blocks; workers: 1 to 64.
double scale_of(std::int8_t exponent, unsigned workers);

// out[i] = round(block[i] * scale), halves away from zero. A NaN becomes 0, whatever lies outside the
// range of an int32 its nearest end; returns whether there was any such value.
bool quantise(std::span<const float> block, double scale, std::int32_t* out);
// out[i] = sum[i] / scale. |out - the exact sum| is at most workers / (2 * scale), and a float's rounding.
void dequantise(std::span<const std::int32_t> sum, double scale, float* out);

}  // namespace loomnet
