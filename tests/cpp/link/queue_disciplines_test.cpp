// Queue disciplines behind one contract: FIFO's tail drop, CoDel's control law, fair queueing's shares
// and isolation, names and options of the registry, packets conserved under faults.
#include "link/queue_disciplines.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "link/flow_hash.hpp"
#include "link/half_link.hpp"

namespace loomnet {
namespace {

using Options = std::vector<std::pair<std::string, std::int64_t>>;

struct Far : LinkReceiver {
  struct Seen {
    Picoseconds at;
    std::uint32_t flow = 0;
    bool ce = false;
  };
  std::vector<Seen> seen;
  void receive(std::uint16_t, PacketPtr p, Picoseconds now) override {
    seen.push_back({now, p->flow, (p->header[15] & 0x30) == 0x30});
  }
};

class Disciplines : public ::testing::Test {
 protected:
  HalfLink& make(std::string_view name, LinkConfig config, const Options& options = {}) {
    config.queue = choose_queue(name, options);
    if (config.rate.count == 0) config.rate = gigabits(1);
    link_ = std::make_unique<HalfLink>(events_, pool_, config, far_, 0, 1);
    return *link_;
  }
  // A frame of IPv6 and UDP whose source port names the flow.
  PacketPtr packet(std::uint32_t flow, std::uint32_t length = 1000, bool ect = false) {
    PacketPtr p = pool_.allocate();
    p->wire_length = length;
    p->header_length = 62;
    p->header.fill(0);
    p->header[12] = 0x86;
    p->header[13] = 0xdd;
    p->header[14] = 0x60;
    p->header[15] = ect ? 0x20 : 0;
    p->header[20] = 17;
    p->header[54] = static_cast<std::uint8_t>(flow >> 8);
    p->header[55] = static_cast<std::uint8_t>(flow);
    p->flow = flow;
    p->ect = ect;
    return p;
  }
  std::uint64_t drops(std::string_view reason) { return link_->counters().drops(reason); }
  void TearDown() override {
    if (link_) link_->clear();
    EXPECT_EQ(pool_.outstanding(), 0u);
  }

