// Astraea's two maps from an action to a window: golden values, and how far apart the two are.
#include "transport/congestion/astraea/action.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "clock/random.hpp"

namespace loomnet::astraea {
namespace {

struct Row {
  std::uint32_t window;
  double action;
  std::uint32_t to;
};
constexpr Row kGolden[] = {{10, 1, 11},     {40, 1, 41},     {41, 1, 43},     {100, 1, 103},    {1000, 1, 1025},
                           {100, 0.5, 102}, {100, 0, 100},   {10, -1, 9},     {40, -1, 39},     {41, -1, 40},
                           {100, -1, 97},   {1000, -1, 975}, {100, -0.5, 98}, {100, 1e-6, 101}, {100, -1e-6, 99}};

TEST(MapAction, IsTheGoldenOne) {
  for (const Row& row : kGolden) {
    EXPECT_EQ(map_action(row.window, row.action), row.to) << row.window << " " << row.action;
  }
}

TEST(MapAction, ByWholeNumbersIsTheGoldenOneWhereTheActionIsAWholeNumber) {
  for (const Row& row : kGolden) {
    const std::int32_t q = integer_action(row.action);
    if (std::fabs(row.action) < 1e-5) {
      EXPECT_EQ(q, 0) << "below half of 1/32767 an action is none";
    } else {
      EXPECT_EQ(map_action_int(row.window, q), row.to) << row.window << " " << row.action;
    }
  }
}

TEST(MapAction, ByWholeNumbersIsEqualAtFullActionForEveryWindow) {
  for (std::uint32_t w = kLeastWindow; w <= kMostWindow; ++w) {
    ASSERT_EQ(map_action_int(w, kFullAction), map_action(w, 1)) << w;
    ASSERT_EQ(map_action_int(w, -kFullAction), map_action(w, -1)) << w;
    ASSERT_EQ(map_action_int(w, 0), w);
  }
}

TEST(MapAction, ByWholeNumbersDiffersByAPacketAtMostAndSeldom) {
  RandomStream random(11, 1, 1);
  constexpr int kPairs = 1'000'000;
  int apart = 0;
  for (int i = 0; i < kPairs; ++i) {
    const std::uint32_t w = kLeastWindow + random.below(kMostWindow - kLeastWindow + 1);
    const auto q = static_cast<std::int32_t>(random.below(2 * kFullAction + 1)) - kFullAction;
    const std::int64_t difference =
        std::int64_t{map_action_int(w, q)} - map_action(w, static_cast<double>(q) / kFullAction);
    ASSERT_LE(std::abs(difference), 1) << w << " " << q;
    apart += difference != 0;
  }
  EXPECT_LE(apart, kPairs / 10'000) << "about 1 of 100,000 pairs";
}

TEST(MapAction, OfAnyActionAgreesToAPacketAfterItsRounding) {
  RandomStream random(12, 1, 1);
  for (int i = 0; i < 200'000; ++i) {
    // 0.025 x 20,000 / 65,534 is below a packet: rounding the action moves the window by one at most.
    const std::uint32_t w = kLeastWindow + random.below(kMostWindow - kLeastWindow + 1);
    const double a = random.uniform() * 2 - 1;
    const std::int64_t difference = std::int64_t{map_action_int(w, integer_action(a))} - map_action(w, a);
    ASSERT_LE(std::abs(difference), 1) << w << " " << a;
  }
}

TEST(MapAction, TakesAnyNumber) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  EXPECT_EQ(map_action(100, NAN), 100u);
  EXPECT_EQ(map_action(100, kInfinite), 103u);
  EXPECT_EQ(map_action(100, -kInfinite), 97u);
  EXPECT_EQ(map_action(0, 1), 0u);
  EXPECT_EQ(map_action(0xffffffff, 1), kWindowBound);
  EXPECT_EQ(map_action_int(0xffffffff, 1 << 30), kWindowBound);
  EXPECT_EQ(map_action_int(100, std::numeric_limits<std::int32_t>::min()), 97u);
  EXPECT_EQ(map_action_int(100, kFullAction, 100'000), 110u);
}

// At alpha = 0.025 and with this rounding; a window's way is what a policy has to plan with.
TEST(MapAction, GrowsNoFasterThanItsSpeedLimit) {
  const auto steps = [](std::uint32_t from, std::uint32_t to) {
    int count = 0;
    for (std::uint32_t w = from; w != to && (w < to) == (from < to); ++count) w = map_action(w, from < to ? 1 : -1);
    return count;
  };
  EXPECT_EQ(steps(10, 40), 30);
  EXPECT_EQ(steps(10, 250), 91);
  EXPECT_EQ(steps(100, 200), 25);
  EXPECT_EQ(steps(250, 125), 25);
  EXPECT_EQ(steps(1000, 2000), 28);
}

}  // namespace
}  // namespace loomnet::astraea
