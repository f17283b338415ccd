// Panels: carriers that go and come with circuits, light that goes dark, and queue pairs that follow.
#include <numeric>

#include "engine/nic_bed.hpp"
#include "traffic/flow_traffic.hpp"

namespace loomnet {
namespace {

const LinkConfig kFibre{.rate = gigabits(100), .delay = nanoseconds(500)};
const LinkConfig kGlass{.delay = nanoseconds(300)};

// Hosts of `ports` NIC ports each at one panel: port p of host h is the panel's port h * ports + p.
struct PanelBed {
  unsigned hosts, ports;
  Network network;
  NodeId panel;
  std::vector<std::int32_t> circuits;
  FlowTraffic flows;

  PanelBed(unsigned hosts, unsigned ports, std::uint64_t seed = 1)
      : hosts(hosts), ports(ports), network(seed), circuits(hosts * ports, -1), flows(network, true) {
    for (unsigned h = 0; h < hosts; ++h) network.add_host(ports);
    panel = network.add_panel(circuits);
    for (unsigned h = 0; h < hosts; ++h) {
      for (unsigned p = 0; p < ports; ++p) network.connect(at(h, p), {panel, place(h, p)}, kFibre, kGlass);
    }
  }
  Endpoint at(unsigned h, unsigned p) const { return {h, static_cast<std::uint16_t>(p)}; }
  std::uint16_t place(unsigned h, unsigned p) const { return static_cast<std::uint16_t>(h * ports + p); }
  bool up(unsigned h, unsigned p = 0) { return network.nic(h).port_up(static_cast<PlanePort>(p)); }
  void join(unsigned a, unsigned pa, unsigned b, unsigned pb) {
    circuits[place(a, pa)] = place(b, pb);
    circuits[place(b, pb)] = place(a, pa);
  }
  // Of each port of a host, towards another; planes number the circuits of a pair in the order of the
  // lower host's ports.
  std::vector<PlanePaths> paths(unsigned from, unsigned to) const {
    std::vector<PlanePaths> out(ports);
    const unsigned low = std::min(from, to);
    Plane next = 0;
    for (unsigned p = 0; p < ports; ++p) {
      const std::int32_t other = circuits[place(low, p)];
      if (other < 0 || other / static_cast<std::int32_t>(ports) != static_cast<std::int32_t>(std::max(from, to)))
        continue;
      const unsigned mine = from == low ? p : static_cast<unsigned>(other) % ports;
      out[mine].uplinks = {0};
      out[mine].plane = next++;
    }
    for (PlanePaths& path : out) {
      if (path.uplinks.empty()) path.plane = next++;
    }
    return out;
  }
  static QpNumber qp(unsigned to) { return 100 + to; }  // of any host, to this one
  void connect_all() {
    for (unsigned a = 0; a < hosts; ++a) {
      for (unsigned b = 0; b < hosts; ++b) {
        if (a != b) network.nic(a).connect({qp(b), qp(a), a, b, 0, paths(a, b), paths(b, a)}, network.now());
      }
    }
  }
  void patch() {
    for (unsigned a = 0; a < hosts; ++a) {
      for (unsigned b = 0; b < hosts; ++b) {
        if (a != b) network.nic(a).set_paths(qp(b), paths(a, b), network.now());
      }
    }
    network.set_circuits(panel, circuits);
  }
  void clear() { std::fill(circuits.begin(), circuits.end(), -1); }
  void run(Picoseconds time) {
    const Picoseconds end = network.now() + time;
    while (network.now() < end && !flows.done()) network.run_until(end);
  }
};

TEST(Panel, HostsSeeTheCarrierOfTheirCircuit) {
  PanelBed bed(3, 1);
  EXPECT_FALSE(bed.up(0) || bed.up(1) || bed.up(2));
  bed.network.set_circuits(bed.panel, {1, 0, -1});
  EXPECT_TRUE(bed.up(0) && bed.up(1) && !bed.up(2));
  // The far end of the light loses its carrier too.
  bed.network.apply({.link = 0, .up = false});
  EXPECT_FALSE(bed.up(0) || bed.up(1));
  bed.network.set_circuits(bed.panel, {-1, 2, 1});
  EXPECT_TRUE(!bed.up(0) && bed.up(1) && bed.up(2));
  bed.network.apply({.link = 0, .up = true});
  EXPECT_FALSE(bed.up(0)) << "no circuit";
  bed.network.set_circuits(bed.panel, {2, -1, 0});
  EXPECT_TRUE(bed.up(0) && !bed.up(1) && bed.up(2));
}

TEST(Panel, ATransportHearsOfPortsThatWereDarkBeforeIt) {
  PanelBed bed(2, 2);
  bed.network.set_circuits(bed.panel, {2, -1, 0, -1});
  testing::equip(bed.network, 2, kFibre.rate, {"mrc"});
  bed.join(0, 0, 1, 0);
  bed.connect_all();
  bed.network.run_until(milliseconds(1));
  EXPECT_EQ(bed.network.half(1, true).counters().packets, 0u) << "probes left by a dark port";
  EXPECT_GT(bed.network.half(0, true).counters().packets, 0u);
}

TEST(Panel, CircuitsThatAreNoneAreRefusedAndTheOldOnesStay) {
  PanelBed bed(3, 1);
  bed.network.set_circuits(bed.panel, {1, 0, -1});
  for (const std::vector<std::int32_t>& bad :
       {std::vector<std::int32_t>{1, 0}, {1, 0, 3}, {1, 0, -2}, {1, 2, 0}, {1, 0, 2}, {1, 0, 0}}) {
    EXPECT_THROW(bed.network.set_circuits(bed.panel, bad), std::invalid_argument);
  }
  EXPECT_THROW(bed.network.set_circuits(0, {0}), std::invalid_argument) << "a host";
  EXPECT_TRUE(bed.up(0) && bed.up(1));
}

// Light that is under way when its circuit ends is counted, and so is light of a port that leads to no
// fibre.
TEST(Panel, LightWithoutACircuitIsCounted) {
  for (const std::int32_t free : {-1, 3}) {
    Network network(1);
    network.add_host(1);
    network.add_host(1);
    const NodeId panel = network.add_panel({1, 0, -1, -1});
    network.connect({0, 0}, {panel, 0}, kFibre, kGlass);
    network.connect({1, 0}, {panel, 1}, kFibre, kGlass);
    testing::equip(network, 2, kFibre.rate, {"roce"});
    std::vector<PlanePaths> direct(1);
    direct[0].uplinks = {0};
    network.nic(0).connect({100, 200, 0, 1, 0, direct, direct}, {});
    network.nic(1).connect({200, 100, 1, 0, 0, direct, direct}, {});
    FlowTraffic flows(network, true);
    flows.add({.source = 0, .destination = 1, .qp = 100, .bytes = 10'000'000, .message = 1 << 17});
    flows.start();
    network.run_until(microseconds(50));
    std::vector<std::int32_t> patched{-1, -1, -1, -1};
    if (free == 3) patched = {3, -1, -1, 0};
    network.set_circuits(panel, patched);
    const std::uint64_t before = network.half(1, false).counters().packets;
    network.run_until(microseconds(60));
    const std::uint64_t dark = network.lost_in_panels();
    EXPECT_GE(dark, 1u);
    EXPECT_LE(dark, 3u) << "what was on 500 ns of fibre and in the serialiser";
    EXPECT_EQ(network.panel(panel)->counters(0).packets[PANEL_DROP_UNMAPPED] +
                  network.panel(panel)->counters(1).packets[PANEL_DROP_UNMAPPED],
              dark);
    EXPECT_LE(network.half(1, false).counters().packets, before + 2) << "what was on the glass";
    EXPECT_EQ(network.pool().outstanding(), network.held());
    network.set_circuits(panel, {1, 0, -1, -1});
    network.run_until(seconds(1));
    EXPECT_TRUE(flows.done());
    EXPECT_EQ(flows.results()[0].status, Status::ok);
    EXPECT_EQ(flows.wrong(), 0u);
  }
}

class PanelTraffic : public ::testing::TestWithParam<std::string_view> {};
INSTANTIATE_TEST_SUITE_P(Transports, PanelTraffic, ::testing::Values("mrc", "roce", "tcp"));

// Six hosts, each pair with something to say, and a matching of them by chance every so often.
TEST_P(PanelTraffic, FollowsRandomMatchingsAndLosesNothing) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    PanelBed bed(6, 1, seed);
    testing::equip(bed.network, bed.hosts, kFibre.rate, {GetParam()});
    bed.connect_all();
    for (unsigned a = 0; a < bed.hosts; ++a) {
      for (unsigned b = 0; b < bed.hosts; ++b) {
        if (a == b) continue;
        bed.flows.add({.source = a, .destination = b, .qp = PanelBed::qp(b), .bytes = 400'000, .message = 1 << 15});
      }
    }
    bed.flows.start();
    RandomStream random(seed, 0, 1);
    for (int change = 0; change < 2000 && !bed.flows.done(); ++change) {
      std::vector<unsigned> order(bed.hosts);
      std::iota(order.begin(), order.end(), 0u);
      for (std::size_t i = order.size(); i > 1; --i) {
        std::swap(order[i - 1], order[random.below(static_cast<std::uint32_t>(i))]);
      }
      bed.clear();
      const unsigned joined = random.below(4);
      for (unsigned k = 0; k < joined; ++k) bed.join(order[2 * k], 0, order[2 * k + 1], 0);
      bed.patch();
      bed.run(microseconds(20 + random.below(400)));
    }
    ASSERT_TRUE(bed.flows.done());
    for (const FlowResult& r : bed.flows.results()) EXPECT_EQ(r.status, Status::ok);
    EXPECT_EQ(bed.flows.wrong(), 0u);
    bed.network.run_until(bed.network.now() + milliseconds(50));
    EXPECT_EQ(bed.network.pool().outstanding(), bed.network.held());
  }
}

// The circuit between two hosts moves from port to port of either, crosswise too.
TEST_P(PanelTraffic, TheCircuitOfAPairMovesFromPortToPort) {
  PanelBed bed(2, 3);
  testing::equip(bed.network, 2, kFibre.rate, {GetParam()});
  bed.join(0, 0, 1, 0);
  bed.network.set_circuits(bed.panel, bed.circuits);
  bed.connect_all();
  bed.flows.add({.source = 0, .destination = 1, .qp = PanelBed::qp(1), .bytes = 60'000'000, .message = 1 << 16});
  bed.flows.add({.source = 1, .destination = 0, .qp = PanelBed::qp(0), .bytes = 60'000'000, .message = 1 << 16});
  bed.flows.start();
  const std::pair<unsigned, unsigned> ways[] = {{1, 1}, {2, 0}, {0, 2}, {1, 0}};
  for (const auto& [here, there] : ways) {
    bed.run(microseconds(200));
    bed.clear();
    bed.join(0, here, 1, there);
    bed.patch();
    const LinkId used = bed.place(0, here);
    const std::uint64_t before = bed.network.half(used, true).counters().bytes;
    bed.run(milliseconds(1));
    EXPECT_GT(bed.network.half(used, true).counters().bytes, before + 100'000) << here << there;
  }
  bed.run(seconds(2));
  ASSERT_TRUE(bed.flows.done());
  for (const FlowResult& r : bed.flows.results()) EXPECT_EQ(r.status, Status::ok);
  EXPECT_EQ(bed.flows.wrong(), 0u);
}

// Two circuits join a pair, and one of them goes: mrc sprays over both, tcp takes one.
TEST(Panel, MrcSpraysOverAllCircuitsOfAPair) {
  PanelBed bed(2, 2);
  testing::equip(bed.network, 2, kFibre.rate, {"mrc"});
  bed.join(0, 0, 1, 1);
  bed.join(0, 1, 1, 0);
  bed.network.set_circuits(bed.panel, bed.circuits);
  bed.connect_all();
  bed.flows.add({.source = 0, .destination = 1, .qp = PanelBed::qp(1), .bytes = 10'000'000, .message = 1 << 17});
  bed.flows.start();
  bed.run(seconds(1));
  ASSERT_TRUE(bed.flows.done());
  const auto bytes = [&](LinkId link) { return static_cast<double>(bed.network.half(link, true).counters().bytes); };
  EXPECT_NEAR(bytes(0) / bytes(1), 1.0, 0.05);
  // 10 MB with headers over 200 Gb/s take 0.43 ms.
  EXPECT_LT(bed.flows.results()[0].end, microseconds(470));
}

}  // namespace
}  // namespace loomnet
