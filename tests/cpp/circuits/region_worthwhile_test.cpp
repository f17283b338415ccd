// A region's controller that patches only where it is worthwhile: what stays, what hides a dark time, failed ports.
#include "controller_bed.hpp"

namespace loomnet::circuits {
namespace {

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

TEST(RegionWorthwhile, WhatIsNotWorthwhileIsReadyAtOnceAndDarkensNothing) {
  for (const bool all_dark : {false, true}) {
    World world;
    RegionController controller(weighed(all_dark), world);
    controller.demand(layer(0), kDemand, {}, false,
                      use_of(kDemand, 1'000'000));  // 10 s by wires, a fifth with circuits
    EXPECT_EQ(controller.state(), State::dark);
    controller.advance(milliseconds(25));
    controller.take_events();
    controller.demand(layer(1), turned(1), milliseconds(30), false, use_of(turned(1), 1));
    EXPECT_TRUE(controller.ready(layer(1)) && world.held.empty());
    EXPECT_EQ(world.patches, 1);
    EXPECT_EQ(kinds(controller.take_events()), (std::vector{Kind::demand}));
  }
}

TEST(RegionWorthwhile, WhatHidesADarkTimeIsCountedFromTheDemand) {
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

TEST(RegionWorthwhile, AFailedPortIsTakenOutOfThePanelAndTheOthersStayLit) {
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

TEST(RegionWorthwhile, WorthwhileNeedsTheBytes) {
  World world;
  RegionController controller(weighed(), world);
  EXPECT_THROW(controller.demand(layer(0), kDemand, {}), std::invalid_argument);
}

}  // namespace
}  // namespace loomnet::circuits
