// A region's controller on a real panel's state: holds, requests and releases with their times; failures,
// restarts, and random sequences.
#include "circuits/region_controller.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <stdexcept>

#include "clock/random.hpp"

namespace loomnet::circuits {
namespace {

using Demand = std::vector<std::uint64_t>;
using State = RegionController::State;
using Kind = RegionEvent::Kind;

// What eight servers exchange, from the publication's matrix with one expert on each.
const Demand kDemand = {
    0,     14616, 11915, 13939, 13136, 10365, 11049, 15831, 14616, 0,     6004, 9351, 9487, 8811, 6416, 10225,
    11915, 6004,  0,     3720,  5390,  4110,  1792,  5791,  13939, 9351,  3720, 0,    6717, 6506, 5207, 9101,
    13136, 9487,  5390,  6717,  0,     6936,  4911,  9476,  10365, 8811,  4110, 6506, 6936, 0,    4016, 9215,
    11049, 6416,  1792,  5207,  4911,  4016,  0,     4806,  15831, 10225, 5791, 9101, 9476, 9215, 4806, 0};

// The same servers by other names: server i is server (i + by) mod 8.
Demand turned(std::size_t by) {
  Demand found(64);
  for (std::size_t i = 0; i < 8; ++i) {
    for (std::size_t j = 0; j < 8; ++j) found[(i + by) % 8 * 8 + (j + by) % 8] = kDemand[i * 8 + j];
  }
  return found;
}

struct World final : RegionWorld {
  panel::PanelDevice panel;
  std::set<ServerPair> held;
  bool busy = false, answers = true;
  int patches = 0;

