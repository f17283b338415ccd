// Dispatch to one of two builds of the same loops: the baseline instruction set, and on x86-64 one
// for AVX2 with F16C, chosen once at run time.
#include "collective/reduction.hpp"

#include "collective/reduction_kernels.hpp"

namespace loomnet {
namespace {

const ReductionKernels& kernels() {
#if defined(__x86_64__)
  static const ReductionKernels chosen =
      __builtin_cpu_supports("avx2") ? reduction_kernels_avx2() : reduction_kernels_baseline();
#else
  static const ReductionKernels chosen = reduction_kernels_baseline();
#endif
  return chosen;
}

}  // namespace

void reduce(ReduceOp op, DataType type, std::uint8_t* out, const std::uint8_t* a, const std::uint8_t* b,
            std::size_t bytes) {
  kernels().reduce(op, type, out, a, b, bytes / element_size(type));
}

void divide(DataType type, std::uint8_t* out, const std::uint8_t* in, std::size_t bytes, std::uint32_t divisor) {
  kernels().divide(type, out, in, bytes / element_size(type), divisor);
}

void multiply(DataType type, std::uint8_t* out, const std::uint8_t* in, std::size_t bytes, double factor) {
  kernels().multiply(type, out, in, bytes / element_size(type), factor);
}

}  // namespace loomnet
