// The table each build of reduction_kernels.inc exports; counts are in elements.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collective/types.hpp"

namespace loomnet {

struct ReductionKernels {
  void (*reduce)(ReduceOp, DataType, std::uint8_t* out, const std::uint8_t* a, const std::uint8_t* b,
                 std::size_t count);
  void (*divide)(DataType, std::uint8_t* out, const std::uint8_t* in, std::size_t count, std::uint32_t divisor);
  void (*multiply)(DataType, std::uint8_t* out, const std::uint8_t* in, std::size_t count, double factor);
};

ReductionKernels reduction_kernels_baseline();
ReductionKernels reduction_kernels_avx2();

}  // namespace loomnet
