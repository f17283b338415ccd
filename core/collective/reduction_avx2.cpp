// The reduction loops once more for AVX2. Nothing with external linkage is compiled under the
// target pragma: other files must not pick up code that this machine may not run.
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "collective/half.hpp"
#include "collective/reduction_kernels.hpp"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#elif defined(__GNUC__)
#pragma GCC target("avx2")
#endif
#endif

namespace loomnet {
namespace {

#include "collective/reduction_loops.inc"

}  // namespace
#if defined(__clang__) && defined(__x86_64__)
#pragma clang attribute pop
#endif

ReductionKernels reduction_kernels_avx2() { return {reduce_elements, divide_elements, multiply_elements}; }

}  // namespace loomnet
