// What a job says of its bytes. Attributes travel from an operation to every packet that carries its
// bytes, where transports, switch programs and recorders read them.
#pragma once

#include <cstdint>

namespace loomnet {

inline constexpr std::uint16_t kNoLayer = 0xffff;
inline constexpr std::int16_t kNoPriority = -1;

struct Attributes {
  std::uint64_t step_offset = 0;    // payload bytes of the ring step before the first byte described
  std::uint64_t step_bytes = 0;     // payload bytes of the whole ring step; 0: in no ring step
  std::uint32_t ring_step = 0;      // cumulative per communicator, never reset; valid if step_bytes > 0
  std::uint32_t job = 0;            // number of the job in the run; the engine sets it, never a rank
  std::uint32_t communicator = 0;   // of the job
  std::uint32_t sequence = 0;       // number of the operation on its communicator
  std::uint32_t tag = 0;            // the script's own
  float loss_tolerance = 0;         // share of the bytes behind the framing that may be missing, 0 to 1
  std::uint16_t layer = kNoLayer;   // of the model; kNoLayer: not stated
  std::uint16_t ring_rank = 0;      // of the sender in its ring; valid if step_bytes > 0
  std::uint16_t ring_size = 0;      // ranks of that ring; the same
  std::int16_t priority = kNoPriority;  // 0 to 255, the most urgent; kNoPriority: not stated

  bool operator==(const Attributes&) const = default;
};
static_assert(sizeof(Attributes) == 48);

// Writes the attributes of the packet that carries a request's bytes from `offset` on; the request's
// first `framing` bytes are its framing. The place in the ring step is the packet's own. A packet with
// bytes of the framing may not be lost.
inline void describe(Attributes& packet, const Attributes& request, std::uint32_t framing, std::uint64_t offset) {
  packet = request;
  if (offset < framing) {
    packet.loss_tolerance = 0;
  } else if (request.step_bytes > 0) {
    packet.step_offset = request.step_offset + (offset - framing);
  }
}

inline Attributes attributes_at(const Attributes& request, std::uint32_t framing, std::uint64_t offset) {
  Attributes own;
  describe(own, request, framing, offset);
  return own;
}

}  // namespace loomnet
