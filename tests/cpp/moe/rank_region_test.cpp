// A region of ranks: reports in, one answer when the circuits have light, and ranks that break the contract.
#include "moe/rank_region.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "region_bed.hpp"

namespace loomnet::moe {
namespace {

using circuits::CircuitMap;
using circuits::DemandReport;
using circuits::ServerPair;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using testing::Hot;
using ::testing::IsEmpty;
using testing::joined;
using testing::RankHand;
using testing::RegionBed;

constexpr Picoseconds kLatency = microseconds(10);
// From a demand to light: circuits are empty after the crossing, and profile sim25 is dark for 25 ms.
constexpr Picoseconds kDark = RegionBed::kCrossing + milliseconds(25);
constexpr std::uint8_t kDispatch = 0, kCombine = 1, kCombineGradient = 2, kDispatchGradient = 3;
const Hot kStraight{{0, 1}, {2, 3}}, kCrossed{{0, 2}, {1, 3}}, kOuter{{0, 3}, {1, 2}};

TEST(RankRegion, AnswersOnceAllHaveReportedAfterTheLatencyEachWay) {
  RegionBed bed(2, 0, "ideal");
  std::vector<std::uint32_t> numbers, tokens;
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    if (rank == 3) bed.wait(microseconds(50));
    DemandReport row = bed.row(rank, 7, 5);
    row.micro_batch = 2;
    for (std::uint32_t to = 0; to < 4; ++to) row.tokens[to] = 10 * rank + to;
    tokens.insert(tokens.end(), row.tokens.begin(), row.tokens.end());
    numbers.push_back(bed.hands[rank]->send(row));
  }
  bed.wait(kLatency + kLatency - nanoseconds(1));
  EXPECT_TRUE(bed.silent());
  bed.wait(nanoseconds(1));
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    const auto found = bed.hands[rank]->answers();
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].number, numbers[rank]);
    EXPECT_THAT(found[0].map.circuits, IsEmpty());
    EXPECT_EQ(found[0].map.region, RegionBed::kRegion);
    EXPECT_EQ(found[0].map.layer, 7);
    EXPECT_EQ(found[0].map.micro_batch, 2);
    EXPECT_EQ(found[0].map.usable_ns, 60'000u);
  }
  ASSERT_EQ(bed.region->rounds().size(), 1u);
  const RankRegion::Round& round = bed.region->rounds()[0];
  EXPECT_EQ(round.key, (circuits::DemandKey{5, 7, 2, false, false}));
  EXPECT_EQ(round.asked, microseconds(60));
  EXPECT_EQ(round.answered, microseconds(60));
  EXPECT_EQ(round.tokens, tokens);
}

TEST(RankRegion, TheLastAnswersDoNotOpenTheNextRound) {
  RegionBed bed(2, 0, "ideal");
  for (std::uint16_t layer = 0; layer < 3; ++layer) {
    bed.report(layer);
    bed.wait(kLatency + kLatency);
    EXPECT_EQ(bed.answer().layer, layer);
    bed.wait(milliseconds(1));
    EXPECT_TRUE(bed.silent());
  }
  EXPECT_EQ(bed.region->rounds().size(), 3u);
  EXPECT_EQ(bed.region->rounds_left_out(), 0u);
}

