// Two TCP hosts on the test bed: what goes over the wire in good and bad times, and what the far
// side gets from it.
#include "transport_tcp/tcp_bed.hpp"

namespace loomnet::testbed {
namespace {

constexpr std::uint32_t kMss = 1280 - 72;

TEST(TcpPair, WritesArriveInOrderWithTheirImmediates) {
  TcpBed bed;
  for (std::uint32_t i = 0; i < 10; ++i) bed.write(i * 10'000, 10'000, i);
  bed.write(100'000, 0, 10);
  ASSERT_TRUE(bed.run_until_idle(seconds(1))) << bed;
  EXPECT_TRUE(bed.same(0, 100'000));
  ASSERT_EQ(bed.nic(1).arrivals.size(), 11u);
  for (std::uint32_t i = 0; i < 11; ++i) EXPECT_EQ(bed.nic(1).arrivals[i].arrival.immediate, i);
  ASSERT_EQ(bed.nic(0).completions.size(), 11u);
  for (const Done& d : bed.nic(0).completions) EXPECT_EQ(d.completion.status, Status::ok);
  EXPECT_EQ(bed.nic(0).counter("retransmitted"), 0u);
  EXPECT_EQ(bed.nic(0).counter("rto"), 0u);
  EXPECT_EQ(bed.leaked(), 0u);
}

TEST(TcpPair, WireBytesAreHeadersFrameAndPayload) {
  tcp::TcpOptions options = quick();
  options.handshake = false;
  TcpBed bed({}, options);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> seen;  // wire length, data
  bed.filter = [&](HostId from, PlanePort, Packet& p) {
    if (from == 0) seen.emplace_back(p.wire_length, data_bytes(p));
    return std::optional(Picoseconds{});
  };
  bed.write(0, kMss - 32 + 100);
  ASSERT_TRUE(bed.run_until_idle(seconds(1))) << bed;
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0], std::pair(1280u + 14u, kMss));
  EXPECT_EQ(seen[1], std::pair(14u + 72u + 100u, 100u));
}

// SYN, SYN-ACK and ACK measure the round trip at both ends before the first byte; a lost one is
// missed by nobody.
TEST(TcpPair, TheHandshakeMeasuresTheRoundTripAtBothEnds) {
  TcpBed bed;
  bed.run_until(microseconds(50));
  const auto least = [&](HostId host, QpNumber qp) { return bed.tcp(host).sender(qp).rtt().min(); };
  EXPECT_EQ(bed.nic(0).counter("handshakes_sent"), 2u);
  EXPECT_EQ(bed.nic(1).counter("handshakes_sent"), 1u);
  EXPECT_EQ(least(0, kQpA), least(1, kQpB));
  EXPECT_NE(least(0, kQpA), kNever);
  bed.write(0, 100'000);
  ASSERT_TRUE(bed.run_until_idle(seconds(1))) << bed;
  EXPECT_TRUE(bed.same(0, 100'000));
  EXPECT_EQ(bed.nic(0).counter("unexpected_flags_dropped"), 0u);

  TcpBed deaf;
  bool first = true;
  deaf.filter = [&](HostId from, PlanePort, Packet&) {
    return from == 0 && std::exchange(first, false) ? std::nullopt : std::optional(Picoseconds{});
  };
  deaf.write(0, 100'000);
  ASSERT_TRUE(deaf.run_until_idle(seconds(1))) << deaf;
  EXPECT_TRUE(deaf.same(0, 100'000));
  EXPECT_EQ(deaf.nic(1).counter("handshakes_received"), 0u);
}

TEST(TcpPair, LengthsAloneAreTimedLikeBytes) {
  const auto run = [](bool payload) {
    TcpBed bed({.seed = 3});
    bed.up(0, 0).loss = 0.02;
    for (std::uint32_t i = 0; i < 20; ++i) {
      WorkRequest w;
      w.id = i;
      w.length = 20'000;
      w.remote_address = kBase;
      w.remote_key = kKey;
      w.opcode = Opcode::write_with_immediate;
      w.local = payload ? bed.source.data() : nullptr;
      bed.post(0, kQpA, w);
    }
    EXPECT_TRUE(bed.run_until_idle(seconds(1))) << bed;
    EXPECT_EQ(bed.nic(1).placed_bytes, 400'000u);
    return bed.now();
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(TcpPair, OneLostSegmentIsRepairedInARoundTripWithoutATimeout) {
  TcpBed bed;
  int data = 0;
  bed.filter = [&](HostId from, PlanePort, Packet& p) -> std::optional<Picoseconds> {
    if (from == 0 && data_bytes(p) > 0 && ++data == 30) return std::nullopt;
    return Picoseconds{};
  };
  bed.write(0, 200'000, 1);
  ASSERT_TRUE(bed.run_until_idle(seconds(1))) << bed;
  EXPECT_TRUE(bed.same(0, 200'000));
  EXPECT_EQ(bed.nic(0).counter("retransmitted"), 1u) << bed;
  EXPECT_EQ(bed.nic(0).counter("fast_recoveries"), 1u);
  EXPECT_EQ(bed.nic(0).counter("rto"), 0u);
  EXPECT_GT(bed.nic(1).counter("sack_blocks_sent"), 0u);
  EXPECT_GT(bed.nic(1).counter("out_of_order_kept"), 0u);
}

TEST(TcpPair, ALostTailIsRepairedByAProbe) {
  TcpBed bed;
  bed.write(0, 5'000);
  ASSERT_TRUE(bed.run_until_idle(seconds(1))) << bed;  // an RTT is known
  // A lone segment would wait for a delayed ACK too, so two of them are lost, once.
  int data = 0;
  bed.filter = [&](HostId from, PlanePort, Packet& p) -> std::optional<Picoseconds> {
    if (from == 0 && data_bytes(p) > 0 && ++data >= 4 && data <= 5) return std::nullopt;
    return Picoseconds{};
  };
  const Picoseconds begin = bed.now();
  bed.write(5'000, 5'000, 7);
  ASSERT_TRUE(bed.run_until_idle(seconds(1))) << bed;
  EXPECT_EQ(bed.nic(0).counter("tlp"), 1u) << bed;
  EXPECT_EQ(bed.nic(0).counter("rto"), 0u);
  EXPECT_LT(bed.now() - begin, microseconds(100)) << bed;
  EXPECT_TRUE(bed.same(0, 10'000));
}

TEST(TcpPair, ReorderingAloneIsNotALoss) {
  TcpBed bed;
  bed.write(0, 100'000);
  ASSERT_TRUE(bed.run_until_idle(seconds(1))) << bed;
  int data = 0;
  bed.filter = [&](HostId from, PlanePort, Packet& p) -> std::optional<Picoseconds> {
    return from == 0 && data_bytes(p) > 0 && ++data % 10 == 0 ? nanoseconds(250) : Picoseconds{};
  };
  bed.write(100'000, 300'000);
  ASSERT_TRUE(bed.run_until_idle(seconds(1))) << bed;
  EXPECT_GT(bed.nic(1).counter("out_of_order_kept"), 10u);
  EXPECT_EQ(bed.nic(0).counter("retransmitted"), 0u) << bed;
  EXPECT_TRUE(bed.same(0, 400'000));
}

TEST(TcpPair, ARefusedWriteResetsTheConnectionWithItsReason) {
  TcpBed bed;
  const auto good = bed.write(0, 3'000, 1);
  ASSERT_TRUE(bed.run_until_idle(seconds(1))) << bed;
  const auto bad = bed.post_write(0, kQpA, std::span(bed.source).first(5'000), kBase + (1 << 20) - 100, kKey, 2);
  const auto behind = bed.write(0, 10, 3);
  ASSERT_TRUE(bed.run_until_idle(seconds(1))) << bed;
  ASSERT_EQ(bed.nic(0).completions.size(), 3u) << bed;
  const auto& done = bed.nic(0).completions;
  EXPECT_EQ(std::pair(done[0].completion.id, done[0].completion.status), std::pair(good, Status::ok));
  EXPECT_EQ(std::pair(done[1].completion.id, done[1].completion.status), std::pair(bad, Status::remote_access_error));
  EXPECT_EQ(std::pair(done[2].completion.id, done[2].completion.status), std::pair(behind, Status::flushed));
  EXPECT_EQ(bed.nic(1).arrivals.size(), 1u);
  EXPECT_EQ(bed.nic(1).counter("access_errors"), 1u);
  bed.write(0, 10);
  ASSERT_TRUE(bed.run_until_idle(seconds(1)));
  EXPECT_EQ(bed.nic(0).completions.back().completion.status, Status::flushed);
  bed.run_until(bed.now() + milliseconds(1));
  EXPECT_EQ(bed.leaked(), 0u);
}

TEST(TcpPair, AResetWithAnyOtherNumberIsChallenged) {
  TcpBed bed;
  bed.write(0, 3'000);
  ASSERT_TRUE(bed.run_until_idle(seconds(1))) << bed;
  PacketPtr last;
  bed.filter = [&](HostId from, PlanePort, Packet& p) {
    if (from == 0 && data_bytes(p) > 0) last = bed.pool().duplicate(p);
    return std::optional(Picoseconds{});
  };
  bed.write(0, 3'000);
  ASSERT_TRUE(bed.run_until_idle(seconds(1))) << bed;
  ASSERT_TRUE(last);
  last->header[kTcpAt + 13] |= tcp_flag::kRst;  // a forged reset inside the window, off by a segment
  bed.inject(1, 0, std::move(last));
  bed.run_until(bed.now() + milliseconds(1));
  EXPECT_EQ(bed.nic(1).counter("resets_invalid_dropped"), 1u);
  bed.write(0, 3'000, 9);
  ASSERT_TRUE(bed.run_until_idle(seconds(1))) << bed;
  EXPECT_EQ(bed.nic(1).arrivals.size(), 1u);
}

TEST(TcpPair, WhatIsNoSegmentOfAConnectionIsDroppedByName) {
  TcpBed bed;
  PacketPtr good;
  bed.filter = [&](HostId from, PlanePort, Packet& p) {
    if (from == 0 && !good) good = bed.pool().duplicate(p);
    return std::optional(Picoseconds{});
  };
  bed.write(0, 100);
  ASSERT_TRUE(bed.run_until_idle(seconds(1)));
  const auto inject = [&](auto&& bend) {
    PacketPtr p = bed.pool().duplicate(*good);
    bend(*p);
    bed.inject(1, 0, std::move(p));
  };
  inject([](Packet& p) { p.header[20] = 17; });             // UDP
  inject([](Packet& p) { p.header_length = 60; });          // cut off
  inject([](Packet& p) { p.header[kTcpAt + 12] = 0x40; });  // offset below its header
  inject([](Packet& p) { p.header[18] = 0xff; });           // IPv6 length beyond the frame
  inject([](Packet& p) { p.header[kTcpAt + 1] ^= 1; });     // another port
  inject([](Packet& p) { p.header[22] = 0xfe; });           // another source network
  inject([](Packet& p) { p.header[kTcpAt + 13] |= tcp_flag::kSyn; });
  inject([](Packet& p) { p.corrupt = true; });
  auto& nic = bed.nic(1);
  EXPECT_EQ(nic.counter("not_tcp_dropped"), 1u);
  EXPECT_EQ(nic.counter("malformed_dropped"), 3u);
  EXPECT_EQ(nic.counter("unknown_connection_dropped"), 2u);
  EXPECT_EQ(nic.counter("unexpected_flags_dropped"), 1u);
  EXPECT_EQ(nic.fcs_drops, 1u);
  good.reset();
  bed.run_until(bed.now() + milliseconds(1));
  EXPECT_EQ(bed.leaked(), 0u);
}

// The host's multipath route: one plane per connection, another one once its own port has no
// carrier. The peer's answers keep to their own plane, alive or not, as a kernel's would.
TEST(TcpPair, MovesToAnotherPortWhenItsOwnLosesCarrierAndBack) {
  TcpBed bed({.planes = 4});
  const PlanePort first = bed.tcp(0).port_of_connection(kQpA);
  ASSERT_LT(first, 4);
  std::array<int, 4> data{};
  bed.filter = [&](HostId from, PlanePort plane, Packet& p) {
    if (from == 0 && data_bytes(p) > 0) ++data[plane];
    return std::optional(Picoseconds{});
  };
  bed.write(0, 100'000, 1);
  bed.at(microseconds(5), [&] { bed.set_link(0, first, false); });
  bed.at(milliseconds(2), [&] { bed.set_link(0, first, true); });
  bed.run_until(microseconds(6));
  const PlanePort second = bed.tcp(0).port_of_connection(kQpA);
  EXPECT_NE(second, first);
  ASSERT_LT(second, 4);
  ASSERT_TRUE(bed.run_until_idle(seconds(1))) << bed;
  EXPECT_GE(bed.nic(0).counter("rerouted"), 2u);
  EXPECT_GT(data[first], 0);
  EXPECT_GT(data[second], 0);
  EXPECT_EQ(bed.tcp(0).port_of_connection(kQpA), first) << "the same hash over the same ports";
  EXPECT_TRUE(bed.same(0, 100'000)) << bed;
}

TEST(TcpPair, WaitsForCarrierWhereNoPortHasIt) {
  TcpBed bed({.planes = 4});
  for (PlanePort p = 0; p < 4; ++p) bed.set_link(0, p, false);
  EXPECT_EQ(bed.tcp(0).port_of_connection(kQpA), 0xff);
  bed.write(0, 1'000, 2);
  for (PlanePort p = 0; p < 4; ++p) bed.at(milliseconds(50), [&bed, p] { bed.set_link(0, p, true); });
  ASSERT_TRUE(bed.run_until_idle(seconds(1))) << bed;
  EXPECT_EQ(bed.nic(1).arrivals.size(), 1u);
  EXPECT_LT(bed.now(), milliseconds(51));
}

TEST(TcpPair, ConnectionsSpreadOverThePlanesAndSeedsDiffer) {
  std::array<int, 4> load{};
  for (std::uint64_t seed : {1, 2}) {
    tcp::TcpOptions o = quick();
    o.seed = seed;
    TcpBed bed({.planes = 4}, o);
    for (QpNumber q = 0; q < 100; ++q) {
      bed.connect(0, 1000 + q, 1, 2000 + q);
      ++load[bed.tcp(0).port_of_connection(1000 + q)];
    }
  }
  for (const int n : load) EXPECT_NEAR(n, 50, 25);
}

TEST(TcpPair, APeerThatIsGoneForGoodEndsTheConnection) {
  tcp::TcpOptions o = quick();
  o.retries = 4;
  TcpBed bed({}, o);
  bed.set_silent(0, 0, true);
  bed.write(0, 1'000);
  bed.write(1'000, 1'000);
  ASSERT_TRUE(bed.run_until_idle(seconds(5))) << bed;
  ASSERT_EQ(bed.nic(0).completions.size(), 2u);
  EXPECT_EQ(bed.nic(0).completions[0].completion.status, Status::retry_exceeded);
  EXPECT_EQ(bed.nic(0).completions[1].completion.status, Status::flushed);
  EXPECT_GE(bed.now(), milliseconds(1 + 2 + 4 + 8 + 16));
}

TEST(TcpPair, OptionsOutOfRangeAreRefusedByName) {
  PacketPool pool;
  const auto refused = [](auto&& change) {
    tcp::TcpOptions o;
    change(o);
    try {
      TcpBed bed({}, o);
    } catch (const std::invalid_argument& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refused([](auto&) {}), "accepted");
  EXPECT_NE(refused([](auto& o) { o.mtu = 1000; }).find("TcpOptions.mtu"), std::string::npos);
  EXPECT_NE(refused([](auto& o) { o.receive_buffer = 100; }).find("receive_buffer"), std::string::npos);
  EXPECT_NE(refused([](auto& o) { o.congestion_control = "x"; }).find("no control x"), std::string::npos);
  EXPECT_NE(refused([](auto& o) { o.rto_initial = {}; }).find("rto_initial"), std::string::npos);
}

}  // namespace
}  // namespace loomnet::testbed
