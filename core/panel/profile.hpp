// For how long known panels are dark when they switch, and how long transceivers take to find the light again
// (MixNet, SIGCOMM 2025: its table of OCS technologies, and measurements of the prototype's Polatis 6000).
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "clock/random.hpp"
#include "clock/time.hpp"

namespace loomnet::panel {

// A random time. Each parameter belongs to the distributions that its comment names.
struct Duration {
  enum class Kind : std::uint8_t { fixed, uniform, lognormal } kind = Kind::fixed;
  double low_ms = 0;      // fixed: the time; uniform: the least; lognormal: the mean without new cross-connects
  double high_ms = 0;     // uniform: the most
  double per_pair_ms = 0; // lognormal: added to the mean for each cross-connect that is new
  double sigma = 0;       // lognormal: standard deviation of the time's natural logarithm
  Picoseconds sample(RandomStream& random, std::size_t pairs) const;
  Picoseconds mean(std::size_t pairs) const;
};

struct Profile {
  std::string_view name;
  Duration dark;
  Duration nic_up;  // from light to carrier
};

std::span<const Profile> profiles();
// The profile of this name. Throws std::invalid_argument, which lists the known names.
const Profile& profile(std::string_view name);

}  // namespace loomnet::panel
