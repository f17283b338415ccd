// Which flow a packet is of, from its bytes as a switch reads them: addresses and ports of the
// innermost IPv6 header. Bytes are not trusted: a packet that is not IPv6 is of flow 0.
#pragma once

#include <cstdint>
#include <cstring>

#include "clock/random.hpp"
#include "packet/ethernet.hpp"
#include "packet/ipv6.hpp"
#include "packet/packet.hpp"

namespace loomnet {

inline std::uint64_t flow_hash(const Packet& packet, std::uint64_t key) {
  constexpr std::uint8_t kTcp = 6;
  constexpr int kMostHeaders = 4;  // IPv6 in IPv6, with routing headers between
  const auto bytes = packet.header_bytes();
  const auto word = [&](std::size_t at, std::size_t n) {
    std::uint64_t value = 0;
    std::memcpy(&value, &bytes[at], n);
    return value;
  };
  if (bytes.size() < EthernetHeader::kSize || bytes[12] != 0x86 || bytes[13] != 0xdd) return 0;
  std::uint64_t hash = 0;
  std::size_t at = EthernetHeader::kSize;
  std::uint8_t next = kNextHeaderIpv6;
  for (int i = 0; i < kMostHeaders; ++i) {
    if (next == kNextHeaderIpv6) {
      if (at + Ipv6Header::kSize > bytes.size()) return hash;
      hash = mix64(key ^ word(at + 8, 8));
      for (const std::size_t offset : {16, 24, 32}) hash = mix64(hash ^ word(at + offset, 8));
      next = bytes[at + 6];
      at += Ipv6Header::kSize;
    } else if (next == kNextHeaderRouting) {
      if (at + 8 > bytes.size()) return hash;
      next = bytes[at];
      at += 8 + 8 * std::size_t{bytes[at + 1]};
    } else {
      break;
    }
  }
  if ((next == kNextHeaderUdp || next == kTcp) && at + 4 <= bytes.size()) {
    hash = mix64(hash ^ word(at, 4));
  }
  return mix64(hash ^ next);
}

}  // namespace loomnet
