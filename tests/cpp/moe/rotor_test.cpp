// Rotating circuits: their matchings, the time of an exchange in flows and packets, and NICs that are down.
#include "moe/rotor.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "moe_bed.hpp"

namespace loomnet::moe {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using testing::MoeBed;

TEST(RoundRobin, JoinsEveryTwoServersOnce) {
  for (std::uint32_t servers = 2; servers <= 17; ++servers) {
    const auto matchings = round_robin(servers);
    ASSERT_EQ(matchings.size(), servers % 2 ? servers : servers - 1);
    std::multiset<std::pair<std::uint32_t, std::uint32_t>> joined;
    for (const std::vector<std::uint32_t>& partner : matchings) {
      ASSERT_EQ(partner.size(), servers);
      std::uint32_t alone = 0;
      for (std::uint32_t s = 0; s < servers; ++s) {
        ASSERT_EQ(partner.at(partner[s]), s) << "of " << servers;
        alone += partner[s] == s;
        if (s < partner[s]) joined.emplace(s, partner[s]);
      }
      EXPECT_EQ(alone, servers % 2);
    }
    EXPECT_EQ(joined.size(), servers * (servers - 1) / 2);
    for (const auto& pair : joined) EXPECT_EQ(joined.count(pair), 1u);
  }
}

constexpr Picoseconds kSlot = microseconds(200), kGuard = microseconds(10);  // of profile rotor10us
constexpr std::uint64_t kSlotBytes = 2'000'000;                              // 160 us at the 100 Gb/s of a NIC
constexpr std::uint64_t kPairBytes = 2 * kSlotBytes;

// Servers that all exchange kPairBytes with each other, in the four all-to-alls of one layer.
struct Bed : MoeBed {
  std::vector<std::vector<std::int32_t>> maps;  // that watch() has seen

