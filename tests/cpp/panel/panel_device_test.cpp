// An optical circuit switch by its requests, faults and light; random sequences against a plain model.
#include "panel/panel_device.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <stdexcept>

#include "ebpf/panel.h"
#include "panel/panel_model.hpp"

namespace loomnet::panel {
namespace {

using enum Mode;
using Pairs = std::vector<CrossConnect>;

PanelDevice device(std::string_view name, std::size_t ports = 8, std::uint64_t seed = 1) {
  return PanelDevice(ports, {.profile = profile(name), .seed = seed});
}

PanelDevice with(std::string_view name, Carrier rule) {
  return PanelDevice(8, {.profile = profile(name), .carrier = rule});
}

TEST(PanelDevice, LightReturnsByTheEntryAlone) {
  PanelDevice panel = device("sim25");
  panel.connect(Pairs{{0, 1}, {1, 0}}, update, seconds(1));
  const panel_entry entry = panel.entry(0, seconds(1));
  EXPECT_EQ(entry.peer, 1u);
  EXPECT_EQ(entry.dark_until, 1'025'000'000u);
  EXPECT_EQ(panel_decide(&entry, 1'024'999'999, 0), PANEL_DROP_DARK);
  EXPECT_EQ(panel_decide(&entry, 1'025'000'000, 0), PANEL_FORWARD);
  EXPECT_EQ(panel.status({0, false}, seconds(1)), Status::tuning);
  EXPECT_EQ(panel.status({1, true}, seconds(1) + milliseconds(25)), Status::tuned);
  const panel_entry none = panel.entry(2, seconds(1));
  EXPECT_EQ(panel_decide(&none, ~0ull, 0), PANEL_DROP_UNMAPPED);
}

TEST(PanelDevice, ARequestIsOneGenerationAndARepeatedOneIsNone) {
  PanelDevice panel = device("polatis");
  EXPECT_EQ(panel.connect(Pairs{{0, 1}, {1, 0}, {2, 2}}, update, {}), 1u);
  panel.advance(seconds(1));
  panel.take_events();
  EXPECT_EQ(panel.reconcile(Pairs{{0, 1}, {1, 0}}, seconds(2)), 1u);
  EXPECT_EQ(panel.connect(Pairs{{0, 1}, {1, 0}, {2, 2}}, overwrite, seconds(2)), 1u);
  EXPECT_TRUE(panel.take_events().empty());
  EXPECT_EQ(panel.change(Pairs{{2, 2}}, Pairs{{2, 3}, {3, 2}}, safe, seconds(2)), 2u);
  EXPECT_EQ(panel.status({0, false}, seconds(2)), Status::tuned) << "what stays is not touched";
  EXPECT_EQ(panel.status({2, false}, seconds(2)), Status::tuning);
}

TEST(PanelDevice, EachChangeOfACrossConnectIsKeptWithItsTime) {
  PanelDevice panel = device("ideal");
  panel.connect(Pairs{{0, 1}, {1, 0}}, update, seconds(1));
  panel.connect(Pairs{{0, 1}, {1, 0}}, update, seconds(2));  // changes nothing
  panel.change({}, Pairs{{0, 2}}, overwrite, seconds(3));
  EXPECT_THROW(panel.connect(Pairs{{0, 99}}, update, seconds(4)), std::invalid_argument);
  const std::vector<Patch> expected{{seconds(1), 0, 1}, {seconds(1), 1, 0}, {seconds(3), 0, 2}, {seconds(3), 1, -1}};
  EXPECT_EQ(panel.patches(), expected);
  panel.take_events();
  EXPECT_EQ(panel.patches(), expected) << "events are taken, patches stay";
}

TEST(PanelDevice, ModesTakeRefuseAndClear) {
  PanelDevice panel = device("ideal");
  panel.connect(Pairs{{0, 1}, {1, 0}, {4, 5}}, update, {});
  EXPECT_THROW(panel.connect(Pairs{{6, 7}, {2, 1}}, safe, {}), std::invalid_argument);
  EXPECT_THROW(panel.connect(Pairs{{6, 7}, {0, 2}}, safe, {}), std::invalid_argument);
  EXPECT_EQ(panel.cross_connects(), (Pairs{{0, 1}, {1, 0}, {4, 5}})) << "nothing of a refused request";
  panel.connect(Pairs{{2, 1}}, update, {});
  EXPECT_EQ(panel.cross_connects(), (Pairs{{1, 0}, {2, 1}, {4, 5}}));
  panel.connect(Pairs{{2, 1}, {3, 3}}, safe, {});
  panel.connect(Pairs{{5, 4}, {4, 5}}, overwrite, {});
  EXPECT_EQ(panel.cross_connects(), (Pairs{{4, 5}, {5, 4}}));
  panel.change(Pairs{{4, 5}, {0, 0}}, {}, update, {});
  EXPECT_EQ(panel.cross_connects(), (Pairs{{5, 4}})) << "what is not there is no reason to refuse";
}

TEST(PanelDevice, PortsAreRefusedByTheirNames) {
  PanelDevice panel = device("ideal");
  const auto refusal = [&](Pairs pairs) -> std::string {
    try {
      panel.connect(pairs, update, {});
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal({{0, 0}, {8, 1}}), "panel: port 9A is not there; it has ports 1 to 8");
  EXPECT_EQ(refusal({{0, 1}, {0, 2}}), "panel: port 1A is named twice; a port is in one cross-connect");
  EXPECT_EQ(refusal({{0, 1}, {2, 1}}), "panel: port 2B is named twice; a port is in one cross-connect");
  EXPECT_EQ(panel.generation(), 0u);
  EXPECT_THROW(PanelDevice(1025), std::invalid_argument);
  EXPECT_THROW(panel.set_attenuation(0, -1, {}), std::invalid_argument);
  EXPECT_THROW(panel.set_attenuation(0, NAN, {}), std::invalid_argument);
  EXPECT_THROW(panel.set_failed({8, false}, true, {}), std::out_of_range);
}

TEST(PanelDevice, CarrierGoesByItsRule) {
  for (const Carrier rule : {Carrier::both, Carrier::rx, Carrier::none}) {
    PanelDevice panel = with("sim25", rule);
    const Picoseconds lit = milliseconds(25);
    EXPECT_EQ(panel.carrier(0, {}), rule == Carrier::none);
    panel.connect(Pairs{{0, 1}}, update, {});  // half a circuit: the host at 2 receives
    EXPECT_EQ(panel.carrier(1, lit), rule != Carrier::both);
    EXPECT_EQ(panel.carrier(0, lit), rule == Carrier::none);
    panel.connect(Pairs{{1, 0}}, update, lit);
    EXPECT_EQ(panel.carrier(1, lit), rule != Carrier::both) << "its own light is not touched";
    EXPECT_TRUE(panel.carrier(0, lit + lit) && panel.carrier(1, lit + lit));
    panel.set_failed({0, false}, true, lit + lit);
    EXPECT_EQ(panel.carrier(1, lit + lit), rule == Carrier::none);
    EXPECT_EQ(panel.carrier(0, lit + lit), rule != Carrier::both);
  }
}

TEST(PanelDevice, CarrierWaitsForTheTransceiver) {
  PanelDevice panel = device("polatis+nic");
  panel.connect(Pairs{{0, 1}, {1, 0}}, update, {});
  const Picoseconds lit = panel.dark_until(0);
  EXPECT_EQ(panel.next_time(), lit);
  panel.advance(lit);
  EXPECT_EQ(panel.status({0, false}, lit), Status::tuned);
  EXPECT_FALSE(panel.carrier(0, lit + seconds(4)));
  panel.advance(seconds(10));
  Picoseconds up[2];
  for (const DeviceEvent& event : panel.take_events()) {
    if (event.kind == DeviceEvent::Kind::carrier) {
      ASSERT_EQ(event.value, 1);
      up[event.port.port] = event.at;
    }
  }
  for (const Picoseconds at : up) EXPECT_NEAR((at - lit).seconds(), 5.67, 1.5);
  EXPECT_NE(up[0], up[1]);
  EXPECT_EQ(panel.next_time(), kNever);
}

TEST(PanelDevice, OverridesShuttersAndWeakLightBlock) {
  PanelDevice panel = with("ideal", Carrier::both);
  panel.connect(Pairs{{0, 1}, {1, 0}}, update, {});
  EXPECT_TRUE(panel.carrier(0, {}));
  const auto flags = [&] { return static_cast<int>(panel.entry(0, {}).flags); };
  panel.set_override({1, true}, Override::force_blocked, {});
  EXPECT_EQ(flags(), PANEL_FORCE_BLOCKED);
  EXPECT_EQ(panel.status({0, false}, {}), Status::blocked);
  EXPECT_EQ(panel.target({0, false}), 1) << "a blocked port still says where it goes";
  EXPECT_FALSE(panel.carrier(0, {}));
  panel.set_override({1, true}, Override::normal, {});
  panel.set_shutter({0, false}, true, {});
  EXPECT_EQ(flags(), PANEL_SHUTTER_CLOSED);
  panel.set_shutter({0, false}, false, {});
  EXPECT_EQ(flags(), 0);
  EXPECT_NEAR(panel.power_dbm(1, {}), -panel.insertion_loss(0, 1) / 100.0, 1e-9);
  panel.set_attenuation(1, 6, {});
  EXPECT_EQ(flags(), 0);
  EXPECT_GT(panel.entry(0, {}).drop, 0u);
  panel.set_attenuation(1, 9, {});
  EXPECT_EQ(flags(), PANEL_BELOW_LOS);
  EXPECT_FALSE(panel.carrier(1, {}));
  panel.set_transmit_power(0, 3, {});
  EXPECT_EQ(flags(), 0);
  EXPECT_TRUE(panel.carrier(1, {}));
  panel.set_override({5, false}, Override::powered_off, {});  // without a cross-connect
  EXPECT_EQ(panel.status({5, false}, {}), Status::blocked);
  EXPECT_TRUE(std::isinf(panel.power_dbm(5, {})));
}

TEST(PanelDevice, ARegionGoesDarkWholeWhereThatIsAsked) {
  PanelDevice panel = device("sim25");
  panel.connect(Pairs{{0, 1}, {1, 0}, {4, 5}, {5, 4}}, update, {});
  const std::vector<Port> region{0, 1, 2, 3};
  EXPECT_EQ(panel.change({}, Pairs{{0, 1}, {1, 0}}, update, seconds(1), region), 2u);
  EXPECT_EQ(panel.dark_until(0), seconds(1) + milliseconds(25));
  EXPECT_EQ(panel.dark_until(4), milliseconds(25)) << "another region's";
}

TEST(PanelDevice, APermutationOf576PortsIsOneGeneration) {
  PanelDevice panel = device("ideal", 576);
  Pairs all(576);
  for (int round = 1; round < 4; ++round) {
    for (std::size_t a = 0; a < 576; ++a) all[a] = {static_cast<Port>(a), static_cast<Port>((a * 5 + round) % 576)};
    EXPECT_EQ(panel.connect(all, update, {}), static_cast<std::uint64_t>(round));
    for (std::size_t a = 0; a < 576; ++a) {
      const panel_entry entry = panel.entry(static_cast<Port>(a), {});
      ASSERT_EQ(entry.peer, all[a].b);
      ASSERT_EQ(entry.generation, static_cast<std::uint64_t>(round));
    }
  }
}

class Sequences : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(Sequences, DoWhatTheModelDoes) {
  constexpr std::size_t kPorts = 6;
  for (std::uint64_t seed = GetParam() * 100; seed < GetParam() * 100 + 100; ++seed) {
    RandomStream random(seed, 0, 0);
    PanelDevice panel = device("sim25", kPorts, seed);
    Model model;
    Picoseconds now;
    std::map<std::pair<Port, bool>, Status> told;
    for (int step = 0; step < 60; ++step) {
      now += milliseconds(random.below(20));
      ASSERT_TRUE(random_step(random, panel, model, kPorts, now)) << "seed " << seed << " step " << step;
      for (const Picoseconds later : {now, now + milliseconds(7)}) {
        for (std::size_t a = 0; a < kPorts; ++a) {
          const panel_entry entry = panel.entry(static_cast<Port>(a), later);
          const auto seen = panel_decide(&entry, static_cast<std::uint64_t>(later.count / 1000), ~0u);
          ASSERT_EQ(seen, model.verdict(static_cast<Port>(a), later)) << "seed " << seed << " step " << step;
          for (const bool out : {false, true}) {
            ASSERT_EQ(panel.status({static_cast<Port>(a), out}, later), model.status(static_cast<Port>(a), out, later))
                << "seed " << seed << " step " << step << " port " << a << out;
          }
        }
      }
      // Told status by status, the events say the same.
      panel.advance(now);
      for (const DeviceEvent& event : panel.take_events()) {
        ASSERT_LE(event.at, now);
        if (event.kind == DeviceEvent::Kind::status) told[{event.port.port, event.port.out}] = Status(event.value);
      }
      for (std::size_t p = 0; p < kPorts; ++p) {
        for (const bool out : {false, true}) {
          const Status last = told.contains({p, out}) ? told[{static_cast<Port>(p), out}] : Status::blocked;
          ASSERT_EQ(last, model.status(static_cast<Port>(p), out, now)) << "seed " << seed << " step " << step;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, Sequences, ::testing::Range<std::uint64_t>(0, 10));

TEST(PanelDevice, TheSameSeedTellsTheSameStory) {
  std::vector<DeviceEvent> stories[3];
  for (int run = 0; run < 3; ++run) {
    PanelDevice panel = device("polatis+nic", 16, run == 2 ? 2 : 1);
    for (Port i = 0; i < 8; ++i) {
      panel.connect(Pairs{{i, static_cast<Port>(15 - i)}, {static_cast<Port>(15 - i), i}}, update,
                    milliseconds(i * 30));
    }
    panel.advance(seconds(20));
    stories[run] = panel.take_events();
  }
  EXPECT_EQ(stories[0], stories[1]);
  EXPECT_NE(stories[0], stories[2]);
}

}  // namespace
}  // namespace loomnet::panel
