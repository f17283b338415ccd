// Headers that only MRC has, with its opcodes and reason codes.
// OCP MRC 1.0.
#pragma once

#include "packet/bytes.hpp"

namespace loomnet::mrc {

// BTH.opcode of MRC packets.
enum class Op : std::uint8_t {
  write_first = 0xc6,
  write_middle = 0xc7,
  write_last = 0xc8,
  write_last_immediate = 0xc9,
  write_only = 0xca,
  write_only_immediate = 0xcb,
  transport_ack = 0xd1,
  endpoint_request = 0xd8,
  endpoint_response = 0xd9,
  sack = 0xdc,
  nack = 0xdd,
  reliability_probe = 0xde,
};
constexpr bool is_data(Op op) { return op >= Op::write_first && op <= Op::write_only_immediate; }
constexpr bool has_immediate(Op op) { return op == Op::write_last_immediate || op == Op::write_only_immediate; }
constexpr bool ends_message(Op op) { return is_data(op) && op >= Op::write_last; }
constexpr bool starts_message(Op op) { return op == Op::write_first || op >= Op::write_only; }

enum class NackReason : std::uint8_t {
  trimmed = 0x01,
  trimmed_last_hop = 0x02,
  no_bitmap = 0x06,
  no_packet_buffer = 0x07,
  no_resource = 0x0a,
  psn_out_of_window = 0x0b,
  unexpected_event = 0x19,
};

enum class EndpointOp : std::uint8_t { port_status_update = 0, ev_probe = 1 };
enum class Mark : std::uint8_t { none = 0, skip_once = 1, always_skip = 2 };  // SETH m

inline constexpr std::uint32_t kEndpointQp = 2;
inline constexpr std::uint8_t kFormatTimestamp = 1;  // ftype of a header that ends with tx_ts

struct Meth {
  static constexpr std::size_t kSize = 4;
  std::uint16_t rqmsn = 0;  // 0 unless the message carries an immediate
  std::uint16_t msn = 0;

  bool operator==(const Meth&) const = default;
  static Meth parse(ByteReader& in) {
    auto from = in.fixed<kSize>();
    Meth h;
    h.rqmsn = from.u16();
    h.msn = from.u16();
    return h;
  }
  void serialize(ByteWriter& out) const {
    auto to = out.fixed<kSize>();
    to.u16(rqmsn);
    to.u16(msn);
  }
};

// Also the tail of PETH and ERTH.
struct Tseth {
  static constexpr std::size_t kSize = 4;
  std::uint16_t tx_ts = 0;
  bool coarse = false;  // tsr: 0 = 128 ns, 1 = 1 us
  std::uint8_t format = kFormatTimestamp;

