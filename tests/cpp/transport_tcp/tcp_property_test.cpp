// TCP under seeded storms: whatever loss, duplication, reordering, corruption and flaps do for a
// while, each message arrives once, in order, with every byte right, and nothing leaks or hangs.
// A failing seed is replayed with TCP_SEED=<seed>.
#include <cstdlib>

#include "testbed_storm.hpp"
#include "transport_tcp/tcp_bed.hpp"

namespace loomnet::testbed {
namespace {

// Sixteen doubled timeouts outlast the storm by far, so no connection may fail.
tcp::TcpOptions storm_options(RandomStream& random) {
  static constexpr const char* kControls[] = {"reno",  "cubic", "dctcp",  "bbr",    "bbr3",
                                              "vegas", "copa",  "vivace", "astraea"};
  tcp::TcpOptions o = quick(kControls[random.below(9)]);
  o.mtu = 1280 + random.below(3) * 1000;
  o.ecn = random.below(2);
  const bool hystart = random.below(2) != 0;
  if (o.congestion_control == "astraea" && random.below(2)) {
    o.congestion_options = {{"action", std::string("factor")}, {"inner", std::string(kControls[random.below(2)])}};
  }
  if (o.congestion_control == "cubic") o.congestion_options = {{"hystart", hystart}};
  o.initial_window = 1 + random.below(20);
  o.receive_buffer = 8'000 + random.below(random.below(2) ? 60'000 : 4'000'000);
  o.send_buffer = 8'000 + random.below(random.below(2) ? 60'000 : 4'000'000);
  o.delayed_ack = microseconds(random.below(100));
  o.quick_acks = random.below(20);
  return o;
}

struct Tally : StormTally {
  std::uint64_t timeouts = 0, recoveries = 0, probes = 0, retransmitted = 0, duplicates = 0, kept = 0, undone = 0;
};

void run_seed(std::uint64_t seed, Tally& tally) {
  RandomStream random(seed, 1, 7);
  BedOptions options;
  options.hosts = 2 + random.below(2);
  options.planes = 1 + random.below(4);
  options.seed = seed;
  options.rate = gigabits(1 + random.below(20));
  options.down_rate = {options.rate.count / 4 * random.below(4)};  // none, or slower
  const bool marks = random.below(2);
  Testbed bed(options, tcp_factory(storm_options(random)));
  bed.describe = describe_tcp;
  if (marks) {
    bed.filter = [&random](HostId, PlanePort, Packet& p) {
      if (p.ect && random.below(10) == 0) p.header[15] |= 0x30;  // CE
      return std::optional(Picoseconds{});
    };
  }

  Storm storm(bed, options, 6'000, random);
  storm.play(milliseconds(300), milliseconds(30));
  if (::testing::Test::HasFatalFailure()) return;
  storm.add_to(tally);
  for (HostId h = 0; h < options.hosts; ++h) {
    tally.timeouts += bed.nic(h).counter("rto");
    tally.recoveries += bed.nic(h).counter("fast_recoveries");
    tally.probes += bed.nic(h).counter("tlp");
    tally.kept += bed.nic(h).counter("out_of_order_kept");
    tally.undone += bed.nic(h).counter("spurious_recoveries") + bed.nic(h).counter("spurious_rto");
    tally.retransmitted += bed.nic(h).counter("retransmitted");
    tally.duplicates += bed.nic(h).counter("duplicates_dropped");
  }
}

class TcpStorm : public ::testing::TestWithParam<int> {};

// 1,000 seeds in 10 slices, so that a failure names its slice early and slices run in parallel.
TEST_P(TcpStorm, DeliversOnceInOrderEveryByte) {
  if (const char* seed = std::getenv("TCP_SEED")) {
    Tally one;
    return run_seed(std::strtoull(seed, nullptr, 10), one);
  }
  Tally tally;
  for (std::uint64_t seed = 1; seed <= kStormSeeds && !HasFatalFailure(); ++seed) {
    run_seed(static_cast<std::uint64_t>(GetParam()) * 1000 + seed, tally);
  }
  tally.expect_seen({{"timeouts", tally.timeouts},
                     {"recoveries", tally.recoveries},
                     {"probes", tally.probes},
                     {"kept", tally.kept},
                     {"undone", tally.undone},
                     {"retransmitted", tally.retransmitted},
                     {"duplicates", tally.duplicates}});
}
INSTANTIATE_TEST_SUITE_P(Slices, TcpStorm, ::testing::Range(0, 10));

// What makes a seed worth printing.
TEST(TcpStormFaults, TheSameSeedGivesTheSameRun) {
  auto run = [](std::uint64_t seed) {
    TcpBed bed({.seed = seed});
    bed.up(0, 0).loss = 0.1;
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