TEST(RankRegion, ADispatchWaitsForTheLightOfItsOwnCircuits) {
  RegionBed bed(4, 1, "sim25");
  bed.use_circuits();
  bed.report(0, 0, kDispatch, kCrossed);
  bed.wait(kLatency + kDark + kLatency - nanoseconds(1));
  EXPECT_TRUE(bed.silent());
  bed.wait(nanoseconds(1));
  const CircuitMap map = bed.answer();
  EXPECT_EQ(joined(map), kCrossed);
  EXPECT_THAT(map.circuits, Each(Field(&circuits::MappedCircuit::unchanged, false)));
  EXPECT_EQ(map.usable_ns, 25'012'000u);
  EXPECT_EQ(map.generation, bed.driver().generation());
  EXPECT_EQ(bed.region->rounds()[0].asked, kLatency);
  EXPECT_EQ(bed.region->rounds()[0].answered, kLatency + kDark);
  // Other circuits for the next layer, and the same ones for the layer after it.
  bed.report(1, 0, kDispatch, kStraight);
  bed.wait(kLatency + kDark + kLatency);
  EXPECT_EQ(joined(bed.answer()), kStraight);
  bed.report(2, 0, kDispatch, kStraight);
  bed.wait(kLatency + kLatency);
  const CircuitMap same = bed.answer();
  EXPECT_EQ(joined(same), kStraight);
  EXPECT_THAT(same.circuits, Each(Field(&circuits::MappedCircuit::unchanged, true)));
  EXPECT_EQ(bed.driver().patches(), 2u);
}

// NICs of a circuit as the panel joins them: server and number of each end.
TEST(RankRegion, AnswersNameTheNicsOfEachCircuit) {
  RegionBed bed(3, 2, "sim25");
  bed.use_circuits();
  bed.report(0);
  bed.wait(milliseconds(30));
  const CircuitMap map = bed.answer();
  ASSERT_EQ(map.circuits.size(), 3u);
  for (const circuits::MappedCircuit& each : map.circuits) {
    EXPECT_LT(each.i, each.j);
    EXPECT_EQ(bed.network.panel(bed.panel)->device().target({static_cast<panel::Port>(each.i * 2 + each.nic_i), false}),
              each.j * 2 + each.nic_j);
  }
}

TEST(RankRegion, CountsOfServersAreThoseOfTheirRanks) {
  RegionBed bed(4, 1, "sim25");
  bed.use_circuits();
  // By ranks, 0 and 2 (of servers 0 and 1) have the largest count; by servers, 0-2 and 1-3 have.
  for (std::uint32_t rank = 0; rank < 8; ++rank) {
    DemandReport row = bed.row(rank, 0, 0, kDispatch, kCrossed);
    if (rank == 0) row.tokens[2] = 2500;
    bed.hands[rank]->send(row);
  }
  bed.wait(milliseconds(30));
  EXPECT_EQ(joined(bed.answer()), kCrossed);
}

TEST(RankRegion, ACombineHasTheCircuitsOfItsDispatch) {
  RegionBed bed(4, 1, "sim25");
  bed.use_circuits();
  bed.report(0, 0, kDispatch, kCrossed);
  bed.wait(milliseconds(30));
  (void)bed.answer();
  bed.report(0, 0, kCombine, kStraight);  // whatever its counts are
  bed.wait(kLatency + kLatency);
  EXPECT_EQ(joined(bed.answer()), kCrossed);
  EXPECT_EQ(bed.driver().patches(), 1u);
  ASSERT_EQ(bed.region->rounds().size(), 2u);
  EXPECT_EQ(bed.region->rounds()[0].tokens.size(), 64u);
  EXPECT_THAT(bed.region->rounds()[1].tokens, IsEmpty()) << "a forward dispatch alone shows what the gate did";
}

TEST(RankRegion, GradientsAskForCircuitsAnew) {
  RegionBed bed(4, 1, "sim25");
  bed.use_circuits();
  const auto round = [&](std::uint8_t phase, const Hot& hot) {
    bed.report(0, 0, phase, hot);
    bed.wait(milliseconds(30));
    return joined(bed.answer());
  };
  EXPECT_EQ(round(kDispatch, kCrossed), kCrossed);
  EXPECT_EQ(round(kCombineGradient, kOuter), kOuter);
  EXPECT_EQ(round(kDispatchGradient, kStraight), kOuter) << "of one backward pass of a layer";
}

