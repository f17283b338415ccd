// Walks the headers in front of a transport's own; see packet_label.hpp.
#include "trace/packet_label.hpp"

#include "packet/ethernet.hpp"
#include "packet/ipv6.hpp"
#include "packet/pfc_frame.hpp"
#include "packet/udp.hpp"

namespace loomnet {
namespace {

std::uint32_t read32(const std::uint8_t* at) {
  return std::uint32_t{at[0]} << 24 | std::uint32_t{at[1]} << 16 | std::uint32_t{at[2]} << 8 | at[3];
}

}  // namespace

PacketLabel label_of(const Packet& packet) {
  PacketLabel label;
  const auto h = packet.header_bytes();
  if (const auto pause = PfcFrame::parse(h)) {
    label.name = "pfc";
    label.psn = pause->quanta[kDataClass];
    label.numbered = true;
    return label;
  }
  std::size_t at = EthernetHeader::kSize;
  std::uint8_t next = kNextHeaderIpv6;
  for (int depth = 0; depth < 2 && next == kNextHeaderIpv6; ++depth) {
    if (at + Ipv6Header::kSize > h.size() || h[at] >> 4 != 6) return label;
    next = h[at + 6];
    label.destination = read32(&h[at + 36]);
    at += Ipv6Header::kSize;
  }
  std::uint16_t port = 0;
  if (next == kNextHeaderUdp) {
    if (at + UdpHeader::kSize > h.size()) return label;
    port = static_cast<std::uint16_t>(h[at + 2] << 8 | h[at + 3]);
    label.name = "udp";
    label.numbered = true;
    at += UdpHeader::kSize;
  }
  for (const PacketLabeler& labeler : packet_labelers()) {
    if (labeler.protocol == next && labeler.udp_port == port && labeler.read(h.subspan(at), label)) {
      label.numbered = true;
      break;
    }
  }
  return label;
}

}  // namespace loomnet
