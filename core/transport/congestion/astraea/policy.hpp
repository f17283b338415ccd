// A trained policy: a small neural network from a history of frames to an action, as 32-bit floats and,
// where it was quantised, as the whole numbers that a kernel can compute with. Reads and writes the policy
// file .astp. Files are not trusted: a reader of one checks every field.
//
// Layers are dense, with a leaky ReLU of slope 0.2 behind each but the last, which ends in tanh. Actions
// smaller than 1/256 become 0 (settled() in action.hpp).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/congestion/astraea/action.hpp"
#include "transport/congestion/astraea/features.hpp"

namespace loomnet::astraea {

// What a policy was trained for. It must be run with the same inputs.
struct PolicySpec {
  FeatureSet features = FeatureSet::ours11;
  std::uint16_t frames = 5;
  Spacing spacing = Spacing::every;
  std::uint16_t interval_ms = 30;
  double interval_rtts = 0;  // quarters of round trips; 0: interval_ms
  ActionKind action = ActionKind::window;
  InnerRule inner = InnerRule::cubic;        // of action factor
  float alpha = static_cast<float>(kAlpha);  // of action factor the exponent
  std::uint32_t cwnd_min = kLeastWindow, cwnd_max = kMostWindow;  // packets
  bool folded = false;  // BatchNorm of training was folded into the weights
  bool operator==(const PolicySpec&) const = default;
};

// One dense layer; weights row by row, [out][in].
struct Layer {
  std::uint16_t in = 0, out = 0;
  std::vector<float> weights, bias;
  bool operator==(const Layer&) const = default;
};

// The same in whole numbers: weights count 2^-12, biases 2^-24.
struct FixedLayer {
  std::vector<std::int16_t> weights;
  std::vector<std::int32_t> bias;
  bool operator==(const FixedLayer&) const = default;
};

class Policy {
 public:
  static constexpr std::size_t kMostLayers = 8, kMostWidth = 1'024;
  static constexpr float kMostWeight = 1e4f;  // magnitude

  // Throws std::invalid_argument with one line that names the field and the fix: for layers that do not
  // fit one another or the input, and for weights that are not finite.
  Policy(const PolicySpec& spec, std::vector<Layer> layers);
  // A whole .astp file. Throws std::invalid_argument as above.
  static Policy parse(std::span<const std::uint8_t> file);
  std::vector<std::uint8_t> serialize() const;

  // Adds the form of whole numbers. Weights are clipped to the range of 16 bits, -8 to 8 - 2^-12, and
  // biases to -128 to 128 - 2^-24.
  void quantise();
  bool quantised() const { return !fixed_.empty(); }

  const PolicySpec& spec() const { return spec_; }
  std::size_t inputs() const { return layers_.front().in; }
  const std::vector<Layer>& layers() const { return layers_; }
  const std::vector<FixedLayer>& fixed_layers() const { return fixed_; }

  // The actions, -1 to 1, of as many flows as `actions` holds, whose inputs lie one after another. A flow's
  // action is the same to the bit in every batch, on every machine: each sum goes from the first input to
  // the last, and products are rounded before they are added. Allocates nothing. Throws
  // std::invalid_argument where `inputs` is of another size.
  void act(std::span<const float> inputs, std::span<float> actions) const;
  // The same by whole numbers: actions times 32767. Throws std::logic_error before quantise().
  void act_int16(std::span<const float> inputs, std::span<std::int16_t> actions) const;

 private:
  void check_sizes(std::size_t inputs, std::size_t flows) const;
  void take_fixed(std::vector<FixedLayer> fixed);
  void transpose();

  PolicySpec spec_;
  std::vector<Layer> layers_;
  std::vector<FixedLayer> fixed_;
  std::vector<std::vector<float>> columns_;  // of each layer: the weights as [in][out]
};

// tanh(i / 64) times 32767, i = 0 … 256: the output of the form of whole numbers lies between two rows.
std::span<const std::int16_t> tanh_table();

}  // namespace loomnet::astraea