  bool operator==(const Tseth&) const = default;
  static Tseth parse(ByteReader& in) {
    auto from = in.fixed<kSize>();
    Tseth h;
    h.tx_ts = from.u16();
    const std::uint16_t word = from.u16();
    h.coarse = word & 0x8000;
    h.format = word & 0xf;
    return h;
  }
  void serialize(ByteWriter& out) const {
    auto to = out.fixed<kSize>();
    to.u16(tx_ts);
    to.u16(static_cast<std::uint16_t>(coarse << 15 | (format & 0xf)));
  }
};

// SETH, NETH, PETH, ERTH and EETH begin alike: 4 bits of type, 5 of the next header's, 7 of their
// own.
template <typename Reader, typename Header>
[[gnu::always_inline]] inline std::uint16_t read_head(Reader& from, Header& h) {
  const std::uint16_t word = from.u16();
  h.type = word >> 12;
  h.next = word >> 7 & 0x1f;
  return word;
}
template <typename Writer, typename Header>
[[gnu::always_inline]] inline void write_head(Writer& to, const Header& h, unsigned own = 0) {
  to.u16(static_cast<std::uint16_t>((h.type & 0xf) << 12 | (h.next & 0x1f) << 7 | own));
}

// What SETH and NETH hold alike: path, packet delivery contexts, a PSN, congestion control's kind.
template <typename Reader, typename Header>
[[gnu::always_inline]] inline void read_feedback(Reader& from, Header& h, std::uint32_t& psn) {
  h.entropy = from.u32();
  h.source_pdc = from.u16();
  h.destination_pdc = from.u16();
  from.skip(1);
  psn = from.u24();
  const std::uint8_t cc = from.u8();
  h.cc_type = cc >> 4;
  h.cc_flags = cc & 0xf;
}
template <typename Writer, typename Header>
[[gnu::always_inline]] inline void write_feedback(Writer& to, const Header& h, std::uint32_t psn) {
  to.u32(h.entropy);
  to.u16(h.source_pdc);
  to.u16(h.destination_pdc);
  to.u8(0);
  to.u24(psn);
  to.u8(static_cast<std::uint8_t>((h.cc_type & 0xf) << 4 | (h.cc_flags & 0xf)));
}

// SACK. acked PSN = cack_psn + ack_psn_offset; bit i of `bitmap` is PSN cack_psn + sack_offset + i.
struct Seth {
  static constexpr std::size_t kSize = 28;
  std::uint8_t type = 0, next = 0;
  std::uint8_t mark = 0;     // Mark; 3 is reserved
  bool probe_reply = false;  // pr: ack_psn_offset holds the probe's id
  std::int16_t ack_psn_offset = 0;
  std::uint32_t entropy = 0;  // of the packet that triggered this SACK
  std::uint16_t source_pdc = 0, destination_pdc = 0;
  std::uint32_t cack_psn = 0;  // 24 bits: every PSN up to here has arrived
  std::uint8_t cc_type = 0, cc_flags = 0;
  std::uint8_t mpr = 0;
  std::int16_t sack_offset = 0;
  std::uint64_t bitmap = 0;

  bool operator==(const Seth&) const = default;
  static Seth parse(ByteReader& in) {
    auto from = in.fixed<kSize>();
    Seth h;
    const std::uint16_t word = read_head(from, h);
    h.mark = word >> 5 & 3;
    h.probe_reply = word & 2;
    h.ack_psn_offset = static_cast<std::int16_t>(from.u16());
    read_feedback(from, h, h.cack_psn);
    h.mpr = from.u8();
    h.sack_offset = static_cast<std::int16_t>(from.u16());
    h.bitmap = from.u64();
    return h;
  }
  void serialize(ByteWriter& out) const {
    auto to = out.fixed<kSize>();
    write_head(to, *this, (mark & 3) << 5 | probe_reply << 1);
    to.u16(static_cast<std::uint16_t>(ack_psn_offset));
    write_feedback(to, *this, cack_psn);
    to.u8(mpr);
    to.u16(static_cast<std::uint16_t>(sack_offset));
    to.u64(bitmap);
  }
};

// What the sender's congestion control needs; behind SETH.
struct CcState {
  static constexpr std::size_t kSize = 8;
  std::uint16_t tx_ts = 0;  // echoed
  std::uint16_t ooo = 0;    // 15 bits: packets that arrived beyond a gap
  bool restore_cwnd = false;
  std::uint8_t rcv_cwnd_pen = 0;  // 7 bits: 0 none, 64 halves, 127 about one packet per RTT
  std::uint32_t rcvd_bytes = 0;   // 24 bits, units of 256 B, modulo

  bool operator==(const CcState&) const = default;
  static CcState parse(ByteReader& in) {
    auto from = in.fixed<kSize>();
    CcState h;
    h.tx_ts = from.u16();
    h.ooo = from.u16() & 0x7fff;
    const std::uint8_t penalty = from.u8();
    h.restore_cwnd = penalty & 0x80;
    h.rcv_cwnd_pen = penalty & 0x7f;
    h.rcvd_bytes = from.u24();
    return h;
  }
  void serialize(ByteWriter& out) const {
    auto to = out.fixed<kSize>();
    to.u16(tx_ts);
    to.u16(ooo & 0x7fff);
    to.u8(static_cast<std::uint8_t>(restore_cwnd << 7 | (rcv_cwnd_pen & 0x7f)));
    to.u24(rcvd_bytes);
  }
};

struct Neth {
  static constexpr std::size_t kSize = 20;
  std::uint8_t type = 0, next = 0;
  std::uint8_t reason = 0;  // NackReason
  std::uint8_t vendor = 0;
  std::uint32_t entropy = 0;
  std::uint16_t source_pdc = 0, destination_pdc = 0;
  std::uint32_t nack_psn = 0;  // 24 bits
  std::uint8_t cc_type = 2, cc_flags = 0;
  std::uint16_t tx_ts = 0;

