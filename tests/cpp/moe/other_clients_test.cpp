// Another client of the panel changes circuits, or blocks ports, under a job whose controller patches them: the job
// goes on by wires and by what circuits there are.
#include <gtest/gtest.h>

#include "moe/moe_bed.hpp"

namespace loomnet::moe {
namespace {

using testing::MoeBed;

constexpr std::uint32_t kServers = 4, kAlpha = 2;

// Hot pairs that change from layer to layer, so that circuits do.
MoeConfig config() {
  MoeConfig c;
  c.shape = {.experts = kServers, .tensor = 8, .layers = {2}};
  c.gates = {.iterations = 4, .layers = 2, .experts = kServers};
  for (std::uint32_t matrix = 0; matrix < 8; ++matrix) {
    for (std::uint32_t s = 0; s < kServers; ++s) {
      for (std::uint32_t d = 0; d < kServers; ++d) c.gates.counts.push_back(d == (s + matrix) % kServers ? 700 : 100);
    }
  }
  c.iterations = 4;
  c.work.per_rank = 1 << 20;
  c.work.attention = c.work.experts = microseconds(10);
  return c;
}

circuits::RegionOptions region() { return {.drain_limit = milliseconds(1)}; }

void expect_ended(MoeBed& bed, const std::string& which) {
  bed.run();
  ASSERT_TRUE(bed.traffic->done()) << which << ": open " << bed.traffic->region(0).exchange().open();
  EXPECT_EQ(bed.traffic->iterations().size(), 4u) << which;
  EXPECT_TRUE(bed.traffic->failures().empty()) << which << ": " << bed.traffic->failures()[0].message;
  EXPECT_FALSE(bed.traffic->region(0).exchange().held()) << which;
}

// Each moment is so many times the one before it. Under ASan a run takes several times as long.
#if defined(LOOMNET_SANITIZES_ADDRESS)
constexpr double kLater = 3;
#else
constexpr double kLater = 1.5;
#endif

TEST(OtherClients, TheJobGoesOnWheneverTheyTakeCircuitsAway) {
  for (const bool packets : {false, true}) {
    for (const panel::Carrier carrier : {panel::Carrier::none, panel::Carrier::both}) {
      for (int us = 5; us < 60'000; us = static_cast<int>(us * kLater)) {
        MoeBed bed(kServers, kAlpha, {.profile = panel::profile("calient"), .carrier = carrier}, packets);
        bed.train(config(), false, region());
        bed.network.run_until(microseconds(us));
        const bool none = us % 2;
        bed.network.operate(bed.panel, [&](panel::PanelDevice& device, Picoseconds now) {
          const std::vector<panel::CrossConnect> loops{{0, 0}, {2, 3}, {3, 2}};
          device.connect(none ? std::span<const panel::CrossConnect>{} : loops, panel::Mode::overwrite, now);
        });
        expect_ended(bed, std::to_string(us) + " us, packets " + std::to_string(packets));
      }
    }
  }
}

TEST(OtherClients, ABlockedPortIsLeftOutUntilItIsOpenAgain) {
  for (const bool failed : {false, true}) {
    MoeBed bed(kServers, kAlpha, {.profile = panel::profile("sim25"), .carrier = panel::Carrier::none});
    bed.train(config(), false, region());
    bed.network.run_until(milliseconds(26));
    RegionDriver& driver = *bed.traffic->region(0).driver();
    const auto set = [&](bool blocked) {
      bed.network.operate(bed.panel, [&](panel::PanelDevice& device, Picoseconds now) {
        const panel::Simplex end{1, true};
        if (failed) return device.set_failed(end, blocked, now);
        device.set_override(end, blocked ? panel::Override::force_blocked : panel::Override::normal, now);
      });
    };
    ASSERT_NE(driver.ports().peer[1], circuits::kNoPeer);
    set(true);
    bed.network.run_until(milliseconds(90));
    EXPECT_EQ(driver.ports().peer[1], circuits::kNoPeer);
    EXPECT_FALSE(bed.traffic->done());
    set(false);
    bed.network.run_until(milliseconds(150));
    EXPECT_NE(driver.ports().peer[1], circuits::kNoPeer);
    expect_ended(bed, "a blocked port");
  }
}

}  // namespace
}  // namespace loomnet::moe
