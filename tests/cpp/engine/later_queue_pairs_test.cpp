// Queue pairs that are connected when their job starts: until then they send nothing, and the job then
// has the times of one that starts with the run.
#include "engine/nic_bed.hpp"
#include "traffic/flow_traffic.hpp"

namespace loomnet {
namespace {

using testing::Clos;
using testing::ClosShape;

constexpr Picoseconds kStart = microseconds(1024);  // a multiple of the 128 ns of MRC's time stamps
constexpr Picoseconds kFirstFlow = microseconds(50);  // after the start

struct LaterBed {
  ClosShape shape{.planes = 2, .leaves = 2, .spines = 4, .hosts_per_leaf = 1};
  Network network{5};
  Clos clos{network, shape};
  FlowTraffic flows{network, true};
  Picoseconds start;
  LaterBed(std::string_view transport, Picoseconds at) : start(at) {
    testing::equip(network, 2, gigabits(100), {transport});
    for (QpNumber q = 0; q < 3; ++q) {
      connect(0, 100 + q, 1, 200 + q, q);
      connect(1, 200 + q, 0, 100 + q, q);
    }
  }
  void connect(unsigned from, QpNumber own, unsigned to, QpNumber other, std::uint32_t flow) {
    QpConfig config{own, other, from, to, flow, clos.paths(from, to), clos.paths(to, from), {}};
    if (start > network.now()) {
      network.nic(from).connect_at(start, std::move(config));
    } else {
      network.nic(from).connect(config, network.now());
    }
  }
  void play() {
    for (QpNumber q = 0; q < 3; ++q) {
      flows.add({.source = 0, .destination = 1, .qp = 100 + q, .bytes = 700'000, .start = start + kFirstFlow});
      flows.add({.source = 1, .destination = 0, .qp = 200 + q, .bytes = 50'000, .start = start + kFirstFlow});
    }
    flows.start();
    network.run_until(start + milliseconds(50));
    ASSERT_TRUE(flows.done());
    for (const FlowResult& r : flows.results()) EXPECT_EQ(r.status, Status::ok);
    EXPECT_EQ(flows.wrong(), 0u);
  }
  std::uint64_t by_spine(unsigned plane, unsigned spine) {
    return network.half(clos.fabric_link(plane, 0, spine), true).counters().packets;
  }
};

class LaterQueuePairs : public ::testing::TestWithParam<std::string_view> {};
INSTANTIATE_TEST_SUITE_P(Transports, LaterQueuePairs, ::testing::Values("mrc", "roce", "tcp"));

TEST_P(LaterQueuePairs, SendNothingBeforeTheirTime) {
  LaterBed bed(GetParam(), kStart);
  bed.network.run_until(kStart - Picoseconds{1});
  EXPECT_EQ(bed.network.pool().last_uid(), 0u);
  bed.network.run_until(kStart + kFirstFlow - Picoseconds{1});
  // MRC measures its paths and TCP shakes hands. RoCE has nothing to say.
  EXPECT_EQ(bed.network.pool().last_uid() > 0, GetParam() != "roce");
  bed.play();
}

TEST_P(LaterQueuePairs, HaveTheTimesOfThoseConnectedAtTheBegin) {
  LaterBed first(GetParam(), {}), later(GetParam(), kStart);
  first.play();
  later.play();
  ASSERT_EQ(first.flows.results().size(), later.flows.results().size());
  for (std::size_t i = 0; i < first.flows.results().size(); ++i) {
    EXPECT_EQ(first.flows.results()[i].end + kStart, later.flows.results()[i].end) << i;
    EXPECT_EQ(first.flows.results()[i].arrived + kStart, later.flows.results()[i].arrived) << i;
  }
}

TEST_P(LaterQueuePairs, HearNothingOfAPortThatFailedBefore) {
  LaterBed bed(GetParam(), kStart);
  bed.network.schedule(microseconds(10), LinkChange{.link = bed.clos.host_link(1, 0), .up = false});
  bed.network.schedule(microseconds(300), LinkChange{.link = bed.clos.host_link(1, 0), .up = true});
  bed.network.run_until(kStart - Picoseconds{1});
  EXPECT_EQ(bed.network.pool().last_uid(), 0u);
  bed.play();
}

// RoCE stripes over all ports: without one of them its requests wait. TCP's answers take a plane of their own.
TEST(LaterQueuePairsOfMrcAndTcp, LeaveByThePortsThatHaveCarrierThen) {
  for (const std::string_view transport : {"mrc", "tcp"}) {
    SCOPED_TRACE(transport);
    LaterBed bed(transport, kStart);
    for (unsigned host = 0; host < 2; ++host) {
      bed.network.schedule(microseconds(10), LinkChange{.link = bed.clos.host_link(1, host), .up = false});
    }
    bed.play();
    for (unsigned host = 0; host < 2; ++host) {
      EXPECT_EQ(bed.network.half(bed.clos.host_link(1, host), true).counters().packets, 0u);
    }
  }
}

TEST_P(LaterQueuePairs, TakeThePathsThatTheyHaveThen) {
  LaterBed bed(GetParam(), kStart);
  bed.network.run_until(microseconds(100));
  auto paths = bed.clos.paths(0, 1);
  for (auto& plane : paths) plane.uplinks = {3};
  for (QpNumber q = 0; q < 3; ++q) bed.network.nic(0).set_paths(100 + q, paths, bed.network.now());
  EXPECT_THROW(bed.network.nic(0).set_paths(100, {}, bed.network.now()), std::invalid_argument);
  bed.play();
  if (GetParam() != "mrc") return;  // switches choose the paths of the others
  EXPECT_GT(bed.by_spine(0, 3), 20u);
  EXPECT_EQ(bed.by_spine(0, 0) + bed.by_spine(0, 1) + bed.by_spine(1, 2), 0u);
}

TEST_P(LaterQueuePairs, HaveTheirNumbersAtOnce) {
  LaterBed bed(GetParam(), kStart);
  Nic& nic = bed.network.nic(0);
  EXPECT_GT(nic.clients().reserve(1), 102u);
  EXPECT_EQ(nic.clients().transport_of(101), nic.transport());
  const QpConfig same{101, 201, 0, 1, 9, bed.clos.paths(0, 1), bed.clos.paths(1, 0), {}};
  EXPECT_THROW(nic.connect(same, bed.network.now()), std::invalid_argument);
  EXPECT_THROW(nic.connect_at(kStart * 2, same), std::invalid_argument);
  EXPECT_THROW(nic.set_transport(testing::make_transport(GetParam(), nic, gigabits(100))), std::invalid_argument);
  bed.play();
  EXPECT_THROW(nic.connect_at(kStart * 90, same), std::invalid_argument);
}

// With hosts that are served apart, window by window.
TEST_P(LaterQueuePairs, KeepTheLookahead) {
  LaterBed one(GetParam(), kStart), other(GetParam(), kStart);
  other.network.use_lookahead();
  one.play();
  other.play();
  for (std::size_t i = 0; i < one.flows.results().size(); ++i) {
    EXPECT_EQ(one.flows.results()[i].end, other.flows.results()[i].end) << i;
  }
}

}  // namespace
}  // namespace loomnet
