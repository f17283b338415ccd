// Circuits by each rule: worked examples whole, and what holds for any demand.
#include "circuits/assignment.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <stdexcept>
#include <string>

namespace loomnet::circuits {
namespace {

using Demand = std::vector<std::uint64_t>;
using Order = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

struct Golden {
  std::uint32_t alpha;
  std::vector<std::uint32_t> circuits;
  Order order;
};

// Tokens from eight experts to eight, one on each server: each row sums to 32768.
const std::vector<std::uint64_t> kTokens = {
    9810,  5338, 1231, 3042, 4452, 2004, 841, 6050, 9278,  6282, 839,  3722, 3821, 2903, 909,  5014,
    10684, 5165, 1044, 2634, 4344, 3333, 675, 4889, 10897, 5629, 1086, 2114, 2762, 3463, 1059, 5758,
    8684,  5666, 1046, 3955, 4334, 2952, 944, 5187, 8361,  5908, 777,  3043, 3984, 3422, 897,  6376,
    10208, 5507, 1117, 4148, 3967, 3119, 904, 3798, 9781,  5211, 902,  3343, 4289, 2839, 1008, 5395};

const std::vector<Golden> kGv1 = {
    {1,
     {0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0,
      0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0},
     {{0, 7}, {1, 4}, {3, 5}, {2, 6}}},
    {2,
     {0, 1, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 1, 1, 0, 0,
      0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0},
     {{0, 7}, {0, 1}, {1, 7}, {4, 5}, {3, 4}, {3, 5}, {2, 6}, {2, 6}}},
    {3,
     {0, 1, 0, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1, 2, 0, 1, 0, 0, 0, 0, 1, 1, 0,
      0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 1, 1, 0, 0, 1, 0, 0, 0},
     {{0, 7}, {0, 1}, {0, 3}, {1, 7}, {1, 4}, {4, 7}, {4, 5}, {3, 5}, {3, 6}, {2, 5}, {2, 6}, {2, 6}}},
    {4,
     {0, 1, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1, 3, 0, 1, 1, 0, 0, 0, 1, 1, 0,
      1, 1, 0, 0, 0, 1, 0, 1, 0, 0, 1, 1, 1, 0, 0, 1, 0, 0, 3, 1, 0, 0, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0},
     {{0, 7},
      {0, 1},
      {0, 3},
      {0, 4},
      {1, 7},
      {1, 4},
      {4, 7},
      {1, 3},
      {5, 7},
      {4, 5},
      {3, 5},
      {3, 6},
      {2, 5},
      {2, 6},
      {2, 6},
      {2, 6}}},
    {5,
     {0, 1, 1, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 0, 0, 0, 0, 1, 3, 0, 1, 1, 0, 0, 1, 1, 0, 1,
      1, 1, 0, 1, 0, 1, 0, 1, 0, 1, 1, 1, 1, 0, 0, 1, 0, 0, 3, 0, 0, 0, 0, 0, 1, 1, 0, 1, 1, 1, 0, 0},
     {{0, 7},
      {0, 1},
      {0, 3},
      {0, 4},
      {0, 2},
      {1, 7},
      {1, 4},
      {4, 7},
      {1, 3},
      {5, 7},
      {3, 7},
      {1, 5},
      {4, 5},
      {3, 4},
      {3, 5},
      {2, 5},
      {2, 6},
      {2, 6},
      {2, 6}}},
    {6,
     {0, 1, 1, 1, 1, 0, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 1, 1, 2, 1, 1, 1, 0, 0, 1, 1, 1, 1,
      1, 1, 1, 1, 0, 1, 0, 1, 0, 1, 1, 1, 1, 0, 1, 1, 1, 1, 2, 1, 0, 1, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0},
     {{0, 7}, {0, 1}, {0, 3}, {0, 4}, {0, 2}, {0, 6}, {1, 7}, {1, 4}, {4, 7}, {1, 3}, {5, 7}, {3, 7},
      {1, 5}, {4, 5}, {3, 4}, {3, 5}, {1, 6}, {2, 7}, {2, 4}, {3, 6}, {2, 5}, {5, 6}, {2, 6}, {2, 6}}},
};
const std::vector<Golden> kGv2 = {
    {1, {0, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 0}, {{0, 3}, {1, 2}}},
    {2, {0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 0, 1, 1, 0, 1, 0}, {{0, 3}, {0, 2}, {2, 3}}},
    {3, {0, 1, 1, 1, 1, 0, 1, 1, 1, 1, 0, 1, 1, 1, 1, 0}, {{0, 3}, {0, 2}, {0, 1}, {2, 3}, {1, 2}, {1, 3}}},
    {4,
     {0, 1, 1, 2, 1, 0, 2, 1, 1, 2, 0, 1, 2, 1, 1, 0},
     {{0, 3}, {0, 2}, {0, 1}, {2, 3}, {1, 2}, {1, 3}, {0, 3}, {1, 2}}},
    {6,
     {0, 2, 2, 2, 2, 0, 2, 2, 2, 2, 0, 2, 2, 2, 2, 0},
     {{0, 3}, {0, 2}, {0, 1}, {2, 3}, {1, 2}, {1, 3}, {0, 3}, {0, 2}, {0, 1}, {2, 3}, {1, 2}, {1, 3}}},
};
const std::vector<Golden> kGv5 = {
    {6,
     {0, 1, 1, 1, 1, 1, 1, 0, 1, 0, 1, 1, 1, 1, 1, 0, 1, 1, 0, 1, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0,
      1, 1, 1, 1, 0, 1, 1, 0, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1, 1, 0},
     {{0, 1}, {2, 3}, {4, 5}, {6, 7}, {0, 2}, {0, 3}, {0, 4}, {0, 5}, {0, 6}, {1, 2}, {1, 3},
      {1, 4}, {1, 5}, {1, 6}, {2, 4}, {2, 5}, {2, 6}, {3, 4}, {3, 5}, {3, 6}, {4, 6}, {5, 7}}},
};

// Both ways of the tokens between servers that have `experts` experts each.
Demand both_ways(std::size_t experts) {
  const std::size_t servers = 8 / experts;
  Demand found(servers * servers);
  for (std::size_t i = 0; i < 8; ++i) {
    for (std::size_t j = 0; j < 8; ++j) {
      const std::size_t a = i / experts, b = j / experts;
      if (a == b) continue;
      found[a * servers + b] += kTokens[i * 8 + j];
      found[b * servers + a] += kTokens[i * 8 + j];
    }
  }
  return found;
}

Demand sparse() {
  Demand found(64, 10);
  for (std::size_t i = 0; i < 8; ++i) found[i * 8 + i] = 0;
  for (std::size_t pair = 0; pair < 4; ++pair) {
    found[(2 * pair) * 8 + 2 * pair + 1] = found[(2 * pair + 1) * 8 + 2 * pair] = 1000 - 10 * pair;
  }
  return found;
}

Assignment by(Rule rule, const Demand& demand, std::size_t servers, std::uint32_t alpha, Ties ties = Ties::free) {
  return assign(demand, std::vector<std::uint32_t>(servers, alpha), rule, 0, ties);
}

std::uint64_t covered(const Assignment& found, const Demand& demand) {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < found.servers; ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (found.at(i, j) > 0) bytes += demand[i * found.servers + j];
    }
  }
  return bytes;
}

