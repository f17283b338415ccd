// Panels that take time to switch: packets by their fate, carriers, and circuits that are not touched.
#include "engine/network.hpp"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

namespace loomnet {
namespace {

const LinkConfig kFibre{.rate = gigabits(100), .delay = nanoseconds(500)};
const LinkConfig kGlass{.delay = nanoseconds(300)};
const std::array<std::uint8_t, 60> kFrame{};
using Pairs = std::vector<panel::CrossConnect>;

// Hosts of one port each at a panel, and a probe of each host's light every half millisecond.
struct Bed {
  Network network{1};
  NodeId panel;
  std::size_t hosts;

  Bed(std::size_t hosts, std::vector<std::int32_t> circuits, const panel::DeviceOptions& options) : hosts(hosts) {
    for (std::size_t h = 0; h < hosts; ++h) network.add_host(1);
    panel = network.add_panel(circuits, options);
    for (std::size_t h = 0; h < hosts; ++h) {
      network.connect({static_cast<NodeId>(h), 0}, {panel, static_cast<std::uint16_t>(h)}, kFibre, kGlass);
    }
  }
  void patch(Pairs add, panel::Mode mode = panel::Mode::update) {
    network.operate(panel, [&](panel::PanelDevice& device, Picoseconds now) { device.connect(add, mode, now); });
  }
  void probe_until(Picoseconds end) {
    while (network.now() < end) {
      for (std::size_t h = 0; h < hosts; ++h) network.inject({panel, static_cast<std::uint16_t>(h)}, kFrame);
      network.run_until(std::min(network.now() + microseconds(500), end));
    }
  }
  std::uint64_t count(std::uint16_t port, panel_verdict verdict) const {
    return network.panel(panel)->counters(port).packets[verdict];
  }
  bool up(NodeId host) { return network.nic(host).port_up(0); }
};

TEST(DarkPanel, AProbeSeesTheDarkTimeToHalfAMillisecondAndOthersLoseNothing) {
  Bed bed(6, {1, 0, 3, 2, -1, -1}, {.profile = panel::profile("sim25")});
  bed.probe_until(milliseconds(10));
  EXPECT_EQ(bed.count(0, PANEL_FORWARD), 20u) << "what was patched before the run has light";
  EXPECT_EQ(bed.count(4, PANEL_DROP_UNMAPPED), 20u);
  bed.patch({{0, 4}, {4, 0}});
  bed.probe_until(milliseconds(60));
  EXPECT_NEAR(static_cast<double>(bed.count(0, PANEL_DROP_DARK)), 50, 1);
  EXPECT_NEAR(static_cast<double>(bed.count(0, PANEL_FORWARD)), 20 + 50, 1);
  EXPECT_EQ(bed.count(1, PANEL_DROP_UNMAPPED), 100u) << "its circuit was taken";
  EXPECT_EQ(bed.count(2, PANEL_FORWARD), 120u);
  EXPECT_EQ(bed.count(3, PANEL_FORWARD), 120u);
  EXPECT_EQ(bed.network.lost_in_panels(), bed.count(0, PANEL_DROP_DARK) + bed.count(4, PANEL_DROP_DARK) + 20 +
                                              bed.count(1, PANEL_DROP_UNMAPPED) + bed.count(5, PANEL_DROP_UNMAPPED));
}

TEST(DarkPanel, CarrierGoesAtOnceAndComesWithTheLight) {
  Bed bed(3, {1, 0, -1}, {.profile = panel::profile("sim25")});
  EXPECT_TRUE(bed.up(0) && bed.up(1) && !bed.up(2));
  bed.network.run_until(milliseconds(1));
  bed.patch({{0, 2}, {2, 0}});
  EXPECT_FALSE(bed.up(0) || bed.up(1) || bed.up(2));
  bed.network.run_until(milliseconds(26) - nanoseconds(1));
  EXPECT_FALSE(bed.up(0) || bed.up(2));
  bed.network.run_until(milliseconds(26));
  EXPECT_TRUE(bed.up(0) && !bed.up(1) && bed.up(2));
}

// Writes down when the host's port gets and loses its carrier.
class Carriers final : public Transport {
 public:
  using Log = std::vector<std::pair<NodeId, bool>>;
  Carriers(NodeId host, Log& log) : host_(host), log_(log) {}
  std::string_view name() const override { return "carriers"; }
  void connect(const QpConfig&, Picoseconds) override {}
  void on_post(QpNumber, const WorkRequest&, Picoseconds) override {}
  void on_packet(PlanePort, PacketPtr, Picoseconds) override {}
  void on_port(PlanePort, bool up, Picoseconds) override { log_.emplace_back(host_, up); }
  void on_deadline(Picoseconds) override {}
  Pulled pull(PlanePort, QueueClass, Picoseconds) override { return Pulled::idle(); }
  Picoseconds next_deadline() const override { return kNever; }
  bool outstanding() const override { return false; }
  void counters(std::vector<TransportCounter>&) const override {}

