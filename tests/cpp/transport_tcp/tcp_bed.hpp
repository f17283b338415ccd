// A test bed of TCP hosts: factory, segment descriptions for transcripts.
#pragma once

#include <gtest/gtest.h>

#include "testbed_writes.hpp"
#include "transport/tcp/tcp_transport.hpp"

namespace loomnet::testbed {

inline constexpr std::size_t kTcpAt = 54;  // TCP header in a frame

inline TcpHeader tcp_of(std::span<const std::uint8_t> header) {
  ByteReader in(header.subspan(kTcpAt));
  return TcpHeader::parse(in);
}
inline TcpOptionFields options_of(std::span<const std::uint8_t> header) {
  ByteReader in(header.subspan(kTcpAt));
  const TcpHeader tcp = TcpHeader::parse(in);
  return TcpOptionFields::parse(in, tcp.data_offset * 4u - TcpHeader::kSize);
}
// Stream bytes that a segment carries.
inline std::uint32_t data_bytes(const Packet& packet) {
  return packet.wire_length - static_cast<std::uint32_t>(kTcpAt) - tcp_of(packet.header_bytes()).data_offset * 4u;
}

inline std::string describe_tcp(std::span<const std::uint8_t> header) {
  if (header.size() < kTcpAt + TcpHeader::kSize) return "short";
  const TcpHeader tcp = tcp_of(header);
  const TcpOptionFields o = options_of(header);
  char text[200];
  int n = std::snprintf(text, sizeof text, "seq %u ack %u%s%s%s%s", tcp.sequence, tcp.acknowledgement,
                        tcp.has(tcp_flag::kPsh) ? " P" : "", tcp.has(tcp_flag::kRst) ? " R" : "",
                        tcp.has(tcp_flag::kEce) ? " E" : "", tcp.has(tcp_flag::kCwr) ? " W" : "");
  for (std::size_t i = 0; i < o.sack_count; ++i) {
    n += std::snprintf(text + n, sizeof text - static_cast<std::size_t>(n), " [%u,%u)", o.sack[i].begin, o.sack[i].end);
  }
  return text;
}

inline Factory tcp_factory(const tcp::TcpOptions& options) {
  return [options](HostId, TransportSink& sink, std::size_t) {
    return std::make_unique<tcp::TcpTransport>(sink, options);
  };
}

// Timeouts of a small fabric, so that transcripts stay short.
inline tcp::TcpOptions quick(const std::string& control = "cubic") {
  tcp::TcpOptions o;
  o.mtu = 1280;
  o.congestion_control = control;
  o.rto_min = microseconds(300);
  o.rto_initial = milliseconds(1);
  o.rto_max = milliseconds(20);
  o.delayed_ack = microseconds(60);
  return o;
}

struct TcpBed : WriteBed {
  explicit TcpBed(BedOptions bed = {}, const tcp::TcpOptions& options = quick(), std::size_t memory = 1 << 20)
      : WriteBed(bed, tcp_factory(options), memory) {
    describe = describe_tcp;
  }
  tcp::TcpTransport& tcp(HostId host) { return static_cast<tcp::TcpTransport&>(transport(host)); }
  tcp::Sender& sender() { return tcp(0).sender(kQpA); }
};

}  // namespace loomnet::testbed
