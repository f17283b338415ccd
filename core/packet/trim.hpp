// Packet trimming: what a full queue leaves of a trimmable packet.
// OCP MRC 1.0.
#pragma once

#include "packet/packet.hpp"

namespace loomnet {

inline constexpr std::uint32_t kTrimBytes = 128;  // Ethernet frame; SONiC's default

struct TrimOptions {
  std::uint8_t dscp = 0;  // that a trimmed packet carries: its transport tells it by that
  std::uint32_t size = kTrimBytes;
  // Rewrites both IPv6 payload lengths and the UDP length; hardware leaves them as they were, and
  // then a Linux router drops the packet as truncated.
  bool fix_lengths = true;
};

// True where the packet is long enough to be cut; a shorter one moves to the control queue whole.
inline bool can_trim(const Packet& packet, const TrimOptions& options) { return packet.wire_length > options.size; }

// Cuts `packet` to its first bytes, sets the outer DSCP, drops the payload and moves the packet to the
// control queue. Requires can_trim(); false (and nothing
// changed) for a packet whose header is not IPv6 or is shorter than its own IPv6 header.
bool trim(Packet& packet, const TrimOptions& options);

}  // namespace loomnet