  explicit World(std::string_view profile = "sim25", std::size_t ports = 48)
      : panel(ports, {.profile = panel::profile(profile)}) {}
  void hold(std::span<const ServerPair> pairs, Picoseconds) override {
    for (const ServerPair& pair : pairs) EXPECT_TRUE(held.insert(pair).second);
  }
  bool in_flight(std::span<const ServerPair>) override { return busy; }
  std::vector<panel::CrossConnect> cross_connects() override { return panel.cross_connects(); }
  Picoseconds patch(std::span<const panel::CrossConnect> remove, std::span<const panel::CrossConnect> add,
                    std::span<const panel::Port> all_dark, Picoseconds now) override {
    if (!answers) throw std::runtime_error("panel: no answer");
    ++patches;
    panel.change(remove, add, panel::Mode::safe, now, all_dark);
    return lit_from(now);
  }
  Picoseconds lit_from(Picoseconds now) override {
    Picoseconds lit = now;
    for (const panel::CrossConnect& one : panel.cross_connects()) lit = std::max(lit, panel.dark_until(one.a));
    return lit;
  }
  Picoseconds dark_time(std::size_t crosses) const override { return panel.options().profile.dark.mean(crosses); }
  void release(std::span<const ServerPair> pairs, const PortMap&, Picoseconds) override {
    for (const ServerPair& pair : pairs) EXPECT_EQ(held.erase(pair), 1u);
  }
};

DemandKey layer(std::uint16_t number, std::uint32_t iteration = 0) { return {iteration, number, 0, false}; }

RegionOptions options(std::uint32_t alpha = 6) { return {.servers = 8, .alpha = alpha}; }

std::vector<Kind> kinds(const std::vector<RegionEvent>& events) {
  std::vector<Kind> found;
  for (const RegionEvent& event : events) found.push_back(event.kind);
  return found;
}

void expect_patched(const RegionController& controller, World& world, std::size_t first = 0) {
  std::vector<panel::CrossConnect> wanted;
  for (std::size_t port = 0; port < controller.ports().peer.size(); ++port) {
    const std::int32_t peer = controller.ports().peer[port];
    if (peer != kNoPeer) {
      wanted.push_back({static_cast<panel::Port>(first + port),
                        static_cast<panel::Port>(first + static_cast<std::size_t>(peer))});
    }
  }
  std::vector<panel::CrossConnect> seen = world.panel.cross_connects();
  std::erase_if(seen, [&](const panel::CrossConnect& one) {
    return one.a < first || one.a >= first + controller.ports().peer.size();
  });
  EXPECT_EQ(seen, wanted);
}

TEST(RegionController, ADemandIsLightAfterTheDarkTime) {
  World world;
  RegionController controller(options(), world);
  controller.demand(layer(1), kDemand, milliseconds(1));
  EXPECT_EQ(controller.state(), State::dark);
  EXPECT_FALSE(controller.ready(layer(1)));
  EXPECT_EQ(world.held.size(), 23u) << "pairs with a circuit";
  EXPECT_EQ(controller.next_time(), milliseconds(26));
  controller.advance(milliseconds(26) - nanoseconds(1));
  EXPECT_FALSE(controller.ready(layer(1)));
  controller.advance(milliseconds(26));
  EXPECT_TRUE(controller.ready(layer(1)) && world.held.empty());
  EXPECT_EQ(controller.circuits(2, 6), 2u);
  EXPECT_EQ(controller.circuits(0, 5), 0u);
  EXPECT_EQ(world.panel.cross_connects().size(), 48u);
  EXPECT_EQ(world.panel.generation(), 1u);
  expect_patched(controller, world);
  const std::vector<RegionEvent> events = controller.take_events();
  EXPECT_EQ(kinds(events), (std::vector{Kind::demand, Kind::drain, Kind::apply, Kind::lit, Kind::release}));
  EXPECT_EQ(events[0].changed, 24u);
  EXPECT_EQ(events[2].dark, milliseconds(25));
}

TEST(RegionController, TheSameKeyAndTheSameCircuitsCostNothing) {
  World world;
  RegionController controller(options(), world);
  controller.demand(layer(1), kDemand, {});
  controller.demand(layer(1), turned(1), {});
  controller.advance(milliseconds(25));
  controller.demand(layer(1), turned(1), milliseconds(30));
  EXPECT_EQ(world.patches, 1);
  controller.demand(layer(2), kDemand, milliseconds(30));  // other layer, same circuits
  EXPECT_TRUE(controller.ready(layer(2)));
  EXPECT_EQ(world.patches, 1);
}

TEST(RegionController, TheWholeRegionGoesDarkWhereThatIsAsked) {
  World world;
  RegionOptions whole = options();
  whole.all_dark = true;
  RegionController controller(whole, world);
  controller.demand(layer(1), kDemand, {});
  controller.advance(milliseconds(25));
  controller.demand(layer(2), kDemand, milliseconds(30));
  EXPECT_EQ(controller.state(), State::dark);
  EXPECT_EQ(controller.next_time(), milliseconds(55));
  EXPECT_EQ(world.held.size(), 23u);
}

TEST(RegionController, TheLastLayersBackwardPassTakesItsForwardPasssCircuits) {
  World world;
  RegionOptions whole = options();
  whole.all_dark = true;
  RegionController controller(whole, world);
  controller.demand(layer(6), kDemand, {});
  const DemandKey back = {0, 6, 0, true}, other = {0, 6, 3, true}, lower = {0, 5, 0, true};
  controller.demand(back, kDemand, {});  // while the panel is dark
  EXPECT_FALSE(controller.ready(back));
  controller.advance(milliseconds(25));
  EXPECT_TRUE(controller.ready(back));
  EXPECT_EQ(world.patches, 1);
  controller.demand(lower, kDemand, milliseconds(30));
  EXPECT_EQ(world.patches, 2) << "another layer's, with the same demand";
  controller.advance(milliseconds(60));
  controller.demand(layer(6), kDemand, milliseconds(60));
  controller.advance(milliseconds(90));
  controller.demand(other, kDemand, milliseconds(90));  // of another micro-batch with the same demand
  EXPECT_TRUE(controller.ready(other));
  EXPECT_EQ(world.patches, 3);
  controller.demand(layer(6), kDemand, milliseconds(90));
  EXPECT_EQ(world.patches, 4) << "a forward pass";
  controller.advance(milliseconds(120));
  controller.demand(other, turned(1), milliseconds(120));
  EXPECT_EQ(world.patches, 5) << "another demand";
}

TEST(RegionController, ABackwardPassIsPatchedWhereTheForwardPasssCircuitsWereNot) {
  World world;
  RegionController controller(options(), world);
  world.answers = false;
  controller.demand(layer(6), kDemand, {});
  EXPECT_EQ(world.patches, 0);
  world.answers = true;
  controller.demand({0, 6, 0, true}, kDemand, milliseconds(1));
  EXPECT_EQ(world.patches, 1);
}

TEST(RegionController, OnlyWhatChangesIsHeldAndDark) {
  World world;
  RegionController controller(options(), world);
  controller.demand(layer(1), kDemand, {});
  controller.advance(milliseconds(25));
  const PortMap before = controller.ports();
  controller.demand(layer(2), turned(1), milliseconds(30));
  ASSERT_EQ(controller.state(), State::dark);
  std::size_t kept = 0;
  for (std::size_t port = 0; port < 48; ++port) {
    if (before.peer[port] != controller.ports().peer[port]) continue;
    ++kept;
    EXPECT_EQ(world.panel.status({static_cast<panel::Port>(port), false}, milliseconds(31)), panel::Status::tuned);
  }
  EXPECT_GT(kept, 10u);
  EXPECT_LT(world.held.size(), 28u);
}

TEST(RegionController, ItWaitsForWhatIsUnderWayButNotForever) {
  World world;
  world.busy = true;
  RegionController controller(options(), world);
  controller.demand(layer(1), kDemand, {});
  EXPECT_EQ(controller.state(), State::drain);
  EXPECT_EQ(world.patches, 0);
  controller.drained(milliseconds(1));
  EXPECT_EQ(world.patches, 0) << "something else is under way";
  world.busy = false;
  controller.drained(milliseconds(2));
  EXPECT_EQ(controller.next_time(), milliseconds(27));
  controller.advance(milliseconds(27));
  world.busy = true;
  controller.demand(layer(2), turned(3), milliseconds(30));
  controller.advance(milliseconds(40));
  EXPECT_EQ(controller.state(), State::dark) << "after 10 ms";
  EXPECT_EQ(controller.next_time(), milliseconds(65));
}

TEST(RegionController, OfDemandsMeanwhileTheNewestIsNextAndNoTimerMoves) {
  World world;
  RegionController controller(options(), world);
  controller.demand(layer(1), kDemand, {});
  controller.demand(layer(2), turned(1), milliseconds(5));
  controller.demand(layer(3), turned(2), milliseconds(10));
  controller.demand(layer(3), turned(4), milliseconds(11));  // the same key again
  EXPECT_EQ(controller.next_time(), milliseconds(25));
  controller.advance(milliseconds(25));
  EXPECT_EQ(controller.key(), layer(3));
  EXPECT_EQ(controller.next_time(), milliseconds(50));
  controller.advance(seconds(1));
  EXPECT_TRUE(controller.ready(layer(3)));
  EXPECT_EQ(world.patches, 2);
  const Assignment wanted = assign(turned(2), std::vector<std::uint32_t>(8, 6), Rule::skip);
  for (std::uint32_t i = 0; i < 8; ++i) {
    for (std::uint32_t j = 0; j < 8; ++j) EXPECT_EQ(controller.circuits(i, j), wanted.at(i, j));
  }
}

TEST(RegionController, FailedPartsGetNoCircuits) {
  World world;
  RegionController controller(options(), world);
  controller.demand(layer(1), kDemand, {});
  controller.advance(milliseconds(25));
  controller.set_server(2, false, milliseconds(30));
  controller.advance(seconds(1));
  for (std::uint32_t j = 0; j < 8; ++j) EXPECT_EQ(controller.circuits(2, j), 0u);
  controller.set_port(0, 3, false, seconds(2));
  controller.advance(seconds(3));
  EXPECT_EQ(controller.ports().peer[3], kNoPeer);
  EXPECT_TRUE(world.held.empty());
  expect_patched(controller, world);
  controller.set_server(2, true, seconds(4));
  controller.set_port(0, 3, true, seconds(5));
  controller.advance(seconds(6));
  EXPECT_EQ(controller.circuits(2, 6), 2u);
  EXPECT_NE(controller.ports().peer[3], kNoPeer);
}

TEST(RegionController, WithoutItsPanelAllGoesElsewhere) {
  World world;
  world.busy = true;
  RegionController controller(options(), world);
  controller.demand(layer(1), kDemand, {});
  controller.set_panel(false, milliseconds(2));  // while it drains
  world.busy = false;
  controller.drained(milliseconds(3));
  EXPECT_EQ(controller.state(), State::live);
  EXPECT_TRUE(world.held.empty());
  EXPECT_EQ(world.patches, 0);
  EXPECT_EQ(controller.circuits(0, 7), 0u);
  controller.demand(layer(2), turned(1), milliseconds(4));
  EXPECT_TRUE(controller.ready(layer(2))) << "nothing to patch";
  controller.set_panel(true, milliseconds(5));
  controller.advance(seconds(1));
  EXPECT_EQ(world.panel.cross_connects().size(), 48u);
  expect_patched(controller, world);
}

TEST(RegionController, APanelThatRefusesLeavesWhatThereWas) {
  World world;
  RegionController controller(options(), world);
  controller.demand(layer(1), kDemand, {});
  controller.advance(milliseconds(25));
  const PortMap before = controller.ports();
  world.answers = false;
  controller.demand(layer(2), turned(1), milliseconds(30));
  EXPECT_EQ(controller.state(), State::live);
  EXPECT_EQ(controller.refusal(), "panel: no answer");
  EXPECT_EQ(controller.ports().peer, before.peer);
  EXPECT_TRUE(world.held.empty());
  world.answers = true;
  controller.demand(layer(3), turned(1), milliseconds(31));
  EXPECT_EQ(controller.refusal(), "");
  controller.advance(seconds(1));
  expect_patched(controller, world);
}

TEST(RegionController, OneThatIsStartedAgainFindsTheStateAndSendsNothing) {
  for (const Picoseconds killed : {milliseconds(10), milliseconds(60)}) {  // while dark; while live
    World world;
    {
      RegionController first(options(), world);
      first.demand(layer(1), kDemand, {});
      first.advance(killed);
    }
    world.held.clear();
    RegionController second(options(), world);
    second.demand(layer(1), kDemand, killed);
    EXPECT_TRUE(second.ready(layer(1)));
    EXPECT_EQ(world.patches, 1);
    EXPECT_EQ(world.panel.generation(), 1u);
  }
}

TEST(RegionController, HalvesAndStrangersOfItsPortsGoWithTheNextRequest) {
  World world("ideal", 60);
  const std::vector<panel::CrossConnect> left{{3, 9}, {4, 4}, {50, 51}, {51, 50}};
  world.panel.connect(left, panel::Mode::update, {});
  RegionController controller(options(), world);
  EXPECT_EQ(controller.ports().peer[3], kNoPeer);
  controller.demand(layer(1), kDemand, milliseconds(1));
  expect_patched(controller, world);
  EXPECT_EQ(world.panel.target({50, false}), 51) << "of nobody's region";
}

TEST(RegionController, WhatSomebodyElsePatchesIsPutRightAtTheNextDemand) {
  World world;
  RegionController controller(options(), world);
  controller.demand(layer(1), kDemand, {});
  controller.advance(milliseconds(25));
  world.panel.connect(std::vector<panel::CrossConnect>{{0, 1}, {1, 0}}, panel::Mode::update, milliseconds(30));
  controller.demand(layer(2), kDemand, milliseconds(60));
  EXPECT_EQ(controller.state(), State::dark);
  controller.advance(milliseconds(85));
  expect_patched(controller, world);
}

TEST(RegionController, WhatSomebodyElsePatchesIsUsedUntilThen) {
  World world;
  RegionController controller(options(), world);
  controller.demand(layer(1), kDemand, {});
  controller.advance(milliseconds(25));
  const PortMap before = controller.ports();
  world.panel.connect(std::vector<panel::CrossConnect>{{0, 6}, {6, 0}}, panel::Mode::update, milliseconds(30));
  controller.circuits_changed(milliseconds(30));
  EXPECT_EQ(controller.state(), State::dark);
  EXPECT_TRUE(world.held.contains({0, 1}) && world.held.contains({0, before.peer[0] / 6}));
  EXPECT_LE(world.held.size(), 3u) << "what else is patched goes on";
  const RegionEvent told = controller.take_events().back();
  EXPECT_EQ(told.kind, Kind::outside);
  EXPECT_EQ(told.dark, milliseconds(25));
  EXPECT_FALSE(controller.ready(layer(1)));
  controller.advance(milliseconds(55));
  EXPECT_TRUE(controller.ready(layer(1)) && world.held.empty());
  EXPECT_EQ(controller.ports().peer[0], 6);
  EXPECT_EQ(world.patches, 1) << "it does not fight";
  controller.circuits_changed(milliseconds(60));
  EXPECT_EQ(controller.state(), State::live) << "nothing has changed";
}

TEST(RegionController, WhatSomebodyElseChangesWhileItDrainsOrIsDarkIsHeldToo) {
  World world;
  RegionController controller(options(), world);
  controller.demand(layer(1), kDemand, {});
  controller.advance(milliseconds(25));
  world.busy = true;
  controller.demand(layer(2), turned(1), milliseconds(30));
  ASSERT_EQ(controller.state(), State::drain);
  world.panel.connect({}, panel::Mode::overwrite, milliseconds(31));
  controller.circuits_changed(milliseconds(31));
  EXPECT_EQ(controller.state(), State::drain);
  EXPECT_GE(world.held.size(), 23u);
  controller.advance(milliseconds(40));
  ASSERT_EQ(controller.state(), State::dark);
  world.panel.connect({}, panel::Mode::overwrite, milliseconds(50));
  controller.circuits_changed(milliseconds(50));
  controller.advance(seconds(1));
  EXPECT_EQ(controller.state(), State::live);
  EXPECT_TRUE(world.held.empty());
  EXPECT_EQ(controller.circuits(0, 7), 0u);
}

TEST(RegionController, CircuitsOfABrokenPortAreNotUsedThoughNobodyAskedForThem) {
  World world("ideal");
  world.panel.connect(std::vector<panel::CrossConnect>{{0, 6}, {6, 0}}, panel::Mode::update, {});
  RegionController controller(options(), world);
  EXPECT_EQ(controller.circuits(0, 1), 1u);
  controller.set_port(0, 0, false, milliseconds(1));
  EXPECT_EQ(controller.circuits(0, 1), 0u);
  controller.set_port(0, 0, true, milliseconds(2));
  EXPECT_EQ(controller.circuits(0, 1), 1u);
  EXPECT_TRUE(world.held.empty());
  EXPECT_EQ(world.patches, 0);
}

TEST(RegionController, BadDemandsChangeNothing) {
  World world;
  RegionController controller(options(), world);
  controller.demand(layer(1), kDemand, {});
  Demand skew = kDemand;
  skew[1] += 1;
  EXPECT_THROW(controller.demand(layer(2), skew, milliseconds(1)), std::invalid_argument) << "while dark";
  EXPECT_THROW(controller.demand(layer(2), Demand(49), milliseconds(1)), std::invalid_argument);
  controller.advance(milliseconds(25));
  EXPECT_THROW(controller.demand(layer(2), skew, milliseconds(30)), std::invalid_argument);
  EXPECT_TRUE(controller.ready(layer(1)));
  EXPECT_THROW(RegionController({.servers = 1}, world), std::invalid_argument);
  EXPECT_THROW(RegionController({.servers = 8, .alpha = 9}, world), std::invalid_argument);
}

TEST(RegionController, RandomSequencesEndWithThePanelAsThoughtAndNothingHeld) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    RandomStream random(seed, 0, 0);
    World world(seed % 3 ? "sim25" : "polatis", 100);
    RegionOptions settings = options(1 + random.below(6));
    settings.first_port = static_cast<panel::Port>(random.below(40));
    settings.rule = static_cast<Rule>(random.below(5));
    settings.all_dark = random.below(2);
    RegionController controller(settings, world);
    Picoseconds now;
    for (int step = 0; step < 60; ++step) {
      now += microseconds(random.below(20'000));
      world.busy = random.below(2);
      world.answers = random.below(10) != 0;
      switch (random.below(9)) {
        case 8: {
          if (seed % 2 == 0) break;
          const auto a = static_cast<panel::Port>(random.below(100)), b = static_cast<panel::Port>(random.below(100));
          world.panel.connect(std::vector<panel::CrossConnect>{{a, b}}, panel::Mode::update, now);
          if (random.below(4) != 0) controller.circuits_changed(now);  // else the next demand finds it
          break;
        }
        case 0: controller.set_server(random.below(8), random.below(2), now); break;
        case 1: controller.set_port(random.below(8), random.below(settings.alpha), random.below(2), now); break;
        case 2: controller.set_panel(random.below(4) != 0, now); break;
        case 3: controller.drained(now); break;
        case 4: controller.advance(now); break;
        default: controller.demand(layer(static_cast<std::uint16_t>(random.below(9))), turned(random.below(8)), now);
      }
      ASSERT_TRUE(controller.state() != State::live || world.held.empty()) << seed;
    }
    world.answers = true;
    controller.set_panel(true, now);
    controller.demand(layer(99), kDemand, now);
    controller.advance(now + seconds(10));
    ASSERT_EQ(controller.state(), State::live) << seed;
    ASSERT_TRUE(world.held.empty()) << seed;
    if (seed % 2 == 0) expect_patched(controller, world, settings.first_port);
    if (::testing::Test::HasFailure()) FAIL() << "seed " << seed;
    // Others' cross-connects may be left at ports that this controller has no use for.
    for (std::size_t port = 0; port < controller.ports().peer.size(); ++port) {
      const std::int32_t peer = controller.ports().peer[port];
      if (peer == kNoPeer) continue;
      const auto at = static_cast<panel::Port>(settings.first_port + port);
      ASSERT_EQ(world.panel.target({at, false}), peer + settings.first_port) << seed;
    }
  }
}

TEST(RegionController, TheSameSeedTellsTheSameStory) {
  std::vector<RegionEvent> stories[2];
  for (auto& story : stories) {
    World world("polatis");
    RegionController controller(options(), world);
    for (std::uint16_t i = 0; i < 20; ++i) controller.demand(layer(i), turned(i % 8), milliseconds(i * 30));
    controller.advance(seconds(9));
    story = controller.take_events();
  }
  EXPECT_EQ(stories[0], stories[1]);
  EXPECT_GT(stories[0].size(), 40u);
}

// --- only where it is worthwhile -----------------------------------------------------------------------------
// One byte of demand is one byte that servers send each other, both ways; rates as of 100 Gb/s NICs, two by wires.
RegionOptions weighed(bool all_dark = false) {
  RegionOptions found = options();
  found.worthwhile = Weighing{Split::weighted, {100e9, 200e9}};
  found.all_dark = all_dark;
  return found;
}

Use use_of(const Demand& demand, std::uint64_t bytes, Picoseconds hidden = {}) {
  Use found{.bytes = demand, .exchanges = 2, .hidden = hidden, .next_hidden = hidden};
  for (std::uint64_t& each : found.bytes) each *= bytes;
  return found;
}

TEST(RegionController, WhatIsNotWorthwhileIsReadyAtOnceAndDarkensNothing) {
  for (const bool all_dark : {false, true}) {
    World world;
    RegionController controller(weighed(all_dark), world);
    controller.demand(layer(0), kDemand, {}, false, use_of(kDemand, 1'000'000));  // 10 s by wires, a fifth with circuits
    EXPECT_EQ(controller.state(), State::dark);
    controller.advance(milliseconds(25));
    controller.take_events();
    controller.demand(layer(1), turned(1), milliseconds(30), false, use_of(turned(1), 1));
    EXPECT_TRUE(controller.ready(layer(1)) && world.held.empty());
    EXPECT_EQ(world.patches, 1);
    EXPECT_EQ(kinds(controller.take_events()), (std::vector{Kind::demand}));
  }
}

TEST(RegionController, WhatHidesADarkTimeIsCountedFromTheDemand) {
  const Demand other = turned(3);
  for (const auto& [hidden, patches] : {std::pair{milliseconds(50), 2}, {milliseconds(40), 1}}) {
    World world;
    RegionController controller(weighed(), world);
    controller.demand(layer(0), kDemand, {}, false, use_of(kDemand, 1'000'000));
    // 20 ms of what hides the next dark time pass while the first one lasts; 25 of it must be left.
    controller.demand(layer(1), other, milliseconds(5), false, use_of(other, 10, hidden - milliseconds(5)));
    controller.advance(milliseconds(25));
    EXPECT_EQ(world.patches, patches);
  }
}

TEST(RegionController, AFailedPortIsTakenOutOfThePanelAndTheOthersStayLit) {
  World world;
  RegionController controller(weighed(true), world);
  controller.demand(layer(0), kDemand, {}, false, use_of(kDemand, 10'000));
  controller.advance(milliseconds(25));
  ASSERT_EQ(world.panel.cross_connects().size(), 48u);
  controller.set_port(0, 0, false, milliseconds(30));
  EXPECT_EQ(controller.state(), State::live) << "nothing goes dark";
  EXPECT_EQ(world.panel.cross_connects().size(), 46u);
  EXPECT_TRUE(world.held.empty());
  expect_patched(controller, world);
}

TEST(RegionController, WorthwhileNeedsTheBytes) {
  World world;
  RegionController controller(weighed(), world);
  EXPECT_THROW(controller.demand(layer(0), kDemand, {}), std::invalid_argument);
}

}  // namespace
}  // namespace loomnet::circuits
