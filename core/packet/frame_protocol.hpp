// Which protocol a frame carries: how a NIC tells one transport's frames from another's.
#pragma once

#include <cstdint>
#include <span>

namespace loomnet {

// Next header of the innermost IPv6 header and, of UDP, the destination port. {0, 0}: the frame is
// neither plain IPv6 nor IPv6 in one IPv6 tunnel, or it ends before the field.
struct FrameProtocol {
  std::uint8_t next_header = 0;
  std::uint16_t udp_port = 0;
  constexpr bool operator==(const FrameProtocol&) const = default;
};

// Reads a frame of any origin: `header` is as many of its first bytes as there are.
FrameProtocol protocol_of(std::span<const std::uint8_t> header);

}  // namespace loomnet