TEST(Assignment, OneExpertOnEachOfEightServers) {
  const Demand demand = both_ways(1);
  EXPECT_EQ(std::accumulate(demand.begin(), demand.end(), std::uint64_t{}) / 2, 228839u);
  ASSERT_EQ(kGv1.size(), 6u);
  const std::uint64_t bytes[] = {33616, 62623, 98125, 129827, 161164, 199033};
  for (const Golden& golden : kGv1) {
    SCOPED_TRACE("alpha " + std::to_string(golden.alpha));
    const Assignment found = by(Rule::skip, demand, 8, golden.alpha);
    EXPECT_EQ(found.circuits, golden.circuits);
    EXPECT_EQ(found.order, golden.order);
    EXPECT_EQ(covered(found, demand), bytes[golden.alpha - 1]);
    EXPECT_EQ(by(Rule::skip, demand, 8, golden.alpha, Ties::index).order, golden.order);
    EXPECT_EQ(by(Rule::htsim, demand, 8, golden.alpha).circuits, golden.circuits);
    EXPECT_EQ(by(Rule::share, demand, 8, golden.alpha).circuits, golden.circuits);
  }
  const Assignment all = by(Rule::skip, demand, 8, 7);
  EXPECT_EQ(all.order.size(), 28u);
  EXPECT_EQ(covered(all, demand), 228839u);
}

