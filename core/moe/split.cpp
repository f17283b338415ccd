#include "moe/split.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace loomnet::moe {
namespace {
constexpr int kHalvings = 60;  // of the interval that holds the time: to the precision of a double
}

double weighted_seconds(std::uint32_t servers, std::span<const std::uint64_t> bytes,
                        std::span<const std::uint32_t> circuits, double circuit_rate, double electrical_rate) {
  std::vector<double> out(servers), in(servers);
  const auto fits = [&](double seconds) {
    std::ranges::fill(out, 0);
    std::ranges::fill(in, 0);
    for (std::uint32_t i = 0; i < servers; ++i) {
      for (std::uint32_t j = 0; j < servers; ++j) {
        const std::size_t pair = std::size_t{i} * servers + j;
        const double rest = 8.0 * static_cast<double>(bytes[pair]) - circuits[pair] * circuit_rate * seconds;
        out[i] += std::max(rest, 0.0);
        in[j] += std::max(rest, 0.0);
      }
    }
    const double most = std::max(std::ranges::max(out), std::ranges::max(in));
    return most <= electrical_rate * seconds;
  };
  double low = 0, high = 1e-9;
  while (!fits(high)) {
    high *= 2;
    if (high > 1e12) return HUGE_VAL;
  }
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (fits(middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace loomnet::moe
