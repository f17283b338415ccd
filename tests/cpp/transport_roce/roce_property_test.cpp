// RoCE under seeded storms: whatever loss, duplication, reordering, corruption and flaps do for a
// while, each message arrives once, in order, with every byte right, and nothing leaks or hangs.
// A failing seed is replayed with ROCE_SEED=<seed>.
#include <cstdlib>

#include "testbed_storm.hpp"
#include "transport_roce/roce_bed.hpp"

namespace loomnet::testbed {
namespace {

// Seven retries of 524 us outlast the storm, so no connection may fail.
roce::RoceOptions storm_options(RandomStream& random) {
  roce::RoceOptions o = quick();
  o.payload_mtu = 256u << random.below(3);
  o.ack_interval = 1 + random.below(20);
  o.in_flight_limit = random.below(2) ? 0 : 2048 + random.below(40'000);
  o.initial_psn = random.below(2) ? 0xffffffu - random.below(100) : random.below(1 << 24);
  return o;
}

struct Tally : StormTally {
  std::uint64_t timeouts = 0, naks = 0, retransmitted = 0, duplicates = 0;
};

void run_seed(std::uint64_t seed, Tally& tally) {
  RandomStream random(seed, 1, 7);
  BedOptions options;
  options.hosts = 2 + random.below(2);
  options.planes = 1 + random.below(4);
  options.seed = seed;
  options.rate = gigabits(1 + random.below(20));
  options.down_rate = {options.rate.count / 2 * random.below(3)};  // none, slower, the same
  Testbed bed(options, roce_factory(storm_options(random)));
  bed.describe = describe_rc;

  Storm storm(bed, options, 20'000, random);
  storm.play(milliseconds(40), milliseconds(10));
  if (::testing::Test::HasFatalFailure()) return;
  storm.add_to(tally);
  for (HostId h = 0; h < options.hosts; ++h) {
    tally.timeouts += bed.nic(h).counter("timeouts");
    tally.naks += bed.nic(h).counter("naks_sent");
    tally.retransmitted += bed.nic(h).counter("retransmitted");
    tally.duplicates += bed.nic(h).counter("duplicates_dropped");
  }
}

class RoceStorm : public ::testing::TestWithParam<int> {};

// 1,000 seeds in 10 slices, so that a failure names its slice early and slices run in parallel.
TEST_P(RoceStorm, DeliversOnceInOrderEveryByte) {
  if (const char* seed = std::getenv("ROCE_SEED")) {
    Tally one;
    return run_seed(std::strtoull(seed, nullptr, 10), one);
  }
  Tally tally;
  for (std::uint64_t seed = 1; seed <= kStormSeeds && !HasFatalFailure(); ++seed) {
    run_seed(static_cast<std::uint64_t>(GetParam()) * 1000 + seed, tally);
  }
  tally.expect_seen({{"timeouts", tally.timeouts},
                     {"naks", tally.naks},
                     {"retransmitted", tally.retransmitted},
                     {"duplicates", tally.duplicates}});
}
INSTANTIATE_TEST_SUITE_P(Slices, RoceStorm, ::testing::Range(0, 10));

// What makes a seed worth printing.
TEST(RoceStormFaults, TheSameSeedGivesTheSameRun) {
  auto run = [](std::uint64_t seed) {
    RoceBed bed({.planes = 2, .seed = seed});
    bed.up(0, 0).loss = bed.up(0, 1).loss = 0.1;
    for (int i = 0; i < 20; ++i) bed.write(i * 4000, 4000, i);
    EXPECT_TRUE(bed.run_until_idle(milliseconds(50))) << bed;
    EXPECT_GT(bed.up(0, 0).lost, 0u);
    EXPECT_GT(bed.nic(0).counter("retransmitted"), 0u);
    return std::pair(bed.now().count, bed.transcript(4096));
  };
  EXPECT_EQ(run(5), run(5));
  EXPECT_NE(run(5).first, run(6).first);
}

}  // namespace
}  // namespace loomnet::testbed
