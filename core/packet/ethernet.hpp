// Ethernet II header (IEEE 802.3), without FCS.
#pragma once

#include <array>

#include "packet/bytes.hpp"

namespace loomnet {

using MacAddress = std::array<std::uint8_t, 6>;
inline constexpr std::uint16_t kEtherTypeIpv6 = 0x86dd;

// A locally administered unicast address that carries a number: the live part's packet uid
// travels through kernel switches as the source of a frame.
constexpr MacAddress local_mac(std::uint64_t number) {
  return {0x02,
          static_cast<std::uint8_t>(number >> 32),
          static_cast<std::uint8_t>(number >> 24),
          static_cast<std::uint8_t>(number >> 16),
          static_cast<std::uint8_t>(number >> 8),
          static_cast<std::uint8_t>(number)};
}

struct EthernetHeader {
  static constexpr std::size_t kSize = 14;
  MacAddress destination{}, source{};
  std::uint16_t ether_type = kEtherTypeIpv6;

  bool operator==(const EthernetHeader&) const = default;
  static EthernetHeader parse(ByteReader& in) {
    auto from = in.fixed<kSize>();
    EthernetHeader h;
    from.copy(h.destination);
    from.copy(h.source);
    h.ether_type = from.u16();
    return h;
  }
  void serialize(ByteWriter& out) const {
    auto to = out.fixed<kSize>();
    to.copy(destination);
    to.copy(source);
    to.u16(ether_type);
  }
};

}  // namespace loomnet
