// Paths of a queue pair that change while it sends, with losses on the old and the new ones.
#include "engine/nic_bed.hpp"
#include "traffic/flow_traffic.hpp"

namespace loomnet {
namespace {

using testing::Clos;
using testing::ClosShape;

struct PathsBed {
  static constexpr unsigned kSpines = 4;
  ClosShape shape{.planes = 2, .leaves = 2, .spines = kSpines, .hosts_per_leaf = 1};
  Network network;
  Clos clos;
  FlowTraffic flows;
  PathsBed(std::string_view transport, std::uint64_t seed) : network(seed), clos(network, shape), flows(network, true) {
    testing::equip(network, 2, gigabits(100), {transport});
    clos.connect(0, 100, 1, 200, 1);
  }
  // By these spines of each plane; none: the plane has no path.
  std::vector<PlanePaths> by(const std::vector<std::vector<std::uint16_t>>& spines, unsigned from) const {
    std::vector<PlanePaths> out = clos.paths(from, 1 - from);
    for (std::size_t p = 0; p < out.size(); ++p) out[p].uplinks = spines[p];
    return out;
  }
  void go_by(const std::vector<std::vector<std::uint16_t>>& spines) {
    network.nic(0).set_paths(100, by(spines, 0), network.now());
    network.nic(1).set_paths(200, by(spines, 1), network.now());
  }
  // Packets that either leaf has sent to a spine.
  std::uint64_t through(unsigned plane, unsigned spine) {
    std::uint64_t sum = 0;
    for (unsigned leaf = 0; leaf < 2; ++leaf) {
      sum += network.half(clos.fabric_link(plane, leaf, spine), true).counters().packets;
    }
    return sum;
  }
  void run(Picoseconds time) {
    const Picoseconds end = network.now() + time;
    while (network.now() < end && !flows.done()) network.run_until(end);
  }
  void start(std::uint64_t bytes) {
    flows.add({.source = 0, .destination = 1, .qp = 100, .bytes = bytes, .message = 1 << 17});
    flows.start();
  }
  mrc::MrcTransport& mrc(unsigned host) { return static_cast<mrc::MrcTransport&>(*network.nic(host).transport()); }
};

class PathsChange : public ::testing::TestWithParam<std::string_view> {};
INSTANTIATE_TEST_SUITE_P(Transports, PathsChange, ::testing::Values("mrc", "roce", "tcp"));

TEST_P(PathsChange, UnderLossLosesNothing) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    PathsBed bed(GetParam(), seed);
    RandomStream random(seed, 0, 1);
    for (const unsigned spine : {0u, 2u}) {
      bed.network.half(bed.clos.fabric_link(0, 0, spine), true).set_impairment({.loss = 0.01}, {});
      bed.network.half(bed.clos.fabric_link(1, 1, spine), true).set_impairment({.loss = 0.01}, {});
    }
    bed.start(6'000'000);
    for (int change = 0; change < 40 && !bed.flows.done(); ++change) {
      bed.run(microseconds(5 + random.below(60)));
      std::vector<std::vector<std::uint16_t>> spines(2);
      for (auto& plane : spines) {
        for (std::uint16_t s = 0; s < PathsBed::kSpines; ++s) {
          if (random.below(2)) plane.push_back(s);
        }
      }
      // RoCE stripes over every plane.
      const bool all = GetParam() == "roce" || (spines[0].empty() && spines[1].empty());
      for (auto& plane : spines) {
        if (all && plane.empty()) plane = {1};
      }
      bed.go_by(spines);
    }
    bed.go_by({{0, 1, 2, 3}, {0, 1, 2, 3}});
    bed.run(seconds(5));
    ASSERT_TRUE(bed.flows.done());
    EXPECT_EQ(bed.flows.results()[0].status, Status::ok);
    EXPECT_EQ(bed.flows.wrong(), 0u);
    bed.network.run_until(bed.network.now() + milliseconds(50));
    EXPECT_EQ(bed.network.pool().outstanding(), bed.network.held());
  }
}

