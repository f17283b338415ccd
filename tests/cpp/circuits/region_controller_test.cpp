// A region's controller on a real panel's state: holds, requests and releases with their times; failures,
// restarts, and random sequences.
#include "circuits/region_controller.hpp"

#include <gtest/gtest.h>

#include "clock/random.hpp"
#include "controller_bed.hpp"

namespace loomnet::circuits {
namespace {

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
        case 0:
          controller.set_server(random.below(8), random.below(2), now);
          break;
        case 1:
          controller.set_port(random.below(8), random.below(settings.alpha), random.below(2), now);
          break;
        case 2:
          controller.set_panel(random.below(4) != 0, now);
          break;
        case 3:
          controller.drained(now);
          break;
        case 4:
          controller.advance(now);
          break;
        default:
          controller.demand(layer(static_cast<std::uint16_t>(random.below(9))), turned(random.below(8)), now);
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

}  // namespace
}  // namespace loomnet::circuits