TEST(RankRegion, ReuseAnswersADispatchAtOnceAndPatchesForItsCombine) {
  RegionBed bed(4, 1, "sim25", {.first_dispatch = FirstDispatch::reuse});
  bed.use_circuits();
  bed.report(0, 0, kDispatch, kCrossed);
  bed.wait(kLatency + kLatency);
  EXPECT_THAT(bed.answer().circuits, IsEmpty());
  EXPECT_EQ(bed.driver().patches(), 0u);
  bed.report(0, 0, kCombine, kCrossed);
  bed.wait(kLatency + kDark);
  EXPECT_TRUE(bed.silent());
  bed.wait(kLatency);
  EXPECT_EQ(joined(bed.answer()), kCrossed);
  bed.report(1, 0, kDispatch, kStraight);
  bed.wait(kLatency + kLatency);
  EXPECT_EQ(joined(bed.answer()), kCrossed) << "those there are";
}

// Patched when an iteration begins, for the sum of what the one before dispatched.
TEST(RankRegion, PatchesByIterationForAllLayersOfTheOneBefore) {
  RegionBed bed(4, 1, "sim25", {.repatch = Repatch::iteration});
  bed.use_circuits();
  const auto dispatch = [&](std::uint32_t iteration, std::uint16_t layer, const Hot& hot) {
    bed.report(layer, iteration, kDispatch, hot);
    bed.wait(milliseconds(30));
    const Hot found = joined(bed.answer());
    bed.report(layer, iteration, kCombine, kOuter);  // not a second time in the sum
    bed.wait(milliseconds(30));
    (void)bed.answer();
    return found;
  };
  EXPECT_THAT(dispatch(0, 0, kCrossed), IsEmpty());
  EXPECT_THAT(dispatch(0, 1, kCrossed), IsEmpty());
  EXPECT_THAT(dispatch(0, 2, kStraight), IsEmpty());
  EXPECT_EQ(dispatch(1, 0, kStraight), kCrossed);
  EXPECT_EQ(dispatch(1, 1, kStraight), kCrossed);
  EXPECT_EQ(bed.driver().patches(), 1u);
  EXPECT_EQ(dispatch(2, 0, kCrossed), kStraight);
  const std::vector<RankRegion::Round>& rounds = bed.region->rounds();
  EXPECT_EQ(rounds[6].answered - rounds[6].asked, kDark) << "the first dispatch of iteration 1";
  EXPECT_EQ(rounds[8].answered - rounds[8].asked, Picoseconds{});
}

TEST(RankRegion, PatchesOnceAfterTheFirstIteration) {
  RegionBed bed(4, 1, "sim25", {.repatch = Repatch::once});
  bed.use_circuits();
  const Hot* const hot[] = {&kCrossed, &kStraight, &kOuter, &kStraight};
  for (std::uint32_t iteration = 0; iteration < 4; ++iteration) {
    bed.report(0, iteration, kDispatch, *hot[iteration]);
    bed.wait(milliseconds(30));
    EXPECT_EQ(joined(bed.answer()), iteration == 0 ? Hot{} : kCrossed) << iteration;
  }
  EXPECT_EQ(bed.driver().patches(), 1u);
}

TEST(RankRegion, NeverPatchesAskForNothing) {
  RegionBed bed(4, 1, "sim25", {.repatch = Repatch::never});
  bed.use_circuits();
  for (std::uint32_t iteration = 0; iteration < 3; ++iteration) {
    bed.report(0, iteration, kDispatch, kCrossed);
    bed.wait(kLatency + kLatency);
    EXPECT_THAT(bed.answer().circuits, IsEmpty());
  }
  EXPECT_EQ(bed.driver().patches(), 0u);
  EXPECT_THAT(bed.driver().events(), IsEmpty());
}

TEST(RankRegion, KeepsItsFirstRoundsAndCountsTheOthers) {
  RegionBed bed(2, 0, "ideal", {}, 1);
  constexpr std::size_t kKept = 1 << 18;
  DemandReport rows[] = {bed.row(0, 0), bed.row(1, 0)};
  for (std::uint32_t iteration = 0; iteration < kKept + 3; ++iteration) {
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      rows[rank].iteration = iteration;
      ASSERT_TRUE(bed.region->report(rank, iteration, rows[rank].serialize(), bed.network.now()));
    }
    bed.wait(microseconds(20));
  }
  EXPECT_EQ(bed.region->rounds().size(), kKept);
  EXPECT_EQ(bed.region->rounds().back().key.iteration, kKept - 1);
  EXPECT_EQ(bed.region->rounds_left_out(), 3u);
}

