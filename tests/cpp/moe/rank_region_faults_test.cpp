// Ranks that break the contract of reports, ranks that are gone, and a controller that ends while ranks wait for it.
#include "moe/rank_region.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "region_bed.hpp"

namespace loomnet::moe {
namespace {

using circuits::DemandReport;
using testing::Hot;
using ::testing::IsEmpty;
using testing::joined;
using testing::RankHand;
using testing::RegionBed;

constexpr Picoseconds kLatency = microseconds(10);
// From a demand to light: circuits are empty after the crossing, and profile sim25 is dark for 25 ms.
constexpr Picoseconds kDark = RegionBed::kCrossing + milliseconds(25);
const Hot kStraight{{0, 1}, {2, 3}}, kCrossed{{0, 2}, {1, 3}};

// What a rank changes in a good report, after rank 0 has sent a good one of layer 4, iteration 2.
struct Lie {
  const char* name;
  std::function<void(DemandReport&)> tell;
};
void PrintTo(const Lie& lie, std::ostream* os) { *os << lie.name; }

class Lies : public ::testing::TestWithParam<Lie> {};

TEST_P(Lies, CutOffTheirRankAndNoOther) {
  RegionBed bed(2, 0, "ideal");
  bed.hands[0]->send(bed.row(0, 4, 2));
  DemandReport report = bed.row(1, 4, 2);
  GetParam().tell(report);
  bed.hands[1]->send(report);
  EXPECT_EQ(bed.hands[1]->bridge.fault(), RankFault::bad_mark);
  bed.hands[1]->send(bed.row(1, 4, 2));  // too late
  for (const std::uint32_t rank : {2u, 3u}) bed.hands[rank]->send(bed.row(rank, 4, 2));
  bed.wait(seconds(1));
  for (const std::uint32_t rank : {0u, 2u, 3u}) EXPECT_FALSE(bed.hands[rank]->cut_off()) << rank;
  EXPECT_TRUE(bed.silent()) << "the region waits for its fourth rank";
  EXPECT_THAT(bed.region->rounds(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(RankRegion, Lies,
                         ::testing::Values(Lie{"another layer", [](DemandReport& r) { r.layer = 5; }},
                                           Lie{"a step to come", [](DemandReport& r) { r.iteration = 3; }},
                                           Lie{"a step that is over", [](DemandReport& r) { r.iteration = 1; }},
                                           Lie{"another micro-batch", [](DemandReport& r) { r.micro_batch = 1; }},
                                           Lie{"another phase", [](DemandReport& r) { r.phase = 1; }},
                                           Lie{"a phase that is none", [](DemandReport& r) { r.phase = 4; }},
                                           Lie{"another region", [](DemandReport& r) { r.region = 0; }},
                                           Lie{"another rank", [](DemandReport& r) { r.source = 0; }},
                                           Lie{"a rank that is none", [](DemandReport& r) { r.source = 4; }},
                                           Lie{"a count too few", [](DemandReport& r) { r.tokens.pop_back(); }},
                                           Lie{"a count too many", [](DemandReport& r) { r.tokens.push_back(1); }},
                                           Lie{"as many counts as a report may have",
                                               [](DemandReport& r) { r.tokens.resize(1018); }},
                                           Lie{"no counts", [](DemandReport& r) { r.tokens.clear(); }}));

TEST(RankRegionFaults, AReportTwiceInOneRoundCutsItsRankOff) {
  RegionBed bed(2, 0, "ideal");
  bed.hands[0]->send(bed.row(0, 0));
  bed.hands[0]->send(bed.row(0, 0));
  EXPECT_EQ(bed.hands[0]->bridge.fault(), RankFault::bad_mark);
  for (std::uint32_t rank = 1; rank < 4; ++rank) bed.hands[rank]->send(bed.row(rank, 0));
  // The first report stands, so the others have their answer.
  bed.wait(kLatency + kLatency);
  for (std::uint32_t rank = 1; rank < 4; ++rank) EXPECT_EQ(bed.hands[rank]->answers().size(), 1u) << rank;
  EXPECT_EQ(bed.region->rounds().size(), 1u);
}

TEST(RankRegionFaults, ANextReportBeforeTheAnswerCutsItsRankOff) {
  RegionBed bed(4, 1, "sim25");
  bed.use_circuits();
  bed.report(0, 0, 0, kCrossed);
  bed.wait(milliseconds(10));  // circuits are dark
  bed.hands[5]->send(bed.row(5, 1));
  EXPECT_EQ(bed.hands[5]->bridge.fault(), RankFault::bad_mark);
  bed.wait(milliseconds(20));
  for (std::uint32_t rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(bed.hands[rank]->answers().size(), rank == 5 ? 0u : 1u) << rank;
  }
}

// Parts of a report are marks, which a rank may write in any order.
TEST(RankRegionFaults, PartsOutOfOrderCutTheirRankOff) {
  const std::vector<std::uint8_t> bytes(40);
  using Parts = std::vector<std::pair<std::uint32_t, std::uint32_t>>;  // offset, bytes of the whole
  for (const Parts& parts : {Parts{{16, 40}}, Parts{{0, 40}, {32, 40}}, Parts{{0, 40}, {16, 40}, {16, 40}},
                             Parts{{0, 40}, {8, 40}}, Parts{{0, 0}}, Parts{{0, 4097}}, Parts{{0, 65535}},
                             Parts{{0, 40}, {16, 16}}, Parts{{0, 40}, {16, 40}, {32, 40}},  // whole: zeros
                             Parts{{65535, 65535}}}) {
    RegionBed bed(2, 0, "ideal");
    for (const auto& [at, whole] : parts) bed.hands[1]->part(rank::report_part(1, at, whole), bytes);
    EXPECT_EQ(bed.hands[1]->bridge.fault(), RankFault::bad_mark) << ::testing::PrintToString(parts);
    bed.wait(seconds(1));
    EXPECT_THAT(bed.region->rounds(), IsEmpty());
  }
}

// A client of its own for reports of another kind.
struct Other final : RankReports {
  bool report(std::uint32_t rank, std::uint32_t, std::span<const std::uint8_t> bytes, Picoseconds) override {
    heard.emplace_back(rank, bytes.size());
    return true;
  }
  std::vector<std::pair<std::uint32_t, std::size_t>> heard;
};

TEST(RankRegionFaults, ReportsOfAnotherKindGoToTheirOwnClient) {
  RegionBed bed(2, 0, "ideal");
  Other other;
  RankBridge& bridge = bed.hands[1]->bridge;
  EXPECT_THROW(bridge.use_reports(DemandReport::kMagic, &other), std::logic_error);
  bridge.use_reports(0x04030201, &other);
  const std::vector<std::uint8_t> bytes = {1, 2, 3, 4, 5};
  bed.hands[1]->part(rank::report_part(1, 0, 5), bytes);
  EXPECT_EQ(other.heard, (decltype(other.heard){{1, 5}}));
  for (std::uint32_t rank = 0; rank < 4; ++rank) bed.hands[rank]->send(bed.row(rank, 0));
  bed.wait(kLatency + kLatency);
  EXPECT_EQ(bed.region->rounds().size(), 1u) << "the region has its own as before";
  bridge.use_reports(0x04030201, nullptr);
  bed.hands[1]->part(rank::report_part(2, 0, 5), bytes);
  EXPECT_EQ(bridge.fault(), RankFault::bad_mark) << "nobody takes this kind";
}

TEST(RankRegionFaults, AReportThatIsBegunAnewIsTheSecond) {
  RegionBed bed(2, 0, "ideal");
  const std::vector<std::uint8_t> zeros(16);
  bed.hands[0]->part(rank::report_part(9, 0, 40), zeros);
  bed.report(0);
  bed.wait(kLatency + kLatency);
  EXPECT_EQ(bed.answer().layer, 0);
  EXPECT_FALSE(bed.hands[0]->cut_off());
}

TEST(RankRegionFaults, ReportsOfStrangersAreRefused) {
  RegionBed bed(2, 0, "ideal");
  EXPECT_FALSE(bed.region->report(4, 1, bed.row(0, 0).serialize(), {}));
  EXPECT_FALSE(bed.region->report(UINT32_MAX, 1, bed.row(0, 0).serialize(), {}));
  EXPECT_FALSE(bed.region->report(0, 1, {}, {}));
  EXPECT_TRUE(bed.region->report(0, 1, bed.row(0, 0).serialize(), {}));
}

// Ranks of a region are numbered from 0 in it, whatever their numbers in the job are.
TEST(RankRegionFaults, ARankOfAnotherRegionIsAStranger) {
  Network network(1);
  std::vector<std::unique_ptr<RankHand>> hands;
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    hands.push_back(std::make_unique<RankHand>(network, network.add_host(1), rank, 4));
  }
  RankRegion first(network, {.region = 0, .server_of = {0, 1}}, {&hands[0]->bridge, &hands[1]->bridge});
  RankRegion second(network, {.region = 1, .server_of = {0, 1}}, {&hands[2]->bridge, &hands[3]->bridge});
  DemandReport report{.region = 1, .source = 0, .token_bytes = 2, .tokens = {1, 1}};
  hands[2]->send(report);
  report.source = 1;
  hands[3]->send(report);
  report.source = 0;
  hands[0]->send(report);  // to the first region, which is not the report's
  network.run_until(milliseconds(1));
  EXPECT_FALSE(hands[2]->cut_off() || hands[3]->cut_off());
  EXPECT_EQ(hands[3]->answers().size(), 1u);
  EXPECT_TRUE(hands[0]->cut_off());
  EXPECT_EQ(second.rounds().size(), 1u);
  EXPECT_THAT(first.rounds(), IsEmpty());
}

TEST(RankRegionFaults, TheLargestCountsDoNotOverflow) {
  RegionBed bed(4, 1, "sim25");
  bed.use_circuits();
  for (std::uint32_t rank = 0; rank < 8; ++rank) {
    DemandReport row = bed.row(rank, 0xffff, UINT32_MAX, 0, kCrossed);
    row.micro_batch = 0xffff;
    row.token_bytes = UINT32_MAX;
    for (std::uint32_t& tokens : row.tokens) tokens = tokens == 1000 ? UINT32_MAX : UINT32_MAX - 1;
    bed.hands[rank]->send(row);
  }
  bed.wait(milliseconds(30));
  EXPECT_EQ(joined(bed.answer()), kCrossed);
}

// A rank that is cut off for something else has its report open: the others go on with it, and then wait.
TEST(RankRegionFaults, ARankThatIsCutOffWhileItWaitsHasNoAnswer) {
  RegionBed bed(2, 0, "ideal");
  bed.report(0);
  bed.hands[2]->bridge.cut_off(RankFault::flooded, bed.network.now());
  bed.wait(kLatency + kLatency);
  for (std::uint32_t rank = 0; rank < 4; ++rank) EXPECT_EQ(bed.hands[rank]->answers().size(), rank != 2) << rank;
  bed.report(1);
  bed.wait(seconds(1));
  EXPECT_TRUE(bed.silent());
  EXPECT_EQ(bed.region->rounds().size(), 1u);
}

TEST(RankRegionFaults, AfterTheRegionReportsAreIgnored) {
  RegionBed bed(2, 0, "ideal");
  bed.hands[0]->send(bed.row(0, 0));
  bed.region.reset();
  for (int i = 0; i < 3; ++i) bed.hands[0]->send(bed.row(0, 0));
  bed.hands[1]->send(std::vector<std::uint8_t>(100, 0xff));
  bed.wait(milliseconds(1));
  EXPECT_FALSE(bed.hands[0]->cut_off() || bed.hands[1]->cut_off());
  EXPECT_TRUE(bed.silent());
}

// --- the controller ends and starts again ---

TEST(RankRegionFaults, AControllerThatEndsWhileItsCircuitsAreDarkAnswersWithoutAny) {
  RegionBed bed(4, 1, "sim25");
  bed.use_circuits();
  bed.report(0, 0, 0, kCrossed);
  bed.wait(milliseconds(10));
  bed.driver().stop(bed.network.now());
  bed.wait(kLatency);
  EXPECT_THAT(bed.answer().circuits, IsEmpty());
  // Without a controller nothing is waited for.
  bed.report(1, 0, 0, kStraight);
  bed.wait(kLatency + kLatency);
  EXPECT_THAT(bed.answer().circuits, IsEmpty());
  EXPECT_EQ(bed.driver().patches(), 1u);
}

TEST(RankRegionFaults, AControllerThatStartsAgainHearsTheLastDemandWhichItHadNot) {
  RegionBed bed(4, 1, "sim25");
  bed.use_circuits();
  bed.report(0, 0, 0, kCrossed);
  bed.wait(milliseconds(30));
  EXPECT_EQ(joined(bed.answer()), kCrossed);
  bed.driver().stop(bed.network.now());
  bed.report(1, 0, 0, kStraight);
  bed.wait(kLatency + kLatency);
  EXPECT_THAT(bed.answer().circuits, IsEmpty());
  bed.driver().restart(bed.network.now());
  bed.report(1, 0, 1, kStraight);  // the combine of the layer that the new controller patches for
  bed.wait(kDark - microseconds(1));
  EXPECT_TRUE(bed.silent());
  bed.wait(microseconds(1) + kLatency);
  EXPECT_EQ(joined(bed.answer()), kStraight);
  EXPECT_EQ(bed.driver().patches(), 2u);
}

TEST(RankRegionFaults, AControllerThatStartsAgainInTheDarkWaitsForTheLightAndSendsNothing) {
  RegionBed bed(4, 1, "sim25");
  bed.use_circuits();
  bed.report(0, 0, 0, kCrossed);
  bed.wait(milliseconds(10));
  bed.driver().stop(bed.network.now());
  bed.driver().restart(bed.network.now());
  bed.wait(kLatency);
  EXPECT_THAT(bed.answer().circuits, IsEmpty());
  bed.report(0, 0, 1, kCrossed);
  bed.wait(kLatency + kLatency);
  EXPECT_THAT(bed.answer().circuits, IsEmpty()) << "there is no controller before the light is back";
  bed.wait(milliseconds(15));
  EXPECT_EQ(bed.driver().patches(), 1u);
  bed.report(0, 0, 1, kCrossed);
  bed.wait(kLatency + kLatency);
  EXPECT_EQ(joined(bed.answer()), kCrossed);
  EXPECT_EQ(bed.driver().patches(), 1u) << "the panel has the circuits of the last demand already";
}

TEST(RankRegionFaults, StoppingAndStartingTwiceIsAsOnce) {
  RegionBed bed(4, 1, "sim25");
  bed.use_circuits();
  RegionDriver& driver = bed.driver();
  driver.stop({});
  driver.stop({});
  EXPECT_TRUE(driver.live());
  bed.report(0, 0, 0, kCrossed);
  bed.wait(kLatency + kLatency);
  EXPECT_THAT(bed.answer().circuits, IsEmpty());
  driver.restart(bed.network.now());
  driver.restart(bed.network.now());
  bed.wait(milliseconds(30));
  bed.report(0, 0, 1, kCrossed);
  bed.wait(kLatency + kLatency);
  EXPECT_EQ(joined(bed.answer()), kCrossed);
  EXPECT_EQ(driver.patches(), 1u);
}

}  // namespace
}  // namespace loomnet::moe
