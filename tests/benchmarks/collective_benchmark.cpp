// Speed of the reductions on one slot and on memory beyond the caches, each as a ratio to memcpy of
// the same bytes in the same run.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstring>
#include <vector>

#include "collective/reduction.hpp"

namespace loomnet {
namespace {

void reductions(benchmark::State& state, DataType type, ReduceOp op) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  std::vector<std::uint8_t> slot(bytes + 48, 0), tensor(bytes, 0), out(bytes, 0);
  double copying = 0, reducing = 0;
  const auto seconds = [](auto f) {
    const auto start = std::chrono::steady_clock::now();
    f();
    benchmark::ClobberMemory();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  for (auto _ : state) {
    copying += seconds([&] { std::memcpy(out.data(), tensor.data(), bytes); });
    reducing += seconds([&] { reduce(op, type, out.data(), slot.data() + 48, tensor.data(), bytes); });
  }
  state.counters["GB/s"] = static_cast<double>(bytes) * static_cast<double>(state.iterations()) / reducing / 1e9;
  state.counters["of_memcpy"] = copying / reducing;
}

BENCHMARK_CAPTURE(reductions, float32_sum, DataType::float32, ReduceOp::sum)->Arg(32768)->Arg(64 << 20);
BENCHMARK_CAPTURE(reductions, float64_sum, DataType::float64, ReduceOp::sum)->Arg(32768);
BENCHMARK_CAPTURE(reductions, bfloat16_sum, DataType::bfloat16, ReduceOp::sum)->Arg(32768);
BENCHMARK_CAPTURE(reductions, float16_sum, DataType::float16, ReduceOp::sum)->Arg(32768);
BENCHMARK_CAPTURE(reductions, int64_max, DataType::int64, ReduceOp::max)->Arg(32768);

}  // namespace
}  // namespace loomnet

BENCHMARK_MAIN();
