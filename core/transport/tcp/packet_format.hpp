// TCP segments over IPv6 as frames: the addresses and ports of a connection, the fields of a
// received segment and what is wrong with a bad one.
#pragma once

#include <cstdint>
#include <optional>

#include "packet/ipv6.hpp"
#include "packet/packet.hpp"
#include "packet/tcp.hpp"
#include "transport/transport.hpp"

namespace loomnet::tcp {

// Port of a queue pair: both ends work it out alike. 1024 to 65535 (ours).
constexpr std::uint16_t port_of(QpNumber qp) { return static_cast<std::uint16_t>(1024 + qp % 64'512); }

enum class Flaw : std::uint8_t {
  none,
  truncated,  // shorter than its headers, options or length fields say
  not_tcp,    // not TCP right behind IPv6
};

struct Received {
  Flaw flaw = Flaw::none;
  Ipv6Address source{}, destination{};
  Ecn ecn = Ecn::not_ect;
  TcpHeader tcp;
  TcpOptionFields options;
  std::uint16_t header_end = 0;  // first data byte, from the start of the frame
  std::uint32_t payload_length = 0;
};

Received parse(const Packet& packet);

}  // namespace loomnet::tcp
