// Element-wise reductions of one chunk: out = a op b. out may be a or b.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collective/types.hpp"

namespace loomnet {

// avg and premul_sum add here; scale() does the rest. 16-bit floats are widened, combined and
// rounded to nearest even each time. `bytes` is a whole number of elements; memory need not be
// aligned. reducible(op, type) must hold. As in torch, min and max keep a NaN; bool is logical:
// sum, max and bor are or; product, min and band are and; bxor is xor.
void reduce(ReduceOp op, DataType type, std::uint8_t* out, const std::uint8_t* a, const std::uint8_t* b,
            std::size_t bytes);

// out = in / divisor (integers: truncated towards zero), for avg. out may be in.
void divide(DataType type, std::uint8_t* out, const std::uint8_t* in, std::size_t bytes, std::uint32_t divisor);
// out = in * factor, floating types only, for premul_sum. out may be in.
void multiply(DataType type, std::uint8_t* out, const std::uint8_t* in, std::size_t bytes, double factor);

}  // namespace loomnet
