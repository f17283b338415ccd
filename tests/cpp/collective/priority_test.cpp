// Priorities of buckets: the golden values of the formula, each mode, and the pace that it is computed from.
#include "collective/priority.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <stdexcept>

namespace loomnet {
namespace {

using enum PriorityMode;

TEST(Priority, GoldenVectors) {
  struct Row {
    Urgency urgency;
    int expected;
  };
  for (const Row& row : {Row{{1, 1, 1, 0}, 128},
                         {{100, 1.04, 16, 0}, 107},
                         {{100, 1.04, 16, 15}, 76},
                         {{10, 4.5, 24, 0}, 155},
                         {{0.01, 2, 8, 0}, 212},
                         {{3600, 0.025, 50, 49}, 1},
                         {{1e-6, 256, 1000, 0}, 255}}) {
    EXPECT_EQ(priority_of(full, row.urgency), row.expected)
        << row.urgency.remaining_s << " " << row.urgency.communication_ratio << " " << row.urgency.layer;
  }
}

TEST(Priority, EachFactorAlone) {
  const Urgency u{.remaining_s = 0.25, .communication_ratio = 16, .layers = 8, .layer = 1};
  // A factor of 2 is 254 / 32 steps: 1 + floor(254 * (16 + log2) / 32 + 0.5).
  EXPECT_EQ(priority_of(trem, u), 144);
  EXPECT_EQ(priority_of(ratio, u), 160);
  EXPECT_EQ(priority_of(layer, u), 144);
  EXPECT_EQ(priority_of(full, u), 192);
  EXPECT_EQ(priority_of(none, u), 128);
  EXPECT_EQ(priority_of(fifo, u), 128);
}

TEST(Priority, StaysWithinOneTo255WhateverItIsGiven) {
  const double most = std::numeric_limits<double>::max(), infinite = std::numeric_limits<double>::infinity();
  for (const double time : {0.0, 1e-300, 1.0, most, infinite}) {
    for (const double comm : {0.0, 1.0, most, infinite}) {
      for (const std::uint32_t at : {0u, 65533u}) {
        for (const PriorityMode mode : {full, trem, ratio, layer, none, fifo, random}) {
          EXPECT_GE(priority_of(mode, {time, comm, 65534, at}), kLeastPriority) << to_string(mode) << time << comm;
        }
      }
    }
  }
  EXPECT_EQ(priority_of(trem, {.remaining_s = 0}), 255);
  EXPECT_EQ(priority_of(trem, {.remaining_s = infinite}), 1);
  // The ratio counts from 1/256 to 256.
  EXPECT_EQ(priority_of(ratio, {.communication_ratio = 0}), priority_of(ratio, {.communication_ratio = 1.0 / 256}));
  EXPECT_EQ(priority_of(ratio, {.communication_ratio = 1e9}), priority_of(ratio, {.communication_ratio = 256}));
}

TEST(Priority, ARandomOneIsDrawnByJobIterationAndLayer) {
  std::set<int> drawn;
  for (std::uint32_t iteration = 0; iteration < 400; ++iteration) {
    const PriorityKey key{.seed = 7, .job = 2, .iteration = iteration};
    drawn.insert(priority_of(random, {.layers = 4, .layer = iteration % 4}, key));
    EXPECT_EQ(priority_of(random, {.remaining_s = 9, .layers = 4, .layer = 1}, key),
              priority_of(random, {.remaining_s = 1, .layers = 4, .layer = 1}, key))
        << "alike on all ranks";
  }
  EXPECT_GT(drawn.size(), 150u);
  EXPECT_GE(*drawn.begin(), 1);
  const auto first = [](std::uint64_t seed, std::uint32_t job) {
    std::vector<int> row;
    for (std::uint32_t i = 0; i < 8; ++i) row.push_back(priority_of(random, {}, {seed, job, i}));
    return row;
  };
  EXPECT_NE(first(7, 2), first(8, 2));
  EXPECT_NE(first(7, 2), first(7, 3));
}

TEST(Priority, ModesByName) {
  for (const PriorityMode mode : {full, trem, ratio, layer, none, fifo, random}) {
    EXPECT_EQ(priority_mode_named(to_string(mode)), mode);
  }
  EXPECT_EQ(priority_mode_named("esa"), full);
  EXPECT_THROW(priority_mode_named("full"), std::invalid_argument);
}

TEST(JobPace, IsTheStatedComputeUntilAnIterationIsMeasured) {
  JobPace pace(milliseconds(300));
  EXPECT_DOUBLE_EQ(pace.remaining_s(10), 3.0);
  // 125 MB at 10 Gb/s are 100 ms.
  EXPECT_DOUBLE_EQ(pace.communication_ratio(125'000'000, gigabits(10)), 1.0 / 3);
  pace.computed(milliseconds(200));
  pace.iterated(milliseconds(400));
  EXPECT_DOUBLE_EQ(pace.remaining_s(10), 4.0) << "the first measured one counts whole";
  EXPECT_DOUBLE_EQ(pace.communication_ratio(125'000'000, gigabits(10)), 0.5);
  pace.iterated(milliseconds(800));
  EXPECT_DOUBLE_EQ(pace.remaining_s(1), 0.5) << "0.4 + (0.8 - 0.4) / 4";
  EXPECT_DOUBLE_EQ(pace.remaining_s(0), 0.5) << "one iteration at least";
}

TEST(JobPace, KnowsAStopThatComesBeforeTheLastIteration) {
  JobPace pace(milliseconds(100));
  EXPECT_DOUBLE_EQ(pace.remaining_s(1'000'000, milliseconds(250)), 0.3) << "the third ends after the stop";
  EXPECT_DOUBLE_EQ(pace.remaining_s(2, seconds(50)), 0.2);
  EXPECT_DOUBLE_EQ(pace.remaining_s(5, Picoseconds{-1}), 0.1);
  EXPECT_DOUBLE_EQ(JobPace(Picoseconds{}).remaining_s(5, seconds(1)), 0.0);
  EXPECT_DOUBLE_EQ(JobPace(Picoseconds{}).communication_ratio(4, gigabits(10)), 256.0);
}

}  // namespace
}  // namespace loomnet
