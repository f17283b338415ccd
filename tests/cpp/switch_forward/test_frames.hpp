// Frames for switch tests, built field by field, and the golden uSID vectors V1 to V23
// with the switch they are meant for.
#pragma once

#include <arpa/inet.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "ebpf/metadata.h"
#include "packet/ethernet.hpp"
#include "packet/ipv6.hpp"
#include "switch/forward/forward_batch.hpp"

namespace loomnet::test {

inline Ipv6Address address(const std::string& text) {
  Ipv6Address out;
  if (inet_pton(AF_INET6, text.c_str(), out.data()) != 1) {
    throw std::invalid_argument("not an IPv6 address: " + text);
  }
  return out;
}

inline UsidKey usid_key(const std::string& text) {
  const Ipv6Address a = address(text);
  return {std::uint32_t{a[0]} << 24 | std::uint32_t{a[1]} << 16 | std::uint32_t{a[2]} << 8 | a[3],
          static_cast<std::uint16_t>(a[4] << 8 | a[5])};
}

struct FrameSpec {
  Ipv6Address destination{};
  Ipv6Address source = address("fd00::1");
  std::uint8_t next_header = kNextHeaderIpv6;
  std::uint8_t hop_limit = 64;
  std::uint8_t traffic_class = 0x12;
  std::uint32_t flow_label = 0xabcde;
  std::uint8_t version = 6;
  std::uint16_t ether_type = kEtherTypeIpv6;
  int claimed_beyond = 0;    // added to the payload length field
  std::size_t trailing = 0;  // bytes after the payload
  std::uint64_t uid = 1;
  std::vector<std::uint8_t> payload = std::vector<std::uint8_t>(56, 0x5a);
};

inline std::vector<std::uint8_t> frame(const FrameSpec& spec) {
  std::vector<std::uint8_t> out(EthernetHeader::kSize + Ipv6Header::kSize + spec.payload.size() + spec.trailing, 0xee);
  EthernetHeader ethernet;
  ethernet.destination = {0x02, 0xff, 0, 0, 0, 0};
  ln_uid_to_mac(spec.uid, ethernet.source.data());
  ethernet.ether_type = spec.ether_type;
  Ipv6Header ip;
  ip.version = spec.version;
  ip.traffic_class = spec.traffic_class;
  ip.flow_label = spec.flow_label;
  ip.payload_length = static_cast<std::uint16_t>(static_cast<int>(spec.payload.size()) + spec.claimed_beyond);
  ip.next_header = spec.next_header;
  ip.hop_limit = spec.hop_limit;
  ip.source = spec.source;
  ip.destination = spec.destination;
  ByteWriter writer(out);
  ethernet.serialize(writer);
  ip.serialize(writer);
  writer.copy(spec.payload);
  return out;
}

inline Ipv6Header ip_of(const std::vector<std::uint8_t>& frame) {
  ByteReader reader(std::span<const std::uint8_t>(frame).subspan(EthernetHeader::kSize));
  return Ipv6Header::parse(reader);
}

inline constexpr std::size_t kVectorPorts = 4;

// The vectors' switch: uN fc00:3:2005, uA fc00:3:e803 -> p3, three FIB entries.
inline ForwardBatch vector_tables(std::uint32_t generation = 1) {
  ForwardBatch batch;
  batch.generation = generation;
  batch.own_un = {usid_key("fc00:3:2005::")};
  batch.own_ua = {{usid_key("fc00:3:e803::"), 3}};
  batch.fib = {{usid_key("fc00:3:1011::"), 1}, {usid_key("fc00:3:1012::"), 2}, {usid_key("fc00:3:4002::"), 3}};
  return batch;
}

struct GoldenVector {
  int number;
  const char* destination;
  int out;  // port, -1: dropped
  const char* destination_out;
  int hop_limit_out;
  const char* reason;  // of the drop
  int hop_limit = 64;
  int traffic_class = 0x12;
  int in = 0;
  int claimed_beyond = 0;
  int trailing = 0;
};

inline constexpr GoldenVector kGoldenVectors[] = {
    {1, "fc00:3:2005:1011:2009:4002::", 1, "fc00:3:1011:2009:4002::", 63, ""},
    {2, "fc00:3:2005:1012:2009:4002::", 2, "fc00:3:1012:2009:4002::", 63, ""},
    {3, "fc00:3:2005:4002::", 3, "fc00:3:4002::", 63, ""},
    {4, "fc00:3:2005:e803:d000::", 3, "fc00:3:d000::", 63, ""},
    {5, "fc00:3:e803:d000::", 3, "fc00:3:d000::", 63, ""},
    {6, "fc00:3:e803:1011:d000::", 3, "fc00:3:1011:d000::", 63, ""},
    {7, "fc00:3:2005:2005:1011:2009::", 1, "fc00:3:1011:2009::", 63, ""},
    {8, "fc00:3:2005:2005:2005:2005:2005:1011", 1, "fc00:3:1011::", 63, ""},
    {9, "fc00:3:2005:1011:1:2:3:4", 1, "fc00:3:1011:1:2:3:4:0", 63, ""},
    {10, "fc00:3:1011:2009:4002::", 1, "fc00:3:1011:2009:4002::", 63, ""},
    {11, "fc00:3:2005::", -1, "", 0, "drop_exhausted"},
    {12, "fc00:3:e803::", -1, "", 0, "drop_exhausted"},
    {13, "fc00:3:2005:9999:1::", -1, "", 0, "drop_no_route"},
    {14, "fc00:2:2005:1011:2009::", -1, "", 0, "drop_no_route"},
    {15, "fc00:3:2005:0:1011::", -1, "", 0, "drop_no_route"},
    {16, "fc00:3:2005:1011:2009:4002::", 1, "fc00:3:1011:2009:4002::", 1, "", 2},
    {17, "fc00:3:2005:1011:2009:4002::", -1, "", 0, "drop_hop_limit", 1},
    {18, "fc00:3:2005:e803:d000::", 3, "fc00:3:d000::", 1, "", 2},
    {19, "fc00:3:2005:1011:2009:4002::", 1, "fc00:3:1011:2009:4002::", 63, "", 64, 0x13},
    {20, "fc00:3:2005:1011:2009:4002::", -1, "", 0, "drop_truncated", 64, 0x12, 0, 1000},
    {21, "fc00:3:2005:1011:2009:4002::", 1, "fc00:3:1011:2009:4002::", 63, "", 64, 0x12, 0, 0, 20},
    {22, "fc00:3:2005:1011:2009:4002::", 1, "fc00:3:1011:2009:4002::", 63, "", 64, 0x12, 1},
    {23, "fc00:3:2005:1011:2009:4002::", 1, "fc00:3:1011:2009:4002::", 254, "", 255},
};

inline FrameSpec vector_spec(const GoldenVector& v) {
  FrameSpec inner;
  inner.destination = address("fd00::2");
  inner.next_header = kNextHeaderUdp;
  inner.payload.assign(16, 0x11);
  const std::vector<std::uint8_t> packet = frame(inner);
  FrameSpec spec;
  spec.destination = address(v.destination);
  spec.hop_limit = static_cast<std::uint8_t>(v.hop_limit);
  spec.traffic_class = static_cast<std::uint8_t>(v.traffic_class);
  spec.claimed_beyond = v.claimed_beyond;
  spec.trailing = static_cast<std::size_t>(v.trailing);
  spec.uid = static_cast<std::uint64_t>(v.number);
  spec.payload.assign(packet.begin() + EthernetHeader::kSize, packet.end());
  return spec;
}

// What must leave for a vector that is not dropped: hop limit and destination differ, nothing else.
inline std::vector<std::uint8_t> vector_result(const GoldenVector& v) {
  FrameSpec spec = vector_spec(v);
  spec.destination = address(v.destination_out);
  spec.hop_limit = static_cast<std::uint8_t>(v.hop_limit_out);
  return frame(spec);
}

}  // namespace loomnet::test
