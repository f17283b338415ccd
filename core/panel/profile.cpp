// Samples of dark times, and the profiles of known panels.
#include "panel/profile.hpp"

#include <array>
#include <cmath>
#include <numbers>
#include <stdexcept>
#include <string>

namespace loomnet::panel {
namespace {

using enum Duration::Kind;
constexpr Duration kNone{};
// Fits the prototype's means of 41.44, 42.44 and 46.75 ms for 1, 4 and 16 pairs to 0.1 ms, and its 99th
// percentiles to 0.5 ms. Beyond 16 pairs it extrapolates.
constexpr Duration kPolatis{lognormal, 41.06, 0, 0.3555, 0.167};
// The prototype's transceivers: 5.67 s in the mean, 6.33 s at the 99th percentile.
constexpr Duration kTransceiver{lognormal, 5670, 0, 0, 0.048};

constexpr std::array<Profile, 9> kProfiles{{
    {"ideal", kNone, kNone},
    {"sim25", {fixed, 25}, kNone},
    {"polatis", kPolatis, kNone},
    {"polatis+nic", kPolatis, kTransceiver},
    {"calient", {uniform, 10, 15}, kNone},
    {"telescent", {fixed, 120e3}, kNone},
    {"infocus128", {fixed, 0.01}, kNone},
    {"rotor10us", {fixed, 0.01}, kNone},
    {"lightmatter32", {fixed, 0.007}, kNone},
}};

double normal(RandomStream& random) {  // Box and Muller; one of the two values is not used
  const double radius = std::sqrt(-2 * std::log(1 - random.uniform()));
  return radius * std::cos(2 * std::numbers::pi * random.uniform());
}

}  // namespace

Picoseconds Duration::sample(RandomStream& random, std::size_t pairs) const {
  double ms = low_ms;
  if (kind == uniform) ms += (high_ms - low_ms) * random.uniform();
  if (kind == lognormal) {
    const double mean = low_ms + per_pair_ms * static_cast<double>(pairs);
    ms = mean * std::exp(sigma * normal(random) - sigma * sigma / 2);
  }
  return {std::llround(ms * 1e9)};
}

Picoseconds Duration::mean(std::size_t pairs) const {
  double ms = low_ms;
  if (kind == uniform) ms = (low_ms + high_ms) / 2;
  if (kind == lognormal) ms += per_pair_ms * static_cast<double>(pairs);
  return {std::llround(ms * 1e9)};
}

std::span<const Profile> profiles() { return kProfiles; }

const Profile& profile(std::string_view name) {
  std::string known;
  for (const Profile& one : kProfiles) {
    if (one.name == name) return one;
    known += (known.empty() ? "" : ", ") + std::string(one.name);
  }
  throw std::invalid_argument("panel: profile \"" + std::string(name) + "\" is none of " + known);
}

}  // namespace loomnet::panel
