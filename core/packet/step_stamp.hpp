// The step header of a packet, from the attributes of the bytes that the packet carries; and the place of a
// step header in a received packet. The bytes themselves are those of ebpf/step_header.h.
#pragma once

#include <cstdint>
#include <span>

#include "ebpf/step_header.h"
#include "packet/attributes.hpp"

namespace loomnet {

inline constexpr std::uint16_t kUdpPortStep = STEP_UDP_PORT;
inline constexpr std::size_t kStepHeaderBytes = STEP_HEADER_BYTES;

// How a switch learns of the ring step that a packet belongs to: not at all, by a step header, or by the
// low 12 bits of the UDP source port, as the publication's prototype has it (Symphony, arXiv 2604.16880).
enum class StepIdentity : std::uint8_t { none, hdr, sport };
inline constexpr std::uint32_t kSportSteps = 1u << 12;  // steps that the source port tells apart

// Ring and incarnation in a step header, by the communicator's number. A communicator that follows
// another one on the same ring has a number that is 2^16 higher.
inline constexpr std::uint32_t kRingsPerJob = 1u << 16;
constexpr std::uint16_t ring_of(std::uint32_t communicator) {
  return static_cast<std::uint16_t>(communicator % kRingsPerJob);
}
constexpr std::uint8_t incarnation_of(std::uint32_t communicator) {
  return static_cast<std::uint8_t>(communicator / kRingsPerJob);
}

// Ring steps since the first, Q16.16, modulo 2^32: the step, and the share of its bytes before the packet.
// A packet at the very end of its step is still in it.
constexpr std::uint32_t step_progress(const Attributes& packet) {
  // Sizes above 2^48 bytes are shifted, so that 16 more bits fit.
  const unsigned shift = packet.step_bytes >> 48 ? 16 : 0;
  const std::uint64_t share = (packet.step_offset >> shift << 16) / (packet.step_bytes >> shift);
  return packet.ring_step << 16 | static_cast<std::uint32_t>(share < 0xffff ? share : 0xffff);
}

// Writes 16 bytes. `last`: the packet is the last one that its queue pair sends of the step.
inline void put_step_header(std::uint8_t* at, const Attributes& packet, bool last, bool again) {
  const bool in_step = packet.step_bytes > 0;
  step_header h{};
  h.flags = static_cast<ln_u8>((in_step ? 0 : STEP_FLAG_OTHER) | (in_step && last ? STEP_FLAG_LAST : 0) |
                               (again ? STEP_FLAG_AGAIN : 0));
  h.gen = incarnation_of(packet.communicator);
  h.job = static_cast<ln_u16>(packet.job);
  h.ring = ring_of(packet.communicator);
  if (in_step) {
    h.rank = packet.ring_rank;
    h.nranks = packet.ring_size;
    h.prog = step_progress(packet);
  }
  step_header_store(at, &h);
}

// Whether the bytes of a request end its ring step: the last packet of that request is the step's last.
constexpr bool ends_step(const Attributes& request, std::uint32_t framing, std::uint32_t length) {
  return request.step_bytes > 0 && framing <= length && request.step_offset + (length - framing) == request.step_bytes;
}

// Bytes of a step header behind a UDP header with this destination port, 0 for any other port; -1 for a
// packet that must have one and has none. `rest`: what follows the UDP header, of any origin.
inline int step_header_at(std::uint16_t port, std::span<const std::uint8_t> rest) {
  if (port != kUdpPortStep) return 0;
  step_header h;
  if (rest.size() < kStepHeaderBytes || !step_header_load(rest.data(), &h)) return -1;
  return static_cast<int>(kStepHeaderBytes);
}

}  // namespace loomnet
