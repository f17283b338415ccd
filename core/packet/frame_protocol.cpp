#include "packet/frame_protocol.hpp"

#include "packet/ethernet.hpp"
#include "packet/ipv6.hpp"

namespace loomnet {

FrameProtocol protocol_of(std::span<const std::uint8_t> header) {
  constexpr std::size_t kNextHeader = 6;      // in an IPv6 header (RFC 8200, 3)
  constexpr std::size_t kDestinationPort = 2;  // in a UDP header
  const auto two_bytes = [&](std::size_t at) { return static_cast<std::uint16_t>(header[at] << 8 | header[at + 1]); };
  std::size_t at = EthernetHeader::kSize;
  if (header.size() < at + Ipv6Header::kSize || two_bytes(at - 2) != kEtherTypeIpv6) return {};
  std::uint8_t next = header[at + kNextHeader];
  at += Ipv6Header::kSize;
  if (next == kNextHeaderIpv6) {
    if (header.size() < at + Ipv6Header::kSize) return {};
    next = header[at + kNextHeader];
    at += Ipv6Header::kSize;
  }
  if (next != kNextHeaderUdp) return {next, 0};
  if (header.size() < at + kDestinationPort + 2) return {};
  return {next, two_bytes(at + kDestinationPort)};
}

}  // namespace loomnet
