// Reads a segment that anyone may have sent.
#include "transport/tcp/packet_format.hpp"

#include "packet/ethernet.hpp"

namespace loomnet::tcp {

Received parse(const Packet& packet) {
  Received r;
  const auto flawed = [&r](Flaw flaw) {
    r.flaw = flaw;
    return r;
  };
  ByteReader in(packet.header_bytes());
  const auto ethernet = EthernetHeader::parse(in);
  const auto ip = Ipv6Header::parse(in);
  if (!in.ok()) return flawed(Flaw::truncated);
  if (ethernet.ether_type != kEtherTypeIpv6 || ip.version != 6 || ip.next_header != kNextHeaderTcp) {
    return flawed(Flaw::not_tcp);
  }
  r.tcp = TcpHeader::parse(in);
  if (!in.ok() || r.tcp.data_offset < 5) return flawed(Flaw::truncated);
  const std::size_t header = std::size_t{r.tcp.data_offset} * 4;
  r.options = TcpOptionFields::parse(in, header - TcpHeader::kSize);
  if (!in.ok() || ip.payload_length < header) return flawed(Flaw::truncated);
  r.source = ip.source;
  r.destination = ip.destination;
  r.ecn = ip.ecn();
  r.header_end = static_cast<std::uint16_t>(in.position());
  r.payload_length = static_cast<std::uint32_t>(ip.payload_length - header);
  // The length field must agree with the bytes that are there.
  const std::size_t frame = EthernetHeader::kSize + Ipv6Header::kSize + std::size_t{ip.payload_length};
  const std::size_t present = packet.header_length - r.header_end + std::size_t{packet.payload.length};
  if (packet.wire_length < frame || present < r.payload_length) return flawed(Flaw::truncated);
  return r;
}

}  // namespace loomnet::tcp
