// Paths as bytes: SRv6 uSID addresses (format F3216) and MRC entropy values.
// RFC 9800.
#pragma once

#include <cstdint>
#include <span>

#include "packet/ipv6.hpp"

namespace loomnet {

inline constexpr std::size_t kMaxUsids = 6;

constexpr std::uint16_t usid_t1(unsigned spine) { return static_cast<std::uint16_t>(0x1000 + spine); }
constexpr std::uint16_t usid_t0(unsigned leaf) { return static_cast<std::uint16_t>(0x2000 + leaf); }
// Three tiers: T1 is the aggregation layer, T2 the core, 0x3000 + C, C < 4096 (ours).
constexpr std::uint16_t usid_t2(unsigned core) { return static_cast<std::uint16_t>(0x3000 + core); }
constexpr std::uint16_t usid_host(unsigned downlink) { return static_cast<std::uint16_t>(0x4000 + downlink); }

// Block of plane p: fc00:<p>::/32, then up to six uSIDs, zero filled.
constexpr Ipv6Address usid_address(unsigned plane, std::span<const std::uint16_t> usids) {
  Ipv6Address a{0xfc, 0x00, static_cast<std::uint8_t>(plane >> 8), static_cast<std::uint8_t>(plane)};
  for (std::size_t i = 0; i < usids.size() && i < kMaxUsids; ++i) {
    a[4 + 2 * i] = static_cast<std::uint8_t>(usids[i] >> 8);
    a[5 + 2 * i] = static_cast<std::uint8_t>(usids[i]);
  }
  return a;
}

// An entropy value names plane and up-path; with the destination it names one path. In two tiers the
// up-path is the T0 uplink (bits 10..3); in three it is the core, aggregation uplink included, and
// takes bits 13..3, which leaves the source port in 0xc000 to 0xffff (ours).
inline constexpr unsigned kMaxUplinks = 2048;
struct EntropyValue {
  std::uint32_t value = 0;

  constexpr EntropyValue() = default;
  constexpr explicit EntropyValue(std::uint32_t v) : value(v) {}
  constexpr EntropyValue(unsigned plane, unsigned uplink)
      : value(0xc000u | (uplink & (kMaxUplinks - 1)) << 3 | (plane & 7u)) {}
  constexpr bool operator==(const EntropyValue&) const = default;
  constexpr unsigned plane() const { return value & 7; }
  constexpr unsigned uplink() const { return value >> 3 & (kMaxUplinks - 1); }
};

// Which half of the entropy value goes where (option ev_order).
enum class EvOrder : std::uint8_t { flow_label_then_port, port_then_flow_label };

constexpr std::uint16_t ev_source_port(EntropyValue ev, EvOrder order) {
  return static_cast<std::uint16_t>(order == EvOrder::flow_label_then_port ? ev.value : ev.value >> 16);
}
constexpr std::uint16_t ev_flow_label(EntropyValue ev, EvOrder order) {
  return static_cast<std::uint16_t>(order == EvOrder::flow_label_then_port ? ev.value >> 16 : ev.value);
}
constexpr EntropyValue entropy_of(std::uint32_t flow_label, std::uint16_t source_port, EvOrder order) {
  const std::uint32_t label = flow_label & 0xffff;
  return EntropyValue(order == EvOrder::flow_label_then_port ? label << 16 | source_port
                                                             : std::uint32_t{source_port} << 16 | label);
}

}  // namespace loomnet
