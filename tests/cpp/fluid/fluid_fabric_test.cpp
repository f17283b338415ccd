// Fluid transfers on networks: the routes and times that packets have, real bytes, links and circuits that
// come and go.
#include "fluid/fluid_fabric.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <vector>

#include "engine/clos.hpp"
#include "engine/nic_bed.hpp"
#include "traffic/flow_traffic.hpp"

namespace loomnet::fluid {
namespace {

constexpr Frames kRoce{4096, 102};  // 78 B of headers and ICRC, 24 of framing

// Hosts of a two-tier fabric, with queue pair 100 + b at host a for each pair.
struct Bed {
  Network network;
  loomnet::testing::Clos clos;
  std::unique_ptr<FluidFabric> fluid;
  std::unique_ptr<FlowTraffic> flows;

  explicit Bed(const loomnet::testing::ClosShape& shape, bool packets = false, std::uint64_t seed = 3)
      : network(seed), clos(network, shape) {
    if (packets) {
      loomnet::testing::equip(network, shape.hosts(), shape.host_link.rate, {"roce"});
    } else {
      fluid = std::make_unique<FluidFabric>(network);
      for (unsigned h = 0; h < shape.hosts(); ++h) fluid->add_transport(h, "roce", kRoce);
    }
    for (unsigned a = 0; a < shape.hosts(); ++a) {
      for (unsigned b = a + 1; b < shape.hosts(); ++b) clos.connect(a, 100 + b, b, 100 + a);
    }
    flows = std::make_unique<FlowTraffic>(network, true);
  }
  void flow(unsigned a, unsigned b, std::uint64_t bytes, Picoseconds start = {}) {
    flows->add({.source = a, .destination = b, .qp = 100 + b, .bytes = bytes, .start = start});
  }
  void run(Picoseconds until = seconds(10)) {
    flows->start();
    go(until);
  }
  void go(Picoseconds until) {
    while (!flows->done() && network.now() < until && !network.run_until(until)) continue;
  }
};

TEST(FluidFabric, AFlowAloneTakesTheTimeThatPacketsTake) {
  for (const unsigned to : {2u, 1u}) {  // below the same leaf, and across
    std::vector<Picoseconds> ends;
    for (const bool packets : {false, true}) {
      Bed bed({.planes = 1, .hosts_per_leaf = 2}, packets);
      bed.flow(0, to, 50'000'000);
      bed.run();
      ASSERT_TRUE(bed.flows->done());
      EXPECT_EQ(bed.flows->wrong(), 0u);
      ends.push_back(bed.flows->results()[0].end);
    }
    EXPECT_NEAR(ends[0].seconds() / ends[1].seconds(), 1, 0.002) << "to host " << to;
  }
}

// The time of a message is that of its bytes on the narrowest link, wherever that is, and of a packet on each other.
TEST(FluidFabric, AFlowAloneTakesTheTimeThatPacketsTakeWhicheverLinkIsNarrow) {
  for (const auto& [host, fabric] : {std::pair{400u, 10u}, {10u, 400u}, {100u, 90u}, {90u, 100u}}) {
    for (const std::uint64_t bytes : {4096u, 20480u, 65536u}) {  // whole packets
      std::vector<Picoseconds> ends;
      for (const bool packets : {false, true}) {
        Bed bed({.planes = 1,
                 .host_link = {.rate = gigabits(host), .delay = nanoseconds(10)},
                 .fabric_link = {.rate = gigabits(fabric), .delay = nanoseconds(10)}},
                packets);
        bed.flow(0, 1, bytes);
        bed.run();
        ASSERT_TRUE(bed.flows->done());
        ends.push_back(bed.flows->results()[0].end);
      }
      EXPECT_NEAR(ends[0].seconds() / ends[1].seconds(), 1, 0.02)
          << bytes << " bytes over " << host << ", " << fabric << " and " << host << " Gb/s";
    }
  }
}

TEST(FluidFabric, AFlowTakesTheLinksThatItsPacketsTake) {
  const loomnet::testing::ClosShape shape{.planes = 1, .leaves = 4, .spines = 4, .hosts_per_leaf = 2};
  std::set<std::vector<LinkIndex>> routes;
  for (unsigned to = 1; to < shape.hosts(); ++to) {
    Bed packets(shape, true);
    packets.flow(0, to, 1'000'000);
    packets.run();
    std::set<LinkIndex> used;
    for (LinkIndex half = 0; half < 2 * packets.network.links(); ++half) {
      if (packets.network.half(half / 2, half % 2 == 0).counters().bytes > 900'000) used.insert(half);
    }
    Bed bed(shape);
    const Route route = bed.fluid->route(0, 0, to, flow_front({0, to, 100 + to, 0, 0}, kUdpPortRoceV2));
    ASSERT_TRUE(route.whole);
    EXPECT_EQ(std::set<LinkIndex>(route.links.begin(), route.links.end()), used) << "to host " << to;
    routes.insert(route.links);
  }
  EXPECT_EQ(routes.size(), shape.hosts() - 1u);
}

TEST(FluidFabric, PlanesCarryEqualParts) {
  Bed bed({.planes = 2, .hosts_per_leaf = 1});
  bed.flow(0, 1, 250'000'000);  // 2 Gbit over 2 x 100 Gb/s
  bed.run();
  const double wire = static_cast<double>(kRoce.wire_bytes(1 << 20)) / (1 << 20);
  EXPECT_NEAR(bed.flows->results()[0].end.seconds(), 0.01 * wire, 0.01 * 0.005);
}

TEST(FluidFabric, WhatOneFlowLeavesAnotherHas) {
  Bed bed({.planes = 1, .leaves = 2, .spines = 1, .hosts_per_leaf = 2});
  bed.flow(0, 1, 10'000'000);
  bed.flow(2, 3, 30'000'000);  // both cross the one spine link
  bed.run();
  const double wire = static_cast<double>(kRoce.wire_bytes(1 << 20)) / (1 << 20);
  EXPECT_NEAR(bed.flows->results()[0].end.seconds(), 1.6e-3 * wire, 2e-5);
  EXPECT_NEAR(bed.flows->results()[1].end.seconds(), 3.2e-3 * wire, 2e-5);
}

TEST(FluidFabric, ALinkThatIsDownCarriesNothingAndThenGoesOn) {
  Bed bed({.planes = 1, .hosts_per_leaf = 1});
  bed.flow(0, 1, 12'500'000);  // 1 ms
  bed.flows->start();
  bed.go(microseconds(500));
  bed.network.apply({.link = bed.clos.host_link(0, 0), .up = false});
  bed.go(milliseconds(5));
  EXPECT_FALSE(bed.flows->done());
  bed.network.apply({.link = bed.clos.host_link(0, 0), .up = true});
  bed.go(seconds(1));
  ASSERT_TRUE(bed.flows->done());
  EXPECT_EQ(bed.flows->wrong(), 0u);
  EXPECT_NEAR(bed.flows->results()[0].end.seconds(), 5.5e-3, 1e-4);
}

TEST(FluidFabric, ASlowerLinkSlowsItsFlowsAlone) {
  Bed bed({.planes = 1, .leaves = 2, .spines = 2, .hosts_per_leaf = 2});
  bed.flow(0, 2, 12'500'000);
  bed.flow(1, 3, 12'500'000);
  bed.network.apply({.link = bed.clos.host_link(0, 0), .rate = gigabits(25)});
  bed.run();
  EXPECT_NEAR(bed.flows->results()[0].end.seconds() / bed.flows->results()[1].end.seconds(), 4, 0.05);
}

TEST(FluidFabric, NewTablesTakeAFlowElsewhere) {
  Bed bed({.planes = 1, .leaves = 2, .spines = 2, .hosts_per_leaf = 1});
  const FlowFront front = flow_front({0, 1, 101, 0, 0}, kUdpPortRoceV2);
  const Route before = bed.fluid->route(0, 0, 1, front);
  ASSERT_TRUE(before.whole);
  bed.flow(0, 1, 12'500'000);
  bed.flows->start();
  bed.go(microseconds(300));
  for (unsigned s = 0; s < 2; ++s) {  // the spine that the flow crosses goes
    const LinkId link = bed.clos.fabric_link(0, 0, s);
    if (std::count(before.links.begin(), before.links.end(), 2 * link)) {
      bed.network.apply({.link = link, .up = false});
    }
  }
  bed.go(milliseconds(2));
  EXPECT_FALSE(bed.flows->done());
  ForwardBatch tables;
  tables.generation = 2;
  const auto other = static_cast<SwitchPort>(bed.network.half(bed.clos.fabric_link(0, 0, 0), true).up() ? 1 : 2);
  tables.groups = {{other}, {0}};
  tables.hosts = {{host_address(1), 0}, {host_address(0), 1}};
  bed.network.set_tables(bed.clos.leaf(0, 0), tables.pack());
  bed.go(seconds(1));
  ASSERT_TRUE(bed.flows->done());
  EXPECT_NEAR(bed.flows->results()[0].end.seconds(), 2.7e-3, 1e-4);
}

// A refused write ends its queue pair: a good one behind it is not placed, though it arrives before the
// refusal is known where both came from.
TEST(FluidFabric, AWriteThatTheFarSideRefusesFailsAndFlushesTheRest) {
  Bed bed({.planes = 1, .hosts_per_leaf = 1});
  loomnet::testing::Listener here(bed.network.nic(0), {}), there(bed.network.nic(1), {});
  bed.network.nic(0).clients().own(101, {{}, here.id});
  bed.network.nic(1).clients().own(100, {{}, there.id});
  const std::uint32_t good = bed.network.nic(1).register_region(nullptr, 0, 1 << 20);
  for (const std::uint32_t key : {good, good + 1, good}) {
    WorkRequest request;
    request.id = key;
    request.length = 1000;
    request.remote_key = key;
    request.opcode = Opcode::write_with_immediate;
    bed.network.nic(0).post(101, request, {});
  }
  bed.network.run_until(milliseconds(10));
  ASSERT_EQ(here.completions.size(), 3u);
  EXPECT_EQ(here.completions[0].status, Status::ok);
  EXPECT_EQ(here.completions[1].status, Status::remote_access_error);
  EXPECT_EQ(here.completions[2].status, Status::flushed);
  EXPECT_EQ(there.arrivals.size(), 1u);
  EXPECT_EQ(bed.fluid->links().flows(), 0u);
  bed.network.nic(0).post(101, {}, bed.network.now());
  ASSERT_EQ(here.completions.size(), 4u);
  EXPECT_EQ(here.completions[3].status, Status::flushed) << "the queue pair has failed";
}

// A short write has a part for the first port alone and leaves before the one in front of it, whose other part is slow.
TEST(FluidFabric, AShortWriteIsAnsweredBehindTheOneInFrontOfIt) {
  Bed bed({.planes = 2, .hosts_per_leaf = 1});
  bed.network.apply({.link = bed.clos.host_link(1, 0), .rate = gigabits(1)});
  loomnet::testing::Listener here(bed.network.nic(0), {}), there(bed.network.nic(1), {});
  bed.network.nic(0).clients().own(101, {{}, here.id});
  bed.network.nic(1).clients().own(100, {{}, there.id});
  const std::uint32_t good = bed.network.nic(1).register_region(nullptr, 0, 1 << 20);
  for (const auto& [length, key] : {std::pair{1u << 20, good}, {1u, good + 1}}) {
    WorkRequest request;
    request.length = length;
    request.remote_key = key;
    bed.network.nic(0).post(101, request, {});
  }
  bed.network.run_until(milliseconds(10));
  ASSERT_EQ(here.completions.size(), 2u);
  EXPECT_EQ(here.completions[0].status, Status::ok);
  EXPECT_EQ(here.completions[1].status, Status::remote_access_error);
}

TEST(FluidFabric, AWriteToAQueuePairThatIsNotThereFails) {
  Bed bed({.planes = 1, .hosts_per_leaf = 1});
  loomnet::testing::Listener here(bed.network.nic(0), {});
  bed.network.nic(0).connect({300, 301, 0, 1, 0, bed.clos.paths(0, 1), bed.clos.paths(1, 0)}, {}, {{}, here.id});
  for (int i = 0; i < 2; ++i) {
    WorkRequest request;
    request.length = 1000;
    bed.network.nic(0).post(300, request, {});
  }
  bed.network.run_until(milliseconds(10));
  ASSERT_EQ(here.completions.size(), 2u);
  EXPECT_EQ(here.completions[0].status, Status::remote_operational);
  EXPECT_EQ(here.completions[1].status, Status::flushed);
}

// A queue pair's ports go one by one, all, and come back: what is left of a write follows them.
TEST(FluidFabric, WhatIsLeftOfAWriteFollowsThePaths) {
  Bed bed({.planes = 2, .hosts_per_leaf = 1});
  std::vector<PlanePaths> both = bed.clos.paths(0, 1), one = both, none = both;
  one[1].uplinks.clear();
  none[0].uplinks.clear();
  none[1].uplinks.clear();
  loomnet::testing::Listener here(bed.network.nic(0), {}), there(bed.network.nic(1), {});
  bed.network.nic(0).clients().own(101, {{}, here.id});
  bed.network.nic(1).clients().own(100, {{}, there.id});
  WorkRequest request;  // 1 ms by both ports
  request.length = 25'000'000 - 25'000'000 / 4096 * 102;
  request.remote_key = bed.network.nic(1).register_region(nullptr, 0, 1 << 25);
  request.opcode = Opcode::write_with_immediate;
  bed.network.nic(0).post(101, request, {});
  bed.network.run_until(microseconds(500));  // half of it
  bed.network.nic(0).set_paths(101, one, bed.network.now());
  bed.network.run_until(microseconds(1000));  // a quarter
  bed.network.nic(0).set_paths(101, none, bed.network.now());
  EXPECT_EQ(bed.fluid->links().flows(), 0u);
  bed.network.run_until(microseconds(3000));
  EXPECT_TRUE(there.arrivals.empty());
  bed.network.nic(0).set_paths(101, both, bed.network.now());
  bed.network.run_until(microseconds(3249));  // the last quarter, by both
  EXPECT_TRUE(there.arrivals.empty());
  bed.network.run_until(microseconds(3260));
  EXPECT_EQ(there.arrivals.size(), 1u);
  bed.network.run_until(microseconds(3270));
  ASSERT_EQ(here.completions.size(), 1u);
  EXPECT_EQ(here.completions[0].status, Status::ok);
}

TEST(FluidFabric, PartsAreWholeUnitsButForTheLast) {
  const Frames frames{.payload = 4096, .overhead = 102, .part = 128};
  const auto cut = [&](std::uint64_t length) {
    return std::array{frames.part_bytes(length, 3, 0), frames.part_bytes(length, 3, 1),
                      frames.part_bytes(length, 3, 2)};
  };
  EXPECT_EQ(cut(100), (std::array<std::uint64_t, 3>{100, 0, 0}));
  EXPECT_EQ(cut(200), (std::array<std::uint64_t, 3>{128, 72, 0}));
  EXPECT_EQ(cut(1000), (std::array<std::uint64_t, 3>{384, 384, 232}));
}

TEST(FluidFabric, AWriteWithoutBytesTakesAPacket) {
  Bed bed({.planes = 1, .hosts_per_leaf = 1});
  EXPECT_EQ(kRoce.wire_bytes(0), kRoce.overhead);
  EXPECT_EQ(kRoce.wire_bytes(1), 1u + kRoce.overhead);
  EXPECT_EQ(kRoce.wire_bytes(4097), 4097u + 2 * kRoce.overhead);
}

// Two hosts at a panel: a flow waits for its circuit, loses it half way, and ends by another.
TEST(FluidFabric, AFlowFollowsItsCircuits) {
  Network network(1);
  for (int h = 0; h < 3; ++h) network.add_host(1);
  const NodeId panel = network.add_panel({-1, -1, -1});
  for (std::uint16_t h = 0; h < 3; ++h) {
    network.connect({h, 0}, {panel, h}, {.rate = gigabits(100), .delay = microseconds(1)}, {.delay = microseconds(1)});
  }
  FluidFabric fluid(network);
  for (unsigned h = 0; h < 3; ++h) fluid.add_transport(h, "roce", kRoce);
  std::vector<PlanePaths> direct(1);
  direct[0].uplinks = {0};
  network.nic(0).connect({101, 100, 0, 1, 0, direct, direct}, {});
  network.nic(1).connect({100, 101, 1, 0, 0, direct, direct}, {});
  FlowTraffic flows(network, true);
  flows.add({.source = 0, .destination = 1, .qp = 101, .bytes = 12'500'000});  // 1 ms of light
  flows.start();
  network.run_until(milliseconds(1));
  EXPECT_EQ(fluid.links().flows(), 0u) << "it has no circuit";
  network.set_circuits(panel, {1, 0, -1});
  network.run_until(microseconds(1500));
  network.set_circuits(panel, {2, -1, 0});
  network.run_until(milliseconds(3));
  EXPECT_EQ(fluid.links().flows(), 0u) << "its light reaches another host";
  EXPECT_FALSE(flows.done());
  network.set_circuits(panel, {1, 0, -1});
  network.run_until(seconds(1));
  ASSERT_TRUE(flows.done());
  EXPECT_EQ(flows.wrong(), 0u);
  EXPECT_NEAR(flows.results()[0].end.seconds(), 3.5e-3, 1e-4);
}

}  // namespace
}  // namespace loomnet::fluid