TEST_P(PathsChange, BadOnesAreRefusedAndTheOldOnesStay) {
  PathsBed bed(GetParam(), 1);
  Nic& nic = bed.network.nic(0);
  EXPECT_THROW(nic.set_paths(101, bed.by({{0}, {0}}, 0), {}), std::invalid_argument);
  EXPECT_THROW(nic.set_paths(100, {}, {}), std::invalid_argument);
  auto three = bed.by({{0}, {0}}, 0);
  three.push_back(three[0]);
  EXPECT_THROW(nic.set_paths(100, three, {}), std::invalid_argument);
  if (GetParam() == "roce") {
    EXPECT_THROW(nic.set_paths(100, bed.by({{0}, {}}, 0), {}), std::invalid_argument);
  }
  bed.start(1'000'000);
  bed.run(seconds(1));
  EXPECT_TRUE(bed.flows.done());
}

// Host 0 is attached to the planes in reverse: its port 0 is on plane 3, host 1's on plane 0.
TEST_P(PathsChange, APortsNumberNeedNotBeItsPlanes) {
  ClosShape shape{.planes = 4, .leaves = 2, .spines = 2, .crossed = true};
  Network network(3);
  Clos clos(network, shape);
  testing::equip(network, 2, gigabits(100), {GetParam()});
  for (unsigned p = 0; p < 4; ++p) {
    network.half(clos.fabric_link(p, 0, 0), true).set_impairment({.loss = 0.005}, {});
  }
  network.schedule(microseconds(100), LinkChange{.link = clos.host_link(3, 0), .up = false});
  network.schedule(microseconds(400), LinkChange{.link = clos.host_link(3, 0), .up = true});
  FlowTraffic flows(network, true);
  for (QpNumber q = 0; q < 4; ++q) {
    clos.connect(0, 100 + q, 1, 200 + q, q);
    flows.add({.source = 0, .destination = 1, .qp = 100 + q, .bytes = 3'000'000, .message = 1 << 17});
    flows.add({.source = 1, .destination = 0, .qp = 200 + q, .bytes = 3'000'000, .message = 1 << 17});
  }
  flows.start();
  network.run_until(seconds(5));
  ASSERT_TRUE(flows.done());
  for (const FlowResult& r : flows.results()) EXPECT_EQ(r.status, Status::ok);
  EXPECT_EQ(flows.wrong(), 0u);
  network.run_until(network.now() + milliseconds(50));
  EXPECT_EQ(network.pool().outstanding(), network.held());
  for (NodeId node = 2; node < network.nodes(); ++node) {
    std::vector<SwitchCounter> counters;
    network.program(node)->counters(counters);
    for (const auto& c : counters) {
      if (c.name.starts_with("drop")) {
        EXPECT_EQ(c.value, 0u) << c.name;
      }
    }
  }
}

TEST(MrcPaths, TheOldOnesAreLeftAtOnce) {
  PathsBed bed("mrc", 1);
  bed.go_by({{0, 1}, {0, 1}});
  bed.start(10'000'000);
  bed.run(microseconds(100));
  EXPECT_EQ(bed.through(0, 2) + bed.through(0, 3) + bed.through(1, 2), 0u);
  EXPECT_GT(bed.through(0, 0), 100u);
  bed.go_by({{2}, {}});
  bed.run(microseconds(10));  // longer than from a host to a spine
  const std::uint64_t old = bed.through(0, 0) + bed.through(0, 1), other = bed.through(1, 0) + bed.through(1, 1);
  bed.run(microseconds(100));
  EXPECT_GT(bed.through(0, 2), 100u);
  EXPECT_EQ(bed.through(0, 0) + bed.through(0, 1), old);
  EXPECT_EQ(bed.through(1, 0) + bed.through(1, 1), other);
  EXPECT_EQ(testing::counter(bed.mrc(0), "paths_total"), 1u);
  // Both planes again.
  bed.go_by({{2}, {3}});
  bed.run(microseconds(200));
  EXPECT_GT(bed.through(1, 3), 100u);
  bed.run(seconds(1));
  EXPECT_TRUE(bed.flows.done());
  EXPECT_EQ(bed.flows.wrong(), 0u);
}

