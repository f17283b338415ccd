// How work requests lie on the byte stream: 32 bytes in front of each message's payload (ours;
// Gloo has 48 of its own). A segment never spans two messages (Linux: MSG_EOR), so these bytes are
// always the first of a segment, as iWARP aligns its units with segments (RFC 5044 5).
#pragma once

#include "packet/bytes.hpp"

namespace loomnet::tcp {

struct FrameHeader {
  static constexpr std::size_t kSize = 32;
  static constexpr std::uint16_t kMagic = 0x4c4e;
  static constexpr std::uint8_t kWrite = 1, kWriteWithImmediate = 2;
  std::uint16_t magic = kMagic;
  std::uint8_t operation = kWrite;
  std::uint8_t reserved = 0;
  std::uint32_t length = 0;  // payload bytes that follow
  std::uint64_t address = 0;
  std::uint32_t key = 0;
  std::uint32_t immediate = 0;
  std::uint64_t number = 0;  // of the message in its stream, from 0

  bool operator==(const FrameHeader&) const = default;
  static FrameHeader parse(ByteReader& in) {
    FrameHeader h;
    h.magic = in.u16();
    h.operation = in.u8();
    h.reserved = in.u8();
    h.length = in.u32();
    h.address = in.u64();
    h.key = in.u32();
    h.immediate = in.u32();
    h.number = in.u64();
    return h;
  }
  void serialize(ByteWriter& out) const {
    out.u16(magic);
    out.u8(operation);
    out.u8(reserved);
    out.u32(length);
    out.u64(address);
    out.u32(key);
    out.u32(immediate);
    out.u64(number);
  }
};

}  // namespace loomnet::tcp
