// Offloads of a network interface (checksums, segmentation), and whether a veth accepts frames redirected by XDP.
#pragma once

#include <string>
#include <vector>

#include "live/netns.hpp"

namespace loomnet {

// The first transmit offload that is switched on at a device, by its name in ethtool; empty where all are off.
std::string offload_in_use(const Netns& netns, const std::string& device);
// Whether a veth accepts frames that native XDP redirects to its peer. It does where it runs an XDP program or has GRO.
bool takes_xdp_frames(const Netns& netns, const std::string& device);

// Switches off the devices' offloads, as `ethtool -K … tx off gso off tso off gro off` does. XDP and Open vSwitch
// need frames that are segmented already and whose checksums are computed.
void disable_offloads(const Netns& netns, const std::vector<std::string>& devices);

}  // namespace loomnet
