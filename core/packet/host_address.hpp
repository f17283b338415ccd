// The address of a host, the same on all its planes: fd00::<host>.
#pragma once

#include <cstdint>

#include "packet/ipv6.hpp"

namespace loomnet {

constexpr Ipv6Address host_address(std::uint32_t host) {
  Ipv6Address a{0xfd};
  for (int i = 0; i < 4; ++i) a[15 - i] = static_cast<std::uint8_t>(host >> 8 * i);
  return a;
}
constexpr std::uint32_t host_of(const Ipv6Address& a) {
  return std::uint32_t{a[12]} << 24 | std::uint32_t{a[13]} << 16 | std::uint32_t{a[14]} << 8 | a[15];
}

}  // namespace loomnet
