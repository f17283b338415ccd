// Priorities of real ranks' sums: what is known of time left, compute and layers from steps and sums alone.
#include "collective/sum_urgency.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace loomnet {
namespace {

constexpr Picoseconds kMs = milliseconds(1);

struct Rank {
  explicit Rank(PriorityMode mode = PriorityMode::full, std::uint32_t steps = 10)
      : urgency({.rank = 3, .steps = steps, .link = BitsPerSecond{1'000'000'000}, .mode = mode, .ask = ask()}) {}
  AskPriority ask() {
    return [this](const BucketFacts& facts) { return heard.push_back(facts), std::uint8_t{9}; };
  }
  // An iteration of 10 ms with `sums` sums of two parts of 62,500 B, each 1 ms under way, one after another.
  std::vector<std::int16_t> iterate(std::uint32_t sums = 3) {
    std::vector<std::int16_t> found;
    for (std::uint32_t i = 0; i < sums; ++i, ++sequence) {
      for (int part = 0; part < 2; ++part) found.push_back(urgency.of_part(0, sequence, 62'500, now));
      now = now + kMs;
      for (int part = 0; part < 2; ++part) urgency.part_ended(now);
    }
    now = now + kMs * (10 - sums);
    urgency.stepped(now);
    return found;
  }
  std::vector<BucketFacts> heard;
  SumUrgency urgency;
  Picoseconds now{};
  std::uint32_t sequence = 0;
};

TEST(SumUrgency, FactsComeFromStepsAndSums) {
  Rank rank;
  // Until two steps have passed, neither an iteration's length nor its number of sums is known.
  for (int i = 0; i < 2; ++i) EXPECT_EQ(rank.iterate(), std::vector<std::int16_t>(6, kNoPriority));
  EXPECT_TRUE(rank.heard.empty());
  EXPECT_EQ(rank.iterate(), std::vector<std::int16_t>(6, 9));
  ASSERT_EQ(rank.heard.size(), 3u) << "parts of one sum have one priority";
  for (std::uint32_t i = 0; i < 3; ++i) {
    const BucketFacts& facts = rank.heard[i];
    EXPECT_EQ(facts.rank, 3u);
    EXPECT_EQ(facts.iteration, 3u);
    EXPECT_EQ(facts.urgency.layers, 3u);
    EXPECT_EQ(facts.urgency.layer, 2 - i) << "the last sum is the front-most layer's";
    EXPECT_NEAR(facts.urgency.remaining_s, 8 * 0.010, 1e-9);
    // 375,000 B at 1 Gb/s are 3 ms; 7 of the iteration's 10 ms have no sum under way.
    EXPECT_NEAR(facts.urgency.communication_ratio, 3.0 / 7, 1e-9);
    EXPECT_EQ(facts.bytes, 62'500u);
  }
}

TEST(SumUrgency, AFormulaWeighsTheSameFacts) {
  Rank asked;
  SumUrgency formula({.steps = 10, .link = BitsPerSecond{1'000'000'000}, .mode = PriorityMode::full});
  Picoseconds now{};
  std::uint32_t sequence = 0;
  std::vector<std::int16_t> found;
  for (int i = 0; i < 3; ++i) {
    asked.iterate();
    found.clear();
    for (int sum = 0; sum < 3; ++sum, ++sequence) {
      for (int part = 0; part < 2; ++part) found.push_back(formula.of_part(0, sequence, 62'500, now));
      now = now + kMs;
      for (int part = 0; part < 2; ++part) formula.part_ended(now);
    }
    now = now + kMs * 7;
    formula.stepped(now);
  }
  ASSERT_EQ(found.size(), 6u);
  for (int sum = 0; sum < 3; ++sum)
    EXPECT_EQ(found[2 * sum], priority_of(PriorityMode::full, asked.heard[sum].urgency));
}

TEST(SumUrgency, WhateverARankDoesAPriorityComesOut) {
  Rank rank(PriorityMode::full, 2);
  for (int i = 0; i < 5; ++i) rank.iterate(1 + i);  // more steps than stated, more sums than before
  rank.urgency.part_ended(rank.now);                // of what was never sent
  rank.urgency.stepped(rank.now);                   // two steps at one instant
  rank.urgency.stepped(rank.now);
  for (const std::int16_t each : rank.iterate(2)) EXPECT_GE(each, kNoPriority);
  for (const BucketFacts& facts : rank.heard) {
    EXPECT_GT(facts.urgency.remaining_s, 0);
    EXPECT_LT(facts.urgency.layer, facts.urgency.layers);
    EXPECT_LE(facts.progress, 1);
  }
}

}  // namespace
}  // namespace loomnet
