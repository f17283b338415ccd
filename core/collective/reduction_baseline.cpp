// The reduction loops for the instruction set the whole library is built for.
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "collective/half.hpp"
#include "collective/reduction_kernels.hpp"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

namespace loomnet {
namespace {

#include "collective/reduction_loops.inc"

}  // namespace

ReductionKernels reduction_kernels_baseline() { return {reduce_elements, divide_elements, multiply_elements}; }

}  // namespace loomnet
