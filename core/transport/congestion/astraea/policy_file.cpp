// The policy file .astp, little-endian: 32 bytes of header, the layers as floats, the layers as whole
// numbers where there are any, CRC-32 of all before it.
//
//   0 "ASTP"   4 u16 version   6 u16 flags (below)
//   8 u16 features per frame   10 u16 frames   12 u16 feature set   14 u16 interval, ms
//   16 f32 alpha; of factors their exponent
//   20 u32 cwnd_min   24 u32 cwnd_max   28 u16 layers   30 u16 activation (1: leaky ReLU 0.2, tanh)
//
// Flags: 1 whole numbers, 2 BatchNorm folded, 4 doubled frames; bits 3 and 4 the kind of action, 5 and 6 the inner
// rule of a factor, 8 to 15 the interval in quarters of round trips, where 0 says that it is the one in ms.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "packet/crc32.hpp"
#include "transport/congestion/astraea/policy_checks.hpp"

namespace loomnet::astraea {
namespace {

constexpr std::uint8_t kMagic[] = {'A', 'S', 'T', 'P'};
constexpr std::uint16_t kVersion = 1, kActivation = 1;
constexpr std::uint16_t kHasFixed = 1, kFolded = 2, kDoubled = 4, kNoMeaning = 1 << 7;
constexpr int kActionBit = 3, kInnerBit = 5, kRttsBit = 8;  // the first of each
constexpr double kRttParts = 4;
constexpr std::size_t kHeader = 32, kCrc = 4;

class Reader {
 public:
  explicit Reader(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  std::size_t left() const { return bytes_.size() - at_; }
  // Refuses a file that ends within `field`, before any memory is taken for it.
  void need(std::size_t bytes, const std::string& field) const {
    if (left() < bytes) {
      refuse_policy(field + ": the file ends within it, " + std::to_string(bytes - left()) +
                    " bytes too soon; copy the file anew");
    }
  }
  std::uint16_t u16() { return static_cast<std::uint16_t>(number(2)); }
  std::uint32_t u32() { return static_cast<std::uint32_t>(number(4)); }
  float f32() { return std::bit_cast<float>(u32()); }

 private:
  std::uint64_t number(std::size_t bytes) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes; ++i) value |= std::uint64_t{bytes_[at_++]} << 8 * i;
    return value;
  }
  std::span<const std::uint8_t> bytes_;
  std::size_t at_ = 0;
};

struct Writer {
  std::vector<std::uint8_t> bytes;
  void u16(std::uint16_t value) { number(value, 2); }
  void u32(std::uint32_t value) { number(value, 4); }
  void f32(float value) { u32(std::bit_cast<std::uint32_t>(value)); }
  void number(std::uint64_t value, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) bytes.push_back(static_cast<std::uint8_t>(value >> 8 * i));
  }
};

}  // namespace

