// What comes back from a kernel-placed switch, read without trust: the verdict in front of a frame, and
// the frame's bytes as the packet's.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "ebpf/metadata.h"
#include "packet/packet.hpp"
#include "switch/program.hpp"

namespace loomnet {

// Bytes in front of a frame that kernel_verdict() reads: label and metadata.
inline constexpr std::size_t kKernelMetadataBytes = sizeof(ln_label) + sizeof(ln_metadata);

struct KernelVerdict {
  enum class Trust : std::uint8_t {
    missing,     // no switch program's metadata
    mismatched,  // it names ports or an action that cannot be: the frame is where it came out
    agrees
  };
  Trust trust = Trust::missing;
  Verdict verdict;  // forward to the port that the frame came out of, unless `agrees`
  bool cut = false;
  std::uint32_t generation = 0;
  std::optional<ln_label> label;
};

// `before`: the bytes in front of the frame. The packet was handed in at port `ingress`, the frame came
// out of port `egress`.
KernelVerdict kernel_verdict(std::span<const std::uint8_t, kKernelMetadataBytes> before, SwitchPort ingress,
                             SwitchPort egress);

// Makes the frame's bytes the packet's header, and with `cut` its lengths too; the payload's data is the
// caller's to set. False, and nothing changed, where the frame is shorter than the packet's header.
bool take_header(Packet& packet, std::span<const std::uint8_t> frame, bool cut);

}  // namespace loomnet
