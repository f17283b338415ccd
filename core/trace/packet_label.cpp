// Walks the headers of a packet; see packet_label.hpp.
#include "trace/packet_label.hpp"

#include "packet/ethernet.hpp"
#include "packet/ipv6.hpp"
#include "packet/mrc_headers.hpp"
#include "packet/pfc_frame.hpp"
#include "packet/rdma.hpp"
#include "packet/udp.hpp"

namespace loomnet {
namespace {

constexpr std::uint16_t kMrcPort = 4971, kRocePort = 4791;  // UDP destinations
constexpr std::uint8_t kTcp = 6;

std::uint32_t read32(const std::uint8_t* at) {
  return std::uint32_t{at[0]} << 24 | std::uint32_t{at[1]} << 16 | std::uint32_t{at[2]} << 8 |
         at[3];
}

}  // namespace

PacketLabel label_of(const Packet& packet) {
  PacketLabel label;
  const auto h = packet.header_bytes();
  if (const auto pause = PfcFrame::parse(h)) {
    label.protocol = PacketProtocol::pfc;
    label.psn = pause->quanta[kDataClass];
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
  if (next == kTcp && at + 8 <= h.size()) {
    label.protocol = PacketProtocol::tcp;
    label.psn = read32(&h[at + 4]);
  } else if (next == kNextHeaderUdp && at + UdpHeader::kSize <= h.size()) {
    const auto port = static_cast<std::uint16_t>(h[at + 2] << 8 | h[at + 3]);
    label.protocol = PacketProtocol::udp;
    at += UdpHeader::kSize;
    if ((port == kMrcPort || port == kRocePort) && at + Bth::kSize <= h.size()) {
      label.protocol = port == kMrcPort ? PacketProtocol::mrc : PacketProtocol::roce;
      label.opcode = h[at];
      label.psn = read32(&h[at + 8]) & kMask24;
    }
  }
  return label;
}

std::string_view name_of(const PacketLabel& label) {
  switch (label.protocol) {
    case PacketProtocol::tcp:
      return "tcp";
    case PacketProtocol::udp:
      return "udp";
    case PacketProtocol::pfc:
      return "pfc";
    case PacketProtocol::other:
      return "packet";
    case PacketProtocol::roce:
      switch (label.opcode) {
        case 0x06:
          return "write_first";
        case 0x07:
          return "write_middle";
        case 0x08:
          return "write_last";
        case 0x09:
          return "write_last_immediate";
        case 0x0a:
          return "write_only";
        case 0x0b:
          return "write_only_immediate";
        case 0x11:
          return "acknowledge";
        default:
          return "roce";
      }
    case PacketProtocol::mrc:
      break;
  }
  switch (static_cast<mrc::Op>(label.opcode)) {
    case mrc::Op::write_first:
      return "write_first";
    case mrc::Op::write_middle:
      return "write_middle";
    case mrc::Op::write_last:
      return "write_last";
    case mrc::Op::write_last_immediate:
      return "write_last_immediate";
    case mrc::Op::write_only:
      return "write_only";
    case mrc::Op::write_only_immediate:
      return "write_only_immediate";
    case mrc::Op::transport_ack:
      return "transport_ack";
    case mrc::Op::endpoint_request:
      return "endpoint_request";
    case mrc::Op::endpoint_response:
      return "endpoint_response";
    case mrc::Op::sack:
      return "sack";
    case mrc::Op::nack:
      return "nack";
    case mrc::Op::reliability_probe:
      return "reliability_probe";
  }
  return "mrc";
}

}  // namespace loomnet
