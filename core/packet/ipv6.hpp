// IPv6 fixed header (RFC 8200) and its differentiated-services and ECN codepoints.
#pragma once

#include <array>

#include "packet/bytes.hpp"

namespace loomnet {

using Ipv6Address = std::array<std::uint8_t, 16>;

inline constexpr std::uint8_t kNextHeaderUdp = 17;
inline constexpr std::uint8_t kNextHeaderIpv6 = 41;
inline constexpr std::uint8_t kNextHeaderRouting = 43;

enum class Ecn : std::uint8_t { not_ect = 0, ect1 = 1, ect0 = 2, ce = 3 };  // RFC 3168

struct Ipv6Header {
  static constexpr std::size_t kSize = 40;
  std::uint8_t version = 6;
  std::uint8_t traffic_class = 0;
  std::uint32_t flow_label = 0;  // 20 bits
  std::uint16_t payload_length = 0;
  std::uint8_t next_header = 0;
  std::uint8_t hop_limit = 64;
  Ipv6Address source{}, destination{};

  bool operator==(const Ipv6Header&) const = default;
  std::uint8_t dscp() const { return traffic_class >> 2; }
  Ecn ecn() const { return static_cast<Ecn>(traffic_class & 3); }
  void set_class(std::uint8_t dscp, Ecn ecn) {
    traffic_class = static_cast<std::uint8_t>(dscp << 2 | static_cast<std::uint8_t>(ecn));
  }

  static Ipv6Header parse(ByteReader& in) {
    auto from = in.fixed<kSize>();
    Ipv6Header h;
    const std::uint32_t word = from.u32();
    h.version = static_cast<std::uint8_t>(word >> 28);
    h.traffic_class = static_cast<std::uint8_t>(word >> 20);
    h.flow_label = word & 0xfffff;
    h.payload_length = from.u16();
    h.next_header = from.u8();
    h.hop_limit = from.u8();
    from.copy(h.source);
    from.copy(h.destination);
    return h;
  }
  void serialize(ByteWriter& out) const {
    auto to = out.fixed<kSize>();
    to.u32(std::uint32_t{version} << 28 | std::uint32_t{traffic_class} << 20 | (flow_label & 0xfffff));
    to.u16(payload_length);
    to.u8(next_header);
    to.u8(hop_limit);
    to.copy(source);
    to.copy(destination);
  }
};

}  // namespace loomnet
