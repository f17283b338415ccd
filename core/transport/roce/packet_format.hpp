// RoCEv2 RC packets: opcodes, the fields of a received packet and what is wrong with a bad one.
// InfiniBand Architecture Vol. 1, chapter 9 (opcodes 9.2.1) and Annex A17 (RoCEv2).
#pragma once

#include <cstdint>
#include <optional>

#include "packet/ipv6.hpp"
#include "packet/packet.hpp"
#include "packet/rdma.hpp"
#include "transport/flow_front.hpp"
#include "transport/transport.hpp"

namespace loomnet::roce {

enum class RcOpcode : std::uint8_t {
  write_first = 0x06,
  write_middle = 0x07,
  write_last = 0x08,
  write_last_immediate = 0x09,
  write_only = 0x0a,
  write_only_immediate = 0x0b,
  acknowledge = 0x11,
  congestion_notification = 0x81,  // CNP: BTH with BECN and 16 reserved bytes (A17.9.3)
};
inline constexpr std::size_t kCnpReservedBytes = 16;
// Behind the AETH of an acknowledgement with BECN: how many packets with CE have been accepted since the
// queue pair's start, 32 bits that wrap. Our completion, for controls that react to the marked share:
// RoCEv2 echoes no marks.
inline constexpr std::size_t kMarkEchoBytes = 4;

constexpr bool starts_message(RcOpcode op) {
  return op == RcOpcode::write_first || op == RcOpcode::write_only || op == RcOpcode::write_only_immediate;
}
constexpr bool ends_message(RcOpcode op) { return op != RcOpcode::write_first && op != RcOpcode::write_middle; }
constexpr bool carries_immediate(RcOpcode op) {
  return op == RcOpcode::write_last_immediate || op == RcOpcode::write_only_immediate;
}
constexpr RcOpcode write_opcode(bool first, bool last, bool immediate) {
  if (first && last) return immediate ? RcOpcode::write_only_immediate : RcOpcode::write_only;
  if (last) return immediate ? RcOpcode::write_last_immediate : RcOpcode::write_last;
  return first ? RcOpcode::write_first : RcOpcode::write_middle;
}

inline constexpr std::size_t kFrontBytes = kFlowFrontBytes;

enum class Flaw : std::uint8_t {
  none,
  truncated,     // shorter than its headers or its length fields say
  not_roce,      // not IPv6, UDP 4791 or a step header, transport version 0 with the default partition
  wrong_opcode,  // none of the RC operations served here
};

struct Received {
  Flaw flaw = Flaw::none;
  Ipv6Address source{}, destination{};
  Ecn ecn = Ecn::not_ect;
  RcOpcode opcode = RcOpcode::acknowledge;
  QpNumber qp = 0;
  std::uint32_t psn = 0;
  bool ack_request = false;
  Reth reth;
  std::uint32_t immediate = 0;
  Aeth aeth;
  bool has_marks = false;   // an acknowledgement that echoes marks …
  std::uint32_t marks = 0;  // … and how many
  std::uint16_t header_end = 0;      // first payload byte, from the start of the frame
  std::uint32_t payload_length = 0;  // without pad and ICRC
};

Received parse(const Packet& packet);

}  // namespace loomnet::roce
