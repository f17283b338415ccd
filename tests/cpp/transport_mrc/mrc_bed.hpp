// Two or more MRC NICs on the test bed, with a transcript line per MRC packet.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "packet/host_address.hpp"
#include "packet/trim.hpp"
#include "testbed.hpp"
#include "transport/mrc/dscp.hpp"
#include "transport/mrc/mrc_transport.hpp"

namespace loomnet::mrc {

inline std::string describe_packet(std::span<const std::uint8_t> header) {
  ByteReader in(header);
  in.skip(14);
  const Ipv6Header outer = Ipv6Header::parse(in);
  const Ipv6Header inner = Ipv6Header::parse(in);
  const std::uint16_t sport = in.u16();
  in.skip(6);
  const Bth bth = Bth::parse(in);
  if (!in.ok()) return "short";
  static const std::map<int, const char*> names = {
      {0xc6, "FIRST"}, {0xc7, "MIDDLE"}, {0xc8, "LAST"},   {0xc9, "LAST+IMM"}, {0xca, "ONLY"}, {0xcb, "ONLY+IMM"},
      {0xd1, "ACK"},   {0xd8, "EP-REQ"}, {0xd9, "EP-RSP"}, {0xdc, "SACK"},     {0xdd, "NACK"}, {0xde, "PROBE"}};
  const auto name = names.find(bth.opcode);
  char text[200];
  std::snprintf(text, sizeof text, "%-8s psn %06x ev %04x dscp %u%s%s h%u>h%u",
                name == names.end() ? "?" : name->second, bth.psn, sport, outer.dscp(), bth.ack_request ? " A" : "",
                bth.retransmission ? " RTX" : "", host_of(inner.source), host_of(inner.destination));
  std::string out = text;
  if (bth.opcode == 0xdc) {
    const Seth s = Seth::parse(in);
    std::snprintf(text, sizeof text, " cack %06x off %d base+%d bits %016llx m%u%s", s.cack_psn, s.ack_psn_offset,
                  s.sack_offset, static_cast<unsigned long long>(s.bitmap), s.mark, s.probe_reply ? " pr" : "");
    out += text;
  }
  return out;
}

// One T0 pair per plane: `uplinks` paths through T1s.
inline std::vector<PlanePaths> cross_paths(std::size_t planes, std::size_t uplinks, HostId to) {
  PlanePaths one;
  one.row.usids = {usid_t0(1), usid_t1(0), usid_t0(2), usid_host(to)};
  one.row.count = 4;
  one.row.uplink_slot = 1;
  for (std::size_t u = 0; u < uplinks; ++u) one.uplinks.push_back(static_cast<std::uint16_t>(u));
  return std::vector<PlanePaths>(planes, one);
}

struct Mrc {
  explicit Mrc(testbed::BedOptions bed_options, MrcOptions options, std::size_t uplinks = 4)
      : options(options), bed(bed_options, [options](HostId, TransportSink& sink, std::size_t planes) {
          return std::make_unique<MrcTransport>(options, sink, planes);
        }) {
    bed.describe = describe_packet;
    bed.trim = [](Packet& p) { return trim(p, {.dscp = dscp::kTrimmedLastHop}); };
    bed.paths = [bed_options, uplinks](HostId, HostId to) { return cross_paths(bed_options.planes, uplinks, to); };
  }
  MrcTransport& nic(HostId h) { return static_cast<MrcTransport&>(bed.transport(h)); }
  std::uint64_t count(HostId h, Count c) { return nic(h).counter(c); }

  MrcOptions options;
  testbed::Testbed bed;
};

inline MrcOptions quick_options() {
  MrcOptions o = MrcOptions::sim(microseconds(5), gigabits(100));
  o.base_rtt = microseconds(5);
  return o;
}

inline std::vector<std::uint8_t> pattern(std::size_t n, std::uint64_t seed) {
  RandomStream random(seed, n, 7);
  std::vector<std::uint8_t> bytes(n);
  for (auto& b : bytes) b = static_cast<std::uint8_t>(random());
  return bytes;
}

}  // namespace loomnet::mrc
