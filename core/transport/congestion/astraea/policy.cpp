// A policy's checks and its inference in 32-bit floats; see policy.hpp.
#include "transport/congestion/astraea/policy.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>

#include "transport/congestion/astraea/arithmetic.hpp"
#include "transport/congestion/astraea/policy_checks.hpp"

namespace loomnet::astraea {
namespace {
constexpr float kSlope = 0.2f;  // of the leaky ReLU below 0
}

Policy::Policy(const PolicySpec& spec, std::vector<Layer> layers) : spec_(spec), layers_(std::move(layers)) {
  check_spec(spec_);
  check_layer_count(layers_.size());
  std::size_t width = features_of(spec_.features) * spec_.frames;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    check_layer_sizes(i, layers_.size(), width, layer.in, layer.out);
    width = layer.out;
    if (layer.weights.size() != std::size_t{layer.in} * layer.out || layer.bias.size() != layer.out) {
      refuse_policy("layer " + std::to_string(i) + ": " + std::to_string(layer.weights.size()) + " weights and " +
                    std::to_string(layer.bias.size()) + " biases; give " + std::to_string(layer.out) + " x " +
                    std::to_string(layer.in) + " and " + std::to_string(layer.out));
    }
    check_weights(i, layer);
  }
  transpose();
}

void Policy::transpose() {
  for (const Layer& layer : layers_) {
    std::vector<float>& column = columns_.emplace_back(layer.weights.size());
    for (std::size_t o = 0; o < layer.out; ++o) {
      for (std::size_t i = 0; i < layer.in; ++i) column[i * layer.out + o] = layer.weights[o * layer.in + i];
    }
  }
}

void Policy::check_sizes(std::size_t inputs, std::size_t flows) const {
  if (inputs == flows * this->inputs()) return;
  throw std::invalid_argument("policy: inputs: " + std::to_string(inputs) + " values for " + std::to_string(flows) +
                              " flows; each flow has " + std::to_string(this->inputs()));
}

void Policy::act(std::span<const float> inputs, std::span<float> actions) const {
  check_sizes(inputs.size(), actions.size());
  std::array<float, kMostWidth> one, other;
  for (std::size_t flow = 0; flow < actions.size(); ++flow) {
    const float* from = inputs.data() + flow * this->inputs();
    float *to = one.data(), *spare = other.data();
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      const Layer& layer = layers_[l];
      const std::size_t out = layer.out;
      std::copy_n(layer.bias.data(), out, to);
      // Over the outputs inside, so that the compiler computes several at once and each one's sum keeps
      // its order.
      for (std::size_t i = 0; i < layer.in; ++i) {
        const float x = from[i];
        const float* column = columns_[l].data() + i * out;
        for (std::size_t o = 0; o < out; ++o) to[o] += column[o] * x;
      }
      if (l + 1 < layers_.size()) {
        for (std::size_t o = 0; o < out; ++o) to[o] = to[o] < 0 ? to[o] * kSlope : to[o];
      }
      from = to;
      std::swap(to, spare);
    }
    // An input that is not finite has no action: the window stays.
    const double a = std::isnan(from[0]) ? 0 : tanh(from[0]);
    actions[flow] = static_cast<float>(settled(a));
  }
}

}  // namespace loomnet::astraea
