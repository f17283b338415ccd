// Building and checking MRC packets; see wire.hpp.
#include "transport/mrc/wire.hpp"

#include <algorithm>

#include "packet/ethernet.hpp"
#include "packet/step_stamp.hpp"
#include "packet/udp.hpp"
#include "packet/usid.hpp"
#include "transport/mrc/dscp.hpp"

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

// Of fields inside an IPv6 header (RFC 8200, 3).
constexpr std::size_t kNextHeader = 6, kSource = 8, kDestination = 24;
constexpr std::uint64_t kHostPrefix = 0xfdull << 56;  // of host_address()

void put_host(std::uint8_t* at, HostId host) {
  store_big_endian<8>(at, kHostPrefix);
  store_big_endian<8>(at + 8, host);
}
bool is_host(const std::uint8_t* at) {
  return load_big_endian<8>(at) == kHostPrefix && load_big_endian<4>(at + 8) == 0;
}
HostId host_at(const std::uint8_t* at) { return static_cast<HostId>(load_big_endian<4>(at + 12)); }

// The first eight bytes of an IPv6 header whose length is not known yet.
void put_ip(std::uint8_t* at, std::uint8_t traffic_class, std::uint32_t flow_label, std::uint8_t next_header) {
  constexpr std::uint64_t kVersion = 6, kHopLimit = 64;
  store_big_endian<8>(at, kVersion << 60 | std::uint64_t{traffic_class} << 52 |
                              std::uint64_t{flow_label & 0xfffff} << 32 | std::uint64_t{next_header} << 8 | kHopLimit);
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

ByteWriter begin(Packet& packet, const MrcOptions& options, const Envelope& e, const Bth& bth, std::size_t step) {
  const TrafficClass traffic = class_of_dscp(e.dscp);
  packet.queue = traffic.queue;
  packet.trimmable = traffic.trimmable;
  packet.ect = e.ecn != Ecn::not_ect;

  // Field by field, without the structures: this is done for every packet.
  std::uint8_t* h = packet.header.data();
  std::memset(h, 0, kOuter - 2);  // MAC addresses are the port's business
  store_big_endian<2>(h + kOuter - 2, kEtherTypeIpv6);
  const auto traffic_class = static_cast<std::uint8_t>(e.dscp << 2 | static_cast<std::uint8_t>(e.ecn));
  const std::uint32_t label = ev_flow_label(e.ev, options.ev_order);
  put_ip(h + kOuter, traffic_class, label, kNextHeaderIpv6);
  put_host(h + kOuter + kSource, e.source);
  const PathTemplate& row = e.paths->row;
  const auto usids = row.with(e.ev.uplink());
  std::uint8_t* to = h + kOuter + kDestination;
  store_big_endian<4>(to, 0xfc000000u | e.paths->plane);
  for (std::size_t i = 0; i < kMaxUsids; ++i) {
    store_big_endian<2>(to + 4 + 2 * i, i < row.count ? usids[i] : 0);
  }
  put_ip(h + kInner, traffic_class, label, kNextHeaderUdp);
  put_host(h + kInner + kSource, e.source);
  put_host(h + kInner + kDestination, e.destination);
  store_big_endian<2>(h + kUdp, ev_source_port(e.ev, options.ev_order));
  store_big_endian<2>(h + kUdp + 2, step > 0 ? kUdpPortStep : options.udp_port);
  store_big_endian<4>(h + kUdp + 4, 0);
  ByteWriter out({h, packet.header.size()});
  out.skip(kBth + step);
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
  const std::uint8_t* h = header.data();
  if (load_big_endian<2>(h + kOuter - 2) != kEtherTypeIpv6) return Count::drop_not_ipv6;
  if (h[kOuter] >> 4 != 6) return Count::drop_not_ipv6;
  if (h[kOuter + kNextHeader] != kNextHeaderIpv6) return Count::drop_not_tunnel;
  if (h[kInner] >> 4 != 6) return Count::drop_not_tunnel;
  if (h[kInner + kNextHeader] != kNextHeaderUdp) return Count::drop_not_udp;
  if (!is_host(h + kInner + kSource) || !is_host(h + kInner + kDestination)) {
    return Count::drop_address;
  }
  const auto port = static_cast<std::uint16_t>(load_big_endian<2>(h + kUdp + 2));
  std::size_t step = 0;
  if (port != options.udp_port) {
    const int found = step_header_at(port, header.subspan(kBth));
    if (found <= 0) return Count::drop_udp_port;
    step = static_cast<std::size_t>(found);
    if (header.size() < kBth + step + Bth::kSize) return Count::drop_short;
  }
  ByteReader reader(header.subspan(kBth + step));
  in.bth = Bth::parse(reader);
  if (!known(in.bth.opcode)) return Count::drop_opcode;
  in.op = static_cast<Op>(in.bth.opcode);
  // Switches rewrite the outer header alone: class and mark are read there.
  const auto traffic_class = static_cast<std::uint8_t>(load_big_endian<2>(h + kOuter) >> 4);
  in.dscp = traffic_class >> 2;
  in.ecn = static_cast<Ecn>(traffic_class & 3);
  in.trimmed = in.dscp == dscp::kTrimmed || in.dscp == dscp::kTrimmedLastHop;
  in.source = host_at(h + kInner + kSource);
  in.destination = host_at(h + kInner + kDestination);
  in.ev = entropy_of(static_cast<std::uint32_t>(load_big_endian<4>(h + kInner)) & 0xfffff,
                     static_cast<std::uint16_t>(load_big_endian<2>(h + kUdp)), options.ev_order);
  in.body = header.subspan(kBth + step + Bth::kSize);
  if (in.trimmed) {
    // Lengths and checksums of a trimmed packet mean nothing; PSN and time must be there.
    if (!is_data(in.op)) return Count::drop_opcode;
    return in.body.size() < Meth::kSize + Tseth::kSize ? std::optional(Count::drop_short) : std::nullopt;
  }
  if (in.body.size() != headers_behind_bth(in.op)) return Count::drop_length;
  const std::size_t length = header.size() + packet.payload.length + kIcrcBytes;
  if (length != packet.wire_length || load_big_endian<2>(h + kUdp + 4) != length - kUdp ||
      (!is_data(in.op) && packet.payload.length != 0)) {
    return Count::drop_length;
  }
  return std::nullopt;
}

std::optional<std::size_t> header_length(std::span<const std::uint8_t> frame, std::uint16_t udp_port) {
  if (frame.size() < kBth + Bth::kSize || frame[kOuter + 6] != kNextHeaderIpv6 || frame[kInner + 6] != kNextHeaderUdp) {
    return std::nullopt;
  }
  const auto port = static_cast<std::uint16_t>(load_big_endian<2>(&frame[kUdp + 2]));
  const int step = port == udp_port ? 0 : step_header_at(port, frame.subspan(kBth));
  const std::size_t bth = kBth + static_cast<std::size_t>(std::max(step, 0));
  if ((port != udp_port && step <= 0) || frame.size() < bth + Bth::kSize || !known(frame[bth])) {
    return std::nullopt;
  }
  const std::uint8_t code = static_cast<std::uint8_t>((frame[kOuter] << 4 | frame[kOuter + 1] >> 4) & 0xff) >> 2;
  if (code == dscp::kTrimmed || code == dscp::kTrimmedLastHop) {
    return std::min<std::size_t>(frame.size(), kMaxHeaderBytes);
  }
  const std::size_t length = bth + Bth::kSize + headers_behind_bth(static_cast<Op>(frame[bth]));
  if (frame.size() < length + kIcrcBytes) return std::nullopt;
  return length;
}

}  // namespace loomnet::mrc
