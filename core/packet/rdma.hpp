// InfiniBand transport headers that RoCEv2 and MRC share: BTH, RETH, ImmDt, AETH.
// OCP MRC 1.0; InfiniBand Architecture Vol. 1, chapter 9.
#pragma once

#include "packet/bytes.hpp"

namespace loomnet {

inline constexpr std::uint32_t kMask24 = 0xffffff;
inline constexpr std::size_t kIcrcBytes = 4;  // behind the payload of every RoCEv2 and MRC packet

// Base transport header. MRC takes two of the bits that RC reserves behind A: RTX and TS.
struct Bth {
  static constexpr std::size_t kSize = 12;
  std::uint8_t opcode = 0;
  bool solicited = false, migration = false;
  std::uint8_t pad = 0, version = 0;
  std::uint16_t partition_key = 0xffff;
  bool fecn = false, becn = false;
  std::uint32_t destination_qp = 0;  // 24 bits
  bool ack_request = false;
  bool retransmission = false;  // MRC RTX
  bool timestamp = false;       // MRC TS: a TSETH follows METH
  std::uint32_t psn = 0;        // 24 bits

  bool operator==(const Bth&) const = default;
  static Bth parse(ByteReader& in) {
    auto from = in.fixed<kSize>();
    Bth h;
    h.opcode = from.u8();
    const std::uint8_t flags = from.u8();
    h.solicited = flags & 0x80;
    h.migration = flags & 0x40;
    h.pad = flags >> 4 & 3;
    h.version = flags & 0xf;
    h.partition_key = from.u16();
    const std::uint8_t congestion = from.u8();
    h.fecn = congestion & 0x80;
    h.becn = congestion & 0x40;
    h.destination_qp = from.u24();
    const std::uint8_t ack = from.u8();
    h.ack_request = ack & 0x80;
    h.retransmission = ack & 0x20;
    h.timestamp = ack & 0x10;
    h.psn = from.u24();
    return h;
  }
  void serialize(ByteWriter& out) const {
    auto to = out.fixed<kSize>();
    to.u8(opcode);
    to.u8(static_cast<std::uint8_t>(solicited << 7 | migration << 6 | (pad & 3) << 4 | (version & 0xf)));
    to.u16(partition_key);
    to.u8(static_cast<std::uint8_t>(fecn << 7 | becn << 6));
    to.u24(destination_qp);
    to.u8(static_cast<std::uint8_t>(ack_request << 7 | retransmission << 5 | timestamp << 4));
    to.u24(psn);
  }
};

// RDMA extended transport header; MRC puts one on every data packet, its address advanced.
struct Reth {
  static constexpr std::size_t kSize = 16;
  std::uint64_t address = 0;
  std::uint32_t key = 0;
  std::uint32_t dma_length = 0;  // of the whole message

  bool operator==(const Reth&) const = default;
  static Reth parse(ByteReader& in) {
    auto from = in.fixed<kSize>();
    Reth h;
    h.address = from.u64();
    h.key = from.u32();
    h.dma_length = from.u32();
    return h;
  }
  void serialize(ByteWriter& out) const {
    auto to = out.fixed<kSize>();
    to.u64(address);
    to.u32(key);
    to.u32(dma_length);
  }
};

struct ImmDt {
  static constexpr std::size_t kSize = 4;
  std::uint32_t immediate = 0;

  bool operator==(const ImmDt&) const = default;
  static ImmDt parse(ByteReader& in) { return {in.u32()}; }
  void serialize(ByteWriter& out) const { out.u32(immediate); }
};

// Acknowledgement header. Syndrome: 000 credit(5) ACK, 001 timer(5) RNR NAK, 011 code(5) NAK.
struct Aeth {
  static constexpr std::size_t kSize = 4;
  static constexpr std::uint8_t kAck = 0x1f;  // no end-to-end credits
  static constexpr std::uint8_t kNakSequence = 0x60;
  static constexpr std::uint8_t kNakInvalidRequest = 0x61;
  static constexpr std::uint8_t kNakRemoteAccess = 0x62;
  static constexpr std::uint8_t kNakRemoteOperational = 0x63;
  std::uint8_t syndrome = kAck;
  std::uint32_t msn = 0;  // 24 bits

  bool operator==(const Aeth&) const = default;
  bool is_ack() const { return syndrome >> 5 == 0; }
  bool is_nak() const { return syndrome >> 5 == 3; }
  static Aeth parse(ByteReader& in) {
    auto from = in.fixed<kSize>();
    Aeth h;
    h.syndrome = from.u8();
    h.msn = from.u24();
    return h;
  }
  void serialize(ByteWriter& out) const {
    auto to = out.fixed<kSize>();
    to.u8(syndrome);
    to.u24(msn);
  }
};

}  // namespace loomnet
