// What a packet is, in a few bytes: enough to name it in a timeline.
#pragma once

#include <cstdint>
#include <string_view>

#include "packet/packet.hpp"

namespace loomnet {

enum class PacketProtocol : std::uint8_t { other, mrc, roce, tcp, udp, pfc };

struct PacketLabel {
  PacketProtocol protocol = PacketProtocol::other;
  std::uint8_t opcode = 0;        // of BTH
  std::uint32_t psn = 0;          // of BTH; TCP: sequence number; PFC: quanta, 0 ends a pause
  std::uint32_t destination = 0;  // last 32 bits of the inner destination: a host's number
};

// Looks behind Ethernet, IPv6, IPv6 in IPv6. Any bytes are welcome.
PacketLabel label_of(const Packet& packet);
// "write_middle", "sack", "tcp", …
std::string_view name_of(const PacketLabel& label);

}  // namespace loomnet
