// RoCE over several planes: striping, order across queue pairs, ports that come and go, sharing.
#include <gmock/gmock.h>

#include <set>

#include "transport_roce/roce_bed.hpp"

namespace loomnet::testbed {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr Picoseconds kTimeout = nanoseconds(4096 * 128);

TEST(RoceStripes, AreEvenAlignedAndCoverTheMessage) {
  static_assert(roce::stripe_begin(1000, 4, 1) == 256 && roce::stripe_begin(1000, 4, 3) == 768);
  static_assert(roce::stripe_begin(100, 4, 1) == 100 && roce::stripe_begin(0, 4, 3) == 0);
  for (std::uint32_t length : {0u, 1u, 127u, 128u, 129u, 4096u, 4097u, 1'000'003u, 0xffffffffu}) {
    for (std::uint32_t planes = 1; planes <= 8; ++planes) {
      EXPECT_EQ(roce::stripe_begin(length, planes, 0), 0u);
      EXPECT_EQ(roce::stripe_begin(length, planes, planes), length);
      for (std::uint32_t p = 0; p < planes; ++p) {
        const auto begin = roce::stripe_begin(length, planes, p);
        const auto end = roce::stripe_begin(length, planes, p + 1);
        ASSERT_LE(begin, end);
        ASSERT_TRUE(begin % roce::kStripeAlignment == 0 || begin == length);
        ASSERT_LE(std::uint64_t{end} - begin, (std::uint64_t{length} + planes - 1) / planes + 127);
      }
    }
  }
}

TEST(RocePlanes, UnevenMessagesUseEveryPlaneAndArriveWhole) {
  RoceBed bed({.planes = 4});
  std::size_t at = 0;
  std::uint32_t n = 0;
  std::vector<std::uint32_t> sizes = {1000, 1, 0, 127, 129, 513, 4096, 77'777, 3};
  for (std::uint32_t size : sizes) bed.write(at, size, n++), at += size;
  ASSERT_TRUE(bed.run_until_idle(milliseconds(1))) << bed;
  EXPECT_TRUE(bed.same(0, at));
  ASSERT_EQ(bed.nic(1).arrivals.size(), sizes.size());
  std::uint64_t address = kBase;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const Arrival& a = bed.nic(1).arrivals[i].arrival;
    EXPECT_EQ(a.immediate, i);
    EXPECT_EQ(a.length, sizes[i]);
    EXPECT_EQ(a.address, address);
    address += sizes[i];
  }
  for (std::size_t p = 0; p < 4; ++p) EXPECT_GE(bed.up(0, p).sent, sizes.size());
}

TEST(RocePlanes, ALargeMessageGetsTheRateOfAllPorts) {
  Picoseconds took[2];
  for (std::size_t planes : {1u, 4u}) {
    roce::RoceOptions o = quick();
    o.payload_mtu = 4096;
    RoceBed bed({.planes = planes}, o);
    bed.write(0, 1 << 20);
    ASSERT_TRUE(bed.run_until_idle(milliseconds(2)));
    took[planes == 4] = bed.now();
  }
  // 1 MiB at 100 Gb/s is 87 us on the wire; four ports take a quarter, each plus about 4 us.
  EXPECT_NEAR(took[0].microseconds(), 89.5, 2.5);
  EXPECT_NEAR(took[1].microseconds(), 26, 2.5);
}

TEST(RocePlanes, ImmediatesWaitForTheSlowestPlaneInPostingOrder) {
  RoceBed bed({.planes = 4});
  bed.up(0, 2).delay = microseconds(300);
  bed.nic(1).on_arrival = [&](const Arrival& a) {
    EXPECT_TRUE(bed.same(a.address - kBase, a.length)) << "delivered before its bytes";
    EXPECT_GE(bed.now(), microseconds(300));
  };
  for (std::uint32_t i = 0; i < 5; ++i) bed.write(i * 2048, 2048, i);
  ASSERT_TRUE(bed.run_until_idle(milliseconds(2))) << bed;
  EXPECT_THAT(bed.arrived_immediates(), ElementsAre(0, 1, 2, 3, 4));
}

TEST(RocePlanes, APlainWriteIsInPlaceBeforeTheImmediateBehindIt) {
  RoceBed bed({.planes = 4});
  bed.up(0, 0).delay = microseconds(300);  // the short write goes by plane 0 alone
  bed.nic(1).on_arrival = [&](const Arrival&) { EXPECT_TRUE(bed.same(0, 50)); };
  bed.write(0, 50);
  bed.write(512, 0, 1);
  ASSERT_TRUE(bed.run_until_idle(milliseconds(2))) << bed;
  EXPECT_EQ(bed.nic(1).arrivals.size(), 1u);
}

TEST(RocePlanes, LossOnOnePlaneDoesNotDisturbTheOthers) {
  RoceBed bed({.planes = 4, .seed = 3});
  bed.up(0, 1).loss = 0.05;
  for (int i = 0; i < 20; ++i) bed.write(i * 8192, 8192, i);
  ASSERT_TRUE(bed.run_until_idle(milliseconds(10))) << bed;
  EXPECT_GT(bed.nic(0).counter("retransmitted"), 0u);
  EXPECT_EQ(bed.up(0, 0).sent, bed.up(0, 2).sent);
  EXPECT_GT(bed.up(0, 1).sent, bed.up(0, 0).sent);
  EXPECT_TRUE(bed.same(0, 20 * 8192));
}

TEST(RocePlanes, ADownedPortStallsUntilItReturns) {
  RoceBed bed({.planes = 2});
  bed.set_link(0, 1, false);
  const auto id = bed.write(0, 4096, 1);
  bed.run_until(kTimeout * 3 + microseconds(10));
  EXPECT_TRUE(bed.nic(0).completions.empty());
  EXPECT_TRUE(bed.nic(1).arrivals.empty());
  bed.set_link(0, 1, true);
  ASSERT_TRUE(bed.run_until_idle(milliseconds(10))) << bed;
  EXPECT_THAT(bed.completed_ids(), ElementsAre(id));
  EXPECT_LT(bed.now(), kTimeout * 3 + microseconds(40)) << "sent as soon as the port is back";
  EXPECT_EQ(bed.nic(0).completions[0].completion.status, Status::ok);
  EXPECT_EQ(bed.nic(0).counter("timeouts"), 3u);
  EXPECT_TRUE(bed.same(0, 4096));
}

TEST(RocePlanes, APortThatDiesMidMessageRecoversByTheTimer) {
  RoceBed bed({.planes = 2, .rate = gigabits(1)});
  bed.write(0, 65'536, 1);  // 280 us per plane
  bed.at(microseconds(100), [&] { bed.set_link(0, 1, false); });
  bed.at(microseconds(200), [&] { bed.set_link(0, 1, true); });
  ASSERT_TRUE(bed.run_until_idle(milliseconds(5))) << bed;
  EXPECT_TRUE(bed.same(0, 65'536));
  EXPECT_GT(bed.nic(0).counter("retransmitted"), 0u);
}

TEST(RocePlanes, APortThatStaysDownFailsTheConnection) {
  RoceBed bed({.planes = 2});
  bed.set_link(0, 1, false);
  bed.write(0, 4096, 1);
  bed.write(4096, 4096, 2);
  ASSERT_TRUE(bed.run_until_idle(milliseconds(10))) << bed;
  ASSERT_EQ(bed.nic(0).completions.size(), 2u);
  EXPECT_EQ(bed.nic(0).completions[0].completion.status, Status::retry_exceeded);
  EXPECT_EQ(bed.nic(0).completions[0].at, kTimeout * 8);
  EXPECT_EQ(bed.nic(0).completions[1].completion.status, Status::flushed);
  EXPECT_TRUE(bed.nic(1).arrivals.empty());
}

TEST(RocePlanes, TheFarPortBeingDownIsFoundByTheTimer) {
  RoceBed bed({.planes = 2});
  bed.set_link(1, 1, false);
  bed.at(kTimeout * 5 / 2, [&] { bed.set_link(1, 1, true); });
  bed.write(0, 4096, 1);
  ASSERT_TRUE(bed.run_until_idle(milliseconds(10))) << bed;
  EXPECT_EQ(bed.nic(0).counter("timeouts"), 3u);
  EXPECT_TRUE(bed.same(0, 4096));
}

TEST(RocePlanes, QueuePairsShareAPortEvenly) {
  RoceBed bed({.hosts = 3, .planes = 1, .rate = gigabits(10)});
  Region& third = bed.nic(2).add_region(kKey, kBase, 1 << 20);
  bed.connect(0, kQpA + 1, 2, kQpB);
  bed.write(0, 100'000);
  bed.post_write(0, kQpA + 1, std::span(bed.source).first(100'000), kBase, kKey);
  bed.run_until(microseconds(80));
  const double ratio = static_cast<double>(bed.nic(1).placed_bytes) / static_cast<double>(bed.nic(2).placed_bytes);
  EXPECT_NEAR(ratio, 1, 0.03);
  ASSERT_TRUE(bed.run_until_idle(milliseconds(1)));
  EXPECT_TRUE(bed.same(0, 100'000));
  EXPECT_EQ(std::memcmp(third.bytes.data(), bed.source.data(), 100'000), 0);
}

TEST(RocePlanes, EachQueuePairHasItsOwnEntropyAndKeepsIt) {
  RoceBed bed({.planes = 4});
  for (QpNumber q = 1; q <= 15; ++q) bed.connect(0, kQpA + q, 1, kQpB + q);
  std::set<std::pair<int, int>> ports;  // plane, UDP source port
  std::vector<std::uint8_t> classes;
  bed.filter = [&](HostId from, PlanePort plane, Packet& p) -> std::optional<Picoseconds> {
    const std::uint8_t* h = p.header.data();
    if (from == 0) ports.insert({plane, h[54] << 8 | h[55]});
    classes.push_back(static_cast<std::uint8_t>(h[14] << 4 | h[15] >> 4));
    EXPECT_EQ(h[56] << 8 | h[57], 4791);
    EXPECT_EQ((h[18] << 8 | h[19]) + 54u, p.wire_length);
    return Picoseconds{};
  };
  for (QpNumber q = 0; q < 16; ++q) bed.post_write(0, kQpA + q, std::span(bed.source).first(9000), kBase, kKey);
  ASSERT_TRUE(bed.run_until_idle(milliseconds(2)));
  EXPECT_GE(ports.size(), 63u);  // 64 queue pairs, at most one collision in 2^14
  for (auto& [plane, port] : ports) EXPECT_GE(port, 0xc000);
  EXPECT_THAT(classes, Each(0));  // DSCP 0, not ECN-capable
}

}  // namespace
}  // namespace loomnet::testbed
