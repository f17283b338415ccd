// What a device's kernel leaves to others, and what it takes from XDP.
#pragma once

#include <string>
#include <vector>

#include "live/netns.hpp"

namespace loomnet {

// The first offload of transmission that is on at a device, by ethtool's name; empty: none.
std::string offload_in_use(const Netns& netns, const std::string& device);
// Whether a veth takes frames that native XDP redirects to its other end: by a program or by GRO.
bool takes_xdp_frames(const Netns& netns, const std::string& device);

// Switches a device's offloads off, as `ethtool -K … tx off gso off tso off gro off` does: the
// kernel must hand XDP and Open vSwitch whole frames with finished checksums.
void disable_offloads(const Netns& netns, const std::vector<std::string>& devices);

}  // namespace loomnet
