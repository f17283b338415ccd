// Headers of a fragment's packet; see wire.hpp.
#include "transport/ina/wire.hpp"

#include <cstring>

#include "packet/bytes.hpp"
#include "packet/ethernet.hpp"
#include "packet/udp.hpp"

namespace loomnet::ina {
namespace {

constexpr std::uint8_t kNakDscp = 46;  // expedited forwarding: a NAK is short, and repairs
constexpr std::size_t kIp = EthernetHeader::kSize, kUdp = kIp + Ipv6Header::kSize;
static_assert(kUdp + UdpHeader::kSize == AGGREGATE_AT);

}  // namespace

Ipv6Address group_address(std::uint16_t job) {
  Ipv6Address a{0xff, 0x05};
  a[14] = static_cast<std::uint8_t>(job >> 8);
  a[15] = static_cast<std::uint8_t>(job);
  return a;
}

void build(Packet& packet, const aggregate_header& header, const Envelope& envelope, const Payload& payload) {
  const bool nak = header.type == AGGREGATE_NAK;
  packet.queue = nak ? kControlClass : kDataClass;
  packet.ect = envelope.ecn && !nak;
  packet.payload = payload;
  packet.header_length = AGGREGATE_PAYLOAD_AT;
  packet.wire_length = AGGREGATE_PAYLOAD_AT + payload.length;
  const auto udp_length = static_cast<std::uint16_t>(UdpHeader::kSize + AGGREGATE_HEADER + payload.length);
  std::uint8_t* h = packet.header.data();
  std::memset(h, 0, kIp - 2);  // MAC addresses are the port's business
  store_big_endian<2>(h + kIp - 2, kEtherTypeIpv6);
  const std::uint64_t traffic_class = (nak ? kNakDscp << 2 : 0) | (packet.ect ? 2 : 0);
  constexpr std::uint64_t kVersion = 6, kHopLimit = 64;
  store_big_endian<8>(h + kIp, kVersion << 60 | traffic_class << 52 | std::uint64_t{udp_length} << 16 |
                                   std::uint64_t{kNextHeaderUdp} << 8 | kHopLimit);
  std::memcpy(h + kIp + 8, envelope.source.data(), envelope.source.size());
  std::memcpy(h + kIp + 24, envelope.destination.data(), envelope.destination.size());
  store_big_endian<2>(h + kUdp, envelope.source_port);
  store_big_endian<2>(h + kUdp + 2, AGGREGATE_UDP_PORT);
  store_big_endian<2>(h + kUdp + 4, udp_length);
  store_big_endian<2>(h + kUdp + 6, 0);  // no checksum: switches change the bytes
  std::memcpy(h + AGGREGATE_AT, &header, sizeof header);
}

std::optional<Inbound> parse(const Packet& packet) {
  static constexpr std::array<std::uint8_t, 4 * AGGREGATE_MAX_VALUES> kZeros{};
  if (packet.header_length != AGGREGATE_PAYLOAD_AT) return std::nullopt;
  Inbound in;
  std::memcpy(&in.header, packet.header.data() + AGGREGATE_AT, sizeof in.header);
  const std::size_t length = packet.payload.length;
  in.payload =
      packet.payload.data ? Bytes(packet.payload.data, length) : Bytes(kZeros).first(std::min(length, kZeros.size()));
  return in;
}

}  // namespace loomnet::ina
