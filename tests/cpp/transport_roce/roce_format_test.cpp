// RoCE packets on the wire: golden bytes, and every way a packet can be bad has its counter.
#include <gmock/gmock.h>

#include "packet/ethernet.hpp"
#include "packet/udp.hpp"
#include "transport_roce/roce_bed.hpp"

namespace loomnet::testbed {
namespace {

std::string hex(std::span<const std::uint8_t> bytes) {
  std::string out;
  char two[3];
  for (auto b : bytes) std::snprintf(two, sizeof two, "%02x", b), out += two;
  return out;
}

// The first packet that host 0 sends for a 30 B write with immediate.
PacketPtr first_packet(RoceBed& bed) {
  PacketPtr seen;
  bed.filter = [&](HostId, PlanePort, Packet& p) -> std::optional<Picoseconds> {
    if (!seen) seen = bed.pool().duplicate(p);
    return std::nullopt;
  };
  bed.write(0, 30, 0xabcdef01);
  bed.run_until(microseconds(100));
  bed.filter = nullptr;
  return seen;
}

TEST(RoceFormat, AnOnlyWithImmediateHasTheseBytes) {
  RoceBed bed;
  const PacketPtr p = first_packet(bed);
  ASSERT_TRUE(p);
  const auto h = p->header_bytes();
  ASSERT_EQ(h.size(), 62u + 12 + 16 + 4);
  EXPECT_EQ(hex(h.subspan(12, 2)), "86dd");
  EXPECT_EQ(hex(h.subspan(18, 4)),
            "004c1140");  // 8 + 12 + 16 + 4 + 30 + pad 2 + ICRC 4; UDP; 64 hops
  EXPECT_EQ(hex(h.subspan(22, 16)), "fd000000000000000000000000000000");
  EXPECT_EQ(hex(h.subspan(38, 16)), "fd000000000000000000000000000001");
  EXPECT_EQ(hex(h.subspan(56, 6)), "12b7004c0000");               // port 4791, length, no checksum
  EXPECT_EQ(hex(h.subspan(62, 12)), "0b20ffff000000c880000000");  // pad 2, QP 200, A, PSN 0
  EXPECT_EQ(hex(h.subspan(74, 16)), "00007f0000010000000000770000001e");
  EXPECT_EQ(hex(h.subspan(90, 4)), "abcdef01");
  EXPECT_EQ(p->wire_length, 14u + 40 + 76);
}

TEST(RoceFormat, AFrameWhosePayloadSitsInTheHeaderBytesIsPlacedWhole) {
  RoceBed bed;
  PacketPtr p = first_packet(bed);
  // As the live part hands it over: everything up to 192 bytes is header, pad and ICRC follow.
  for (int i = 0; i < 30; ++i) p->header[p->header_length + i] = static_cast<std::uint8_t>(200 + i);
  p->header_length += 20;
  std::uint8_t rest[16] = {};
  for (int i = 0; i < 10; ++i) rest[i] = static_cast<std::uint8_t>(220 + i);
  p->payload = {rest, 16, 0, PayloadKind::region};
  bed.inject(1, 0, std::move(p));
  ASSERT_EQ(bed.nic(1).arrivals.size(), 1u);
  for (int i = 0; i < 30; ++i) EXPECT_EQ(bed.target.bytes[i], 200 + i);
  EXPECT_EQ(bed.target.bytes[30], 0) << "pad is not payload";
}

struct Bad {
  const char* counter;
  void (*spoil)(Packet&);
  PlanePort port = 0;
};

TEST(RoceFormat, EveryBadPacketIsDroppedByName) {
  const Bad table[] = {
      {"malformed_dropped", [](Packet& p) { p.header_length = 0; }},
      {"malformed_dropped", [](Packet& p) { p.header_length = 73; }},
      {"malformed_dropped", [](Packet& p) { p.header_length = 80; }},  // inside RETH
      {"malformed_dropped", [](Packet& p) { p.header[19] ^= 1; }},     // IPv6 length
      {"malformed_dropped", [](Packet& p) { p.header[59] ^= 1; }},     // UDP length
      {"malformed_dropped", [](Packet& p) { p.header[18] = p.header[58] = 0xff; }},
      {"malformed_dropped", [](Packet& p) { p.header[18] = p.header[58] = 0, p.header[19] = p.header[59] = 20; }},
      {"malformed_dropped", [](Packet& p) { p.payload.length -= 1; }},
      {"malformed_dropped", [](Packet& p) { p.wire_length = 60; }},
      {"not_roce_dropped", [](Packet& p) { p.header[12] = 8; }},
      {"not_roce_dropped", [](Packet& p) { p.header[14] = 0x40; }},
      {"not_roce_dropped", [](Packet& p) { p.header[20] = 6; }},
      {"not_roce_dropped", [](Packet& p) { p.header[57] ^= 1; }},
      {"not_roce_dropped", [](Packet& p) { p.header[63] |= 1; }},  // transport version
      {"not_roce_dropped", [](Packet& p) { p.header[64] = 0; }},   // partition
      {"unknown_opcode_dropped", [](Packet& p) { p.header[62] = 0xca; }},
      {"unknown_opcode_dropped", [](Packet& p) { p.header[62] = 0x0c; }},
      {"unknown_qp_dropped", [](Packet& p) { p.header[69] ^= 1; }},
      {"wrong_peer_dropped", [](Packet& p) { p.header[37] ^= 8; }},
      {"wrong_peer_dropped", [](Packet& p) { p.header[38] ^= 8; }},
      {"wrong_port_dropped", [](Packet&) {}, 3},
      {"invalid_requests_dropped", [](Packet& p) { p.header[62] = 0x08; }},
      {"invalid_requests_dropped", [](Packet& p) { p.header[89] ^= 1; }},  // RETH length
      {"access_errors", [](Packet& p) { p.header[85] ^= 1; }},             // RETH key
      {"access_errors", [](Packet& p) { p.header[74] = 0xff; }},           // RETH address
      {"out_of_order_dropped", [](Packet& p) { p.header[73] += 1; }},
      {"duplicates_dropped", [](Packet& p) { p.header[71] = 0xff; }},
      {"corrupt_dropped", nullptr},
  };
  int row = 0;
  for (const Bad& bad : table) {
    RoceBed bed;
    PacketPtr p = first_packet(bed);
    if (bad.spoil) bad.spoil(*p);
    if (bad.spoil) {
      bed.inject(1, bad.port, std::move(p));
    } else {
      p->corrupt = true;  // past a NIC that does not check
      bed.transport(1).on_packet(0, std::move(p), bed.now());
    }
    EXPECT_EQ(bed.nic(1).counter(bad.counter), 1u) << "row " << row << " " << bad.counter;
    EXPECT_TRUE(bed.nic(1).arrivals.empty()) << "row " << row;
    EXPECT_EQ(bed.nic(1).placements, 0u) << "row " << row;
    ++row;
  }
}

TEST(RoceFormat, ForgedAcknowledgementsChangeNothing) {
  RoceBed bed;
  std::vector<PacketPtr> acks;
  bed.filter = [&](HostId from, PlanePort, Packet& p) -> std::optional<Picoseconds> {
    if (from == 1) acks.push_back(bed.pool().duplicate(p));
    return Picoseconds{};
  };
  bed.write(0, 100);
  ASSERT_TRUE(bed.run_until_idle(milliseconds(1)));
  ASSERT_EQ(acks.size(), 1u);
  const auto forge = [&](std::uint8_t syndrome, std::uint32_t psn) {
    PacketPtr p = bed.pool().duplicate(*acks[0]);
    p->header[71] = static_cast<std::uint8_t>(psn >> 16);
    p->header[72] = static_cast<std::uint8_t>(psn >> 8);
    p->header[73] = static_cast<std::uint8_t>(psn);
    p->header[74] = syndrome;
    bed.inject(0, 0, std::move(p));
  };
  bed.set_silent(0, 0, true);
  bed.write(100, 100);  // PSN 1
  bed.run_until(bed.now() + microseconds(10));
  forge(0x1f, 2);  // not sent yet
  forge(0x60, 2);
  forge(0x62, 0x700000);
  EXPECT_EQ(bed.nic(0).counter("acks_out_of_range"), 3u);
  forge(0x1f, 0);  // old news
  forge(0x60, 0);
  forge(0x62, 0);
  EXPECT_EQ(bed.nic(0).counter("acks_stale"), 3u);
  forge(0x20, 1);  // RNR NAK, not served
  forge(0x64, 1);  // no such NAK
  EXPECT_EQ(bed.nic(0).counter("malformed_dropped"), 2u);
  EXPECT_EQ(bed.nic(0).completions.size(), 1u);
  bed.set_silent(0, 0, false);
  ASSERT_TRUE(bed.run_until_idle(milliseconds(2))) << bed;
  EXPECT_EQ(bed.nic(0).completions.size(), 2u);
  EXPECT_TRUE(bed.same(0, 200));
  acks.clear();
}

}  // namespace
}  // namespace loomnet::testbed
