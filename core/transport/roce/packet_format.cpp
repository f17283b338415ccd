// Reads a RoCEv2 packet that anyone may have sent.
#include "transport/roce/packet_format.hpp"

#include "packet/ethernet.hpp"
#include "packet/step_stamp.hpp"
#include "packet/udp.hpp"

namespace loomnet::roce {
namespace {

bool known(std::uint8_t opcode) {
  switch (static_cast<RcOpcode>(opcode)) {
    case RcOpcode::write_first:
    case RcOpcode::write_middle:
    case RcOpcode::write_last:
    case RcOpcode::write_last_immediate:
    case RcOpcode::write_only:
    case RcOpcode::write_only_immediate:
    case RcOpcode::acknowledge:
    case RcOpcode::congestion_notification:
      return true;
  }
  return false;
}

}  // namespace

Received parse(const Packet& packet) {
  Received r;
  const auto flawed = [&r](Flaw flaw) {
    r.flaw = flaw;
    return r;
  };
  ByteReader in(packet.header_bytes());
  const auto ethernet = EthernetHeader::parse(in);
  const auto ip = Ipv6Header::parse(in);
  const auto udp = UdpHeader::parse(in);
  const int step = in.ok() ? step_header_at(udp.destination_port, packet.header_bytes().subspan(in.position())) : 0;
  if (step > 0) in.skip(static_cast<std::size_t>(step));
  const auto bth = Bth::parse(in);
  if (!in.ok()) return flawed(Flaw::truncated);
  if (ethernet.ether_type != kEtherTypeIpv6 || ip.version != 6 || ip.next_header != kNextHeaderUdp ||
      (udp.destination_port != kUdpPortRoceV2 && step <= 0) || bth.version != 0 || bth.partition_key != 0xffff) {
    return flawed(Flaw::not_roce);
  }
  if (!known(bth.opcode)) return flawed(Flaw::wrong_opcode);
  r.source = ip.source;
  r.destination = ip.destination;
  r.ecn = ip.ecn();
  r.opcode = static_cast<RcOpcode>(bth.opcode);
  r.qp = bth.destination_qp;
  r.psn = bth.psn;
  r.ack_request = bth.ack_request;
  if (r.opcode == RcOpcode::acknowledge) {
    r.aeth = Aeth::parse(in);
    r.has_marks = bth.becn;
    if (r.has_marks) r.marks = in.u32();
  } else if (r.opcode == RcOpcode::congestion_notification) {
    in.skip(kCnpReservedBytes);
  } else {
    if (starts_message(r.opcode)) r.reth = Reth::parse(in);
    if (carries_immediate(r.opcode)) r.immediate = ImmDt::parse(in).immediate;
  }
  if (!in.ok()) return flawed(Flaw::truncated);
  r.header_end = static_cast<std::uint16_t>(in.position());

  // The length fields must agree with each other and with the bytes that are there. A frame from
  // the wire may carry payload, pad and ICRC in its header bytes, one made here never does.
  const std::size_t behind_udp = r.header_end - (kFrontBytes - UdpHeader::kSize);
  const std::size_t trailer = bth.pad + kIcrcBytes;
  if (ip.payload_length != udp.length || udp.length < behind_udp + trailer) {
    return flawed(Flaw::truncated);
  }
  const std::size_t frame = EthernetHeader::kSize + Ipv6Header::kSize + std::size_t{udp.length};
  r.payload_length = static_cast<std::uint32_t>(udp.length - behind_udp - trailer);
  const std::size_t present = packet.header_length - r.header_end + std::size_t{packet.payload.length};
  if (packet.wire_length < frame || present < r.payload_length) return flawed(Flaw::truncated);
  return r;
}

}  // namespace loomnet::roce
