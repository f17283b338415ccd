// See policy_checks.hpp.
#include "transport/congestion/astraea/policy_checks.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace loomnet::astraea {

void refuse_policy(const std::string& why) { throw std::invalid_argument("policy: " + why); }

void check_spec(const PolicySpec& spec) {
  const auto whole = [](const char* field, std::uint32_t value, std::uint32_t least, std::uint32_t most) {
    if (value >= least && value <= most) return;
    refuse_policy(std::string(field) + ": " + std::to_string(value) + "; give " + std::to_string(least) + " to " +
                  std::to_string(most));
  };
  if (features_of(spec.features) == 0) {
    refuse_policy("feature set: no set has the number " + std::to_string(static_cast<unsigned>(spec.features)) +
                  "; give 1 to " + std::to_string(kFeatureSets.size()) + " (" + names_of_sets() + ")");
  }
  whole("frames", spec.frames, 1, spec.spacing == Spacing::every ? kMostFrames : kMostDoubled);
  whole("interval", spec.interval_ms, 1, kMostIntervalMs);
  if (const double quarters = 4 * spec.interval_rtts;
      !(quarters >= 0 && quarters < 256) || quarters != std::floor(quarters)) {
    refuse_policy("interval_rtts: " + std::to_string(spec.interval_rtts) + "; give quarters, 0 to 63.75");
  }
  if (spec.action == ActionKind::absolute) {
    refuse_policy("action: \"absolute\" has a range of rates that no policy file has; give window, rate or factor");
  }
  if (spec.inner != InnerRule::cubic && spec.action != ActionKind::factor) {
    refuse_policy("inner: " + std::string(to_string(spec.inner)) + " is of action \"factor\" alone; leave it out");
  }
  if (spec.action == ActionKind::factor) {
    if (!(spec.alpha > 0 && spec.alpha <= kMostFactorExponent)) {
      refuse_policy("alpha: " + std::to_string(spec.alpha) + ", a factor's exponent; give a number above 0, up to 8");
    }
  } else if (!(spec.alpha > 0 && spec.alpha <= kMostAlpha)) {
    refuse_policy("alpha: " + std::to_string(spec.alpha) + "; give a number above 0, up to 0.5");
  }
  whole("cwnd_min", spec.cwnd_min, 1, kWindowBound);
  whole("cwnd_max", spec.cwnd_max, spec.cwnd_min, kWindowBound);
}

void check_layer_count(std::size_t count) {
  if (count >= 1 && count <= Policy::kMostLayers) return;
  refuse_policy("layers: " + std::to_string(count) + "; give 1 to " + std::to_string(Policy::kMostLayers));
}

void check_layer_sizes(std::size_t layer, std::size_t count, std::size_t width, std::size_t in, std::size_t out) {
  const std::string name = "layer " + std::to_string(layer);
  if (in != width) {
    refuse_policy(name + ": in: " + std::to_string(in) + "; give " + std::to_string(width) +
                  (layer == 0 ? ", the features of all frames" : ", what the layer before gives"));
  }
  const std::size_t most = Policy::kMostWidth;
  if (layer + 1 == count ? out != 1 : out < 1 || out > most) {
    refuse_policy(
        name + ": out: " + std::to_string(out) +
        (layer + 1 == count ? "; the last layer gives 1, the action" : "; give 1 to " + std::to_string(most)));
  }
}

void check_weights(std::size_t number, const Layer& layer) {
  const auto wrong = [](float w) { return !(std::fabs(w) <= Policy::kMostWeight); };  // NaN too
  const auto check = [&](const char* field, const std::vector<float>& values) {
    const auto found = std::find_if(values.begin(), values.end(), wrong);
    if (found == values.end()) return;
    refuse_policy("layer " + std::to_string(number) + ": " + field + ": number " +
                  std::to_string(found - values.begin()) + " is " + std::to_string(*found) +
                  "; train with weights of -10000 to 10000");
  };
  check("weights", layer.weights);
  check("bias", layer.bias);
}

}  // namespace loomnet::astraea
