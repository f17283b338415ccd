// MRC packets as bytes: the envelope every packet has, and what a received one holds.
// OCP MRC 1.0.
#pragma once

#include <optional>
#include <span>

#include "packet/ipv6.hpp"
#include "packet/mrc_headers.hpp"
#include "packet/packet.hpp"
#include "packet/rdma.hpp"
#include "transport/mrc/counters.hpp"
#include "transport/mrc/options.hpp"

namespace loomnet::mrc {

// Ethernet, outer and inner IPv6, UDP.
inline constexpr std::size_t kEnvelopeBytes = 14 + 40 + 40 + 8;
// UDP payload of a packet without ImmDt and without payload bytes: BTH METH TSETH RETH iCRC.
inline constexpr std::uint32_t kDataUdpBytes = 12 + 4 + 4 + 16 + 4;
// What a packet is charged: UDP payload + 40 B.
constexpr std::uint32_t nominal_bytes(std::uint32_t payload, bool immediate) {
  return kDataUdpBytes + payload + (immediate ? 4 : 0) + 40;
}

struct Envelope {
  HostId source = 0, destination = 0;
  const PlanePaths* paths = nullptr;  // with its plane's number
  EntropyValue ev;
  std::uint8_t dscp = 0;
  Ecn ecn = Ecn::not_ect;
};

// Starts a packet: class and flags of `envelope.dscp`, header up to and including BTH. The caller
// writes the rest with the returned writer and then calls finish(). `step`: bytes in front of BTH that the
// caller writes too, at kEnvelopeBytes: those of a step header, or none.
ByteWriter begin(Packet& packet, const MrcOptions& options, const Envelope& envelope, const Bth& bth,
                 std::size_t step = 0);
// Sets header_length, wire_length and the three length fields.
void finish(Packet& packet, const ByteWriter& writer, const Payload& payload);

// A received packet up to BTH, checked; the rest is read from `body`.
struct Inbound {
  std::uint8_t dscp = 0;
  Ecn ecn = Ecn::not_ect;
  HostId source = 0, destination = 0;
  EntropyValue ev;   // the sender's: its port, and the uplink
  PlanePort port = 0;  // of this NIC, by which it came
  Bth bth;
  Op op = Op::sack;
  bool trimmed = false;
  std::span<const std::uint8_t> body;
  // The same path as a value of this NIC, whose port on that plane may have another number.
  EntropyValue way() const { return {port, ev.uplink()}; }
};
// A drop counter where the packet is not a well-formed MRC packet.
std::optional<Count> parse(const Packet& packet, const MrcOptions& options, Inbound& in);

// Bytes of a frame that belong in Packet::header; the payload follows, then 4 bytes of iCRC. For
// the live part, which receives frames in one piece. nullopt: not an MRC packet.
std::optional<std::size_t> header_length(std::span<const std::uint8_t> frame, std::uint16_t udp_port = 4971);

}  // namespace loomnet::mrc
