// Mixtures of experts on a region: exchanges take the time of their bytes, circuits are patched and lose nothing,
// and whatever fails, the job goes on.
#include "moe/moe_traffic.hpp"

#include <gtest/gtest.h>

#include <array>

#include "moe_bed.hpp"

namespace loomnet::moe {
namespace {

using testing::MoeBed;
using Kind = RegionWork::Span::Kind;

// Of MixNet's public simulator: tokens of eight ranks for eight experts.
constexpr std::array<std::uint32_t, 64> kPublished{
    9810,  5338, 1231, 3042, 4452, 2004, 841, 6050, 9278,  6282, 839,  3722, 3821, 2903, 909,  5014,
    10684, 5165, 1044, 2634, 4344, 3333, 675, 4889, 10897, 5629, 1086, 2114, 2762, 3463, 1059, 5758,
    8684,  5666, 1046, 3955, 4334, 2952, 944, 5187, 8361,  5908, 777,  3043, 3984, 3422, 897,  6376,
    10208, 5507, 1117, 4148, 3967, 3119, 904, 3798, 9781,  5211, 902,  3343, 4289, 2839, 1008, 5395};

constexpr std::uint64_t kPerRank = 32768 * 1000;  // so a token's part on a GPU is 1,000 bytes

MoeConfig config(std::uint32_t tensor = 8, std::uint32_t layers = 1) {
  MoeConfig c;
  c.shape = {.experts = 8, .tensor = tensor, .layers = {layers}};
  c.gates = {.experts = 8, .counts = {kPublished.begin(), kPublished.end()}};
  c.work.per_rank = kPerRank;
  c.work.attention = microseconds(10);
  c.work.experts = microseconds(10);
  return c;
}

panel::DeviceOptions profile(const char* name, panel::Carrier carrier = panel::Carrier::none) {
  return {.profile = panel::profile(name), .carrier = carrier};
}

// In tokens for a rate of one token a unit of time, as the exchange took.
double in_tokens(double seconds, std::uint32_t tensor) { return seconds * testing::kNic * 1e9 / 8 / (1000.0 * tensor); }

struct Row {
  std::uint32_t tensor, alpha;
  Split split;
  double tokens;
};

class FluidTimes : public ::testing::TestWithParam<Row> {};

TEST_P(FluidTimes, AnExchangeTakesTheTimeOfItsSlowestWay) {
  const Row& row = GetParam();
  MoeBed bed(row.tensor, row.alpha, profile("ideal"));
  MoeConfig c = config(row.tensor);
  c.exchange.split = row.split;
  c.work.duplex = circuits::Duplex::sum;  // as the publication assigns them
  bed.train(std::move(c), true);
  bed.run();
  ASSERT_TRUE(bed.traffic->done() && bed.traffic->failures().empty());
  EXPECT_NEAR(in_tokens(bed.exchange_s(), row.tensor), row.tokens, row.tokens * 1e-3);
}

// Of alpha NICs at the panel and all others in one electrical port; alpha 0 is the fat tree.
INSTANTIATE_TEST_SUITE_P(
    Moe, FluidTimes,
    ::testing::Values(Row{8, 0, Split::all_or_nothing, 8486.625}, Row{8, 1, Split::all_or_nothing, 9781},
                      Row{8, 2, Split::all_or_nothing, 9781}, Row{8, 3, Split::all_or_nothing, 10897},
                      Row{8, 4, Split::all_or_nothing, 10897}, Row{8, 6, Split::all_or_nothing, 10897},
                      Row{8, 1, Split::weighted, 8486.625}, Row{8, 3, Split::weighted, 8486.625},
                      Row{8, 6, Split::weighted, 8486.625}, Row{4, 0, Split::all_or_nothing, 11462.625},
                      Row{4, 1, Split::all_or_nothing, 30707}, Row{4, 3, Split::all_or_nothing, 32375},
                      Row{4, 6, Split::all_or_nothing, 16187.5}, Row{4, 6, Split::weighted, 11462.625}));

TEST(Moe, CombineSendsBackWhatWasDispatched) {
  MoeBed bed(8, 0, profile("ideal"));
  bed.train(config());
  bed.run();
  // The fat tree's time is that of the hottest server, which receives in a dispatch and sends in a combine.
  EXPECT_NEAR(bed.exchange_s(Kind::combine), bed.exchange_s(Kind::dispatch), 1e-9);
  MoeBed lit(8, 1, profile("ideal"));
  lit.train(config());
  lit.run();
  // By one circuit: 0-7 carries 6,050 and 9,781 tokens, so both ways take the larger's time.
  EXPECT_NEAR(lit.exchange_s(Kind::combine), lit.exchange_s(Kind::dispatch), 1e-9);
}

TEST(Moe, TheFirstPatchIsWaitedForAndOneMatrixNeedsNoOther) {
  MoeBed bed(8, 6, profile("sim25"));
  bed.train(config(8, 3));
  bed.run();
  ASSERT_EQ(bed.traffic->iterations().size(), 1u);
  EXPECT_EQ(bed.traffic->iterations()[0].mean.waiting, milliseconds(25));
  EXPECT_EQ(bed.traffic->region(0).driver()->patches(), 1u);
  EXPECT_EQ(bed.network.panel(bed.panel)->device().cross_connects().size(), 48u);
}

TEST(Moe, DarkeningAllIsWaitedForInEveryLayerForwardAndHidesBehindComputeBackward) {
  MoeBed bed(8, 6, profile("sim25"));
  MoeConfig c = config(8, 3);
  c.work.attention = c.work.experts = milliseconds(20);
  bed.train(std::move(c), false, {.all_dark = true});
  bed.run();
  ASSERT_EQ(bed.traffic->iterations().size(), 1u);
  // Three forward; backward the last layer's circuits are there, the others' are patched while attention takes 40 ms.
  EXPECT_EQ(bed.traffic->iterations()[0].mean.waiting, milliseconds(3 * 25));
  EXPECT_EQ(bed.traffic->iterations()[0].exposed, milliseconds(3 * 25));
  EXPECT_EQ(bed.traffic->region(0).driver()->patches(), 5u);
}

TEST(Moe, ReuseWaitsForNothingForwardButTheRestOfADarkTime) {
  MoeBed bed(8, 6, profile("sim25"));
  MoeConfig c = config(8, 3);
  c.work.attention = c.work.experts = milliseconds(20);
  c.work.first_dispatch = FirstDispatch::reuse;
  bed.train(std::move(c), false, {.all_dark = true});
  bed.run();
  ASSERT_EQ(bed.traffic->iterations().size(), 1u);
  // Of each 25 ms 20 pass while the experts compute; backward nothing is waited for.
  EXPECT_NEAR(bed.traffic->iterations()[0].mean.waiting.seconds(), 1e-3 * 3 * 5, 1e-8);
}

TEST(Moe, ElectricalFirstWaitsForNothing) {
  MoeBed bed(8, 6, profile("sim25"));
  MoeConfig c = config(8, 2);
  c.work.electrical_first = c.exchange.electrical_first = true;
  c.message = 1 << 20;
  bed.train(std::move(c), false, {.all_dark = true});
  bed.run();
  ASSERT_EQ(bed.traffic->iterations().size(), 1u);
  EXPECT_EQ(bed.traffic->iterations()[0].mean.waiting.count, 0);
  EXPECT_FALSE(bed.traffic->region(0).exchange().held());
}

// Gate counts that differ from iteration to iteration and layer to layer.
GateCounts changing(std::uint32_t iterations, std::uint32_t layers) {
  GateCounts gates{.iterations = iterations, .layers = layers, .experts = 8};
  RandomStream random(11, 0, 0);
  for (std::uint32_t row = 0; row < iterations * layers * 8; ++row) {
    std::uint32_t left = 32768;
    for (int d = 0; d < 7; ++d) {
      const std::uint32_t part = random.below(left / 2 + 1);
      gates.counts.push_back(part);
      left -= part;
    }
    gates.counts.push_back(left);
  }
  return gates;
}

TEST(Moe, PacketsLoseNothingToTheDarkAndNothingIsHeldAtTheEnd) {
  for (const auto first : {FirstDispatch::block, FirstDispatch::reuse, FirstDispatch::random, FirstDispatch::copilot}) {
    MoeBed bed(8, 3, profile("infocus128", panel::Carrier::both), true);
    MoeConfig c = config(8, 2);
    c.gates = changing(10, 2);
    c.iterations = 10;
    c.work.per_rank = 32768 * 4;
    c.work.first_dispatch = first;
    bed.train(std::move(c));
    bed.run();
    ASSERT_TRUE(bed.traffic->done() && bed.traffic->failures().empty());
    EXPECT_EQ(bed.traffic->iterations().size(), 10u);
    EXPECT_FALSE(bed.traffic->region(0).exchange().held());
    EXPECT_EQ(bed.network.lost_in_panels(), 0u);
    EXPECT_GE(bed.traffic->region(0).driver()->maps(), 10u);
    EXPECT_GT(bed.traffic->region(0).exchange().optical_bytes(), 0u);
  }
}

TEST(Moe, WithoutADrainPacketsAreLostAndSentAgain) {
  // Electrical first, so that circuits change under what they carry.
  for (const auto limit : {Picoseconds{}, milliseconds(10)}) {
    MoeBed bed(8, 3, profile("infocus128"), true);
    MoeConfig c = config(8, 1);
    c.gates = changing(4, 1);
    c.iterations = 4;
    c.work.per_rank = 32768 * 64;
    c.work.electrical_first = c.exchange.electrical_first = true;
    bed.train(std::move(c), false, {.drain_limit = limit});
    // Another client of the controller asks for other circuits while an exchange is under way.
    std::vector<std::uint64_t> other(64, 1);
    for (int i = 0; i < 8; ++i) other[i * 9] = 0;
    for (std::uint32_t n = 1; !bed.traffic->done() && n < 1000; ++n) {
      bed.network.run_until(bed.network.now() + microseconds(150));
      other[1] = other[8] = 1000 * (n % 3);
      other[10] = other[17] = 1000 * (n % 2);
      bed.traffic->region(0).driver()->demand({1000 + n, 0, 0, false}, other, bed.network.now(), n % 2 == 0);
    }
    bed.run();
    ASSERT_TRUE(bed.traffic->done());
    EXPECT_TRUE(bed.traffic->failures().empty()) << bed.traffic->failures()[0].message;
    if (limit.count == 0) {
      EXPECT_GT(bed.network.lost_in_panels(), 0u);
    } else {
      EXPECT_EQ(bed.network.lost_in_panels(), 0u);
    }
  }
}

TEST(Moe, AControllerThatEndsWhereverItIsLeavesTheJobToTheWires) {
  for (const auto at : {microseconds(5), microseconds(20), milliseconds(12), milliseconds(40)}) {
    for (const bool again : {false, true}) {
      MoeBed bed(8, 6, profile("sim25"));
      MoeConfig c = config(8, 2);
      c.gates = changing(4, 2);
      c.iterations = 4;
      bed.train(std::move(c));
      bed.network.run_until(at);
      RegionDriver& driver = *bed.traffic->region(0).driver();
      driver.stop(bed.network.now());
      if (again) {
        bed.network.run_until(at + milliseconds(3));
        driver.restart(bed.network.now());
      }
      bed.run();
      ASSERT_TRUE(bed.traffic->done()) << at.count << " " << again << " " << bed.traffic->iterations().size()
                                       << " open " << bed.traffic->region(0).exchange().open() << " held "
                                       << bed.traffic->region(0).exchange().held() << " fails "
                                       << bed.traffic->failures().size();
      EXPECT_EQ(bed.traffic->iterations().size(), 4u);
      EXPECT_FALSE(bed.traffic->region(0).exchange().held());
      EXPECT_EQ(driver.patches() > 1, again);
    }
  }
}

TEST(Moe, LinksThatFailAreLeftOutAndALostPanelLeavesTheWires) {
  MoeBed bed(8, 3, profile("sim25"));
  MoeConfig c = config(8, 1);
  c.iterations = 3;
  bed.train(std::move(c));
  while (bed.traffic->iterations().empty()) bed.network.run_until(seconds(10));
  const auto link_of = [&](NodeId host, std::uint16_t port) { return bed.network.egress_half(host, port) / 2; };
  for (const bool forward : {true, false}) {
    LinkChange down{.link = link_of(0, 1)};
    (forward ? down.forward : down.backward) = true;
    down.up = false;
    bed.network.apply(down);
  }
  while (bed.traffic->iterations().size() < 2) bed.network.run_until(seconds(10));
  EXPECT_EQ(bed.traffic->region(0).driver()->ports().peer[0], circuits::kNoPeer);
  const std::uint64_t by_light = bed.traffic->region(0).exchange().optical_bytes();
  for (NodeId host = 0; host < 8; ++host) {
    for (std::uint16_t port = 1; port <= 3; ++port) {
      LinkChange down{.link = link_of(host, port), .forward = true, .backward = true};
      down.up = false;
      bed.network.apply(down);
    }
  }
  bed.run();
  ASSERT_TRUE(bed.traffic->done());
  EXPECT_EQ(bed.traffic->iterations().size(), 3u);
  EXPECT_EQ(bed.traffic->region(0).exchange().optical_bytes(), by_light);
}

TEST(Moe, TheSameSeedGivesTheSameEvents) {
  std::vector<CircuitsEvent> first;
  for (int run = 0; run < 2; ++run) {
    MoeBed bed(8, 4, profile("polatis"));
    MoeConfig c = config(8, 3);
    c.gates = changing(3, 3);
    c.iterations = 3;
    bed.train(std::move(c));
    bed.run();
    const auto& events = bed.traffic->region(0).driver()->events();
    ASSERT_GT(events.size(), 20u);
    if (run == 0) {
      first = events;
      continue;
    }
    ASSERT_EQ(events.size(), first.size());
    for (std::size_t i = 0; i < events.size(); ++i) {
      EXPECT_EQ(events[i].event, first[i].event);
      EXPECT_EQ(events[i].generation, first[i].generation);
    }
  }
}

TEST(Moe, RefusesShapesAndCountsThatDoNotFit) {
  Network network(1);
  for (int i = 0; i < 8; ++i) network.add_host(1);
  const auto refused = [&](auto change) {
    MoeConfig c = config();
    change(c);
    EXPECT_THROW(MoeTraffic(network, std::move(c)), std::invalid_argument);
  };
  refused([](MoeConfig& c) { c.shape.experts = 5, c.shape.tensor = 1; });
  refused([](MoeConfig& c) { c.shape.layers = {1, 1}; });
  refused([](MoeConfig& c) { c.shape.layers = {0}; });
  refused([](MoeConfig& c) { c.gates.counts.pop_back(); });
  refused([](MoeConfig& c) { c.gates.experts = 0; });
  refused([](MoeConfig& c) { c.iterations = 0; });
  refused([](MoeConfig& c) { c.stop = c.start; });
  refused([](MoeConfig& c) { c.depth = 0; });
  refused([](MoeConfig& c) { c.work.experts = {-1}; });
}

}  // namespace
}  // namespace loomnet::moe
