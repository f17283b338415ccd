// A test bed of RoCE hosts: factory, packet descriptions for transcripts.
#pragma once

#include <gtest/gtest.h>

#include "testbed_writes.hpp"
#include "transport/roce/roce_transport.hpp"

namespace loomnet::testbed {

inline std::string describe_rc(std::span<const std::uint8_t> header) {
  if (header.size() < roce::kFrontBytes + Bth::kSize) return "short";
  ByteReader in(header.subspan(roce::kFrontBytes));
  const Bth bth = Bth::parse(in);
  char text[96];
  if (bth.opcode == 0x11) {
    const Aeth aeth = Aeth::parse(in);
    std::snprintf(text, sizeof text, "%s 0x%02x psn %u msn %u", aeth.is_ack() ? "ACK" : "NAK", aeth.syndrome, bth.psn,
                  aeth.msn);
  } else {
    std::snprintf(text, sizeof text, "op 0x%02x psn %u%s", bth.opcode, bth.psn, bth.ack_request ? " A" : "");
  }
  return text;
}

inline Bth bth_of(const Packet& packet) {
  ByteReader in(packet.header_bytes().subspan(roce::kFrontBytes));
  return Bth::parse(in);
}
inline bool is_data(const Packet& packet) { return bth_of(packet).opcode != 0x11; }

inline Factory roce_factory(roce::RoceOptions options) {
  return [options](HostId, TransportSink& sink, std::size_t) {
    return std::make_unique<roce::RoceTransport>(sink, options);
  };
}

// Options of most transcripts: small packets, a timeout of 4.096 us * 2^7 = 524.288 us.
inline roce::RoceOptions quick() {
  roce::RoceOptions o;
  o.payload_mtu = 256;
  o.timeout_exponent = 7;
  return o;
}

struct RoceBed : WriteBed {
  explicit RoceBed(BedOptions bed = {}, roce::RoceOptions options = quick(), std::size_t memory = 1 << 20)
      : WriteBed(bed, roce_factory(options), memory) {
    describe = describe_rc;
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
};

}  // namespace loomnet::testbed
