// How long panels on the market keep their ports dark when they switch, and what hosts see of it
// (MixNet, SIGCOMM 2025, table of OCS technologies and figures of the prototype's Polatis 6000).
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "clock/random.hpp"
#include "clock/time.hpp"

namespace loomnet::panel {

// A random time. Its parameters are those of one kind of distribution each.
struct Duration {
  enum class Kind : std::uint8_t { fixed, uniform, lognormal } kind = Kind::fixed;
  double low_ms = 0;      // the time itself; of uniform the least; of lognormal the mean with no pair
  double high_ms = 0;     // of uniform: the most
  double per_pair_ms = 0; // of lognormal: added to the mean for each cross-connect that is new
  double sigma = 0;       // of lognormal: of the time's natural logarithm
  Picoseconds sample(RandomStream& random, std::size_t pairs) const;
};

struct Profile {
  std::string_view name;
  Duration dark;
  Duration nic_up;  // from light to carrier
};

std::span<const Profile> profiles();
// Throws std::invalid_argument, which names those that there are.
const Profile& profile(std::string_view name);

}  // namespace loomnet::panel
