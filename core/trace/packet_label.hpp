// The label of any packet, by the transports' own labelers.
#pragma once

#include "packet/packet.hpp"
#include "transport/packet_label.hpp"

namespace loomnet {

// Looks behind Ethernet, IPv6, IPv6 in IPv6. Any bytes are welcome.
PacketLabel label_of(const Packet& packet);

}  // namespace loomnet