Policy Policy::parse(std::span<const std::uint8_t> file) {
  if (file.size() < kHeader + kCrc || !std::equal(std::begin(kMagic), std::end(kMagic), file.begin())) {
    refuse_policy("magic: these bytes are no .astp file; give one that Policy.to_bytes() wrote");
  }
  Reader end(file.last(kCrc));
  file = file.first(file.size() - kCrc);
  if (const std::uint32_t crc = end.u32(); crc != crc32(file)) {
    refuse_policy("CRC-32: the bytes are not those that were written; copy the file anew");
  }
  Reader in(file.subspan(sizeof kMagic));
  if (const std::uint16_t version = in.u16(); version != kVersion) {
    refuse_policy("version: " + std::to_string(version) + "; this Loomnet reads version 1");
  }
  const std::uint16_t flags = in.u16();
  if ((flags & kNoMeaning) || (flags >> kInnerBit & 3) >= static_cast<int>(kInnerRules.size())) {
    refuse_policy("flags: " + std::to_string(flags) + "; bit 7 is 0, and bits 5 and 6 are 0 to 2");
  }
  const std::uint16_t width = in.u16();
  PolicySpec spec;
  spec.frames = in.u16();
  spec.features = static_cast<FeatureSet>(in.u16());
  spec.interval_ms = in.u16();
  spec.alpha = in.f32();
  spec.cwnd_min = in.u32();
  spec.cwnd_max = in.u32();
  spec.folded = flags & kFolded;
  spec.action = static_cast<ActionKind>(flags >> kActionBit & 3);
  spec.inner = static_cast<InnerRule>(flags >> kInnerBit & 3);
  spec.interval_rtts = (flags >> kRttsBit) / kRttParts;
  spec.spacing = flags & kDoubled ? Spacing::doubled : Spacing::every;
  check_spec(spec);
  if (width != features_of(spec.features)) {
    refuse_policy("features per frame: " + std::to_string(width) + "; " + std::string(to_string(spec.features)) +
                  " has " + std::to_string(features_of(spec.features)));
  }
  const std::uint16_t count = in.u16();
  check_layer_count(count);
  if (const std::uint16_t activation = in.u16(); activation != kActivation) {
    refuse_policy("activation: " + std::to_string(activation) + "; give 1, leaky ReLU 0.2 and tanh");
  }
  std::vector<Layer> layers(count);
  std::size_t from = std::size_t{width} * spec.frames;
  for (std::size_t l = 0; l < count; ++l) {
    Layer& layer = layers[l];
    const std::string name = "layer " + std::to_string(l);
    in.need(4, name);
    layer.in = in.u16();
    layer.out = in.u16();
    check_layer_sizes(l, count, from, layer.in, layer.out);
    from = layer.out;
    const std::size_t weights = std::size_t{layer.in} * layer.out;
    in.need(4 * (weights + layer.out), name + ": weights");
    layer.weights.resize(weights);
    layer.bias.resize(layer.out);
    for (float& w : layer.weights) w = in.f32();
    for (float& b : layer.bias) b = in.f32();
  }
  std::vector<FixedLayer> fixed;
  for (std::size_t l = 0; l < (flags & kHasFixed ? count : 0u); ++l) {
    FixedLayer& layer = fixed.emplace_back();
    const std::size_t weights = layers[l].weights.size(), out = layers[l].out;
    in.need(2 * weights + 4 * out, "layer " + std::to_string(l) + ": whole numbers");
    layer.weights.resize(weights);
    layer.bias.resize(out);
    for (std::int16_t& w : layer.weights) w = static_cast<std::int16_t>(in.u16());
    for (std::int32_t& b : layer.bias) b = static_cast<std::int32_t>(in.u32());
  }
  if (in.left() > 0) {
    refuse_policy("end: " + std::to_string(in.left()) +
                  " bytes behind the last layer; cut them off and "
                  "write the CRC-32 anew");
  }
  Policy policy(spec, std::move(layers));
  if (!fixed.empty()) policy.take_fixed(std::move(fixed));
  return policy;
}

std::vector<std::uint8_t> Policy::serialize() const {
  Writer out;
  out.bytes.assign(std::begin(kMagic), std::end(kMagic));
  out.u16(kVersion);
  out.u16(static_cast<std::uint16_t>(
      (quantised() ? kHasFixed : 0) | (spec_.folded ? kFolded : 0) |
      (spec_.spacing == Spacing::doubled ? kDoubled : 0) | static_cast<int>(spec_.action) << kActionBit |
      static_cast<int>(spec_.inner) << kInnerBit | static_cast<int>(spec_.interval_rtts * kRttParts) << kRttsBit));
  out.u16(static_cast<std::uint16_t>(features_of(spec_.features)));
  out.u16(spec_.frames);
  out.u16(static_cast<std::uint16_t>(spec_.features));
  out.u16(spec_.interval_ms);
  out.f32(spec_.alpha);
  out.u32(spec_.cwnd_min);
  out.u32(spec_.cwnd_max);
  out.u16(static_cast<std::uint16_t>(layers_.size()));
  out.u16(kActivation);
  for (const Layer& layer : layers_) {
    out.u16(layer.in);
    out.u16(layer.out);
    for (const float w : layer.weights) out.f32(w);
    for (const float b : layer.bias) out.f32(b);
  }
  for (const FixedLayer& layer : fixed_) {
    for (const std::int16_t w : layer.weights) out.u16(static_cast<std::uint16_t>(w));
    for (const std::int32_t b : layer.bias) out.u32(static_cast<std::uint32_t>(b));
  }
  out.u32(crc32(out.bytes));
  return std::move(out.bytes);
}

}  // namespace loomnet::astraea