TEST(RankRegion, RefusesRanksThatAreNotAsManyAsTheirServers) {
  Network network(1);
  EXPECT_THROW(RankRegion(network, {}, {}), std::invalid_argument);
  RankHand hand(network, network.add_host(1), 0, 2);
  EXPECT_THROW(RankRegion(network, {.server_of = {0, 1}}, {&hand.bridge}), std::invalid_argument);
  RegionBed bed(4, 1, "sim25");
  std::vector<NicPort> nics(2);
  EXPECT_THROW(bed.region->use_circuits(bed.panel, {.servers = 2, .alpha = 1}, nics, {}, {}), std::invalid_argument)
      << "of four servers";
}

// Two servers that are hot send each other 8 kB, 2 bytes a token: 80 ms by wires and 8 ms by a circuit.
constexpr RankRegionOptions kWorthwhile{.repatch = Repatch::worthwhile,
                                        .weighing = {circuits::Split::all_or_nothing, {8e6, 0.8e6}}};

TEST(RankRegion, PatchesWhereThatSavesMoreThanTheDarkTime) {
  RegionBed bed(4, 1, "sim25", kWorthwhile);
  bed.use_circuits({.rule = circuits::Rule::share});
  bed.report(0, 0, kDispatch, kStraight);
  bed.wait(kLatency + kDark + kLatency);
  EXPECT_EQ(joined(bed.answer()), kStraight);
  // The combine takes the same circuits, and so does the next layer's demand, which is the same.
  for (const auto& [layer, phase] : {std::pair{0, kCombine}, {1, kDispatch}}) {
    bed.report(static_cast<std::uint16_t>(layer), 0, phase, kStraight);
    bed.wait(kLatency + kLatency);
    EXPECT_EQ(joined(bed.answer()), kStraight);
  }
  bed.report(2, 0, kDispatch, kCrossed);
  bed.wait(kLatency + kDark + kLatency);
  EXPECT_EQ(joined(bed.answer()), kCrossed);
  EXPECT_EQ(bed.driver().patches(), 2u);
}

TEST(RankRegion, AnswersAtOnceWhereNoneAreWorthwhile) {
  RegionBed bed(4, 1, "telescent", kWorthwhile);
  bed.use_circuits({.rule = circuits::Rule::share});
  for (std::uint16_t layer = 0; layer < 4; ++layer) {
    bed.report(layer, 0, kDispatch, layer % 2 ? kCrossed : kStraight);
    bed.wait(kLatency + kLatency);
    EXPECT_THAT(bed.answer().circuits, IsEmpty());
  }
  EXPECT_EQ(bed.driver().patches(), 0u);
}

// What decides are bytes, rates and dark times: not when the ranks report, so that a replay decides the same.
TEST(RankRegion, DecidesTheSameWhenRanksAreLater) {
  std::vector<Hot> found[2];
  for (const int late : {0, 1}) {
    RegionBed bed(4, 1, "sim25", kWorthwhile);
    bed.use_circuits({.rule = circuits::Rule::share});
    for (std::uint16_t layer = 0; layer < 12; ++layer) {
      const Hot& hot = layer % 4 == 0 ? kStraight : layer % 4 == 3 ? kOuter : kCrossed;
      for (const std::uint8_t phase : {kDispatch, kCombine}) {
        bed.wait(milliseconds(late * (7 + layer)));
        bed.report(layer, 0, phase, hot);
        bed.wait(kLatency + kDark + kLatency);
        found[late].push_back(joined(bed.answer()));
      }
    }
    EXPECT_GT(bed.driver().patches(), 3u);
  }
  EXPECT_EQ(found[0], found[1]);
}

}  // namespace
}  // namespace loomnet::moe
