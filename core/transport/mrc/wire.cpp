// Building and checking MRC packets; see wire.hpp.
#include "transport/mrc/wire.hpp"

#include <algorithm>

#include "packet/dscp.hpp"
#include "packet/ethernet.hpp"
#include "packet/udp.hpp"
#include "packet/usid.hpp"

namespace loomnet::mrc {
namespace {

constexpr std::size_t kOuter = EthernetHeader::kSize, kInner = kOuter + Ipv6Header::kSize;
constexpr std::size_t kUdp = kInner + Ipv6Header::kSize, kBth = kUdp + UdpHeader::kSize;

std::size_t headers_behind_bth(Op op) {
  switch (op) {
    case Op::sack:
      return Seth::kSize + CcState::kSize;
    case Op::nack:
      return Neth::kSize;
    case Op::transport_ack:
      return Aeth::kSize;
    case Op::reliability_probe:
      return Peth::kSize;
    case Op::endpoint_request:
      return Erth::kSize;
    case Op::endpoint_response:
      return Eeth::kSize;
    default:
      return Meth::kSize + Tseth::kSize + Reth::kSize + (has_immediate(op) ? ImmDt::kSize : 0);
  }
}

bool known(std::uint8_t opcode) {
  switch (static_cast<Op>(opcode)) {
    case Op::write_first:
    case Op::write_middle:
    case Op::write_last:
    case Op::write_last_immediate:
    case Op::write_only:
    case Op::write_only_immediate:
    case Op::transport_ack:
    case Op::endpoint_request:
    case Op::endpoint_response:
    case Op::sack:
    case Op::nack:
    case Op::reliability_probe:
      return true;
  }
  return false;
}

}  // namespace

ByteWriter begin(Packet& packet, const MrcOptions& options, const Envelope& e, const Bth& bth) {
  const TrafficClass traffic = class_of_dscp(e.dscp);
  packet.queue = traffic.queue;
  packet.trimmable = traffic.trimmable;
  packet.ect = e.ecn != Ecn::not_ect;

  ByteWriter out({packet.header.data(), packet.header.size()});
  EthernetHeader{}.serialize(out);  // MAC addresses are the port's business
  Ipv6Header ip;
  ip.set_class(e.dscp, e.ecn);
  ip.flow_label = ev_flow_label(e.ev, options.ev_order);
  ip.next_header = kNextHeaderIpv6;
  ip.source = host_address(e.source);
  const auto usids = e.paths->row.with(e.ev.uplink());
  ip.destination = usid_address(e.ev.plane(), {usids.data(), e.paths->row.count});
  ip.serialize(out);
  ip.next_header = kNextHeaderUdp;
  ip.destination = host_address(e.destination);
  ip.serialize(out);
  UdpHeader{ev_source_port(e.ev, options.ev_order), options.udp_port, 0, 0}.serialize(out);
  bth.serialize(out);
  return out;
}

void finish(Packet& packet, const ByteWriter& writer, const Payload& payload) {
  packet.header_length = static_cast<std::uint16_t>(writer.position());
  packet.payload = payload;
  packet.wire_length = packet.header_length + payload.length + kIcrcBytes;
  const auto put = [&](std::size_t at, std::size_t behind) {
    const std::size_t length = packet.wire_length - behind;
    packet.header[at] = static_cast<std::uint8_t>(length >> 8);
    packet.header[at + 1] = static_cast<std::uint8_t>(length);
  };
  put(kOuter + 4, kInner);
  put(kInner + 4, kUdp);
  put(kUdp + 4, kUdp);
}

std::optional<Count> parse(const Packet& packet, const MrcOptions& options, Inbound& in) {
  const auto header = packet.header_bytes();
  if (header.size() < kBth + Bth::kSize) return Count::drop_short;
  ByteReader reader(header);
  if (EthernetHeader::parse(reader).ether_type != kEtherTypeIpv6) return Count::drop_not_ipv6;
  const Ipv6Header outer = Ipv6Header::parse(reader);
  if (outer.version != 6) return Count::drop_not_ipv6;
  if (outer.next_header != kNextHeaderIpv6) return Count::drop_not_tunnel;
  const Ipv6Header inner = Ipv6Header::parse(reader);
  if (inner.version != 6) return Count::drop_not_tunnel;
  if (inner.next_header != kNextHeaderUdp) return Count::drop_not_udp;
  if (!is_host_address(inner.source) || !is_host_address(inner.destination)) {
    return Count::drop_address;
  }
  const UdpHeader udp = UdpHeader::parse(reader);
  if (udp.destination_port != options.udp_port) return Count::drop_udp_port;
  in.bth = Bth::parse(reader);
  if (!known(in.bth.opcode)) return Count::drop_opcode;
  in.op = static_cast<Op>(in.bth.opcode);
  // Switches rewrite the outer header alone: class and mark are read there (trap 6).
  in.dscp = outer.dscp();
  in.ecn = outer.ecn();
  in.trimmed = in.dscp == dscp::kTrimmed || in.dscp == dscp::kTrimmedLastHop;
  in.source = host_of(inner.source);
  in.destination = host_of(inner.destination);
  in.ev = entropy_of(inner.flow_label, udp.source_port, options.ev_order);
  in.body = header.subspan(reader.position());
  if (in.trimmed) {
    // Lengths and checksums of a trimmed packet mean nothing (trap 7); PSN and time must be there.
    if (!is_data(in.op)) return Count::drop_opcode;
    return in.body.size() < Meth::kSize + Tseth::kSize ? std::optional(Count::drop_short)
                                                       : std::nullopt;
  }
  if (in.body.size() != headers_behind_bth(in.op)) return Count::drop_length;
  const std::size_t length = header.size() + packet.payload.length + kIcrcBytes;
  if (length != packet.wire_length || udp.length != length - kUdp ||
      (!is_data(in.op) && packet.payload.length != 0)) {
    return Count::drop_length;
  }
  return std::nullopt;
}

std::optional<std::size_t> header_length(std::span<const std::uint8_t> frame,
                                         std::uint16_t udp_port) {
  if (frame.size() < kBth + Bth::kSize || frame[kOuter + 6] != kNextHeaderIpv6 ||
      frame[kInner + 6] != kNextHeaderUdp || (frame[kUdp + 2] << 8 | frame[kUdp + 3]) != udp_port ||
      !known(frame[kBth])) {
    return std::nullopt;
  }
  const std::uint8_t code =
      static_cast<std::uint8_t>((frame[kOuter] << 4 | frame[kOuter + 1] >> 4) & 0xff) >> 2;
  if (code == dscp::kTrimmed || code == dscp::kTrimmedLastHop) {
    return std::min<std::size_t>(frame.size(), kMaxHeaderBytes);
  }
  const std::size_t length = kBth + Bth::kSize + headers_behind_bth(static_cast<Op>(frame[kBth]));
  if (frame.size() < length + kIcrcBytes) return std::nullopt;
  return length;
}

}  // namespace loomnet::mrc
