// UDP header (RFC 768); checksum 0 as RoCEv2 and MRC send it.
#pragma once

#include "packet/bytes.hpp"

namespace loomnet {

inline constexpr std::uint16_t kUdpPortMrc = 4971;    // OCP MRC 1.0
inline constexpr std::uint16_t kUdpPortRoceV2 = 4791;  // InfiniBand Architecture, Annex A17

struct UdpHeader {
  static constexpr std::size_t kSize = 8;
  std::uint16_t source_port = 0, destination_port = 0;
  std::uint16_t length = 0;  // header and payload
  std::uint16_t checksum = 0;

  bool operator==(const UdpHeader&) const = default;
  static UdpHeader parse(ByteReader& in) {
    auto from = in.fixed<kSize>();
    UdpHeader h;
    h.source_port = from.u16();
    h.destination_port = from.u16();
    h.length = from.u16();
    h.checksum = from.u16();
    return h;
  }
  void serialize(ByteWriter& out) const {
    auto to = out.fixed<kSize>();
    to.u16(source_port);
    to.u16(destination_port);
    to.u16(length);
    to.u16(checksum);
  }
};

}  // namespace loomnet
