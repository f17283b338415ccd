// Marking Congestion Experienced (RFC 3168) in the outer IPv6 header of an Ethernet frame.
#pragma once

#include "packet/packet.hpp"

namespace loomnet {

inline void mark_ce(Packet& packet) {
  constexpr std::size_t kEthernet = 14;
  // The ECN field is bits 4 and 5 of the header's second byte; anything but IPv6 has none here.
  if (packet.header_length > kEthernet + 1 && packet.header[kEthernet] >> 4 == 6) {
    packet.header[kEthernet + 1] |= 0x30;
  }
}

}  // namespace loomnet
