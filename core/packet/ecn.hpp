// Marking Congestion Experienced (RFC 3168) in the outer IPv6 header of an Ethernet frame.
#pragma once

#include "packet/packet.hpp"

namespace loomnet {

namespace ecn_field {
inline constexpr std::size_t kEthernet = 14;
// Bits 4 and 5 of the IPv6 header's second byte; anything but IPv6 has none here.
inline bool present(const Packet& packet) {
  return packet.header_length > kEthernet + 1 && packet.header[kEthernet] >> 4 == 6;
}
}  // namespace ecn_field

// Whether a packet made elsewhere, by a host's kernel, says that it may be marked.
inline bool is_ect(const Packet& packet) {
  return ecn_field::present(packet) && (packet.header[ecn_field::kEthernet + 1] & 0x30) != 0;
}

inline bool is_ce(const Packet& packet) {
  return ecn_field::present(packet) && (packet.header[ecn_field::kEthernet + 1] & 0x30) == 0x30;
}

inline void mark_ce(Packet& packet) {
  if (ecn_field::present(packet)) packet.header[ecn_field::kEthernet + 1] |= 0x30;
}

// The two bits of the field, 0 where there is none.
inline std::uint8_t ecn_bits(const Packet& packet) {
  return ecn_field::present(packet) ? packet.header[ecn_field::kEthernet + 1] >> 4 & 3 : 0;
}

inline void set_ecn_bits(Packet& packet, std::uint8_t bits) {
  std::uint8_t& byte = packet.header[ecn_field::kEthernet + 1];
  if (ecn_field::present(packet)) byte = static_cast<std::uint8_t>((byte & ~0x30) | bits << 4);
}

}  // namespace loomnet
