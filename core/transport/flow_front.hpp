// Headers that tell the flows of a NIC apart, so that switches spread them over paths of equal cost.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "clock/random.hpp"
#include "packet/ethernet.hpp"
#include "packet/host_address.hpp"
#include "packet/ipv6.hpp"
#include "packet/udp.hpp"
#include "transport/transport.hpp"

namespace loomnet {

// Ethernet, IPv6 and UDP: the same for every packet of a part of a queue pair but for lengths and ECN.
inline constexpr std::size_t kFlowFrontBytes = 14 + 40 + 8;
using FlowFront = std::array<std::uint8_t, kFlowFrontBytes>;

struct FlowOf {
  HostId source = 0, destination = 0;
  QpNumber qp = 0;              // at the source
  std::uint8_t part = 0;        // of the queue pair, where it has several paths
  std::uint32_t rerouted = 0;   // how often it was given other paths
  std::uint64_t turn = 0;       // another port for each number; 0: the port of the flow itself
};

// Entropy for ECMP as Linux derives it for RoCEv2: a flow label per part, folded into a UDP source port of
// the dynamic range (RFC 6335). Each change of paths draws another.
inline FlowFront flow_front(const FlowOf& flow, std::uint16_t destination_port) {
  constexpr std::uint64_t kRoutePurpose = 0x726f757465;  // "route"
  constexpr std::uint64_t kTurnPurpose = 0x7475726e;     // "turn"
  std::uint64_t hash = hash_key(flow.source, flow.destination, std::uint64_t{flow.qp} << 8 | flow.part);
  if (flow.rerouted > 0) hash = hash_key(hash, flow.rerouted, kRoutePurpose);
  if (flow.turn > 0) hash = hash_key(hash, flow.turn, kTurnPurpose);
  Ipv6Header ip;
  ip.flow_label = hash & 0xfffff;
  ip.next_header = kNextHeaderUdp;
  ip.source = host_address(flow.source);
  ip.destination = host_address(flow.destination);
  UdpHeader udp;
  udp.source_port = static_cast<std::uint16_t>(((ip.flow_label & 0x3fff) ^ (ip.flow_label & 0xfc000) >> 14) | 0xc000);
  udp.destination_port = destination_port;
  FlowFront front{};
  ByteWriter out(front);
  EthernetHeader{}.serialize(out);
  ip.serialize(out);
  udp.serialize(out);
  return front;
}

}  // namespace loomnet
