// RoCE as protocol transcripts on one plane: order, loss, timers, retries, duplicates, wrap,
// errors.
#include <gmock/gmock.h>

#include "transport_roce/roce_bed.hpp"

namespace loomnet::testbed {
namespace {

using ::testing::ElementsAre;

constexpr Picoseconds kTimeout = nanoseconds(4096 * 128);

// Loses the first `times` data packets with this PSN from host 0.
Testbed::Filter lose(std::uint32_t psn, int times = 1) {
  return [psn, left = times](HostId from, PlanePort, Packet& p) mutable -> std::optional<Picoseconds> {
    if (from == 0 && is_data(p) && bth_of(p).psn == psn && left > 0) return --left, std::nullopt;
    return Picoseconds{};
  };
}

TEST(RoceTranscript, DeliversInPostingOrderWithTheRightOpcodes) {
  RoceBed bed;
  std::vector<int> opcodes;
  bed.filter = [&](HostId from, PlanePort, Packet& p) -> std::optional<Picoseconds> {
    if (from == 0) opcodes.push_back(bth_of(p).opcode);
    return Picoseconds{};
  };
  const auto a = bed.write(0, 1000);
  const auto b = bed.write(1000, 256, 7);
  const auto c = bed.write(1256, 600, 8);
  ASSERT_TRUE(bed.run_until_idle(milliseconds(1))) << bed;
  EXPECT_THAT(opcodes, ElementsAre(0x06, 0x07, 0x07, 0x08, 0x0b, 0x06, 0x07, 0x09));
  EXPECT_THAT(bed.completed_ids(), ElementsAre(a, b, c));
  EXPECT_THAT(bed.arrived_immediates(), ElementsAre(7, 8));
  EXPECT_EQ(bed.nic(1).arrivals[1].arrival.address, kBase + 1256);
  EXPECT_EQ(bed.nic(1).arrivals[1].arrival.length, 600u);
  EXPECT_TRUE(bed.same(0, 1856));
  EXPECT_EQ(bed.nic(0).counter("retransmitted"), 0u);
  EXPECT_EQ(bed.leaked(), 0u);
}

TEST(RoceTranscript, AZeroLengthWriteWithImmediateIsOneOnlyPacket) {
  RoceBed bed;
  const auto id = bed.write(0, 0, 42);
  ASSERT_TRUE(bed.run_until_idle(milliseconds(1))) << bed;
  EXPECT_THAT(bed.completed_ids(), ElementsAre(id));
  EXPECT_THAT(bed.arrived_immediates(), ElementsAre(42));
  EXPECT_EQ(bed.nic(0).counter("packets_sent"), 1u);
  EXPECT_EQ(bed.nic(1).placements, 0u);
}

TEST(RoceTranscript, AHoleDrawsOneNakAndGoesBack) {
  RoceBed bed;
  bed.filter = lose(3);
  bed.write(0, 256 * 10, 1);
  ASSERT_TRUE(bed.run_until_idle(milliseconds(1))) << bed;
  EXPECT_LT(bed.now(), kTimeout) << bed;
  EXPECT_EQ(bed.nic(1).counter("naks_sent"), 1u);
  EXPECT_EQ(bed.nic(1).counter("out_of_order_dropped"), 6u);  // PSN 4 to 9 of the first round
  EXPECT_EQ(bed.nic(0).counter("retransmitted"), 7u);         // PSN 3 to 9
  EXPECT_EQ(bed.nic(0).counter("timeouts"), 0u);
  EXPECT_TRUE(bed.same(0, 2560));
  EXPECT_THAT(bed.arrived_immediates(), ElementsAre(1));
}

TEST(RoceTranscript, ASecondLossOfTheSamePacketWaitsForTheTimer) {
  RoceBed bed;
  bed.filter = lose(3, 2);
  bed.write(0, 256 * 10);
  ASSERT_TRUE(bed.run_until_idle(milliseconds(2))) << bed;
  EXPECT_EQ(bed.nic(1).counter("naks_sent"), 1u) << "one NAK per hole";
  EXPECT_EQ(bed.nic(0).counter("timeouts"), 1u);
  EXPECT_TRUE(bed.same(0, 2560));
}

TEST(RoceTranscript, TailLossIsRepairedExactlyOneTimeoutAfterTheLastProgress) {
  RoceBed bed;
  bed.filter = lose(0);
  bed.write(0, 100);
  std::vector<Picoseconds> sent;
  const Testbed::Filter losing = bed.filter;
  bed.filter = [&](HostId from, PlanePort port, Packet& p) {
    if (from == 0) sent.push_back(bed.now());
    return losing(from, port, p);
  };
  ASSERT_TRUE(bed.run_until_idle(milliseconds(2))) << bed;
  ASSERT_EQ(sent.size(), 2u) << bed;
  EXPECT_EQ((sent[1] - sent[0]).count, kTimeout.count);
  ASSERT_EQ(bed.nic(0).events.size(), 1u);
  EXPECT_EQ(bed.nic(0).events[0].kind, EventKind::rto);
  EXPECT_EQ(bed.nic(0).events[0].at, kTimeout);
}

TEST(RoceTranscript, TheDefaultTimeoutIsTheOneNcclShips) {
  EXPECT_EQ(roce::RoceOptions{}.ack_timeout(), Picoseconds{4'294'967'296'000});  // 4.096 us * 2^20
  EXPECT_EQ(roce::RoceOptions{}.retry_count, 7);
  RoceBed bed({}, roce::RoceOptions{});
  bed.set_silent(0, 0, true);
  const auto id = bed.write(0, 100);
  bed.run_until(seconds(40));
  ASSERT_EQ(bed.nic(0).completions.size(), 1u);
  EXPECT_EQ(bed.nic(0).completions[0].completion.id, id);
  EXPECT_EQ(bed.nic(0).completions[0].completion.status, Status::retry_exceeded);
  EXPECT_EQ(bed.nic(0).completions[0].at, roce::RoceOptions{}.ack_timeout() * 8);  // 34.36 s
}

TEST(RoceTranscript, ExhaustedRetriesFailTheOldestAndFlushTheRest) {
  RoceBed bed;
  const auto done = bed.write(0, 100, 1);
  ASSERT_TRUE(bed.run_until_idle(milliseconds(1)));
  bed.set_silent(0, 0, true);
  const auto dead = bed.write(100, 5000);
  const auto flushed = bed.write(6000, 10, 2);
  ASSERT_TRUE(bed.run_until_idle(milliseconds(20))) << bed;
  ASSERT_THAT(bed.completed_ids(), ElementsAre(done, dead, flushed));
  EXPECT_EQ(bed.nic(0).completions[1].completion.status, Status::retry_exceeded);
  EXPECT_EQ(bed.nic(0).completions[2].completion.status, Status::flushed);
  EXPECT_EQ(bed.nic(0).counter("timeouts"), 8u);
  EXPECT_EQ(bed.nic(0).counter("connections_failed"), 1u);
  EXPECT_EQ(bed.nic(0).events.back().kind, EventKind::qp_error);
  bed.set_silent(0, 0, false);
  const auto late = bed.write(0, 10);
  EXPECT_EQ(bed.completed_ids().back(), late);
  EXPECT_EQ(bed.nic(0).completions.back().completion.status, Status::flushed);
  bed.run_until(milliseconds(40));
  EXPECT_THAT(bed.arrived_immediates(), ElementsAre(1));
  EXPECT_EQ(bed.leaked(), 0u);
}

TEST(RoceTranscript, ProgressGivesTheRetriesBack) {
  RoceBed bed;
  for (std::size_t message : {0, 1}) {
    // Silent over the first sending and six retries: the seventh and last one gets through.
    bed.set_silent(0, 0, true);
    bed.at(bed.now() + kTimeout * 13 / 2, [&] { bed.set_silent(0, 0, false); });
    bed.write(message * 100, 100);
    ASSERT_TRUE(bed.run_until_idle(milliseconds(20))) << bed;
    EXPECT_EQ(bed.nic(0).completions.at(message).completion.status, Status::ok) << bed;
    EXPECT_EQ(bed.nic(0).counter("timeouts"), 7 * (message + 1));
  }
  EXPECT_TRUE(bed.same(0, 200));
}

TEST(RoceTranscript, DuplicatesAreAcknowledgedAndNotExecuted) {
  RoceBed bed;
  bed.up(0, 0).duplication = 1;
  bed.up(0, 0).jitter = nanoseconds(1);
  bed.write(0, 1000, 3);
  bed.write(1000, 0, 4);
  ASSERT_TRUE(bed.run_until_idle(milliseconds(1))) << bed;
  EXPECT_THAT(bed.arrived_immediates(), ElementsAre(3, 4));
  EXPECT_EQ(bed.nic(1).placed_bytes, 1000u);
  EXPECT_EQ(bed.nic(1).counter("duplicates_dropped"), 5u);
  EXPECT_EQ(bed.nic(0).completions.size(), 2u);
}

TEST(RoceTranscript, ALostAckIsReplacedByALaterOne) {
  RoceBed bed;
  bed.filter = [left = 1](HostId from, PlanePort, Packet&) mutable -> std::optional<Picoseconds> {
    if (from == 1 && left > 0) return --left, std::nullopt;
    return Picoseconds{};
  };
  const auto a = bed.write(0, 100);
  bed.at(microseconds(50), [&] { bed.write(100, 100); });
  ASSERT_TRUE(bed.run_until_idle(milliseconds(1))) << bed;
  EXPECT_LT(bed.now(), microseconds(100)) << bed;
  EXPECT_EQ(bed.completed_ids().front(), a);
  EXPECT_EQ(bed.completed_ids().size(), 2u);
}

TEST(RoceTranscript, ALostLastAckIsRepairedByTheTimerWithoutASecondDelivery) {
  RoceBed bed;
  bed.filter = [left = 1](HostId from, PlanePort, Packet&) mutable -> std::optional<Picoseconds> {
    if (from == 1 && left > 0) return --left, std::nullopt;
    return Picoseconds{};
  };
  bed.write(0, 100, 9);
  ASSERT_TRUE(bed.run_until_idle(milliseconds(2))) << bed;
  EXPECT_EQ(bed.nic(0).counter("timeouts"), 1u);
  EXPECT_EQ(bed.nic(1).counter("duplicates_dropped"), 1u);
  EXPECT_THAT(bed.arrived_immediates(), ElementsAre(9));
}

TEST(RoceTranscript, PsnWrapsUnderLoss) {
  roce::RoceOptions o = quick();
  o.initial_psn = 0xfffffa;
  RoceBed bed({}, o);
  bed.filter = lose(2);  // behind the wrap
  for (int i = 0; i < 8; ++i) bed.write(i * 1024, 1024, i);
  ASSERT_TRUE(bed.run_until_idle(milliseconds(1))) << bed;
  EXPECT_TRUE(bed.same(0, 8192));
  EXPECT_THAT(bed.arrived_immediates(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(bed.nic(1).counter("naks_sent"), 1u);
  EXPECT_EQ(bed.nic(0).counter("timeouts"), 0u);
}

TEST(RoceTranscript, AcksAreCoalesced) {
  roce::RoceOptions o = quick();
  o.ack_interval = 4;
  RoceBed bed({}, o);
  bed.write(0, 256 * 10);
  ASSERT_TRUE(bed.run_until_idle(milliseconds(1)));
  EXPECT_EQ(bed.nic(1).counter("acks_sent"), 3u);  // after 4, 8 and the last
}

TEST(RoceTranscript, TheInFlightLimitHolds) {
  roce::RoceOptions o = quick();
  o.in_flight_limit = 3 * 256;
  RoceBed bed({}, o);
  std::uint32_t last_acked = 0, most = 0;
  bed.filter = [&](HostId from, PlanePort, Packet& p) -> std::optional<Picoseconds> {
    if (from == 1) last_acked = bth_of(p).psn + 1;
    if (from == 0) most = std::max(most, bth_of(p).psn + 1 - last_acked);
    return Picoseconds{};
  };
  bed.write(0, 256 * 20);
  ASSERT_TRUE(bed.run_until_idle(milliseconds(1))) << bed;
  EXPECT_EQ(most, 3u);
  EXPECT_EQ(bed.nic(0).counter("timeouts"), 0u);
}

TEST(RoceTranscript, ARefusedKeyEndsBothEnds) {
  RoceBed bed;
  const auto good = bed.write(0, 300, 1);
  const auto bad = bed.post_write(0, kQpA, std::span(bed.source).first(1000), kBase, kKey + 1, 2);
  const auto after = bed.write(2000, 100, 3);
  ASSERT_TRUE(bed.run_until_idle(milliseconds(2))) << bed;
  ASSERT_THAT(bed.completed_ids(), ElementsAre(good, bad, after));
  EXPECT_EQ(bed.nic(0).completions[0].completion.status, Status::ok);
  EXPECT_EQ(bed.nic(0).completions[1].completion.status, Status::remote_access_error);
  EXPECT_EQ(bed.nic(0).completions[2].completion.status, Status::flushed);
  EXPECT_THAT(bed.arrived_immediates(), ElementsAre(1));
  EXPECT_EQ(bed.nic(1).counter("access_errors"), 1u);
  EXPECT_EQ(bed.nic(1).events.back().kind, EventKind::qp_error);
}

TEST(RoceTranscript, AWriteBehindItsRegionIsRefusedEvenIfTheNakIsLost) {
  RoceBed bed;
  bed.filter = [left = 1](HostId from, PlanePort, Packet&) mutable -> std::optional<Picoseconds> {
    if (from == 1 && left > 0) return --left, std::nullopt;
    return Picoseconds{};
  };
  bed.post_write(0, kQpA, std::span(bed.source).first(512), kBase + (1 << 20) - 256, kKey);
  ASSERT_TRUE(bed.run_until_idle(milliseconds(2))) << bed;
  EXPECT_EQ(bed.nic(0).completions.at(0).completion.status, Status::remote_access_error);
}

TEST(RoceTranscript, LengthsAloneAreTimedLikeBytes) {
  Picoseconds took[2];
  for (bool with_bytes : {false, true}) {
    RoceBed bed;
    WorkRequest w;
    w.local = with_bytes ? bed.source.data() : nullptr;
    w.length = 10'000, w.remote_address = kBase, w.remote_key = kKey;
    bed.post(0, kQpA, w);
    ASSERT_TRUE(bed.run_until_idle(milliseconds(1)));
    took[with_bytes] = bed.now();
    EXPECT_EQ(bed.same(0, 10'000), with_bytes);
  }
  EXPECT_EQ(took[0], took[1]);
}

TEST(RoceTranscript, APostToAnUnknownQueuePairIsFlushed) {
  RoceBed bed;
  WorkRequest w;
  w.id = 5;
  bed.post(0, 4242, w);
  EXPECT_EQ(bed.nic(0).completions.at(0).completion.status, Status::flushed);
  EXPECT_EQ(bed.nic(0).counter("posts_unknown_qp"), 1u);
  EXPECT_FALSE(bed.transport(0).outstanding());
}

TEST(RoceTranscript, ConfigurationsItCannotServeAreRefusedByName) {
  RoceBed bed;
  QpConfig c;
  c.local = kQpA, c.remote = 5, c.planes.resize(1);
  EXPECT_THROW(bed.transport(0).connect(c, {}), std::invalid_argument);  // exists
  c.local = 1;
  EXPECT_THROW(bed.transport(0).connect(c, {}), std::invalid_argument);  // reserved
  c.local = 7, c.planes.resize(9);
  EXPECT_THROW(bed.transport(0).connect(c, {}), std::invalid_argument);
  c.planes.clear();
  EXPECT_THROW(bed.transport(0).connect(c, {}), std::invalid_argument);
  roce::RoceOptions o;
  o.payload_mtu = 1500;
  EXPECT_THROW(roce::RoceTransport(bed.nic(0), o), std::invalid_argument);
}

TEST(RoceTranscript, AnIdleConnectionIsSmall) { EXPECT_LE(roce::RoceTransport::idle_bytes(8), 4096u); }

}  // namespace
}  // namespace loomnet::testbed
