// Numbers of nodes and links in a fabric, and a change of one link's settings.
#pragma once

#include <cstdint>
#include <optional>

#include "link/half_link.hpp"

namespace loomnet {

using NodeId = std::uint32_t;
using LinkId = std::uint32_t;

// A change of one direction of a link; unset fields stay.
struct LinkChange {
  LinkId link = 0;
  bool forward = true;   // true: first end towards second
  bool backward = true;
  // Carrier, of both directions: a link that has lost one tells the other end, which stops as well.
  std::optional<bool> up;
  std::optional<BitsPerSecond> rate;
  std::optional<double> queue_share;  // of the configured limits and marking thresholds
  std::optional<Picoseconds> delay;
  std::optional<Impairment> impairment;
};

}  // namespace loomnet
