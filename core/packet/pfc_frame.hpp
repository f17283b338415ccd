// The frame of Priority-based Flow Control (IEEE Std 802.1Q, 36 and annex O; MAC control as in IEEE
// Std 802.3, annex 31D): for each priority, how long the other end shall not send it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "clock/time.hpp"
#include "packet/bytes.hpp"
#include "packet/ethernet.hpp"
#include "packet/packet.hpp"

namespace loomnet {

inline constexpr std::uint16_t kEtherTypeMacControl = 0x8808;
inline constexpr std::uint16_t kPfcOpcode = 0x0101;
inline constexpr std::uint16_t kMostQuanta = 0xffff;

struct PfcFrame {
  // Opcode, class enable vector and eight times, behind an Ethernet header; the rest is padding.
  static constexpr std::size_t kBytes = EthernetHeader::kSize + 20;

  std::uint8_t enabled = 0;  // bit per priority: its time below counts
  std::array<std::uint16_t, kQueueClasses> quanta{};  // 0: send again

  bool operator==(const PfcFrame&) const = default;

  // A quantum is the time of 512 bits.
  static constexpr Picoseconds time_of(std::uint16_t quanta, BitsPerSecond rate) {
    return serialization_time(std::uint64_t{quanta} * 64, rate);
  }

  void serialize(ByteWriter& out) const {
    constexpr MacAddress kMacControl{0x01, 0x80, 0xc2, 0x00, 0x00, 0x01};
    EthernetHeader{kMacControl, local_mac(0), kEtherTypeMacControl}.serialize(out);
    out.u16(kPfcOpcode);
    out.u16(enabled);
    for (const std::uint16_t q : quanta) out.u16(q);
  }
  // Nothing for bytes that are no such frame.
  static std::optional<PfcFrame> parse(std::span<const std::uint8_t> bytes) {
    ByteReader in(bytes);
    if (EthernetHeader::parse(in).ether_type != kEtherTypeMacControl) return {};
    if (in.u16() != kPfcOpcode) return {};
    PfcFrame frame;
    frame.enabled = static_cast<std::uint8_t>(in.u16());
    for (std::uint16_t& q : frame.quanta) q = in.u16();
    if (!in.ok()) return {};
    return frame;
  }
};

}  // namespace loomnet