  Bed(std::uint32_t servers, std::uint32_t alpha, bool packets = false, RotorOptions options = {},
      Picoseconds attention = {})
      : MoeBed(servers, alpha, {.profile = panel::profile("rotor10us"), .carrier = panel::Carrier::none}, packets) {
    MoeConfig config;
    config.shape = {.experts = servers, .tensor = 8, .layers = {1}};
    config.gates = {.experts = servers, .counts = std::vector<std::uint32_t>(servers * servers, 1)};
    config.work.per_rank = kPairBytes * servers / 8;
    config.work.attention = attention;
    config.work.experts = milliseconds(1);
    if (options.slot.count == 0) options.slot = kSlot;
    if (options.slot_bytes == 0) options.slot_bytes = kSlotBytes;
    train(std::move(config), false, {}, options);
  }
  const Rotor& rotor() { return *traffic->region(0).rotor(); }
  const Exchange& exchange() { return traffic->region(0).exchange(); }
  std::vector<std::int32_t> map() const {
    std::vector<std::int32_t> found;
    for (std::uint32_t port = 0; port < servers * alpha; ++port) {
      found.push_back(network.panel(panel)->device().target({static_cast<panel::Port>(port), false}));
    }
    return found;
  }
  // To the end, with a look at the panel every 2 us.
  void watch() {
    while (!traffic->done() && network.now() < seconds(1)) {
      network.run_until(network.now() + microseconds(2));
      if (maps.empty() || map() != maps.back()) maps.push_back(map());
    }
  }
  void expect_all_by_light() {
    for (const auto& failure : traffic->failures())
      ADD_FAILURE() << failure.at.microseconds() << " us: " << failure.message;
    ASSERT_TRUE(traffic->done());
    EXPECT_FALSE(exchange().held());
    EXPECT_EQ(exchange().electrical_bytes(), 0u);
    EXPECT_EQ(exchange().optical_bytes(), 4 * servers * (servers - 1) * kPairBytes);
    EXPECT_EQ(network.lost_in_panels(), 0u);
  }
};

// A pair meets in every third turn and needs two: six turns, the last over when its bytes are there.
TEST(Rotor, AnExchangeTakesTheTurnsOfItsPairs) {
  Bed bed(4, 1);
  bed.run();
  bed.expect_all_by_light();
  EXPECT_NEAR(bed.exchange_s(), (kGuard * 6 + kSlot * 5 + microseconds(160)).seconds(), 1e-9);
  EXPECT_EQ(bed.rotor().turns(), 4 * 6u);
  EXPECT_EQ(bed.rotor().stretched(), Picoseconds{});
}

// With as many NICs as other servers all pairs meet in every turn.
TEST(Rotor, NicsRotateAMatchingApart) {
  Bed bed(4, 3);
  bed.run();
  bed.expect_all_by_light();
  EXPECT_NEAR(bed.exchange_s(), (kGuard * 2 + kSlot + microseconds(160)).seconds(), 1e-9);
  EXPECT_EQ(bed.rotor().turns(), 4 * 2u);
}

TEST(Rotor, EachTurnJoinsOneMatching) {
  Bed bed(4, 1);
  bed.watch();
  bed.expect_all_by_light();
  const auto matchings = round_robin(4);
  std::set<std::vector<std::int32_t>> seen;
  for (std::size_t at = bed.maps[0][0] < 0; at < bed.maps.size(); ++at) {
    const std::vector<std::uint32_t> partner(bed.maps[at].begin(), bed.maps[at].end());
    EXPECT_THAT(matchings, ::testing::Contains(partner));
    seen.insert(bed.maps[at]);
  }
  EXPECT_EQ(seen.size(), 3u);
}

// The rotation goes on while nothing is exchanged: an exchange begins with the turn of its time.
TEST(Rotor, AnExchangeBeginsWithTheTurnOfItsTime) {
  const auto matchings = round_robin(4);
  for (std::int64_t turn = 0; turn < 7; ++turn) {
    Bed bed(4, 1, false, {}, kSlot * turn + microseconds(1));
    bed.network.run_until(kSlot * turn + microseconds(100));
    const std::vector<std::int32_t> map = bed.map();
    EXPECT_EQ(std::vector<std::uint32_t>(map.begin(), map.end()), matchings[static_cast<std::size_t>(turn % 3)])
        << turn;
  }
}

TEST(Rotor, NothingIsPatchedWhileNothingIsExchanged) {
  Bed bed(4, 1);
  const Picoseconds exchange = kGuard * 6 + kSlot * 5 + microseconds(160);
  bed.network.run_until(exchange + microseconds(1));  // experts compute for 1 ms
  const std::uint64_t generation = bed.network.panel(bed.panel)->device().generation();
  EXPECT_EQ(bed.rotor().turns(), 6u);
  bed.network.run_until(exchange + microseconds(999));
  EXPECT_EQ(bed.network.panel(bed.panel)->device().generation(), generation);
  EXPECT_EQ(bed.rotor().turns(), 6u);
  bed.network.run_until(exchange + microseconds(1001));
  EXPECT_EQ(bed.rotor().turns(), 7u);
}

// Twice what a slot carries: a turn lasts until its bytes have arrived, 320 us of a pair's 4 MB.
TEST(Rotor, ATurnEndsWhenWhatItSentHasArrived) {
  Bed bed(4, 1, false, {.slot_bytes = 5'000'000});
  bed.run();
  bed.expect_all_by_light();
  EXPECT_NEAR(bed.exchange_s(), (kGuard * 3 + microseconds(320) * 3).seconds(), 1e-8);
  EXPECT_EQ(bed.rotor().turns(), 4 * 3u);
  EXPECT_NEAR(bed.rotor().stretched().microseconds(), 120 * 8, 0.1) << "the last turn of each exchange ends with it";
}

TEST(Rotor, OfAnOddNumberOneServerIsLeftOut) {
  Bed bed(3, 1);
  bed.watch();
  bed.expect_all_by_light();
  std::set<std::size_t> alone;
  for (const std::vector<std::int32_t>& map : bed.maps) {
    const auto free = std::ranges::count(map, -1);
    if (free == 3) continue;  // before the first turn
    ASSERT_EQ(free, 1);
    alone.insert(static_cast<std::size_t>(std::ranges::find(map, -1) - map.begin()));
  }
  EXPECT_EQ(alone.size(), 3u);
}

TEST(Rotor, ANicThatIsDownGetsNoCircuitAndItsPairsMeetByTheOthers) {
  Bed bed(4, 2);
  LinkChange down{.link = bed.network.egress_half(0, 1) / 2};
  down.up = false;
  bed.network.apply(down);
  bed.watch();
  bed.expect_all_by_light();
  for (const std::vector<std::int32_t>& map : bed.maps) EXPECT_EQ(map[0], -1);
  Bed whole(4, 2);
  whole.run();
  EXPECT_GT(bed.exchange_s(), whole.exchange_s());
}

TEST(Rotor, ANicThatGoesDownLosesItsCircuitAtTheNextTurn) {
  Bed bed(2, 2);
  bed.network.run_until(microseconds(500));  // the dispatch is over; experts compute until 1,170 us
  EXPECT_THAT(bed.map(), ElementsAre(2, 3, 0, 1));
  LinkChange down{.link = bed.network.egress_half(0, 1) / 2};
  down.up = false;
  bed.network.apply(down);
  bed.network.run_until(microseconds(1180));
  EXPECT_THAT(bed.map(), ElementsAre(-1, 3, -1, 1));
  bed.run();
  bed.expect_all_by_light();
}

// The forward combine and the backward one follow each other at once: the second finds acknowledgements of the
// first still on their way, and waits for them before it patches.
TEST(Rotor, PacketsLoseNothingAndTakeTheTimeOfTheFlows) {
  Bed bed(4, 1, true);
  bed.run();
  bed.expect_all_by_light();
  EXPECT_NEAR(bed.exchange_s(), (kGuard * 6 + kSlot * 5 + microseconds(160)).seconds(), 10e-6) << "headers take 3 %";
  EXPECT_EQ(bed.rotor().turns(), 4 * 6u);
}

TEST(Rotor, RefusesSlotsAndPortsThatDoNotFit) {
  Bed bed(4, 2);
  std::vector<NicPort> nics;
  for (std::uint32_t p = 0; p < 8; ++p) nics.push_back({p / 2, static_cast<PlanePort>(1 + p % 2)});
  RegionWork& region = bed.traffic->region(0);
  const RotorOptions good{.servers = 4, .alpha = 2, .slot = kSlot, .slot_bytes = 1};
  const auto refused = [&](NodeId panel, auto change) {
    RotorOptions options = good;
    std::vector<NicPort> at = nics;
    change(options, at);
    EXPECT_THROW(region.use_rotor(panel, options, at), std::invalid_argument);
  };
  refused(bed.hub, [](RotorOptions&, auto&) {});
  refused(bed.panel, [](RotorOptions& o, auto&) { o.slot = {}; });
  refused(bed.panel, [](RotorOptions& o, auto&) { o.slot = {-1}; });
  refused(bed.panel, [](RotorOptions& o, auto&) { o.slot_bytes = 0; });
  refused(bed.panel, [](RotorOptions& o, auto&) { o.first_port = 1; });
  refused(bed.panel, [](RotorOptions&, auto& at) { at.pop_back(); });
  refused(bed.panel, [](RotorOptions& o, auto& at) { o.servers = 1, at.resize(2); });
}

}  // namespace
}  // namespace loomnet::moe