 private:
  NodeId host_;
  Log& log_;
};

TEST(DarkPanel, AllPortsThatMoveLoseTheirCarrierBeforeOneHasItAgain) {
  for (const bool all_at_once : {true, false}) {
    Bed bed(6, {1, 0, 3, 2, 5, 4}, {.profile = panel::profile("ideal")});
    Carriers::Log log;
    for (NodeId h = 0; h < 6; ++h) bed.network.nic(h).set_transport(std::make_unique<Carriers>(h, log));
    bed.network.run_until(milliseconds(1));
    log.clear();
    if (all_at_once) {
      bed.network.set_circuits(bed.panel, {2, 3, 0, 1, 5, 4});
    } else {
      bed.patch({{0, 2}, {2, 0}, {1, 3}, {3, 1}});
    }
    // A transport whose port stayed up would take its new peer for the old one.
    ASSERT_EQ(log.size(), 8u);
    for (std::size_t k = 0; k < 8; ++k) EXPECT_EQ(log[k].second, k >= 4) << k;
    for (const auto& [host, up] : log) EXPECT_LT(host, 4u) << "a circuit that stays keeps its carrier";
    for (NodeId h = 0; h < 6; ++h) EXPECT_TRUE(bed.up(h));
  }
}

TEST(DarkPanel, WithoutTheRuleCarrierStays) {
  Bed bed(3, {1, 0, -1}, {.profile = panel::profile("sim25"), .carrier = panel::Carrier::none});
  bed.patch({{0, 2}, {2, 0}});
  EXPECT_TRUE(bed.up(0) && bed.up(1) && bed.up(2));
  bed.probe_until(milliseconds(10));
  EXPECT_EQ(bed.count(0, PANEL_DROP_DARK), 20u);
}

TEST(DarkPanel, ATransceiverTakesItsTime) {
  Bed bed(2, {-1, -1}, {.profile = panel::profile("polatis+nic")});
  bed.patch({{0, 1}, {1, 0}});
  bed.network.run_until(seconds(4));
  EXPECT_FALSE(bed.up(0) || bed.up(1));
  bed.network.run_until(seconds(9));
  EXPECT_TRUE(bed.up(0) && bed.up(1));
}

TEST(DarkPanel, HalvesAndLoopsAndFaults) {
  Bed bed(3, {-1, -1, -1}, {.profile = panel::profile("ideal")});
  bed.patch({{0, 1}, {2, 2}});
  EXPECT_FALSE(bed.up(0) || bed.up(1)) << "half a circuit";
  EXPECT_TRUE(bed.up(2)) << "a loop";
  bed.probe_until(milliseconds(5));
  EXPECT_EQ(bed.count(0, PANEL_FORWARD), 10u);
  EXPECT_EQ(bed.count(1, PANEL_DROP_UNMAPPED), 10u);
  EXPECT_EQ(bed.count(2, PANEL_FORWARD), 10u);
  bed.patch({{1, 0}});
  EXPECT_TRUE(bed.up(0) && bed.up(1));
  bed.network.operate(bed.panel, [](auto& device, auto now) { device.set_failed({1, true}, true, now); });
  EXPECT_FALSE(bed.up(0) || bed.up(1));
  bed.probe_until(milliseconds(10));
  EXPECT_EQ(bed.count(0, PANEL_DROP_BLOCKED), 10u);
  EXPECT_EQ(bed.count(1, PANEL_FORWARD), 10u);
  bed.network.operate(bed.panel, [](auto& device, auto now) { device.set_failed({1, true}, false, now); });
  EXPECT_TRUE(bed.up(0) && bed.up(1));
}

TEST(DarkPanel, LightToAPortWithoutAFibreIsLostByName) {
  Bed bed(2, {-1, -1, -1}, {.profile = panel::profile("ideal")});  // nothing is linked to the third port
  bed.patch({{0, 2}, {2, 0}});
  bed.probe_until(milliseconds(5));
  EXPECT_FALSE(bed.up(0));
  EXPECT_EQ(bed.count(0, PANEL_DROP_UNMAPPED), 10u);
  EXPECT_EQ(bed.network.lost_in_panels(), 20u);
}

TEST(DarkPanel, WeakLightLosesItsShare) {
  Bed bed(2, {1, 0}, {.profile = panel::profile("ideal")});
  bed.network.operate(bed.panel, [](panel::PanelDevice& device, Picoseconds now) {
    const double loss = device.insertion_loss(0, 1) / 100.0;
    device.set_attenuation(1, 10 - 4.0 / 9 - loss, now);  // one decade above the loss of signal
  });
  bed.probe_until(seconds(2));
  EXPECT_NEAR(static_cast<double>(bed.count(0, PANEL_DROP_LIGHT)), 400, 60);
  EXPECT_EQ(bed.count(0, PANEL_DROP_LIGHT) + bed.count(0, PANEL_FORWARD), 4000u);
  EXPECT_EQ(bed.count(1, PANEL_FORWARD), 4000u);
}

TEST(DarkPanel, ALinkThatGoesDownIsSeenAtTheFarEnd) {
  Bed bed(2, {1, 0}, {.profile = panel::profile("sim25")});
  bed.network.apply({.link = 0, .up = false});
  EXPECT_FALSE(bed.up(0) || bed.up(1));
  bed.network.apply({.link = 0, .up = true});
  EXPECT_TRUE(bed.up(0) && bed.up(1)) << "the panel has not switched";
}

TEST(DarkPanel, ARunKeepsItsEventsUpToABound) {
  Network network(1);
  const NodeId panel = network.add_panel({-1, -1});
  for (std::size_t i = 0; i < PanelEvents::kMost; ++i) {
    network.operate(
        panel, [&](panel::PanelDevice& device, Picoseconds now) { device.set_failed({0, false}, i % 2 == 0, now); });
    if (i < 2) {
      ASSERT_EQ(network.panel(panel)->events().kept.size(), i + 1);
    }
  }
  const PanelEvents& events = network.panel(panel)->events();
  EXPECT_EQ(events.left_out, 0u);
  network.operate(panel, [](panel::PanelDevice& device, Picoseconds now) { device.set_failed({1, false}, true, now); });
  EXPECT_EQ(events.kept.size(), PanelEvents::kMost);
  EXPECT_EQ(events.left_out, 1u);
  EXPECT_EQ(static_cast<panel::Status>(events.kept[0].value), panel::Status::failed);
  EXPECT_EQ(static_cast<panel::Status>(events.kept[1].value), panel::Status::blocked);
}

}  // namespace
}  // namespace loomnet
