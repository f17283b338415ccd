// Blocks of floats that a fixed scale cannot hold: they are summed once more, as float32.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "clock/random.hpp"
#include "collective/sum_cases.hpp"

namespace loomnet::testing {
namespace {

// Several operations, which ranks start at times of their own: what a rank posts first depends on what it has heard.
// Blocks with a value, or with a sum alone, that the scale cannot hold, more than a request has room for, the short last
// one too; in place, and with a result elsewhere.
TEST(SumFloats, WhatAFixedScaleCannotHoldIsSummedAsFloats) {
  constexpr std::size_t kRanks = 3, kOperations = 3, kBlocks = 30, kCount = (kBlocks - 1) * kValues + 5;
  constexpr std::size_t kSumAlone = 15 * kValues + 1;
  const std::set<std::size_t> beyond{1, 2, 3, 8, 9, 20, kBlocks - 1};
  std::vector<float> part(kCount, 0.25f), sum(kCount, 0.75f);
  part[kSumAlone] = 1000.0f, sum[kSumAlone] = 3000.0f;
  for (const std::size_t block : beyond) sum[block * kValues] = 1e9f + 0.5f;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    World world(kRanks, seed, sums(8, 7, 1'000'000, true));
    world.sums().saturate();
    world.create_all(1);
    RandomStream random(seed, 0, 0xf10a);
    std::vector<std::vector<std::vector<float>>> in(kRanks, {kOperations, part}), out = in;
    std::vector<std::vector<OperationId>> ids(kRanks);
    for (std::size_t started = 0; started < kRanks * kOperations;) {
      const std::uint32_t r = random.below(kRanks);
      const std::size_t k = ids[r].size();
      if (k == kOperations) continue;
      for (const std::size_t block : beyond) {
        if (block % kRanks == r) in[r][k][block * kValues] = 1e9f;
      }
      ids[r].push_back(world.start(r, 1, all_reduce(DataType::float32, in[r][k], k == 1 ? out[r][k] : in[r][k])));
      ++started;
      for (std::uint32_t n = random.below(100); n > 0 && world.step(); --n) {
      }
    }
    world.run();
    for (JobRank r = 0; r < kRanks; ++r) {
      for (std::size_t k = 0; k < kOperations; ++k) {
        expect_ok(world, r, ids[r][k]);
        EXPECT_EQ(k == 1 ? out[r][k] : in[r][k], sum) << "operation " << k << " rank " << r;
      }
      EXPECT_EQ(world.counter(r, "sum_overflows"), kOperations * 8);
      EXPECT_EQ(world.counter(r, "sums_as_floats"), kOperations * 8);
    }
    std::size_t floats = 0;
    for (const auto& entry : world.sums().log) floats += entry.sum.floats;
    EXPECT_EQ(floats, kRanks * kOperations * 4) << "eight blocks, two in a request";
  }
}

TEST(SumFloats, IntegersAndBlocksThatAreNotFiniteHaveNoFloats) {
  World world(2, 5, sums(8, 7, 1'000'000, true));
  world.sums().saturate();
  world.create_all(1);
  std::vector<std::vector<std::int32_t>> x(2, std::vector<std::int32_t>(kValues, 1 << 30));
  std::vector<std::vector<float>> y(2, std::vector<float>(kValues, 1e9f));
  y[0][3] = std::numeric_limits<float>::infinity();
  for (JobRank r = 0; r < 2; ++r) world.start(r, 1, all_reduce(DataType::int32, x[r], x[r]));
  for (JobRank r = 0; r < 2; ++r) world.start(r, 1, all_reduce(DataType::float32, y[r], y[r]));
  world.run();
  for (JobRank r = 0; r < 2; ++r) {
    EXPECT_EQ(x[r][0], std::numeric_limits<std::int32_t>::max());
    EXPECT_TRUE(std::isnan(y[r][0]));
    EXPECT_EQ(world.counter(r, "sums_as_floats"), 0u);
  }
}

}  // namespace
}  // namespace loomnet::testing
