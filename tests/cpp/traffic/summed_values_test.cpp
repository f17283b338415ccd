// Values whose sums are checked: a sum that is right passes, and one that is wrong, moved or of other ranks does not.
#include "traffic/summed_values.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace loomnet {
namespace {

constexpr std::size_t kRanks = 3, kCount = 1000;
using Tensor = std::vector<std::int32_t>;

Tensor sum(const SummedValues& values, std::uint64_t repeat, std::size_t ranks = kRanks) {
  std::vector<float> all(kCount);
  for (JobRank r = 0; r < ranks; ++r) {
    Tensor own(kCount);
    values.fill(own, r, repeat);
    for (std::size_t i = 0; i < kCount; ++i) all[i] += std::bit_cast<float>(own[i]);
  }
  Tensor found(kCount);
  for (std::size_t i = 0; i < kCount; ++i) found[i] = std::bit_cast<std::int32_t>(all[i]);
  return found;
}

TEST(SummedValues, TheSumOfAllRanksIsRightForEach) {
  SummedValues values(kRanks, 0);
  for (std::uint64_t repeat = 0; repeat < 3; ++repeat) {
    for (JobRank r = 0; r < kRanks; ++r) EXPECT_EQ(values.wrong(sum(values, repeat), repeat), 0u);
  }
}

TEST(SummedValues, WhatIsWrongIsCounted) {
  for (const std::uint32_t scale : {0u, 1'000'000u}) {
    SummedValues values(kRanks, scale);
    Tensor off = sum(values, 7);
    off[10] = std::bit_cast<std::int32_t>(std::bit_cast<float>(off[10]) + 1.0f / 64);
    off[20] = std::bit_cast<std::int32_t>(std::nanf(""));
    EXPECT_EQ(values.wrong(off, 7), 2u);
    Tensor moved = sum(values, 7);  // a fragment of 256 in the place of the one behind it
    std::rotate(moved.begin(), moved.begin() + 256, moved.begin() + 512);
    EXPECT_GT(values.wrong(moved, 7), 400u);
    EXPECT_GT(values.wrong(sum(values, 8), 7), 900u) << "of another tensor";
    EXPECT_GT(values.wrong(sum(values, 9, kRanks - 1), 9), 900u) << "a rank is missing";
  }
}

TEST(SummedValues, ASumAtAFixedScaleIsExact) {
  SummedValues fixed(kRanks, 1'000'000), rounded(kRanks, 0);
  Tensor off = sum(fixed, 1);
  off[3] = std::bit_cast<std::int32_t>(std::bit_cast<float>(off[3]) + 1e-5f);  // within what block exponents round
  EXPECT_EQ(fixed.wrong(off, 1), 1u);
  EXPECT_EQ(rounded.wrong(off, 1), 0u);
}

}  // namespace
}  // namespace loomnet
