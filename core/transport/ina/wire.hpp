// Fragments as packets: Ethernet, IPv6, UDP, the aggregation header and int32 values.
#pragma once

#include <optional>

#include "packet/ipv6.hpp"
#include "packet/packet.hpp"
#include "transport/ina/fragment.hpp"

namespace loomnet::ina {

// Where results go: ff05::<job>, a group of the job's workers. Switches of the job's tree know its ports.
Ipv6Address group_address(std::uint16_t job);

struct Envelope {
  Ipv6Address source{}, destination{};
  std::uint16_t source_port = 0;
  bool ecn = true;
};

// Writes headers and lengths. `payload`: of 4 * wire_values bytes; its data may be null (lengths only).
void build(Packet& packet, const aggregate_header& header, const Envelope& envelope, const Payload& payload);

// The header of a packet that this transport got, and its values: zeros where the packet has lengths
// only. Nothing for a frame that ends inside the header.
struct Inbound {
  aggregate_header header{};
  Bytes payload;
};
std::optional<Inbound> parse(const Packet& packet);

}  // namespace loomnet::ina