  EventQueue events_;
  PacketPool pool_;
  Far far_;
  std::unique_ptr<HalfLink> link_;
};

TEST_F(Disciplines, TransportsOnOneLinkAreMarkedByTheirOwnThresholds) {
  LinkConfig config{.ecn_low = 1, .ecn_high = 1};  // of those without marks of their own
  config.carriers = std::make_shared<std::vector<CarrierMarks>>(
      std::vector<CarrierMarks>{{.ecn_low = 1, .ecn_high = 1}, {.ecn_low = 3'500, .ecn_high = 3'500}, {}});
  for (const char* name : {"priority", "fifo"}) {
    far_.seen.clear();
    HalfLink& link = make(name, config);
    const Picoseconds begin = events_.now();
    link.set_queue_share(0.5, begin);  // 3,500 becomes 1,750: two packets waiting are marked, one is not
    for (std::uint32_t i = 0; i < 8; ++i) {
      PacketPtr p = packet(i, 1000, true);
      p->carrier = i % 4;  // 3 is of no row
      link.offer(std::move(p), begin);
    }
    events_.run_until(begin + milliseconds(1));
    std::vector<bool> marked;
    for (const Far::Seen& each : far_.seen) marked.push_back(each.ce);
    // The first leaves at once; 7, 6, … 1 wait as the others leave.
    EXPECT_EQ(marked, (std::vector<bool>{false, true, false, true, true, true, false, true})) << name;
    link.clear();
  }
}

TEST_F(Disciplines, TransportsOnOneLinkAreTrimmedByTheirOwnCodes) {
  LinkConfig config{.data_limit = 1'000, .trim = true, .trim_dscp = 9};
  config.carriers = std::make_shared<std::vector<CarrierMarks>>(std::vector<CarrierMarks>{
      {.trim_size = 128, .trim_dscp = 9}, {.trim_size = 128, .trim_dscp = 12}, {.trim_size = 200, .trim_dscp = 3}});
  struct Codes : LinkReceiver {
    std::vector<std::pair<int, std::uint32_t>> seen;  // DSCP and length
    void receive(std::uint16_t, PacketPtr p, Picoseconds) override {
      seen.emplace_back((p->header[14] & 0xf) << 2 | p->header[15] >> 6, p->wire_length);
    }
  } codes;
  HalfLink link(
      events_, pool_,
      [&] {
        config.rate = gigabits(1);
        return config;
      }(),
      codes, 0, 1);
  for (std::uint32_t i = 0; i < 5; ++i) {
    PacketPtr p = packet(i, 900);
    p->trimmable = true;
    p->carrier = i == 0 ? 0 : i - 1;  // one leaves, one waits, three are cut
    link.offer(std::move(p), {});
  }
  events_.run_until(milliseconds(1));
  std::sort(codes.seen.begin(), codes.seen.end());
  EXPECT_EQ(codes.seen,
            (std::vector<std::pair<int, std::uint32_t>>{{0, 900}, {0, 900}, {3, 200}, {9, 128}, {12, 128}}));
  link.clear();
}

TEST_F(Disciplines, FifoKeepsOrderAmongClassesAndDropsTheTail) {
  HalfLink& link = make("fifo", {.data_limit = 3'000, .trim = true});
  for (std::uint32_t i = 0; i < 6; ++i) {
    PacketPtr p = packet(i);
    p->queue = i % 2 ? kControlClass : kDataClass;
    p->trimmable = true;
    EXPECT_EQ(link.offer(std::move(p), {}), i < 4 ? Offer::accepted : Offer::dropped) << i;
  }
  EXPECT_EQ(link.queued_bytes({}), 3'000u);
  events_.run_until(seconds(1));
  ASSERT_EQ(far_.seen.size(), 4u);
  for (std::uint32_t i = 0; i < 4; ++i) EXPECT_EQ(far_.seen[i].flow, i);
  EXPECT_EQ(drops("queue_full"), 2u);
  EXPECT_EQ(link.counters().trimmed, 0u);
  EXPECT_EQ(link.counters().max_queue, 3'000u);
}

TEST_F(Disciplines, FifoMarksByTheLinksThresholds) {
  HalfLink& link = make("fifo", {.ecn_low = 3'000, .ecn_high = 3'000});
  for (int i = 0; i < 6; ++i) link.offer(packet(0, 1000, i != 1), {});
  events_.run_until(seconds(1));
  ASSERT_EQ(far_.seen.size(), 6u);
  // 5,000 B waited when the second left, which is not ECN-capable, 4,000 B when the third did.
  for (int i = 0; i < 6; ++i) EXPECT_EQ(far_.seen[i].ce, i == 2) << i;
}

// Offers `load` times what the link carries for as long as asked.
void overload(HalfLink& link, EventQueue& events, double load, Picoseconds end,
              const std::function<PacketPtr()>& next) {
  const Picoseconds gap{static_cast<std::int64_t>(1024 * 8'000 / load)};
  for (Picoseconds at = events.now(); at < end; at += gap) {
    events.run_until(at);
    link.offer(next(), at);
  }
}

// RFC 8289 sections 5.5 and 5.6: the first drop an interval after the sojourn has passed the target, then the
// n-th interval / sqrt(n) after the one before.
TEST_F(Disciplines, CodelDropsByTheControlLaw) {
  const Picoseconds target = microseconds(100), interval = milliseconds(2);
  HalfLink& link = make("codel", {}, {{"target", target.count}, {"interval", interval.count}});
  std::vector<Picoseconds> dropped;
  std::uint64_t before = 0;
  Picoseconds late{};
  const Picoseconds packet_time{1024 * 8'000};
  overload(link, events_, 1.5, milliseconds(20), [&] {
    const std::uint64_t n = drops("codel");
    if (n > before) dropped.push_back(events_.now());
    before = n;
    // The queue is as long as the target: packets from here on will have waited for longer.
    if (late.count == 0 && link.queued_bytes(events_.now()) * 8'000 > 100'000'000) late = events_.now();
    return packet(0);
  });
  ASSERT_GT(dropped.size(), 8u);
  EXPECT_NEAR(dropped[0].seconds(), (late + target + interval).seconds(), 5 * packet_time.seconds());
  for (std::size_t i = 1; i < 8; ++i) {
    const double gap = interval.seconds() / std::sqrt(static_cast<double>(i));
    EXPECT_NEAR((dropped[i] - dropped[i - 1]).seconds(), gap, 3 * packet_time.seconds()) << i;
  }
  EXPECT_EQ(drops("queue_full"), 0u);
}

TEST_F(Disciplines, CodelMarksWhatIsEcnCapableInstead) {
  for (const bool ecn : {true, false}) {
    far_.seen.clear();
    HalfLink& link = make("codel", {}, {{"target", 100'000'000}, {"interval", 2'000'000'000}, {"ecn", ecn}});
    overload(link, events_, 1.5, events_.now() + milliseconds(20), [&] { return packet(0, 1000, true); });
    events_.run_until(events_.now() + seconds(1));
    std::uint64_t marked = 0;
    for (const auto& seen : far_.seen) marked += seen.ce;
    EXPECT_EQ(marked, link.counters().marked);
    EXPECT_EQ(marked > 8, ecn);
    EXPECT_EQ(drops("codel") > 8, !ecn);
    link.clear();
  }
}

TEST_F(Disciplines, CodelLeavesAShortQueueAlone) {
  HalfLink& link = make("codel", {}, {{"target", 100'000'000}, {"interval", 2'000'000'000}});
  for (int burst = 0; burst < 200; ++burst) {  // 5 packets every 100 us: none waits for 50 us
    for (int i = 0; i < 5; ++i) link.offer(packet(0), events_.now());
    events_.run_until(events_.now() + microseconds(100));
  }
  events_.run_until(seconds(1));
  EXPECT_EQ(far_.seen.size(), 1'000u);
  EXPECT_EQ(link.counters().dropped(), 0u);
}

// Three flows offer one, two and four times the link's rate, in packets of other lengths: bytes are
// shared evenly.
TEST_F(Disciplines, FairQueueingSharesBytesEvenly) {
  HalfLink& link = make("fq", {.data_limit = 60'000});
  std::map<std::uint32_t, std::uint32_t> lengths{{1, 1500}, {2, 700}, {3, 300}};
  std::uint32_t turn = 0;
  overload(link, events_, 7, milliseconds(50), [&] {
    const std::uint32_t flow = turn % 7 == 0 ? 1 : turn % 7 < 3 ? 2 : 3;
    ++turn;
    return packet(flow, lengths[flow]);
  });
  std::map<std::uint32_t, double> bytes;
  double sum = 0;
  for (const auto& seen : far_.seen) {
    bytes[seen.flow] += lengths[seen.flow];
    sum += lengths[seen.flow];
  }
  for (const auto& [flow, n] : bytes) EXPECT_NEAR(n / sum, 1.0 / 3, 0.02) << flow;
  EXPECT_GT(drops("queue_full"), 0u);
  EXPECT_LE(link.counters().max_queue, 60'000u);
}

// A packet of a flow that has nothing queued goes before the backlog of another.
TEST_F(Disciplines, FairQueueingIsolatesASparseFlow) {
  for (const char* name : {"fq", "fq_codel"}) {
    far_.seen.clear();
    HalfLink& link = make(name, {});
    const Picoseconds start = events_.now();
    for (int i = 0; i < 100; ++i) link.offer(packet(1), start);
    link.offer(packet(2), start);
    events_.run_until(start + seconds(1));
    std::size_t place = 0;
    while (far_.seen.at(place).flow != 2) ++place;
    EXPECT_LE(place, 3u) << name << ": a quantum of the other flow at most, and the one on the wire";
    EXPECT_EQ(far_.seen.size(), 101u);
    link.clear();
  }
}

TEST_F(Disciplines, FqCodelShortensTheBacklogOfTheFlowThatHasOne) {
  HalfLink& link = make("fq_codel", {}, {{"target", 100'000'000}, {"interval", 2'000'000'000}});
  std::uint32_t turn = 0;
  overload(link, events_, 1.5, milliseconds(40), [&] { return packet(++turn % 10 == 0 ? 2 : 1); });
  events_.run_until(events_.now() + seconds(1));
  std::map<std::uint32_t, std::uint32_t> arrived;
  for (const auto& seen : far_.seen) ++arrived[seen.flow];
  EXPECT_EQ(arrived[2], turn / 10) << "the light flow loses nothing";
  EXPECT_GT(drops("codel"), 20u);
  EXPECT_EQ(arrived[1] + drops("codel"), turn - turn / 10);
}

TEST_F(Disciplines, WithinATunnelTheInnerPacketNamesTheFlow) {
  const auto tunnelled = [&](std::uint8_t outer, std::uint16_t port) {
    PacketPtr p = packet(0);
    p->header_length = 110;
    p->header[29] = outer;  // of the outer source
    p->header[20] = 41;
    p->header[54] = 0x60;
    p->header[60] = 17;
    p->header[94] = static_cast<std::uint8_t>(port >> 8);
    p->header[95] = static_cast<std::uint8_t>(port);
    return p;
  };
  EXPECT_EQ(flow_hash(*tunnelled(1, 7), 5), flow_hash(*tunnelled(2, 7), 5));
  EXPECT_NE(flow_hash(*tunnelled(1, 7), 5), flow_hash(*tunnelled(1, 8), 5));
  PacketPtr cut = tunnelled(1, 7);
  for (std::uint8_t n = 0; n <= 110; ++n) {  // whatever the bytes say, none beyond them is read
    cut->header_length = n;
    flow_hash(*cut, 5);
  }
}

// Every packet arrives, waits or is counted by name, in the queue and the switch's buffer, through
// loss of carrier, a slower rate and a smaller queue.
TEST_F(Disciplines, PacketsAreConserved) {
  for (const QueueDiscipline& discipline : queue_disciplines()) {
    far_.seen.clear();
    SharedBuffer buffer(40'000, 1.0);
    HalfLink& link = make(discipline.name, {.delay = microseconds(5), .data_limit = 30'000});
    link.share(buffer);
    RandomStream random(1, 2, 3);
    std::uint64_t offered = 0;
    const Picoseconds start = events_.now();
    for (int i = 0; i < 4'000; ++i) {
      const Picoseconds now = start + microseconds(5) * i;
      events_.run_until(now);
      if (i == 1'000) link.set_up(false, now);
      if (i == 1'100) link.set_up(true, now);
      if (i == 2'000) link.set_rate({500'000'000}, now);
      if (i == 2'500) link.set_queue_share(0.3, now);
      if (i == 3'000) link.set_impairment({.loss = 0.1}, now);
      PacketPtr p = packet(random.below(9), 100 + random.below(1'400), random.below(2) == 0);
      if (p->flow > 4) {  // in one of two rings
        p->attributes.step_bytes = 1'000;
        p->attributes.communicator = p->flow & 1;
        p->attributes.ring_step = random.below(6);
      }
      link.offer(std::move(p), now);
      ++offered;
      ASSERT_EQ(far_.seen.size() + link.counters().dropped() + link.held(), offered) << discipline.name << " " << i;
      ASSERT_LE(link.queued_bytes(now), 30'000u);
    }
    events_.run_until(events_.now() + seconds(1));
    EXPECT_EQ(link.held(), 0u) << discipline.name;
    EXPECT_EQ(buffer.used(), 0u) << discipline.name;
    EXPECT_GT(link.counters().drops("queue_full"), 0u) << discipline.name;
    EXPECT_GT(link.counters().drops("link_down"), 50u) << discipline.name;
  }
}

std::string refusal(std::string_view name, const Options& options) {
  try {
    choose_queue(name, options);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(QueueRegistry, RefusesWhatThereIsNotInOneLine) {
  EXPECT_EQ(choose_queue("priority", {}), nullptr);
  EXPECT_EQ(refusal("cdel", {}),
            "queue: no discipline cdel; there are priority, fifo, laggard_first, codel, fq, fq_codel");
  EXPECT_EQ(refusal("fq", Options{{"target", 1}}), "queue fq: no option target; its options: flows, quantum");
  EXPECT_EQ(refusal("fifo", Options{{"target", 1}}), "queue fifo: no option target; its options: none");
  EXPECT_EQ(refusal("fq", Options{{"flows", 0}}), "queue fq: flows must be from 1 to 65536");
  for (const QueueDiscipline& discipline : queue_disciplines()) {
    for (const QueueOption& option : discipline.options) {
      EXPECT_LE(option.least, option.preset);
      EXPECT_LE(option.preset, option.most);
    }
  }
}

TEST(QueueRegistry, APortOfASwitchWithPfcQueuesByPriority) {
  EventQueue events;
  PacketPool pool;
  Far far;
  SharedBuffer buffer(1'000'000, 1.0);
  buffer.use_pauses(events, pool, 2);
  HalfLink link(events, pool, {.rate = gigabits(1), .queue = choose_queue("fifo", {})}, far, 0, 1);
  EXPECT_THROW(link.share(buffer), std::invalid_argument);
}

}  // namespace
}  // namespace loomnet
