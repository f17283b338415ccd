// Traffic classes of RoCE by DSCP. A switch that trims cuts no RoCE packet: a go-back-N receiver has no
// use for a header without its payload.
#pragma once

#include <cstdint>

#include "packet/packet.hpp"

namespace loomnet::roce::dscp {

inline constexpr std::uint8_t kBestEffort = 0;
inline constexpr std::uint8_t kExpeditedForwarding = 46;  // RFC 3246: CNPs

constexpr QueueClass queue_of(std::uint8_t code) { return code == kExpeditedForwarding ? kControlClass : kDataClass; }

}  // namespace loomnet::roce::dscp
