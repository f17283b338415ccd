// One link direction: exact times, strict priority with the control cap, limits, trimming, marking,
// carrier, impairments, the shared buffer.
#include "link/half_link.hpp"

#include <gtest/gtest.h>

namespace loomnet {
namespace {

struct Far : LinkReceiver {
  struct Seen {
    Picoseconds at, ideal;
    std::uint64_t uid;
    QueueClass queue;
    std::uint32_t length;
    bool ce;
  };
  std::vector<Seen> seen;
  void receive(std::uint16_t, PacketPtr p, Picoseconds now) override {
    seen.push_back({now, p->ideal, p->uid, p->queue, p->wire_length, (p->header[15] & 0x30) == 0x30});
  }
};

class HalfLinkTest : public ::testing::Test {
 protected:
  HalfLink& make(LinkConfig config, std::uint64_t seed = 1) {
    if (config.rate.count == 0 && !rateless_) config.rate = gigabits(100);
    link_ = std::make_unique<HalfLink>(events_, pool_, config, far_, 0, seed);
    return *link_;
  }
  // A frame with Ethernet, outer IPv6 (DSCP `dscp_value`, ECT) and inner IPv6 + UDP, as MRC sends.
  PacketPtr packet(std::uint32_t length, QueueClass queue = kDataClass) {
    PacketPtr p = pool_.allocate();
    p->wire_length = length;
    p->queue = queue;
    p->header_length = 192;
    p->header.fill(0);
    p->header[12] = 0x86;
    p->header[13] = 0xdd;
    p->header[14] = 0x60;
    p->header[15] = 0x20;  // ECT(0)
    p->header[20] = 41;
    p->header[54] = 0x60;
    p->header[60] = 17;
    p->ect = true;
    p->payload.length = length > 192 ? length - 192 : 0;
    return p;
  }
  void TearDown() override {
    if (link_) link_->clear();
    EXPECT_EQ(pool_.outstanding(), 0u);
  }
  std::uint64_t drops(std::string_view reason) { return link_->counters().drops(reason); }

