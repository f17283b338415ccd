// See kernel_policy.hpp. The kernel reads while this writes, on another processor.
#include "transport/congestion/astraea/kernel_policy.hpp"

#include <algorithm>

#include "transport/congestion/astraea/policy_checks.hpp"

namespace loomnet::astraea {
namespace {

static_assert(static_cast<int>(FeatureSet::astraea10) == ASTRAEA_ASTRAEA10 &&
              static_cast<int>(FeatureSet::ours11) == ASTRAEA_OURS11 &&
              static_cast<int>(FeatureSet::rel8) == ASTRAEA_REL8);
static_assert(static_cast<int>(Lifetime::connection) == ASTRAEA_LIFETIME &&
              static_cast<int>(Lifetime::windowed) == ASTRAEA_WINDOWED &&
              static_cast<int>(Lifetime::windowed_drain) == ASTRAEA_DRAINED);
static_assert(Policy::kMostLayers <= ASTRAEA_LAYERS && kMostFeatures <= ASTRAEA_COLUMNS &&
              kMostFrames * kMostFeatures + ASTRAEA_LANES <= ASTRAEA_WIDTH && kMostFrames <= ASTRAEA_DEPTH &&
              1u << (kMostDoubled - 1) <= ASTRAEA_DEPTH);

std::uint32_t padded(std::uint32_t width) { return (width + ASTRAEA_LANES - 1) / ASTRAEA_LANES * ASTRAEA_LANES; }

std::uint32_t microseconds_of(Picoseconds time) { return static_cast<std::uint32_t>(time.count / 1'000'000); }

void write_layers(astraea_bank& bank, const Policy& policy) {
  std::uint32_t weight = 0, bias = 0;
  bank.layers = static_cast<std::uint32_t>(policy.layers().size());
  for (std::size_t l = 0; l < policy.layers().size(); ++l) {
    const Layer& layer = policy.layers()[l];
    const FixedLayer& fixed = policy.fixed_layers()[l];
    bank.layer[l] = {layer.in, layer.out, weight, bias};
    for (std::size_t o = 0; o < layer.out; ++o) {
      for (std::size_t i = 0; i < padded(layer.in); ++i) {
        const int w = i < layer.in ? fixed.weights[o * layer.in + i] : 0;
        bank.weights[weight++] = static_cast<std::uint16_t>(w + static_cast<int>(ASTRAEA_ZERO));
      }
      bank.bias[bias++] = fixed.bias[o];
    }
  }
}

}  // namespace

void check_kernel_policy(const Policy& policy) {
  std::size_t weights = 0;
  for (std::size_t l = 0; l < policy.layers().size(); ++l) {
    const Layer& layer = policy.layers()[l];
    if (layer.out > ASTRAEA_WIDTH) {
      refuse_policy("layer " + std::to_string(l) + ": out: " + std::to_string(layer.out) +
                    "; in the kernel's program 256 at most; give a smaller network, or agent=\"thread\"");
    }
    weights += std::size_t{padded(layer.in)} * layer.out;
  }
  if (weights > ASTRAEA_WEIGHTS) {
    refuse_policy("layers: " + std::to_string(weights) +
                  " weights, rows filled up to multiples of 8; in the kernel's "
                  "program 65536 at most; give a smaller network, or agent=\"thread\"");
  }
}

void publish_policy(astraea_policies& policies, const Plan& plan) {
  const std::uint32_t active = __atomic_load_n(&policies.active, __ATOMIC_ACQUIRE) & 1;
  const std::uint32_t before = __atomic_load_n(&policies.bank[active].version, __ATOMIC_ACQUIRE);
  astraea_bank& bank = policies.bank[active ^ 1];
  // A flow that still decides by this bank sees that its version changes, and leaves its window as it is.
  __atomic_store_n(&bank.version, 0u, __ATOMIC_SEQ_CST);
  const Policy& policy = *plan.policy.trained;
  const PolicySpec& spec = policy.spec();
  bank.features = static_cast<std::uint32_t>(spec.features);
  bank.width = static_cast<std::uint32_t>(features_of(spec.features));
  bank.frames = spec.frames;
  bank.doubled = spec.spacing == Spacing::doubled;
  bank.extremes = static_cast<std::uint32_t>(plan.agent.lifetime);
  bank.interval_us = microseconds_of(plan.agent.interval);
  bank.look_us = plan.options.wake_us;
  bank.alpha_millionths = static_cast<std::uint32_t>(plan.agent.alpha * 1e6 + 0.5);
  bank.cwnd_min = plan.agent.cwnd_min;
  bank.cwnd_max = plan.agent.cwnd_max;
  std::ranges::copy(tanh_table(), bank.tanh);
  write_layers(bank, policy);
  __atomic_store_n(&bank.version, before + 1 == 0 ? 1 : before + 1, __ATOMIC_SEQ_CST);
  __atomic_store_n(&policies.active, active ^ 1, __ATOMIC_SEQ_CST);
}

void withdraw_policy(astraea_policies& policies) {
  for (astraea_bank& bank : policies.bank) __atomic_store_n(&bank.version, 0u, __ATOMIC_SEQ_CST);
}

}  // namespace loomnet::astraea
