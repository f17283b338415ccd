// Cuts a packet in place; see trim.hpp.
#include "packet/trim.hpp"

#include <algorithm>

#include "packet/ethernet.hpp"
#include "packet/ipv6.hpp"
#include "packet/udp.hpp"

namespace loomnet {
namespace {

void put16(std::span<std::uint8_t> bytes, std::size_t at, std::size_t value) {
  bytes[at] = static_cast<std::uint8_t>(value >> 8);
  bytes[at + 1] = static_cast<std::uint8_t>(value);
}

// Walks Ethernet | IPv6 | [IPv6] | [UDP] and writes into each header the length that is left behind
// it.
void fix_lengths(std::span<std::uint8_t> header, std::size_t frame_length) {
  std::size_t at = EthernetHeader::kSize;
  while (at + Ipv6Header::kSize <= header.size()) {
    const std::size_t behind = at + Ipv6Header::kSize;
    put16(header, at + 4, frame_length - behind);
    const std::uint8_t next = header[at + 6];
    at = behind;
    if (next == kNextHeaderIpv6) continue;
    if (next == kNextHeaderUdp && at + UdpHeader::kSize <= header.size()) {
      put16(header, at + 4, frame_length - at);
    }
    return;
  }
}

}  // namespace

bool trim(Packet& packet, const TrimOptions& options) {
  const auto header = packet.header_bytes();
  if (header.size() < EthernetHeader::kSize + Ipv6Header::kSize ||
      options.size < EthernetHeader::kSize + Ipv6Header::kSize || !can_trim(packet, options) ||
      (header[12] << 8 | header[13]) != kEtherTypeIpv6) {
    return false;
  }
  std::uint8_t* ip = header.data() + EthernetHeader::kSize;
  const std::uint8_t ecn = ip[1] >> 4 & 3;
  const std::uint8_t traffic_class = static_cast<std::uint8_t>(options.dscp << 2 | ecn);
  ip[0] = static_cast<std::uint8_t>(0x60 | traffic_class >> 4);
  ip[1] = static_cast<std::uint8_t>(traffic_class << 4 | (ip[1] & 0xf));

  packet.header_length = static_cast<std::uint16_t>(std::min<std::uint32_t>(packet.header_length, options.size));
  packet.wire_length = options.size;
  // A frame stays attached (its owner gets it back with the packet); its bytes are gone.
  packet.payload.data = nullptr;
  packet.payload.length = options.size - packet.header_length;
  if (packet.payload.length == 0 && packet.payload.kind == PayloadKind::region) {
    packet.payload.kind = PayloadKind::none;
  }
  packet.queue = kControlClass;
  packet.trimmable = false;
  packet.ect = false;
  if (options.fix_lengths) fix_lengths(packet.header_bytes(), packet.wire_length);
  return true;
}

}  // namespace loomnet