TEST(Assignment, AsPrintedTheRuleEndsWithAStar) {
  const Demand demand = both_ways(1);
  const Order star = {{0, 7}, {0, 1}, {0, 3}, {0, 4}, {0, 2}, {0, 6}};
  const std::uint64_t bytes[] = {15831, 30447, 44386, 57522, 69437, 80486};
  for (std::uint32_t alpha = 1; alpha <= 6; ++alpha) {
    const Assignment found = by(Rule::literal, demand, 8, alpha);
    EXPECT_EQ(found.order, Order(star.begin(), star.begin() + alpha));
    EXPECT_EQ(covered(found, demand), bytes[alpha - 1]);
  }
  EXPECT_EQ(by(Rule::literal, demand, 8, 7).circuits, by(Rule::skip, demand, 8, 7).circuits);
}

TEST(Assignment, TwoExpertsOnEachOfFourServers) {
  const Demand demand = both_ways(2);
  EXPECT_EQ(std::accumulate(demand.begin(), demand.end(), std::uint64_t{}) / 2, 198761u);
  ASSERT_EQ(kGv2.size(), 5u);
  for (const Golden& golden : kGv2) {
    SCOPED_TRACE("alpha " + std::to_string(golden.alpha));
    const Assignment found = by(Rule::skip, demand, 4, golden.alpha);
    EXPECT_EQ(found.circuits, golden.circuits);
    EXPECT_EQ(found.order, golden.order);
    for (const Rule rule : {Rule::htsim, Rule::share}) {
      EXPECT_EQ(by(rule, demand, 4, golden.alpha).circuits, golden.circuits);
    }
  }
  EXPECT_EQ(covered(by(Rule::skip, demand, 4, 1), demand), 66244u);
  EXPECT_EQ(covered(by(Rule::skip, demand, 4, 2), demand), 112938u);
}

TEST(Assignment, ThreeServersThatTellTheRulesApart) {
  const Demand demand = {0, 900, 100, 900, 0, 90, 100, 90, 0};
  const auto three = [&](Rule rule) {
    const Assignment found = by(rule, demand, 3, 4);
    return std::vector<std::uint32_t>{found.at(0, 1), found.at(0, 2), found.at(1, 2)};
  };
  EXPECT_EQ(three(Rule::skip), (std::vector<std::uint32_t>{3, 1, 1}));
  EXPECT_EQ(three(Rule::literal), (std::vector<std::uint32_t>{3, 1, 1}));
  EXPECT_EQ(three(Rule::htsim), (std::vector<std::uint32_t>{2, 2, 2}));
  EXPECT_EQ(three(Rule::share), (std::vector<std::uint32_t>{4, 0, 0}));
}

TEST(Assignment, TwoServersHaveAllCircuitsBetweenThem) {
  for (const Rule rule : {Rule::skip, Rule::literal, Rule::htsim, Rule::share, Rule::random}) {
    EXPECT_EQ(by(rule, {0, 1, 1, 0}, 2, 6).at(0, 1), 6u);
  }
}