  bool operator==(const Neth&) const = default;
  static Neth parse(ByteReader& in) {
    auto from = in.fixed<kSize>();
    Neth h;
    read_head(from, h);
    h.reason = from.u8();
    h.vendor = from.u8();
    read_feedback(from, h, h.nack_psn);
    from.skip(1);
    h.tx_ts = from.u16();
    return h;
  }
  void serialize(ByteWriter& out) const {
    auto to = out.fixed<kSize>();
    write_head(to, *this);
    to.u8(reason);
    to.u8(vendor);
    write_feedback(to, *this, nack_psn);
    to.u8(0);
    to.u16(tx_ts);
  }
};

// Reliability probe.
struct Peth {
  static constexpr std::size_t kSize = 16;
  std::uint8_t type = 0, next = 0, vendor = 0;
  std::uint16_t probe_id = 0;
  std::uint16_t source_pdc = 0, destination_pdc = 0;
  Tseth stamp;

  bool operator==(const Peth&) const = default;
  static Peth parse(ByteReader& in) {
    auto from = in.fixed<kSize - Tseth::kSize>();
    Peth h;
    read_head(from, h);
    from.skip(1);
    h.vendor = from.u8();
    h.probe_id = from.u16();
    from.skip(2);
    h.source_pdc = from.u16();
    h.destination_pdc = from.u16();
    h.stamp = Tseth::parse(in);
    return h;
  }
  void serialize(ByteWriter& out) const {
    auto to = out.fixed<kSize - Tseth::kSize>();
    write_head(to, *this);
    to.u8(0);
    to.u8(vendor);
    to.u16(probe_id);
    to.u16(0);
    to.u16(source_pdc);
    to.u16(destination_pdc);
    stamp.serialize(out);
  }
};

// Endpoint request (to QPN 2); the request's id is the low 16 bits of BTH.psn.
struct Erth {
  static constexpr std::size_t kSize = 16;
  std::uint8_t type = 0, next = 0;
  std::uint8_t op = 0;  // EndpointOp; 2 and 3 are reserved
  std::uint8_t vendor = 0;
  std::uint32_t port_status_mask = 0;  // bit i = plane i, 1 = reachable
  Tseth stamp;

  bool operator==(const Erth&) const = default;
  static Erth parse(ByteReader& in) {
    auto from = in.fixed<kSize - Tseth::kSize>();
    Erth h;
    const std::uint16_t word = read_head(from, h);
    h.op = word & 3;
    from.skip(1);
    h.vendor = from.u8();
    h.port_status_mask = from.u32();
    from.skip(4);
    h.stamp = Tseth::parse(in);
    return h;
  }
  void serialize(ByteWriter& out) const {
    auto to = out.fixed<kSize - Tseth::kSize>();
    write_head(to, *this, op & 3);
    to.u8(0);
    to.u8(vendor);
    to.u32(port_status_mask);
    to.u32(0);
    stamp.serialize(out);
  }
};

// Endpoint response. Positions rest on one source (OCP MRC 1.0).
struct Eeth {
  static constexpr std::size_t kSize = 36;
  std::uint8_t type = 0, next = 0;
  std::uint8_t op = 0;
  std::uint16_t tx_ts = 0;  // echoed

  bool operator==(const Eeth&) const = default;
  static Eeth parse(ByteReader& in) {
    auto from = in.fixed<kSize>();
    Eeth h;
    const std::uint16_t word = read_head(from, h);
    h.op = word >> 4 & 3;
    from.skip(26);
    h.tx_ts = from.u16();
    from.skip(6);
    return h;
  }
  void serialize(ByteWriter& out) const {
    auto to = out.fixed<kSize>();
    write_head(to, *this, (op & 3) << 4);
    to.zero(26);
    to.u16(tx_ts);
    to.zero(6);
  }
};

}  // namespace loomnet::mrc