  bool rateless_ = false;
  EventQueue events_;
  PacketPool pool_;
  Far far_;
  std::unique_ptr<HalfLink> link_;
};

TEST_F(HalfLinkTest, SerialisationPlusPropagationToThePicosecond) {
  HalfLink& link = make({.delay = microseconds(1)});
  link.offer(packet(1000), {});
  link.offer(packet(1000), {});
  link.offer(packet(10), {});  // padded to the minimum frame
  events_.run_until(milliseconds(1));
  ASSERT_EQ(far_.seen.size(), 3u);
  EXPECT_EQ(far_.seen[0].at.count, 1'000'000 + 1024 * 80);
  EXPECT_EQ(far_.seen[1].at.count, 1'000'000 + 2 * 1024 * 80);
  EXPECT_EQ(far_.seen[2].at.count, 1'000'000 + (2 * 1024 + 84) * 80);
}

TEST_F(HalfLinkTest, CarriesAFrameOverTheTimeThatItTakes) {
  HalfLink& link = make({.delay = microseconds(1)});
  for (int i = 0; i < 3; ++i) link.offer(packet(1000), {});
  link.offer(packet(1000), microseconds(10));
  const Picoseconds frame{1024 * 80}, begin = microseconds(1);  // the first bit comes out
  const auto carried = [&](Picoseconds now) {
    events_.run_until(now);
    return link.carried_bytes(now);
  };
  EXPECT_EQ(carried(begin), 0u);
  EXPECT_EQ(carried(begin + frame / 4), 250u);
  EXPECT_EQ(carried(begin + frame), 1000u);
  EXPECT_EQ(carried(begin + frame * 5 / 2), 2500u);
  EXPECT_EQ(carried(begin + frame * 3), 3000u);
  EXPECT_EQ(carried(microseconds(10)), 3000u);  // idle
  EXPECT_EQ(carried(microseconds(11) + frame / 2), 3500u);
  link.set_up(false, microseconds(11) + frame / 2);
  EXPECT_EQ(carried(milliseconds(1)), 3000u);  // cut off
}

// A clock as a late live loop has it: the packet was due behind one that has long arrived when it is
// offered. It leaves behind that one by the model, and reaches the far end at once.
TEST_F(HalfLinkTest, APacketOfferedLateIsNotForgottenBehindOneThatHasArrived) {
  HalfLink& link = make({.delay = microseconds(1)});
  const Picoseconds clocking{1024 * 80};
  link.offer(packet(1000), {});
  events_.run_until(milliseconds(7));
  ASSERT_EQ(far_.seen.size(), 1u);
  link.offer(packet(1000), nanoseconds(5));
  link.offer(packet(1000), nanoseconds(6));
  events_.run_until(milliseconds(8));
  ASSERT_EQ(far_.seen.size(), 3u);
  EXPECT_EQ(far_.seen[1].at, milliseconds(7));
  EXPECT_EQ(far_.seen[1].ideal, clocking * 2 + microseconds(1));
  EXPECT_EQ(far_.seen[2].at, milliseconds(7));
  EXPECT_EQ(far_.seen[2].ideal, clocking * 3 + microseconds(1));
}

TEST_F(HalfLinkTest, OneEventPerHopEvenWhenQueued) {
  HalfLink& link = make({.delay = microseconds(1)});
  for (int i = 0; i < 100; ++i) link.offer(packet(1000), {});
  events_.run_until(milliseconds(1));
  EXPECT_EQ(far_.seen.size(), 100u);
  EXPECT_EQ(events_.processed(), 100u);
}

TEST_F(HalfLinkTest, ControlOvertakesDataButTakesAtMostItsShare) {
  HalfLink& link = make({.control_share = 0.5});
  for (int i = 0; i < 10; ++i) link.offer(packet(1000), {});
  for (int i = 0; i < 10; ++i) link.offer(packet(1000, kControlClass), {});
  events_.run_until(milliseconds(1));
  ASSERT_EQ(far_.seen.size(), 20u);
  EXPECT_EQ(far_.seen[0].queue, kDataClass);     // already on the wire
  EXPECT_EQ(far_.seen[1].queue, kControlClass);  // overtakes nine waiting
  int control = 0;
  for (int i = 1; i < 19; ++i) {
    control += far_.seen[i].queue == kControlClass;
    EXPECT_LE(control, i / 2 + 1) << "after " << i;
  }
}

// The share is one of bytes: as many short control packets go ahead as the data packet before them has
// earned them. By packets they would wait for thirty data packets.
TEST_F(HalfLinkTest, ControlHasItsShareOfTheBytes) {
  for (const double share : {0.5, 0.25}) {
    HalfLink& link = make({.control_share = share});
    for (int i = 0; i < 11; ++i) link.offer(packet(4238), {});
    for (int i = 0; i < 30; ++i) link.offer(packet(128, kControlClass), {});
    far_.seen.clear();
    events_.run_until(events_.now() + milliseconds(1));
    ASSERT_EQ(far_.seen.size(), 41u);
    // One goes before the first data packet that waited, which then earns its third, or all of it.
    int ahead = 0, data = 0;
    for (const auto& seen : far_.seen) {
      if (seen.queue == kDataClass) ++data;
      if (seen.queue == kControlClass && data < 3) ++ahead;
    }
    EXPECT_NEAR(ahead, share == 0.5 ? 30 : 1 + 4238 / 3 / 128, 1);
    TearDown();
  }
}

TEST_F(HalfLinkTest, AShareOfTheQueueIsAShareOfItsLimitsAndThresholds) {
  HalfLink& link = make({.data_limit = 8'000, .control_limit = 4'000, .ecn_low = 4'000, .ecn_high = 4'000});
  link.set_queue_share(0.25, {});
  for (int i = 0; i < 5; ++i) link.offer(packet(1'000), {});  // one leaves at once, two wait
  EXPECT_EQ(drops("queue_full"), 2u);
  for (int i = 0; i < 3; ++i) link.offer(packet(500, kControlClass), {});
  EXPECT_EQ(drops("control_full"), 1u);
  events_.run_until(milliseconds(1));
  EXPECT_EQ(link.counters().marked, 1u) << "behind the first, 2,000 B waited: more than 1,000";
  link.set_queue_share(1, events_.now());
  for (int i = 0; i < 9; ++i) link.offer(packet(1'000), events_.now());
  EXPECT_EQ(drops("queue_full"), 2u) << "as configured";
  EXPECT_EQ(link.config().data_limit, 8'000u);
}

TEST_F(HalfLinkTest, FullQueueDropsOrTrims) {
  HalfLink& link = make({.data_limit = 2500, .control_limit = 300, .trim = true, .last_hop = true});
  link.offer(packet(1000), {});                       // on the wire
  EXPECT_EQ(link.offer(packet(1000), {}), Offer::accepted);
  EXPECT_EQ(link.offer(packet(1000), {}), Offer::accepted);
  EXPECT_EQ(link.offer(packet(1000), {}), Offer::dropped);  // not trimmable
  PacketPtr trimmable = packet(1000);
  trimmable->trimmable = true;
  EXPECT_EQ(link.offer(std::move(trimmable), {}), Offer::trimmed);
  PacketPtr tiny = packet(120);
  tiny->trimmable = true;
  link.offer(std::move(tiny), {});                    // fits the data queue as it is
  PacketPtr short_one = packet(128);
  short_one->trimmable = true;
  link.offer(std::move(short_one), {});               // fits as well
  EXPECT_EQ(link.offer(packet(200, kControlClass), {}), Offer::dropped);  // 128 + 200 > 300
  EXPECT_EQ(drops("queue_full"), 1u);
  EXPECT_EQ(drops("control_full"), 1u);
  events_.run_until(milliseconds(1));
  ASSERT_EQ(far_.seen.size(), 6u);
  EXPECT_EQ(far_.seen[1].length, 128u);  // the trimmed one went ahead
  EXPECT_EQ(link.counters().trimmed, 1u);
}

TEST_F(HalfLinkTest, MarksAboveHighAndNeverBelowLow) {
  HalfLink& link = make({.ecn_low = 3000, .ecn_high = 6000});
  for (int i = 0; i < 11; ++i) link.offer(packet(1000), {});
  events_.run_until(milliseconds(1));
  ASSERT_EQ(far_.seen.size(), 11u);
  // Packet k (1..10) leaves with 11-k thousand bytes queued.
  for (int k = 1; k <= 5; ++k) EXPECT_TRUE(far_.seen[k].ce) << k;
  for (int k = 8; k <= 10; ++k) EXPECT_FALSE(far_.seen[k].ce) << k;
  EXPECT_FALSE(far_.seen[0].ce);
}

TEST_F(HalfLinkTest, DownLosesWhatIsHeldAndRefusesUntilUp) {
  HalfLink& link = make({.delay = microseconds(5)});
  for (int i = 0; i < 4; ++i) link.offer(packet(1000), {});
  events_.run_until(microseconds(1));
  link.set_up(false, microseconds(1));
  EXPECT_EQ(link.offer(packet(1000), microseconds(2)), Offer::dropped);
  events_.run_until(milliseconds(1));
  EXPECT_TRUE(far_.seen.empty());
  EXPECT_EQ(drops("link_down"), 5u);
  link.set_up(true, milliseconds(1));
  link.offer(packet(1000), milliseconds(1));
  events_.run_until(milliseconds(2));
  EXPECT_EQ(far_.seen.size(), 1u);
}

TEST_F(HalfLinkTest, EveryPacketLostStillDrainsTheQueue) {
  HalfLink& link = make({.delay = microseconds(1)});
  link.set_impairment({.loss = 1.0}, {});
  for (int i = 0; i < 50; ++i) link.offer(packet(1000), {});
  events_.run_until(milliseconds(1));
  EXPECT_EQ(drops("loss"), 50u);
  EXPECT_EQ(link.held(), 0u);
}

TEST_F(HalfLinkTest, LossShareAndBurstLengthAreAsAsked) {
  for (const double burst : {1.0, 8.0}) {
    far_.seen.clear();
    HalfLink& link = make({}, 7);
    link.set_impairment({.loss = 0.2, .burst = burst}, {});
    constexpr int kPackets = 40'000;
    Picoseconds now{};
    for (int i = 0; i < kPackets; ++i, now += microseconds(1)) {
      link.offer(packet(100), now);
      events_.run_until(now);
    }
    events_.run_until(now + milliseconds(1));
    EXPECT_NEAR(drops("loss") / double(kPackets), 0.2, burst > 1 ? 0.03 : 0.01);
    // uids are consecutive: a hole in them is a burst.
    int bursts = 0;
    for (std::size_t i = 1; i < far_.seen.size(); ++i) {
      bursts += far_.seen[i].uid != far_.seen[i - 1].uid + 1;
    }
    EXPECT_NEAR(drops("loss") / double(bursts), burst > 1 ? 8.0 : 1.25, burst > 1 ? 0.8 : 0.05);
  }
}

TEST_F(HalfLinkTest, DuplicatesCorruptsAndReordersAsAsked) {
  HalfLink& link = make({.delay = microseconds(1)});
  link.set_impairment({.duplicate = 0.1, .corrupt = 0.1, .reorder = 0.3, .jitter = microseconds(50)}, {});
  for (int i = 0; i < 2000; ++i) link.offer(packet(1000), {});
  events_.run_until(milliseconds(10));
  const auto& c = link.counters();
  EXPECT_NEAR(c.duplicated, 200, 60);
  EXPECT_NEAR(drops("fcs"), 220, 70);
  EXPECT_EQ(far_.seen.size() + drops("fcs"), 2000 + c.duplicated);
  int swaps = 0;
  for (std::size_t i = 1; i < far_.seen.size(); ++i) {
    EXPECT_LE(far_.seen[i - 1].at, far_.seen[i].at);
    swaps += far_.seen[i].uid < far_.seen[i - 1].uid;
  }
  EXPECT_GT(swaps, 50);
}

// A live run's packets have their payload in a frame that one packet owns: the copy has its own bytes.
TEST_F(HalfLinkTest, PacketsTakeLongerAndKeepTheirOrder) {
  HalfLink& link = make({.delay = microseconds(1), .data_limit = 1 << 30});
  link.set_impairment({.wander = microseconds(50)}, {});
  constexpr std::int64_t kCount = 2'000;
  for (std::int64_t i = 0; i < kCount; ++i) {
    events_.run_until(microseconds(i));
    if (i == kCount / 2) link.set_impairment({}, microseconds(i));
    PacketPtr p = packet(1000);
    p->uid = static_cast<std::uint64_t>(i);
    link.offer(std::move(p), microseconds(i));
  }
  events_.run_until(milliseconds(10));
  ASSERT_EQ(far_.seen.size(), static_cast<std::size_t>(kCount));
  double mean = 0;
  for (std::int64_t i = 0; i < kCount; ++i) {
    const Far::Seen& seen = far_.seen[static_cast<std::size_t>(i)];
    EXPECT_EQ(seen.uid, static_cast<std::uint64_t>(i)) << "overtaken";
    const Picoseconds late = seen.at - (microseconds(i + 1) + Picoseconds{1024 * 80});
    EXPECT_GE(late.count, 0);
    EXPECT_LT(late, microseconds(50));
    if (i < kCount / 2) mean += late.microseconds() / (kCount / 2);
    if (i >= kCount / 2 + 50) EXPECT_EQ(late.count, 0) << "none takes longer any more";
  }
  EXPECT_GT(mean, 30) << "of so dense a flow each waits for the latest of those before it";
  EXPECT_LT(mean, 50);
}

TEST_F(HalfLinkTest, LonePacketsTakeHalfOfTheJitterLongerOnAverage) {
  HalfLink& link = make({.delay = microseconds(1)});
  link.set_impairment({.wander = microseconds(50)}, {});
  double mean = 0;
  constexpr int kCount = 2'000;
  for (int i = 0; i < kCount; ++i) {
    events_.run_until(microseconds(100 * i));
    link.offer(packet(1000), microseconds(100 * i));
    events_.run_until(microseconds(100 * i + 99));
    mean += (far_.seen.back().at - (microseconds(100 * i + 1) + Picoseconds{1024 * 80})).microseconds() / kCount;
  }
  EXPECT_NEAR(mean, 25, 1);
}

// Also where the queue is served while no packet arrives.
TEST_F(HalfLinkTest, PacketsOfASlotArriveTogetherAtItsEnd) {
  HalfLink& link = make({.rate = gigabits(1), .delay = microseconds(1), .data_limit = 1 << 20});
  events_.run_until(microseconds(7));
  link.set_impairment({.slot = microseconds(20)}, microseconds(7));
  for (std::uint64_t i = 0; i < 10; ++i) {  // 8.192 us each
    PacketPtr p = packet(1000);
    p->uid = i;
    link.offer(std::move(p), microseconds(7));
  }
  events_.run_until(milliseconds(1));
  ASSERT_EQ(far_.seen.size(), 10U);
  for (std::int64_t i = 0; i < 10; ++i) {
    const std::int64_t alone = (i + 1) * 8'192'000 + 1'000'000;  // since the slots began
    const std::int64_t slot = 20'000'000;
    EXPECT_EQ(far_.seen[static_cast<std::size_t>(i)].at.count, 7'000'000 + (alone + slot - 1) / slot * slot);
    EXPECT_EQ(far_.seen[static_cast<std::size_t>(i)].uid, static_cast<std::uint64_t>(i));
  }
}

TEST_F(HalfLinkTest, DuplicatesPacketsWhosePayloadIsAFrame) {
  HalfLink& link = make({.delay = microseconds(1)});
  link.set_impairment({.duplicate = 1}, {});
  const std::uint8_t bytes[64] = {1, 2, 3};
  PacketPtr sent = packet(1000);
  sent->payload.kind = PayloadKind::frame;
  sent->payload.data = bytes;
  sent->payload.length = sizeof(bytes);
  link.offer(std::move(sent), {});
  events_.run_until(milliseconds(1));
  EXPECT_EQ(link.counters().duplicated, 1u);
  ASSERT_EQ(far_.seen.size(), 2u);
  EXPECT_NE(far_.seen[0].uid, far_.seen[1].uid);
}

// What waits behind a packet that is late arrives in its own time, though nobody offers any more.
TEST_F(HalfLinkTest, PacketsOvertakeALateOneWithoutBeingLookedAt) {
  HalfLink& link = make({.delay = microseconds(1)});
  link.set_impairment({.reorder = 1, .jitter = microseconds(500)}, {});
  link.offer(packet(1000), {});
  link.set_impairment({}, {});
  for (int i = 1; i < 4; ++i) link.offer(packet(1000), {});
  events_.run_until(milliseconds(1));
  ASSERT_EQ(far_.seen.size(), 4u);
  for (int i = 1; i < 4; ++i) {
    EXPECT_EQ(far_.seen[i - 1].at, microseconds(1) + Picoseconds{(i + 1) * 1024 * 80});
  }
  EXPECT_GT(far_.seen[3].at, microseconds(2));

  // The same where the way has become shorter.
  far_.seen.clear();
  const Picoseconds start = events_.now();
  link.set_delay(microseconds(100), start);
  for (int i = 0; i < 3; ++i) link.offer(packet(1000), start);
  link.set_delay(microseconds(1), start);
  events_.run_until(start + milliseconds(1));
  ASSERT_EQ(far_.seen.size(), 3u);
  EXPECT_EQ(far_.seen[0].at, start + microseconds(1) + Picoseconds{2 * 1024 * 80});
  EXPECT_EQ(far_.seen[1].at, start + microseconds(1) + Picoseconds{3 * 1024 * 80});
  EXPECT_EQ(far_.seen[2].at, start + microseconds(100) + Picoseconds{1024 * 80});
}

TEST_F(HalfLinkTest, ARateThatDoesNotDivideIsStillExact) {
  make({.rate = {7'000'000}}).offer(packet(1000), {});
  events_.run_until(seconds(1));
  EXPECT_EQ(far_.seen.at(0).at, serialization_time(1024, {7'000'000}));
}

// A long-haul link's limits pass 4 GiB, and so do the bytes that wait there.
TEST_F(HalfLinkTest, LimitsMarksAndBuffersCountBeyondFourGibibytes) {
  constexpr std::uint32_t kHuge = 1u << 31;
  SharedBuffer buffer(std::uint64_t{40} << 30, 8.0);
  HalfLink& link = make({.data_limit = 9'000'000'000,
                         .control_limit = 5'000'000'000,
                         .ecn_low = 4'300'000'000,
                         .ecn_high = 4'300'000'001});
  link.share(buffer);
  int accepted = 0;
  for (int i = 0; i < 8; ++i) accepted += link.offer(packet(kHuge), {}) == Offer::accepted;
  EXPECT_EQ(accepted, 5);  // one on the wire, four of 2^31 B queued: 8.6e9 of 9e9
  EXPECT_EQ(link.queued_bytes({}), std::uint64_t{4} * kHuge);
  EXPECT_EQ(link.counters().max_queue, std::uint64_t{4} * kHuge);
  int control = 0;
  for (int i = 0; i < 4; ++i) control += link.offer(packet(kHuge, kControlClass), {}) == Offer::accepted;
  EXPECT_EQ(control, 2);
  EXPECT_EQ(drops("queue_full"), 3u);
  EXPECT_EQ(drops("control_full"), 2u);
  events_.run_until(seconds(10));
  EXPECT_EQ(far_.seen.size(), 7u);
  EXPECT_EQ(link.counters().marked, 2u);  // 8.6e9 and 6.4e9 waited, then 4.29e9: below ecn_low
  EXPECT_EQ(buffer.used(), 0u);
}

TEST_F(HalfLinkTest, GlassHasDelayOnly) {
  rateless_ = true;
  HalfLink& link = make({.delay = nanoseconds(50)});
  for (int i = 0; i < 3; ++i) link.offer(packet(1000), {});
  events_.run_until(microseconds(1));
  ASSERT_EQ(far_.seen.size(), 3u);
  for (const auto& s : far_.seen) EXPECT_EQ(s.at, nanoseconds(50));
}

TEST_F(HalfLinkTest, SharedBufferLimitsByWhatIsFreeAndForgetsWhatHasLeft) {
  SharedBuffer buffer(10'000, 1.0);
  Far far2;
  HalfLink other(events_, pool_, {.rate = gigabits(100)}, far2, 0, 1);
  HalfLink& link = make({});
  link.share(buffer);
  other.share(buffer);
  int accepted = 0;
  for (int i = 0; i < 10; ++i) accepted += link.offer(packet(1000), {}) == Offer::accepted;
  EXPECT_EQ(accepted, 6);  // one on the wire, five queued: 5,000 <= 10,000 - 5,000
  int other_accepted = 0;
  for (int i = 0; i < 10; ++i) other_accepted += other.offer(packet(1000), {}) == Offer::accepted;
  EXPECT_EQ(other_accepted, 4);  // one on the wire; 3,000 <= 10,000 - 7,000; 4,000 > 10,000 - 8,000
  // Much later both have drained, though nobody has looked at `link` since.
  EXPECT_EQ(other.offer(packet(1000), milliseconds(1)), Offer::accepted);
  EXPECT_EQ(other.offer(packet(1000), milliseconds(1)), Offer::accepted);
  events_.run_until(milliseconds(2));
  other.clear();
  link.clear();
  EXPECT_EQ(buffer.used(), 0u);
}

}  // namespace
}  // namespace loomnet