TEST(MrcPaths, AllQueuePairsToThePeerFollow) {
  PathsBed bed("mrc", 1);
  bed.clos.connect(0, 101, 1, 201, 2);
  bed.network.run_until(microseconds(100));  // probes of the base RTT have passed
  const auto others = [&] {
    std::uint64_t sum = 0;
    for (unsigned spine = 0; spine < 3; ++spine) sum += bed.through(0, spine) + bed.through(1, spine);
    return sum;
  };
  const std::uint64_t before = others();
  bed.go_by({{3}, {3}});
  bed.flows.add({.source = 0, .destination = 1, .qp = 101, .bytes = 1'000'000, .start = bed.network.now()});
  bed.flows.add({.source = 0, .destination = 1, .qp = 100, .bytes = 1'000'000, .start = bed.network.now()});
  bed.flows.start();
  bed.run(seconds(1));
  ASSERT_TRUE(bed.flows.done());
  EXPECT_EQ(others(), before);
}

TEST(MrcPaths, WhatAPathHasShownIsKeptWhereItStays) {
  PathsBed bed("mrc", 1);
  bed.network.half(bed.clos.fabric_link(0, 0, 1), true).set_impairment({.loss = 1.0}, {});
  bed.start(8'000'000);
  const EntropyValue dead(0, 1);
  const auto state = [&] {
    const auto& evs = bed.mrc(0).sender(100).evs();
    return evs.state(evs.find(dead));
  };
  for (int i = 0; i < 100 && state() != mrc::EvState::assumed_bad; ++i) bed.run(microseconds(10));
  ASSERT_EQ(state(), mrc::EvState::assumed_bad);
  bed.go_by({{0, 1, 2, 3}, {0, 2}});
  EXPECT_EQ(state(), mrc::EvState::assumed_bad);
  bed.go_by({{0, 1}, {0, 2}});
  EXPECT_EQ(state(), mrc::EvState::good);  // other paths: nothing is known of them
  bed.run(seconds(1));
  EXPECT_TRUE(bed.flows.done());
}

TEST(TcpPaths, TheHostsRouteFollows) {
  PathsBed bed("tcp", 1);
  auto& tcp = static_cast<tcp::TcpTransport&>(*bed.network.nic(0).transport());
  for (const PlanePort plane : {0, 1, 0}) {
    std::vector<std::vector<std::uint16_t>> spines(2);
    spines[plane] = {0};
    bed.go_by(spines);
    EXPECT_EQ(tcp.port_of_connection(100), plane);
  }
}

TEST(RocePaths, AnotherSourcePortIsDrawn) {
  PathsBed bed("roce", 1);
  std::vector<std::uint64_t> used;
  for (int change = 0; change < 8; ++change) {
    bed.flows.add({.source = 0, .destination = 1, .qp = 100, .bytes = 100'000, .start = bed.network.now()});
    bed.flows.start();
    bed.run(milliseconds(5));
    ASSERT_TRUE(bed.flows.done());
    bed.network.run_until(bed.network.now() + microseconds(100));
    bed.go_by({{0, 1, 2, 3}, {0, 1, 2, 3}});
  }
  unsigned spines = 0;
  for (unsigned s = 0; s < PathsBed::kSpines; ++s) {
    spines += bed.network.half(bed.clos.fabric_link(0, 0, s), true).counters().packets > 20;
  }
  EXPECT_GE(spines, 2u);
}

}  // namespace
}  // namespace loomnet
