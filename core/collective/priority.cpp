// The scale is logarithmic, so that jobs of seconds and of days are told apart in 8 bits.
#include "collective/priority.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <string>

#include "clock/random.hpp"

namespace loomnet {
namespace {

constexpr std::array<std::string_view, 7> kNames{"esa", "trem", "ratio", "layer", "none", "fifo", "random"};
constexpr double kLow = -16, kHigh = 16;      // of log2 of the raw priority
constexpr double kLeastRatio = 1.0 / 256, kMostRatio = 256;
constexpr double kLeastTime = 1e-12;          // a job that is over is as urgent as can be
constexpr std::uint64_t kPurpose = 0x7072696f72697479;  // of the random streams here

std::uint8_t scaled(double raw) {
  const double log = std::clamp(std::log2(raw), kLow, kHigh);
  return static_cast<std::uint8_t>(1 + std::floor(254 * ((log - kLow) / (kHigh - kLow)) + 0.5));
}

}  // namespace

std::string_view to_string(PriorityMode mode) { return kNames[static_cast<std::size_t>(mode)]; }

PriorityMode priority_mode_named(std::string_view name) {
  const auto at = std::find(kNames.begin(), kNames.end(), name);
  if (at == kNames.end()) throw std::invalid_argument("no priority \"" + std::string(name) + "\"");
  return static_cast<PriorityMode>(at - kNames.begin());
}

std::uint8_t priority_of(PriorityMode mode, const Urgency& u, const PriorityKey& key) {
  const double time = 1 / std::max(u.remaining_s, kLeastTime);
  const double ratio = std::clamp(u.communication_ratio, kLeastRatio, kMostRatio);
  const double layer = static_cast<double>(u.layers) / (u.layer + 1.0);
  switch (mode) {
    case PriorityMode::full:
      return scaled(time * ratio * layer);
    case PriorityMode::trem:
      return scaled(time);
    case PriorityMode::ratio:
      return scaled(ratio);
    case PriorityMode::layer:
      return scaled(layer);
    case PriorityMode::random: {
      // Alike on all ranks: a switch keeps the larger of two ranks' priorities of one fragment.
      RandomStream stream(hash_key(key.seed, key.job, kPurpose), key.iteration, u.layer);
      return static_cast<std::uint8_t>(kLeastPriority + stream.below(255));
    }
    case PriorityMode::none:
    case PriorityMode::fifo:
      break;
  }
  return kConstantPriority;
}

double JobPace::remaining_s(std::uint32_t iterations, Picoseconds stop) const {
  const double each = iteration_s();
  double left = std::max(iterations, 1u);
  if (stop != kNever && each > 0) {
    left = std::min(left, std::max(std::ceil(stop.seconds() / each), 1.0));
  }
  return left * each;
}

double JobPace::communication_ratio(std::uint64_t gradient_bytes, BitsPerSecond link) const {
  const double compute = compute_ < 0 ? stated_ : compute_;
  const double communication = 8.0 * static_cast<double>(gradient_bytes) / static_cast<double>(link.count);
  return std::clamp(communication / std::max(compute, kLeastTime), kLeastRatio, kMostRatio);
}

}  // namespace loomnet
