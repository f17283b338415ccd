// TCP header (RFC 9293) and the two options of an established connection: timestamps (RFC 7323)
// and SACK (RFC 2018). The checksum is 0: a NIC fills it in, and the link's FCS stands in for it.
#pragma once

#include <array>

#include "packet/bytes.hpp"

namespace loomnet {

inline constexpr std::uint8_t kNextHeaderTcp = 6;

namespace tcp_flag {
inline constexpr std::uint8_t kFin = 0x01, kSyn = 0x02, kRst = 0x04, kPsh = 0x08, kAck = 0x10, kUrg = 0x20, kEce = 0x40,
                              kCwr = 0x80;
}  // namespace tcp_flag

struct TcpHeader {
  static constexpr std::size_t kSize = 20;
  std::uint16_t source_port = 0, destination_port = 0;
  std::uint32_t sequence = 0, acknowledgement = 0;
  std::uint8_t data_offset = 5;  // 4 bits: header and options in words of 4 bytes
  std::uint8_t reserved = 0;     // 4 bits
  std::uint8_t flags = 0;        // tcp_flag
  std::uint16_t window = 0;      // unscaled
  std::uint16_t checksum = 0;
  std::uint16_t urgent = 0;

  bool operator==(const TcpHeader&) const = default;
  bool has(std::uint8_t flag) const { return flags & flag; }
  static TcpHeader parse(ByteReader& in) {
    TcpHeader h;
    h.source_port = in.u16();
    h.destination_port = in.u16();
    h.sequence = in.u32();
    h.acknowledgement = in.u32();
    const std::uint8_t offset = in.u8();
    h.data_offset = offset >> 4;
    h.reserved = offset & 0xf;
    h.flags = in.u8();
    h.window = in.u16();
    h.checksum = in.u16();
    h.urgent = in.u16();
    return h;
  }
  void serialize(ByteWriter& out) const {
    out.u16(source_port);
    out.u16(destination_port);
    out.u32(sequence);
    out.u32(acknowledgement);
    out.u8(static_cast<std::uint8_t>(data_offset << 4 | (reserved & 0xf)));
    out.u8(flags);
    out.u16(window);
    out.u16(checksum);
    out.u16(urgent);
  }
};

// What lies between the fixed header and the data. Options other than these two are skipped.
struct TcpOptionFields {
  static constexpr std::size_t kMaxBytes = 40;
  static constexpr std::size_t kTimestampBytes = 12;  // with two NOPs in front, as stacks send it
  static constexpr std::size_t kMaxSackBlocks = 4;    // 3 beside timestamps
  struct Block {
    std::uint32_t begin = 0, end = 0;
    bool operator==(const Block&) const = default;
  };
  bool timestamps = false;
  std::uint8_t sack_count = 0;
  std::uint32_t ts_value = 0, ts_echo = 0;
  std::array<Block, kMaxSackBlocks> sack{};

  bool operator==(const TcpOptionFields&) const = default;
  static constexpr std::size_t sack_bytes(std::size_t blocks) { return blocks ? 4 + 8 * blocks : 0; }
  std::size_t size() const { return (timestamps ? kTimestampBytes : 0) + sack_bytes(sack_count); }

  // Reads exactly `length` bytes of `in`, or fails it: an option that says it is longer than what
  // is left, of a length its kind cannot have, or that comes twice.
  static TcpOptionFields parse(ByteReader& in, std::size_t length) {
    TcpOptionFields o;
    const auto fail = [&in] { in.skip(in.remaining() + 1); };
    if (length > in.remaining()) fail();
    while (in.ok() && length > 0) {
      const std::uint8_t kind = in.u8();
      --length;
      if (kind == kEnd) {
        in.skip(length);
        break;
      }
      if (kind == kNop) continue;
      const std::size_t size = length > 0 ? in.u8() : 0;
      if (size < 2 || size - 1 > length) {
        fail();
        break;
      }
      length -= size - 1;
      if (kind == kTimestamps && size == 10 && !o.timestamps) {
        o.timestamps = true;
        o.ts_value = in.u32();
        o.ts_echo = in.u32();
      } else if (kind == kSack && size > 2 && (size - 2) % 8 == 0 && size <= 34 && !o.sack_count) {
        o.sack_count = static_cast<std::uint8_t>((size - 2) / 8);
        for (std::size_t i = 0; i < o.sack_count; ++i) {
          const std::uint32_t begin = in.u32();
          o.sack[i] = {begin, in.u32()};
        }
      } else if (kind == kTimestamps || kind == kSack) {
        fail();
      } else {
        in.skip(size - 2);
      }
    }
    return o;
  }
  void serialize(ByteWriter& out) const {
    if (timestamps) {
      out.u16(kNop << 8 | kNop);
      out.u16(kTimestamps << 8 | 10);
      out.u32(ts_value);
      out.u32(ts_echo);
    }
    if (sack_count) {
      out.u16(kNop << 8 | kNop);
      out.u16(static_cast<std::uint16_t>(kSack << 8 | (2 + 8 * sack_count)));
      for (std::size_t i = 0; i < sack_count; ++i) {
        out.u32(sack[i].begin);
        out.u32(sack[i].end);
      }
    }
  }

 private:
  static constexpr std::uint8_t kEnd = 0, kNop = 1, kSack = 5, kTimestamps = 8;
};

}  // namespace loomnet