TEST(Assignment, SparseDemandIsServedByItsShare) {
  const Demand demand = sparse();
  for (const Rule rule : {Rule::skip, Rule::share}) {
    const Assignment found = by(rule, demand, 8, 1);
    EXPECT_EQ(found.order, (Order{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
    EXPECT_EQ(covered(found, demand), 3940u);  // of 4180
  }
  for (const std::uint32_t alpha : {2u, 3u, 4u, 6u}) {
    const Assignment found = by(Rule::share, demand, 8, alpha);
    EXPECT_EQ(found.order.size(), 4 * alpha);
    for (std::size_t pair = 0; pair < 4; ++pair) EXPECT_EQ(found.at(2 * pair, 2 * pair + 1), alpha);
  }
  ASSERT_EQ(kGv5.size(), 1u);
  const Assignment found = by(Rule::skip, demand, 8, 6, Ties::index);
  EXPECT_EQ(found.circuits, kGv5[0].circuits);
  EXPECT_EQ(found.order, kGv5[0].order);
  EXPECT_EQ(by(Rule::skip, demand, 8, 6).order.size(), 24u) << "of 24: the last two servers get circuits too";
}

TEST(Assignment, ServersThatAskForTheSameGetEquallyManyCircuits) {
  for (std::uint32_t servers = 2; servers <= 12; ++servers) {
    Demand demand(servers * servers, 1000);
    for (std::uint32_t i = 0; i < servers; ++i) demand[i * servers + i] = 0;
    for (std::uint32_t alpha = 1; alpha <= 8; ++alpha) {
      for (const Rule rule : {Rule::skip, Rule::htsim, Rule::share}) {
        const Assignment found = by(rule, demand, servers, alpha);
        EXPECT_EQ(found.order.size(), servers * alpha / 2);
      }
    }
  }
  // By numbers the first seven of eight servers are joined to one another and the eighth to none.
  Demand demand(64, 1000);
  for (std::uint32_t i = 0; i < 8; ++i) demand[i * 8 + i] = 0;
  const Assignment even = by(Rule::skip, demand, 8, 6), uneven = by(Rule::skip, demand, 8, 6, Ties::index);
  for (std::uint32_t i = 0; i < 8; ++i) {
    const auto of = [i](const Assignment& found) {
      return std::accumulate(&found.circuits[i * 8], &found.circuits[i * 8] + 8, 0u);
    };
    EXPECT_EQ(of(even), 6u);
    EXPECT_EQ(of(uneven), i < 7 ? 6u : 0u);
  }
  EXPECT_EQ(*std::ranges::max_element(even.circuits), 1u);
}

TEST(Assignment, EqualPairsThatHaveAFreePortGoFirstAndLiteralEndsAfterThem) {
  Demand demand(16, 5);
  for (std::uint32_t i = 0; i < 4; ++i) demand[i * 4 + i] = 0;
  const std::vector<std::uint32_t> free = {0, 2, 2, 2};  // the first server has failed
  EXPECT_EQ(assign(demand, free, Rule::literal).order, (Order{{1, 2}, {1, 3}, {2, 3}}));
  EXPECT_EQ(assign(demand, free, Rule::literal, 0, Ties::index).order, Order{});
}

// --- any demand -----------------------------------------------------------------------------------
TEST(Assignment, HoldsWhatItPromisesForAnyDemand) {
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 draw(seed);
    const std::size_t servers = 1 + draw() % (seed % 100 == 0 ? 64 : 12);
    std::vector<std::uint32_t> free(servers);
    for (auto& each : free) each = static_cast<std::uint32_t>(draw() % 9);
    Demand demand(servers * servers);
    const std::uint64_t most = std::array<std::uint64_t, 4>{3, 1000, 1ull << 40, ~0ull}[draw() % 4];
    for (std::size_t i = 0; i < servers; ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        demand[i * servers + j] = demand[j * servers + i] = draw() % 3 ? draw() % most : 0;
      }
    }
    for (const Rule rule : {Rule::skip, Rule::literal, Rule::htsim, Rule::share, Rule::random}) {
      const Assignment found = assign(demand, free, rule, seed, seed % 2 ? Ties::free : Ties::index);
      std::vector<std::uint32_t> used(servers);
      std::uint32_t total = 0;
      for (std::size_t i = 0; i < servers; ++i) {
        ASSERT_EQ(found.at(i, i), 0u);
        for (std::size_t j = 0; j < servers; ++j) {
          ASSERT_EQ(found.at(i, j), found.at(j, i));
          used[i] += found.at(i, j);
        }
        ASSERT_LE(used[i], free[i]);
        total += used[i];
      }
      ASSERT_EQ(total, 2 * found.order.size());
      if (rule == Rule::literal || rule == Rule::random) continue;
      for (std::size_t i = 0; i < servers; ++i) {
        for (std::size_t j = 0; j < i; ++j) {
          if (demand[i * servers + j] == 0) continue;
          ASSERT_TRUE(used[i] == free[i] || used[j] == free[j]) << "ports are left between them";
          if (rule == Rule::skip && free[i] >= servers - 1 && free[j] >= servers - 1 &&
              *std::min_element(free.begin(), free.end()) >= servers - 1) {
            ASSERT_GT(found.at(i, j), 0u);
          }
        }
      }
    }
  }
}

TEST(Assignment, NoRoundingDecides) {
  // 2^62 + 1 over one circuit is more than 2^63 + 1 over two; in double precision they are equal.
  const std::uint64_t big = 1ull << 62;
  Demand demand(16);
  demand[0 * 4 + 1] = demand[1 * 4 + 0] = 2 * big + 1;
  demand[2 * 4 + 3] = demand[3 * 4 + 2] = big + 1;
  const Assignment found = by(Rule::skip, demand, 4, 3);
  EXPECT_EQ(found.order, (Order{{0, 1}, {2, 3}, {0, 1}, {2, 3}, {0, 1}, {2, 3}}));
}

TEST(Assignment, RandomGraphsAreRegularSimpleAndDifferent) {
  std::set<std::vector<std::uint32_t>> seen;
  std::map<std::pair<std::uint32_t, std::uint32_t>, int> often;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    for (const std::uint32_t alpha : {2u, 3u, 4u, 6u, 7u}) {
      const Assignment found = assign(Demand(64), std::vector<std::uint32_t>(8, alpha), Rule::random, seed);
      ASSERT_EQ(found.order.size(), 4 * alpha) << "alpha " << alpha;
      ASSERT_LE(*std::max_element(found.circuits.begin(), found.circuits.end()), 1u);
      if (alpha != 3) continue;
      seen.insert(found.circuits);
      for (const auto& edge : found.order) ++often[edge];
    }
  }
  EXPECT_GT(seen.size(), 700u);
  ASSERT_EQ(often.size(), 28u);
  for (const auto& [edge, count] : often) EXPECT_NEAR(count, 1000 * 3 / 7.0, 80);  // 5 sigma
  EXPECT_EQ(assign(Demand(64), std::vector<std::uint32_t>(8, 3), Rule::random, 5).circuits,
            assign(Demand(64), std::vector<std::uint32_t>(8, 3), Rule::random, 5).circuits);
}

TEST(Assignment, RefusesDemandThatIsNone) {
  const std::vector<std::uint32_t> free(2, 6);
  EXPECT_THROW(assign(Demand{0, 1, 1}, free, Rule::skip), std::invalid_argument);
  EXPECT_THROW(assign(Demand{1, 1, 1, 0}, free, Rule::skip), std::invalid_argument);
  EXPECT_THROW(assign(Demand{0, 1, 2, 0}, free, Rule::skip), std::invalid_argument);
  EXPECT_THROW(rule_named("greedy"), std::invalid_argument);
  EXPECT_EQ(rule_named("share"), Rule::share);
  EXPECT_THROW(ties_named("random"), std::invalid_argument);
  EXPECT_EQ(ties_named("index"), Ties::index);
}

}  // namespace
}  // namespace loomnet::circuits
