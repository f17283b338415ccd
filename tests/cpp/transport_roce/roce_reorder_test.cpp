// RoCE where packets overtake each other and none is lost: when a NAK brings the rest, and when the timer must.
#include <set>

#include "transport_roce/roce_bed.hpp"

namespace loomnet::testbed {
namespace {

using ::testing::ElementsAre;

// Delays packets of host 0 by PSN, each as often as it is listed, by `by`.
Testbed::Filter delay_psns(std::multiset<std::uint32_t> psns, Picoseconds by) {
  return [psns, by](HostId from, PlanePort, Packet& packet) mutable -> std::optional<Picoseconds> {
    if (from != 0 || !is_data(packet)) return Picoseconds{};
    const auto found = psns.find(bth_of(packet).psn);
    if (found == psns.end()) return Picoseconds{};
    psns.erase(found);
    return by;
  };
}

// Answers of host 1, with the PSN of each: what host 0 is sent.
struct Answers {
  std::vector<std::string> sent;
  Testbed::Filter around(Testbed::Filter inner) {
    return [this, inner](HostId from, PlanePort port, Packet& packet) {
      if (from == 1 && !is_data(packet)) sent.push_back(describe_rc(packet.header_bytes()));
      return inner(from, port, packet);
    };
  }
};

// PSN 3 comes some nanoseconds behind PSN 4, the last one, while the port of host 1 is busy with a packet of 0.33 us:
// the NAK waits, and PSN 3 is there before it has left.
TEST(RoceReordering, ANakThatWaitsForThePortLeavesThoughTheMissingPacketHasCome) {
  roce::RoceOptions options = quick();
  options.payload_mtu = 4096;
  options.ack_interval = 1;
  RoceBed bed({}, options);
  Answers answers;
  bed.filter = answers.around(delay_psns({3}, nanoseconds(340)));
  bed.nic(0).add_region(kKey, kBase, 1 << 20);
  const std::vector<std::uint8_t> other(1 << 20);
  bed.post_write(1, kQpB, std::span(other).first(100'000), kBase, kKey);
  bed.write(0, 4096 * 5);
  ASSERT_TRUE(bed.run_until_idle(milliseconds(1))) << bed;
  EXPECT_EQ(bed.nic(0).counter("timeouts"), 0u) << bed;
  EXPECT_EQ(bed.nic(1).counter("out_of_order_dropped"), 1u) << bed;
  EXPECT_EQ(bed.nic(0).counter("retransmitted"), 2u) << bed;  // PSN 3 and 4
  // One NAK, and the ACK of the late packet behind it; then the answers to both packets that were sent again.
  ASSERT_GE(answers.sent.size(), 4u);
  EXPECT_THAT(
      std::vector(answers.sent.end() - 4, answers.sent.end()),
      ElementsAre("NAK 0x60 psn 3 msn 0", "ACK 0x1f psn 3 msn 0", "ACK 0x1f psn 3 msn 0", "ACK 0x1f psn 4 msn 1"));
}

// Forty messages of a few packets, one after another, while the way back carries data of its own, so that
// answers wait for the port of host 1.
void run_seed(std::uint64_t seed, std::uint64_t& naks) {
  RandomStream random(seed, 1, 11);
  roce::RoceOptions o = quick();
  o.payload_mtu = 1024;
  o.ack_interval = 1 + random.below(8);
  o.initial_psn = random.below(1 << 24);
  BedOptions options{.seed = seed};
  options.rate = gigabits(10);  // a packet takes 0.9 us
  RoceBed bed(options, o, 1 << 16);
  // A packet's first copy is delayed by up to 2 us; retransmissions come in order.
  std::set<std::uint32_t> seen;
  bed.filter = [&](HostId from, PlanePort, Packet& packet) -> std::optional<Picoseconds> {
    if (from == 1 || !is_data(packet) || !seen.insert(bth_of(packet).psn).second) return Picoseconds{};
    return random.uniform() < 0.2 ? microseconds(2).scaled(random.uniform()) : Picoseconds{};
  };
  bed.nic(0).add_region(kKey, kBase, 1 << 20);
  const std::vector<std::uint8_t> other(1 << 20);
  bed.post_write(1, kQpB, std::span(other), kBase, kKey);
  for (int i = 0; i < 40; ++i) {
    bed.at(microseconds(20 * i), [&] { bed.write(0, 1 + random.below(12'000)); });
  }
  ASSERT_TRUE(bed.run_until_idle(milliseconds(20))) << bed;
  EXPECT_EQ(bed.nic(0).counter("timeouts") + bed.nic(1).counter("timeouts"), 0u) << bed;
  EXPECT_EQ(bed.nic(0).counter("messages_completed"), 40u) << bed;
  naks += bed.nic(1).counter("naks_sent");
}

TEST(RoceReordering, NoFlowWaitsForItsTimerWhereNothingIsLostAndRepeatedPacketsComeInOrder) {
  std::uint64_t naks = 0;
  for (std::uint64_t seed = 1; seed <= 100 && !HasFailure(); ++seed) run_seed(seed, naks);
  EXPECT_GT(naks, 500u);
}

// A hole draws one NAK (InfiniBand Architecture Vol. 1, 9.7.5.1.2). So where the packet that fills it is sent
// again and overtaken again, by the last packets of all, no second NAK comes.
TEST(RoceReordering, AHoleWhoseRepeatedPacketIsOvertakenByTheLastOnesWaitsForTheTimer) {
  RoceBed bed;
  bed.filter = delay_psns({3, 3}, microseconds(8));
  bed.write(0, 256 * 5);
  ASSERT_TRUE(bed.run_until_idle(milliseconds(2))) << bed;
  EXPECT_EQ(bed.nic(1).counter("naks_sent"), 1u) << bed;
  EXPECT_EQ(bed.nic(0).counter("timeouts"), 1u) << bed;
  EXPECT_TRUE(bed.same(0, 256 * 5));
}

// A NAK that a later ACK overtakes names a packet that the ACK has acknowledged: the requester takes it for
// stale (as for a repeated answer, 9.7.5.1), and what was dropped behind the hole waits for the timer.
TEST(RoceReordering, ANakThatALaterAckOvertakesIsStale) {
  roce::RoceOptions options = quick();
  options.ack_interval = 1;
  for (const bool late : {false, true}) {
    RoceBed bed({}, options);
    const auto data = delay_psns({3}, nanoseconds(100));
    bed.filter = [=](HostId from, PlanePort port, Packet& packet) mutable -> std::optional<Picoseconds> {
      if (from == 0) return data(from, port, packet);
      const bool nak = describe_rc(packet.header_bytes()).starts_with("NAK");
      return late && nak ? microseconds(4) : Picoseconds{};
    };
    bed.write(0, 256 * 5);
    ASSERT_TRUE(bed.run_until_idle(milliseconds(2))) << bed;
    EXPECT_EQ(bed.nic(0).counter("naks_received"), 1u) << bed;
    EXPECT_EQ(bed.nic(0).counter("retransmitted"), late ? 1u : 2u) << bed;  // PSN 4, or both
    EXPECT_EQ(bed.nic(0).counter("timeouts"), late ? 1u : 0u) << bed;
  }
}

}  // namespace
}  // namespace loomnet::testbed
