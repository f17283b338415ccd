// Whole fabrics on the virtual clock: exact times, bytes at the far end, conservation, repeatability.
#include <gtest/gtest.h>

#include "engine/clos.hpp"
#include "traffic/collective_traffic.hpp"
#include "traffic/flow_traffic.hpp"
#include "transport/roce/roce_transport.hpp"

namespace loomnet {
namespace {

using testing::Clos;
using testing::ClosShape;

void use_roce(Network& network, unsigned hosts, const roce::RoceOptions& options = {}) {
  for (unsigned h = 0; h < hosts; ++h) {
    Nic& nic = network.nic(h);
    nic.set_transport(std::make_unique<roce::RoceTransport>(nic.sink(), options));
  }
}

std::uint64_t accounted(Network& network) { return network.pool().outstanding() - network.held(); }

TEST(Network, OneWriteArrivesWhenPropagationAndSerialisationSay) {
  Network network(1);
  Clos clos(network, {.planes = 1});
  use_roce(network, 2, {.payload_mtu = 4096});
  clos.connect(0, 100, 1, 200);
  FlowTraffic flows(network, true);
  flows.add({.source = 0, .destination = 1, .qp = 100, .bytes = 4096, .message = 4096, .depth = 1});
  flows.start();
  network.run_until(milliseconds(1));
  ASSERT_TRUE(flows.done());
  EXPECT_EQ(flows.wrong(), 0u);
  // Four links out with the frame (Ethernet 14, IPv6 40, UDP 8, BTH 12, RETH 16, iCRC 4, 24 on the
  // wire) stored and forwarded on each, four links back with the ACK (14+40+8+12+4+4+24).
  const std::int64_t out = 4 * ((4096 + 94 + 24) * 80 + 1'000'000);
  const std::int64_t back = 4 * ((82 + 24) * 80 + 1'000'000);
  EXPECT_EQ(flows.results()[0].end.count, out + back);
}

TEST(Network, RoceFillsTheLineAndEveryByteIsRight) {
  Network network(1);
  Clos clos(network, {.planes = 2});
  use_roce(network, 2);
  clos.connect(0, 100, 1, 200);
  FlowTraffic flows(network, true);
  flows.add({.source = 0, .destination = 1, .qp = 100, .bytes = 20'000'000, .message = 1 << 20, .depth = 4});
  flows.start();
  network.run_until(milliseconds(10));  // ends with the last flow
  ASSERT_TRUE(flows.done());
  EXPECT_EQ(flows.wrong(), 0u);
  const double line = 2 * 100e9 / 8 * 2048 / (2048 + 78 + 24);
  const double rate = 20e6 / flows.results()[0].end.seconds();
  EXPECT_GT(rate / line, 0.97);
  EXPECT_LE(rate / line, 1.0);
  network.run_until(milliseconds(20));
  EXPECT_EQ(accounted(network), 0u);
}

struct Outcome {
  std::int64_t end;
  std::uint64_t events, uids;
  bool operator==(const Outcome&) const = default;
};

Outcome all_reduce(bool payload, std::uint64_t seed) {
  Network network(seed);
  Clos clos(network, {.planes = 2, .hosts_per_leaf = 2});
  use_roce(network, 4, {.timeout_exponent = 8});
  network.half(clos.fabric_link(0, 0, 0), true).set_impairment({.loss = 0.001}, {});
  CollectiveTraffic job(
      network, {.hosts = {0, 1, 2, 3}, .bytes = 1 << 20, .repeat = 3, .compute = microseconds(50), .payload = payload});
  for (unsigned a = 0; a < 4; ++a) {
    for (unsigned b = a + 1; b < 4; ++b) {
      clos.connect(a, 100 + b, b, 100 + a);
      job.set_queue_pair(a, b, 100 + b);
      job.set_queue_pair(b, a, 100 + a);
    }
  }
  job.start();
  while (!job.done() && !network.run_until(milliseconds(100))) {
  }
  EXPECT_TRUE(job.done());
  network.run_until(milliseconds(200));
  EXPECT_EQ(job.errors(), 0u) << job.first_error();
  EXPECT_EQ(job.wrong(), 0u);
  EXPECT_EQ(accounted(network), 0u);
  return {job.iterations(0).back().end.count, network.events().processed(), network.pool().last_uid()};
}

TEST(Network, AllReduceIsRightAndTimedTheSameWithAndWithoutPayload) {
  const Outcome with = all_reduce(true, 5);
  EXPECT_EQ(with, all_reduce(true, 5));
  EXPECT_EQ(with, all_reduce(false, 5));
  EXPECT_NE(with, all_reduce(false, 6));
}

TEST(Network, TellsWhichJobsEndedAndOfWhichAnIterationEnded) {
  for (const bool watched : {false, true}) {
    Network network(1);
    Clos clos(network, {.planes = 1, .hosts_per_leaf = 2});
    use_roce(network, 4, {});
    network.watch_iterations(watched);
    std::vector<std::unique_ptr<CollectiveTraffic>> jobs;
    for (std::uint32_t number : {0u, 1u}) {
      const NodeId a = 2 * number, b = a + 1;
      clos.connect(a, 100 + b, b, 100 + a, 0, JobId{number});
      jobs.push_back(std::make_unique<CollectiveTraffic>(
          network, CollectiveTrafficConfig{
                       .job = JobId{number}, .hosts = {a, b}, .bytes = 1 << 12, .repeat = number ? 1u : 40u}));
      jobs.back()->set_queue_pair(0, 1, 100 + b);
      jobs.back()->set_queue_pair(1, 0, 100 + a);
      jobs.back()->start();
    }
    std::vector<std::vector<JobId>> told;
    while (!jobs[0]->done() && !network.run_until(milliseconds(100))) told.push_back(network.take_moved());
    ASSERT_TRUE(jobs[0]->done() && jobs[1]->done());
    const std::vector<JobId> first{JobId{0}}, second{JobId{1}};
    if (!watched) {
      EXPECT_EQ(told, (std::vector<std::vector<JobId>>{second, first}));
    } else {  // iterations of both, which end at the same time in their first
      EXPECT_GE(told.size(), 40u);
      for (const auto& each : told) EXPECT_FALSE(each.empty());
    }
    EXPECT_TRUE(network.take_moved().empty());
  }
}

TEST(Network, RandomBytesOnAnyPortAreCountedAndTheRunGoesOn) {
  Network network(3);
  Clos clos(network, {.planes = 2});
  use_roce(network, 2);
  clos.connect(0, 100, 1, 200);
  FlowTraffic flows(network, true);
  flows.add({.source = 0, .destination = 1, .qp = 100, .bytes = 4'000'000, .message = 1 << 18, .depth = 4});
  flows.start();
  RandomStream random(3, 1, 1);
  std::vector<std::uint8_t> frame;
  for (int i = 0; i < 20'000; ++i) {
    network.run_until(nanoseconds(10) * i);
    frame.resize(random.below(1500));
    for (auto& byte : frame) byte = static_cast<std::uint8_t>(random());
    if (i % 3 && frame.size() > 60) {  // two of three look like IPv6
      frame[12] = 0x86;
      frame[13] = 0xdd;
      frame[14] = 0x60;
    }
    const auto node = static_cast<NodeId>(random.below(static_cast<std::uint32_t>(network.nodes())));
    network.inject({node, static_cast<std::uint16_t>(random.below(2))}, frame);
  }
  network.run_until(milliseconds(50));
  EXPECT_TRUE(flows.done());
  EXPECT_EQ(flows.wrong(), 0u);
  EXPECT_EQ(accounted(network), 0u);
  std::uint64_t dropped = 0;
  for (NodeId node = 2; node < network.nodes(); ++node) {
    std::vector<SwitchCounter> counters;
    network.program(node)->counters(counters);
    for (const auto& c : counters) dropped += c.name.starts_with("drop") ? c.value : 0;
  }
  std::uint64_t malformed = 0;
  for (unsigned h = 0; h < 2; ++h) {
    std::vector<TransportCounter> counters;
    network.nic(h).transport()->counters(counters);
    for (const auto& c : counters)
      malformed +=
          c.name == "malformed_dropped" || c.name == "not_roce_dropped" || c.name == "unknown_qp_dropped" ? c.value : 0;
  }
  EXPECT_EQ(dropped + malformed, 20'000u);
}

TEST(Network, APanelForwardsGlassAndDarkPortsLose) {
  Network network(1);
  network.add_host(1);
  network.add_host(1);
  const NodeId panel = network.add_panel({1, 0, -1});
  const LinkConfig port{.rate = gigabits(100), .delay = nanoseconds(500)};
  const LinkConfig glass{.delay = nanoseconds(500)};
  network.connect({0, 0}, {panel, 0}, port, glass);
  network.connect({1, 0}, {panel, 1}, port, glass);
  use_roce(network, 2);
  std::vector<PlanePaths> direct(1);
  direct[0].uplinks = {0};
  network.nic(0).connect({100, 200, 0, 1, 0, direct, direct}, {});
  network.nic(1).connect({200, 100, 1, 0, 0, direct, direct}, {});
  FlowTraffic flows(network, true);
  flows.add({.source = 0, .destination = 1, .qp = 100, .bytes = 1000, .message = 1000, .depth = 1});
  flows.start();
  network.run_until(milliseconds(1));
  ASSERT_TRUE(flows.done());
  EXPECT_EQ(flows.wrong(), 0u);
  // One serialisation each way: glass has none.
  EXPECT_EQ(flows.results()[0].end.count, (1094 + 24 + 82 + 24) * 80 + 4 * 500'000);
  EXPECT_THROW(network.set_circuits(panel, {1, 0}), std::invalid_argument);
  EXPECT_THROW(network.set_circuits(panel, {1, 0, 7}), std::invalid_argument);
}

TEST(Nic, AKeyThatIsGivenAgainDiffersFromTheOldOne) {
  Network network(1);
  Nic& nic = network.nic(network.add_host(1));
  const std::uint32_t kept = nic.register_region(nullptr, 0, 100);
  const std::uint32_t old = nic.register_region(nullptr, 0, 100);
  nic.deregister(old);
  const std::uint32_t fresh = nic.register_region(nullptr, 0, 100);
  EXPECT_EQ(fresh & 0xffffff, old & 0xffffff) << "regions do not pile up";
  EXPECT_NE(fresh, old);
  EXPECT_NE(fresh, kept);
  EXPECT_THROW(nic.deregister(old), std::invalid_argument);
  EXPECT_THROW(nic.last_placed(old), std::invalid_argument);
  EXPECT_EQ(nic.last_placed(fresh), Picoseconds{-1});
}

}  // namespace
}  // namespace loomnet
