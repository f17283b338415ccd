// A test bed of RoCE hosts: factory, packet descriptions for transcripts, source and target memory.
#pragma once

#include <gtest/gtest.h>

#include "testbed.hpp"
#include "transport/roce/roce_transport.hpp"

namespace loomnet::testbed {

inline constexpr std::uint32_t kKey = 0x77;
inline constexpr std::uint64_t kBase = 0x7f0000010000;
inline constexpr QpNumber kQpA = 100, kQpB = 200;

inline std::string describe_rc(std::span<const std::uint8_t> header) {
  if (header.size() < roce::kFrontBytes + Bth::kSize) return "short";
  ByteReader in(header.subspan(roce::kFrontBytes));
  const Bth bth = Bth::parse(in);
  char text[96];
  if (bth.opcode == 0x11) {
    const Aeth aeth = Aeth::parse(in);
    std::snprintf(text, sizeof text, "%s 0x%02x psn %u msn %u", aeth.is_ack() ? "ACK" : "NAK",
                  aeth.syndrome, bth.psn, aeth.msn);
  } else {
    std::snprintf(text, sizeof text, "op 0x%02x psn %u%s", bth.opcode, bth.psn,
                  bth.ack_request ? " A" : "");
  }
  return text;
}

inline Bth bth_of(const Packet& packet) {
  ByteReader in(packet.header_bytes().subspan(roce::kFrontBytes));
  return Bth::parse(in);
}
inline bool is_data(const Packet& packet) { return bth_of(packet).opcode != 0x11; }

inline Factory roce_factory(RoceOptions options) {
  return [options](HostId, TransportSink& sink, std::size_t) {
    return std::make_unique<RoceTransport>(sink, options);
  };
}

// Options of most transcripts: small packets, a timeout of 4.096 us * 2^7 = 524.288 us.
inline RoceOptions quick() {
  RoceOptions o;
  o.payload_mtu = 256;
  o.timeout_exponent = 7;
  return o;
}

struct RoceBed : Testbed {
  explicit RoceBed(BedOptions bed = {}, RoceOptions options = quick(), std::size_t memory = 1 << 20)
      : Testbed(bed, roce_factory(options)),
        source(memory),
        target(nic(1).add_region(kKey, kBase, memory)) {
    describe = describe_rc;
    RandomStream random(bed.seed, 0, 99);
    for (auto& b : source) b = static_cast<std::uint8_t>(random());
    connect(0, kQpA, 1, kQpB);
  }
  // Writes source[offset, offset + length) to the same place of the target.
  std::uint64_t write(std::size_t offset, std::size_t length,
                      std::optional<std::uint32_t> immediate = std::nullopt) {
    return post_write(0, kQpA, std::span(source).subspan(offset, length), kBase + offset, kKey,
                      immediate);
  }
  bool same(std::size_t offset, std::size_t length) const {
    return std::memcmp(source.data() + offset, target.bytes.data() + offset, length) == 0;
  }
  std::vector<std::uint64_t> completed_ids() {
    std::vector<std::uint64_t> ids;
    for (const Done& d : nic(0).completions) ids.push_back(d.completion.id);
    return ids;
  }
  std::vector<std::uint32_t> arrived_immediates() {
    std::vector<std::uint32_t> out;
    for (const Arrived& a : nic(1).arrivals) out.push_back(a.arrival.immediate);
    return out;
  }

  std::vector<std::uint8_t> source;
  Region& target;
};

}  // namespace loomnet::testbed
