// What a receiver has where bytes of a chunk were lost.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace loomnet {

// Writes a run of whole elements, some bytes of which were lost: the slot holds those of an earlier chunk there.
using Fill = void (*)(std::span<std::uint8_t> lost);

// A zero changes no sum.
inline void fill_zero(std::span<std::uint8_t> lost) { std::fill(lost.begin(), lost.end(), std::uint8_t{0}); }

}  // namespace loomnet
