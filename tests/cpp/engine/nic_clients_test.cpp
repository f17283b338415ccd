// Clients of several jobs on one NIC: whose completion it is, whose figure, whose memory.
#include <algorithm>
#include <numeric>
#include <tuple>

#include "clock/random.hpp"
#include "engine/nic_bed.hpp"
#include "engine/rank_bridge.hpp"
#include "engine/run_counters.hpp"
#include "traffic/collective_traffic.hpp"
#include "traffic/flow_traffic.hpp"
#include "traffic/graph_traffic.hpp"

namespace loomnet {
namespace {

using testing::Clos;
using testing::counter;
using testing::Listener;

constexpr JobId kOne{1}, kTwo{2};

// Two hosts with one transport each.
struct Bed {
  Network network{1};
  Clos clos;
  Nic &near, &far;
  explicit Bed(std::string_view transport) : clos(network, {.planes = 1}), near(network.nic(0)), far(network.nic(1)) {
    testing::equip(network, 2, gigabits(100), {transport});
  }
  void run() { network.run_until(network.now() + milliseconds(20)); }
  void write(QpNumber qp, std::uint64_t id, std::uint32_t key, std::span<const std::uint8_t> from,
             std::uint64_t address = 0, Opcode opcode = Opcode::write_with_immediate) {
    near.post(qp,
              {.id = id,
               .local = from.data(),
               .remote_address = address,
               .remote_key = key,
               .length = static_cast<std::uint32_t>(from.size()),
               .opcode = opcode},
              network.now());
  }
};

class NicClientsOver : public ::testing::TestWithParam<std::string_view> {};
INSTANTIATE_TEST_SUITE_P(Transports, NicClientsOver, ::testing::Values("mrc", "roce", "tcp"));

TEST_P(NicClientsOver, ResultsGoToTheClientOfTheQueuePair) {
  Bed bed(GetParam());
  Listener a(bed.near, kOne), b(bed.near, kTwo), c(bed.near, kTwo);
  Listener first(bed.far, kOne), second(bed.far, kTwo), third(bed.far, kTwo);
  bed.clos.connect(0, 256, 1, 256, 0, kOne);
  bed.clos.connect(0, 257, 1, 257, 0, kTwo);
  bed.clos.connect(0, 258, 1, 258, 0, kTwo);
  bed.near.clients().own(258, {kTwo, c.id});  // 256 and 257 are their job's: its first client's
  bed.far.clients().own(258, {kTwo, third.id});
  const std::vector<std::uint8_t> bytes(5000, 7);
  const auto one = bed.far.register_region(nullptr, 0, 5000, kOne);
  const auto two = bed.far.register_region(nullptr, 0, 5000, kTwo);
  bed.write(256, 1, one, bytes);
  bed.write(257, 2, two, bytes);
  bed.write(258, 3, two, bytes);
  bed.run();
  const auto heard = [](const Listener& l, QpNumber qp) {
    ASSERT_EQ(l.completions.size() + l.arrivals.size(), 1u);
    EXPECT_EQ(l.completions.empty() ? l.arrivals[0].qp : l.completions[0].qp, qp);
  };
  heard(a, 256), heard(b, 257), heard(c, 258), heard(first, 256), heard(second, 257), heard(third, 258);
}

TEST_P(NicClientsOver, KeysOfAnotherJobAreRefusedAsUnknownOnes) {
  Bed bed(GetParam());
  Listener owner(bed.near, kOne), hostile(bed.near, kTwo);
  std::vector<std::uint8_t> memory(9000, 0xee);
  const std::vector<std::uint8_t> forged(4000, 0x66);
  const auto key = bed.far.register_region(memory.data(), 0x1000, memory.size(), kOne);
  bed.far.register_region(nullptr, 0, 16, kTwo);
  QpNumber qp = 256;
  const auto attempt = [&](std::uint32_t with, std::uint64_t address) {
    bed.clos.connect(0, qp, 1, qp, 0, kTwo);
    hostile.completions.clear();
    bed.write(qp++, 9, with, forged, address, Opcode::write);
    bed.run();
    EXPECT_EQ(hostile.completions.size(), 1u);
    return hostile.completions.at(0).status;
  };
  EXPECT_EQ(attempt(0x77, 0x1000), Status::remote_access_error);  // unknown
  EXPECT_EQ(bed.far.counters().foreign_key_refused, 0u);
  EXPECT_EQ(attempt(key, 0x1000), Status::remote_access_error);
  EXPECT_EQ(attempt(key, 0x1000 + 5000), Status::remote_access_error);
  EXPECT_EQ(bed.far.counters().foreign_key_refused, 2u);
  EXPECT_EQ(memory, std::vector<std::uint8_t>(9000, 0xee));
  EXPECT_TRUE(owner.completions.empty());
  // Its own job goes on.
  bed.clos.connect(0, qp, 1, qp, 0, kOne);
  bed.write(qp, 1, key, forged, 0x1000);
  bed.run();
  ASSERT_EQ(owner.completions.size(), 1u);
  EXPECT_EQ(owner.completions[0].status, Status::ok);
  EXPECT_TRUE(std::equal(forged.begin(), forged.end(), memory.begin()));
  EXPECT_EQ(bed.near.meter(kOne).bytes() + bed.near.meter(kTwo).bytes(), 0u);
  EXPECT_EQ(bed.far.meter(kOne).bytes(), 4000u);
  EXPECT_EQ(bed.far.meter(kTwo).bytes(), 0u);
  bed.run();
  EXPECT_EQ(bed.network.pool().outstanding(), bed.network.held());
}

TEST(NicClients, QueuePairsOfAnotherAreRefused) {
  Bed bed("roce");
  Listener one(bed.near, kOne), other(bed.near, kOne), two(bed.near, kTwo);
  NicClients& clients = bed.near.clients();
  bed.clos.connect(0, 256, 1, 256, 0, kOne);
  EXPECT_THROW(clients.own(256, {kTwo, two.id}), std::invalid_argument);
  EXPECT_THROW(clients.own(256, {kOne, two.id}), std::invalid_argument);
  EXPECT_THROW(clients.own(256, {kOne, ClientId{9}}), std::invalid_argument);
  clients.own(256, {kOne, one.id});
  clients.own(256, {kOne, one.id});
  EXPECT_THROW(clients.own(256, {kOne, other.id}), std::invalid_argument);
  FlowTraffic flows(bed.network, false, kTwo);
  EXPECT_THROW(flows.add({.source = 0, .destination = 1, .qp = 256, .bytes = 1}), std::invalid_argument);
  EXPECT_THROW(bed.clos.connect(0, 256, 1, 300, 0, kTwo), std::invalid_argument);
}

TEST(NicClients, ReservedNumbersAreNobodysYet) {
  Bed bed("roce");
  NicClients& clients = bed.near.clients();
  EXPECT_EQ(clients.reserve(4), 0x100u);
  EXPECT_EQ(clients.reserve(1), 0x104u);
  bed.clos.connect(0, 0x200, 1, 0x200);
  EXPECT_EQ(clients.reserve(2), 0x201u);
  EXPECT_THROW(clients.reserve(1u << 24), std::length_error);
  EXPECT_THROW(clients.reserve(~0u), std::length_error);
}

// Two jobs of flows on the same hosts, one twice as large as the other.
TEST(NicClients, JobsOfOneHostHaveFiguresOfTheirOwn) {
  Bed bed("mrc");
  FlowTraffic one(bed.network, true, kOne), two(bed.network, true, kTwo);
  bed.clos.connect(0, 256, 1, 256, 0, kOne);
  bed.clos.connect(0, 257, 1, 257, 0, kTwo);
  one.add({.source = 0, .destination = 1, .qp = 256, .bytes = 1'000'000, .message = 100'000});
  two.add(
      {.source = 0, .destination = 1, .qp = 257, .bytes = 2'000'000, .message = 100'000, .start = microseconds(500)});
  one.start();
  two.start();
  const std::vector<NodeId> hosts{0, 1};
  bed.network.run_until(microseconds(400));  // stops with the first job's end
  ASSERT_TRUE(one.done());
  bed.network.run_until(microseconds(400));
  const RunCounters first = run_counters(bed.network, hosts, kOne), second = run_counters(bed.network, hosts, kTwo);
  EXPECT_EQ(first.payload, 1'000'000u);
  EXPECT_EQ(first.finished, 2u);  // one at each end
  EXPECT_FALSE(first.working);
  EXPECT_EQ(second.payload + second.finished, 0u);
  bed.run();
  ASSERT_TRUE(two.done());
  EXPECT_EQ(one.wrong() + two.wrong(), 0u);
  EXPECT_EQ(run_counters(bed.network, hosts, kTwo).payload, 2'000'000u);
  EXPECT_EQ(run_counters(bed.network, hosts).payload, 3'000'000u);
  EXPECT_EQ(run_counters(bed.network, hosts).finished, 4u);
  ASSERT_EQ(bed.far.meter(kTwo).busy().size(), 1u);
  EXPECT_EQ(bed.far.meter(kTwo).busy()[0].begin, microseconds(500));
  const auto bins = bed.far.meter(kOne).bins();
  EXPECT_EQ(std::accumulate(bins.begin(), bins.end(), std::uint64_t{0}), 1'000'000u);
}

// A job's figures do not depend on its number.
TEST(NicClients, AJobAloneHasTheSameFiguresByAnyNumber) {
  const auto figures = [](JobId job) {
    Bed bed("roce");
    CollectiveTraffic traffic(
        bed.network,
        {.job = job, .hosts = {0, 1}, .bytes = 1 << 20, .repeat = 3, .compute = microseconds(50), .payload = true});
    bed.clos.connect(0, 256, 1, 256, 0, job);
    traffic.set_queue_pair(0, 1, 256);
    traffic.set_queue_pair(1, 0, 256);
    traffic.start();
    while (!traffic.done()) bed.network.run_until(milliseconds(100));
    EXPECT_EQ(traffic.errors() + traffic.wrong(), 0u);
    const WorkMeter& meter = bed.near.meter(job);
    std::vector<std::int64_t> out{static_cast<std::int64_t>(meter.bytes()), bed.network.now().count};
    for (const auto& each : meter.busy()) out.insert(out.end(), {each.begin.count, each.end.count});
    for (const auto& each : meter.silences()) out.insert(out.end(), {each.begin.count, each.end.count});
    for (const auto each : meter.bins()) out.push_back(static_cast<std::int64_t>(each));
    return out;
  };
  EXPECT_EQ(figures(JobId{0}), figures(JobId{5}));
}

// A collective, flows and a graph of three jobs on the same hosts at once.
TEST(NicClients, ThreeKindsOfTrafficShareNics) {
  Bed bed("mrc");
  CollectiveTraffic ring(bed.network, {.job = kOne, .hosts = {0, 1}, .bytes = 1 << 20, .repeat = 4, .payload = true});
  FlowTraffic flows(bed.network, true, kTwo);
  GraphTraffic graph(bed.network, 4, JobId{3});
  for (const JobId job : {kOne, kTwo, JobId{3}}) {
    const QpNumber a = bed.near.clients().reserve(1), b = bed.far.clients().reserve(1);
    bed.clos.connect(0, a, 1, b, 0, job);
    if (job == kOne) {
      ring.set_queue_pair(0, 1, a);
      ring.set_queue_pair(1, 0, b);
    } else if (job == kTwo) {
      flows.add({.source = 0, .destination = 1, .qp = a, .bytes = 3'000'000});
    } else {
      const auto there = graph.add({.transfer = true, .source = 0, .destination = 1, .qp = a, .bytes = 2'500'000});
      graph.depend(graph.add({.transfer = true, .source = 1, .destination = 0, .qp = b, .bytes = 500'000}), there);
    }
  }
  ring.start();
  flows.start();
  graph.start({});
  for (int i = 0; i < 50; ++i) bed.network.run_until(milliseconds(20));
  EXPECT_TRUE(ring.done() && flows.done() && graph.done());
  EXPECT_EQ(ring.errors() + ring.wrong() + flows.wrong(), 0u);
  EXPECT_EQ(graph.failed(), Status::ok);
  EXPECT_EQ(bed.far.meter(kTwo).bytes(), 3'000'000u);
  EXPECT_EQ(bed.far.meter(JobId{3}).bytes(), 2'500'000u);
  EXPECT_EQ(bed.near.meter(JobId{3}).bytes(), 500'000u);
  ASSERT_EQ(bed.near.clients().entries().size(), 3u);
  EXPECT_EQ(bed.near.clients().entries()[2].role, "graph");
}

// Two ranks of each of two jobs, one of every job on either host.
class HostileRank : public ::testing::TestWithParam<std::string_view> {
 protected:
  static rank::Geometry geometry(std::uint32_t number) {
    rank::Geometry g;
    g.rank = number;
    g.world = 2;
    g.staging_bytes = 8192;
    return g;
  }
  HostileRank() : bed(GetParam()) {
    for (const JobId job : {kOne, kTwo}) {
      for (std::uint32_t r = 0; r < 2; ++r) {
        ranks.push_back(std::make_unique<RankBridge>(bed.network, r, geometry(r), job));
      }
      const QpNumber a = bed.near.clients().reserve(1), b = bed.far.clients().reserve(1);
      bed.clos.connect(0, a, 1, b, 0, job);
      RankBridge &zero = *ranks[ranks.size() - 2], &one = *ranks.back();
      zero.bind(1, a, one.key());
      one.bind(0, b, zero.key());
    }
    for (const auto& r : ranks) {
      memories.push_back(std::make_unique<rank::Memory>(rank::Memory::attach(r->memory_fd())));
      std::fill(staging(memories.size() - 1).begin(), staging(memories.size() - 1).end(), std::byte{0xee});
    }
  }
  std::span<std::byte> staging(std::size_t of) { return memories[of]->staging(); }
  bool untouched(std::size_t of) {
    return std::all_of(staging(of).begin(), staging(of).end(), [](std::byte b) { return b == std::byte{0xee}; });
  }
  // Rank 0 of job 2 posts this, whatever its library would say.
  void post(const rank::Submission& forged) {
    rank::RingProducer<rank::Submission> ring(memories[2]->ring_words(rank::kSubmissions),
                                              memories[2]->ring_entries(rank::kSubmissions),
                                              memories[2]->geometry().submissions);
    ASSERT_TRUE(ring.push(forged));
    ring.publish();
    ranks[2]->poll(bed.network.now(), 0, 1.0);
    bed.run();
    for (const auto& r : ranks) r->flush(bed.network.now());
  }
  Status completion() {
    rank::RingConsumer<rank::CompletionEntry> ring(memories[2]->ring_words(rank::kCompletions),
                                                   memories[2]->ring_entries(rank::kCompletions),
                                                   memories[2]->geometry().completions);
    std::array<rank::CompletionEntry, 4> out;
    EXPECT_EQ(ring.pop(out), 1u);
    return static_cast<Status>(out[0].status);
  }
  static rank::Submission submission(std::uint32_t peer, std::uint64_t offset) {
    rank::Submission s{};
    s.id = 1;
    s.local_offset = 0;
    s.remote_offset = offset;
    s.peer = peer;
    s.length = 4096;
    return s;
  }

  Bed bed;
  std::vector<std::unique_ptr<RankBridge>> ranks;  // jobs 1, 1, 2, 2 as ranks 0, 1, 0, 1
  std::vector<std::unique_ptr<rank::Memory>> memories;
};
INSTANTIATE_TEST_SUITE_P(Transports, HostileRank, ::testing::Values("mrc", "roce", "tcp"));

TEST_P(HostileRank, WritesToItsOwnPeerAlone) {
  std::fill(staging(2).begin(), staging(2).end(), std::byte{0x11});
  post(submission(1, 4096));
  EXPECT_EQ(completion(), Status::ok);
  EXPECT_EQ(staging(3)[4096], std::byte{0x11});
  EXPECT_TRUE(untouched(0) && untouched(1));
  EXPECT_EQ(bed.far.meter(kTwo).bytes(), 4096u);
  EXPECT_EQ(bed.far.meter(kOne).bytes(), 0u);
}

// Both jobs' regions begin at address 0, so an address beyond the peer's region names nothing.
TEST_P(HostileRank, AddressesBeyondThePeersRegionAreRefused) {
  for (const std::uint64_t offset : {std::uint64_t{8192}, std::uint64_t{4097}, ~std::uint64_t{0} - 100}) {
    SCOPED_TRACE(offset);
    post(submission(1, offset));
    EXPECT_NE(completion(), Status::ok);
    EXPECT_TRUE(untouched(0) && untouched(1) && untouched(3));
  }
  EXPECT_GE(bed.far.counters().placement_refused, 1u);
}

// A descriptor has no field for a key or a queue pair: a peer is all that it can name.
TEST_P(HostileRank, PeersOutsideItsJobCutItOff) {
  post(submission(2, 0));
  EXPECT_EQ(ranks[2]->fault(), RankFault::unknown_peer);
  EXPECT_TRUE(untouched(0) && untouched(1) && untouched(3));
  EXPECT_EQ(ranks[0]->fault(), RankFault::none);
}

// Even an engine that bound the wrong key would not let it in.
TEST_P(HostileRank, TheOtherJobsKeyIsRefusedThoughItIsBound) {
  const QpNumber a = bed.near.clients().reserve(1), b = bed.far.clients().reserve(1);
  bed.clos.connect(0, a, 1, b, 0, kTwo);
  ranks[2]->bind(1, a, ranks[1]->key());
  post(submission(1, 0));
  EXPECT_EQ(completion(), Status::remote_access_error);
  EXPECT_EQ(bed.far.counters().foreign_key_refused, 1u);
  EXPECT_TRUE(untouched(1));
}

TEST_P(HostileRank, AQueuePairOfTheOtherJobCannotBeBound) {
  EXPECT_THROW(ranks[2]->bind(1, 0x100, ranks[1]->key()), std::invalid_argument);
}

// Live, ranks of one host are heard one after another, each of what it did since the last look.
TEST(WorkMeter, WorkThatIsHeardLateIsPutWhereItWas) {
  WorkMeter meter;
  const auto us = [](std::int64_t n) { return microseconds(n); };
  meter.begin(us(10)), meter.end(us(10), us(20), 1);
  meter.begin(us(30)), meter.end(us(30), us(40), 2);
  meter.begin(us(50));  // of the first rank; the second did this meanwhile:
  meter.begin(us(15)), meter.end(us(15), us(35), 3);
  meter.end(us(50), us(60), 4);
  ASSERT_EQ(meter.busy().size(), 2u) << "the second rank's work joins the first two of the first rank, and no more";
  EXPECT_EQ(meter.busy()[0].begin, us(10));
  EXPECT_EQ(meter.busy()[0].end, us(40));
  EXPECT_EQ(meter.busy()[1].begin, us(50));
  EXPECT_EQ(meter.busy()[1].end, us(60));
  EXPECT_EQ(meter.work().size(), 4u);

  meter.begin(us(100)), meter.end(us(100), us(110), 5);
  meter.begin(us(102)), meter.end(us(102), us(105), 6);  // inside what is closed
  ASSERT_EQ(meter.busy().size(), 3u);
  EXPECT_EQ(meter.busy()[2].begin, us(100));
  EXPECT_EQ(meter.busy()[2].end, us(110));

  meter.begin(us(200)), meter.begin(us(190));  // both open: the earlier begin counts
  meter.end(us(190), us(230), 7), meter.end(us(200), us(220), 8);  // and the later end
  ASSERT_EQ(meter.busy().size(), 4u);
  EXPECT_EQ(meter.busy()[3].begin, us(190));
  EXPECT_EQ(meter.busy()[3].end, us(230));
}

// A destination hears of an end a link delay late, by when it may know of a later one or of another begin.
TEST(WorkMeter, BusyTimeAndSilencesAreTheSameInWhateverOrderWorkIsTold) {
  struct Told {
    Picoseconds told, at;
    int kind;  // 0 begins, 1 payload, 2 ends
    Picoseconds began;
  };
  RandomStream random(7, 0, 0);
  const auto below = [&](std::uint32_t most) { return microseconds(random.below(most)); };
  for (int world = 0; world < 300; ++world) {
    std::vector<Told> happened;
    for (int work = 0; work < 12; ++work) {
      const Picoseconds began = below(3000), ended = began + below(600);
      happened.push_back({began, began, 0, began});
      happened.push_back({ended, ended, 2, began});
    }
    for (int payload = 0; payload < 12; ++payload) {
      const Picoseconds at = below(3600);
      happened.push_back({at, at, 1, {}});
    }
    const auto seen = [&](Picoseconds late) {
      std::vector<Told> order = happened;
      for (Told& each : order) {
        if (each.kind != 1) each.told = each.at + (each.kind == 0 ? late / 2 : late);
      }
      std::ranges::stable_sort(
          order, [](const Told& a, const Told& b) { return std::tie(a.told, a.kind) < std::tie(b.told, b.kind); });
      WorkMeter meter;
      for (const Told& each : order) {
        if (each.kind == 0) meter.begin(each.at);
        if (each.kind == 1) meter.payload(1, each.at);
        if (each.kind == 2) meter.end(each.began, each.at, 1);
      }
      EXPECT_FALSE(meter.outstanding());
      std::vector<std::int64_t> out;
      for (const auto& rows : {meter.busy(), meter.silences()}) {
        out.push_back(-1);
        for (const auto& each : rows) out.insert(out.end(), {each.begin.count, each.end.count});
      }
      return out;
    };
    const auto at_once = seen({});
    ASSERT_GT(at_once.size(), 4u);
    for (const std::int64_t late : {1, 100, 1000}) EXPECT_EQ(seen(microseconds(late)), at_once) << late << " us late";
  }
}

TEST(WorkMeter, SilencesAreInsideWork) {
  WorkMeter meter;  // from 100 us on it is a silence
  const auto us = [](std::int64_t n) { return microseconds(n); };
  meter.payload(1, us(500));  // before there is work
  meter.begin(us(1000));
  meter.payload(1, us(1200)), meter.payload(1, us(1250)), meter.payload(1, us(2000));
  meter.end(us(1000), us(2300), 3);
  meter.begin(us(2300));  // touches, and is work of its own
  EXPECT_EQ(meter.opened(), us(2300));
  meter.end(us(2300), us(2350), 0);
  meter.begin(us(3000)), meter.begin(us(3100)), meter.end(us(3000), us(3200), 0);
  EXPECT_EQ(meter.opened(), us(3000)) << "work has gone on since then";
  meter.close(us(4000));
  EXPECT_FALSE(meter.outstanding());
  const auto rows = [](const auto& intervals) {
    std::vector<std::pair<std::int64_t, std::int64_t>> out;
    for (const auto& each : intervals) out.emplace_back(each.begin / microseconds(1), each.end / microseconds(1));
    return out;
  };
  using Rows = std::vector<std::pair<std::int64_t, std::int64_t>>;
  EXPECT_EQ(rows(meter.busy()), (Rows{{1000, 2300}, {2300, 2350}, {3000, 4000}}));
  EXPECT_EQ(rows(meter.silences()), (Rows{{1000, 1200}, {1250, 2000}, {2000, 2300}, {3000, 4000}}));
}

}  // namespace
}  // namespace loomnet
