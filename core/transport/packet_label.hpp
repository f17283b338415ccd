// What a packet is, in a few bytes: enough to name it in a timeline. Each transport labels its own.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace loomnet {

struct PacketLabel {
  std::string_view name = "packet";  // "write_middle", "sack", "tcp", …; lives as long as the program
  std::uint32_t psn = 0;             // of BTH; TCP: sequence number; PFC: quanta, 0 ends a pause
  std::uint32_t destination = 0;     // last 32 bits of the inner destination: a host's number
  bool numbered = false;             // psn means something
};

// Reads what follows the IPv6 header (protocol) or the UDP header (udp_port) of a packet; false: it is
// none of this transport's. Any bytes are welcome.
struct PacketLabeler {
  std::uint8_t protocol = 0;   // IPv6 next header
  std::uint16_t udp_port = 0;  // destination; 0: the protocol is not UDP
  bool (*read)(std::span<const std::uint8_t> bytes, PacketLabel& label) = nullptr;
};

// Of all transports that have registered (TransportFactory::add), in order.
std::vector<PacketLabeler>& packet_labelers();

}  // namespace loomnet
