// A policy in whole numbers, as a kernel without floating point computes it: activations count 2^-12,
// weights too, sums and biases 2^-24; see policy.hpp.
#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>

#include "transport/congestion/astraea/arithmetic.hpp"
#include "transport/congestion/astraea/policy_checks.hpp"

namespace loomnet::astraea {
namespace {

constexpr double kOne = 4'096;             // an activation or a weight of 1
constexpr double kInputMost = 8;           // inputs are clipped to it
constexpr std::int64_t kMostSum = 1 << 30;  // activations saturate there, at 262,144
constexpr std::int64_t kTanhEnd = 4 * 4'096;
constexpr std::size_t kRows = 257;

std::int64_t rounded(double x) { return static_cast<std::int64_t>(std::floor(x + 0.5)); }

template <typename T>
T clipped(double x) {
  constexpr double least = std::numeric_limits<T>::min(), most = std::numeric_limits<T>::max();
  return static_cast<T>(rounded(std::clamp(x, least, most)));
}

FixedLayer fixed_form(const Layer& layer) {
  FixedLayer out;
  for (const float w : layer.weights) out.weights.push_back(clipped<std::int16_t>(w * kOne));
  // Half of the last place that the shift takes away: so the shift rounds to the nearest.
  for (const float b : layer.bias) out.bias.push_back(clipped<std::int32_t>(b * kOne * kOne + kOne / 2));
  return out;
}

std::int16_t squashed(std::int64_t x) {
  const std::int64_t size = x < 0 ? -x : x;
  std::int64_t y = kFullAction;
  if (size < kTanhEnd) {
    const auto table = tanh_table();
    const auto row = static_cast<std::size_t>(size >> 6);
    y = table[row] + ((table[row + 1] - table[row]) * (size & 63) >> 6);
  }
  return static_cast<std::int16_t>(x < 0 ? -y : y);
}

}  // namespace

std::span<const std::int16_t> tanh_table() {
  static const std::array<std::int16_t, kRows> table = [] {
    std::array<std::int16_t, kRows> rows{};
    for (std::size_t i = 0; i < kRows; ++i) {
      rows[i] = static_cast<std::int16_t>(rounded(kFullAction * tanh(static_cast<double>(i) / 64)));
    }
    return rows;
  }();
  return table;
}

void Policy::quantise() {
  fixed_.clear();
  for (const Layer& layer : layers_) fixed_.push_back(fixed_form(layer));
}

// From a file: the numbers must be those of the floats, or the kernel's flows would follow another policy
// than the engine's.
void Policy::take_fixed(std::vector<FixedLayer> fixed) {
  quantise();
  if (fixed == fixed_) return;
  refuse_policy("whole numbers: not those of the weights; write the file anew after quantise()");
}

void Policy::act_int16(std::span<const float> inputs, std::span<std::int16_t> actions) const {
  if (!quantised()) throw std::logic_error("policy: act_int16() needs quantise() before it");
  check_sizes(inputs.size(), actions.size());
  std::array<std::int32_t, kMostWidth> one, other;
  for (std::size_t flow = 0; flow < actions.size(); ++flow) {
    std::int32_t *from = one.data(), *to = other.data();
    for (std::size_t i = 0; i < this->inputs(); ++i) {
      const double x = inputs[flow * this->inputs() + i];
      from[i] = std::isnan(x) ? 0 : static_cast<std::int32_t>(rounded(std::clamp(x, -kInputMost, kInputMost) * kOne));
    }
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      const std::size_t in = layers_[l].in, out = layers_[l].out;
      for (std::size_t o = 0; o < out; ++o) {
        const std::int16_t* row = fixed_[l].weights.data() + o * in;
        std::int64_t sum = fixed_[l].bias[o];
        for (std::size_t i = 0; i < in; ++i) sum += std::int64_t{row[i]} * from[i];
        std::int64_t y = std::clamp(sum >> 12, -kMostSum, kMostSum);
        if (l + 1 < layers_.size() && y < 0) y = y * 205 >> 10;  // 0.2
        to[o] = static_cast<std::int32_t>(y);
      }
      std::swap(from, to);
    }
    actions[flow] = static_cast<std::int16_t>(settled_int(squashed(from[0])));
  }
}

}  // namespace loomnet::astraea
