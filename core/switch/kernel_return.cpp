// Reading what a kernel-placed switch sends back; see kernel_return.hpp.
#include "switch/kernel_return.hpp"

#include <algorithm>
#include <cstring>

namespace loomnet {

KernelVerdict kernel_verdict(std::span<const std::uint8_t, kKernelMetadataBytes> before, SwitchPort ingress,
                             SwitchPort egress) {
  KernelVerdict out;
  out.verdict = Verdict::forward(egress);
  ln_metadata metadata;
  std::memcpy(&metadata, before.data() + sizeof(ln_label), sizeof metadata);
  if (metadata.magic != LN_METADATA_MAGIC) return out;
  out.trust = KernelVerdict::Trust::mismatched;
  if (metadata.ingress != ingress) return out;
  switch (metadata.action) {
    case LN_FORWARD:
      if (metadata.value != egress) return out;
      break;
    case LN_REPLY:
    case LN_REPLICATE:
      if (egress != ingress) return out;
      break;
    default:
      return out;
  }
  out.trust = KernelVerdict::Trust::agrees;
  out.verdict = {static_cast<Verdict::Action>(metadata.action), metadata.value};
  out.cut = metadata.flags & LN_META_CUT;
  out.generation = metadata.generation;
  if (metadata.flags & LN_META_RELABELLED) {
    std::memcpy(&out.label.emplace(), before.data(), sizeof(ln_label));
  }
  return out;
}

bool take_header(Packet& packet, std::span<const std::uint8_t> frame, bool cut) {
  const auto length = static_cast<std::uint32_t>(frame.size());
  const std::uint32_t sent = std::max(packet.wire_length, packet.header_length + packet.payload.length);
  if (cut && length >= LN_MIN_FRAME && length < sent) {
    packet.wire_length = length;
    packet.header_length = static_cast<std::uint8_t>(std::min<std::uint32_t>(packet.header_length, length));
    packet.payload.length = std::min(packet.payload.length, length - packet.header_length);
  }
  if (length < packet.header_length) return false;
  std::copy_n(frame.begin(), packet.header_length, packet.header.begin());
  return true;
}

}  // namespace loomnet
