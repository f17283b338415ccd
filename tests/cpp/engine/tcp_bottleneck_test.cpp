// What each TCP congestion control makes of one bottleneck: throughput, queue, shares.
#include <gtest/gtest.h>

#include "engine/tcp_dumbbell.hpp"
#include "under_asan.hpp"

namespace loomnet {
namespace {

using testing::Dumbbell;
using testing::kBdp;
using testing::with;

class EachControl : public ::testing::TestWithParam<const char*> {};

TEST_P(EachControl, FillsACleanPath) {
  SKIP_UNDER_ASAN();
  Dumbbell bed(with(GetParam()), kBdp, std::string(GetParam()) == "dctcp" ? 65 * 1514 : 0);
  bed.flow(0, {});
  bed.network.run_until(seconds(10));
  const auto seen = bed.watch(seconds(30));
  EXPECT_GE(seen.utilisation, 0.95) << seen;
  EXPECT_LE(seen.utilisation, 1.0);
  EXPECT_EQ(bed.counter(0, "rto"), 0u);
}
INSTANTIATE_TEST_SUITE_P(Controls, EachControl,
                         ::testing::Values("reno", "cubic", "dctcp", "bbr", "bbr3", "vegas", "copa", "astraea"),
                         [](const auto& info) { return std::string(info.param); });

TEST(TwoFlows, CubicConvergesToFairShares) {
  SKIP_UNDER_ASAN();
  Dumbbell bed(with("cubic"));
  bed.two = true;
  bed.flow(0, {});
  bed.flow(2, seconds(5));
  bed.network.run_until(seconds(40));
  const auto seen = bed.watch(seconds(60));
  const double a = seen.rate[0], b = seen.rate[2];
  const double jain = (a + b) * (a + b) / (2 * (a * a + b * b));
  EXPECT_GE(jain, 0.95) << seen;
  EXPECT_GE(seen.utilisation, 0.95) << seen;
}

TEST(Dctcp, HoldsTheQueueNearK) {
  constexpr std::uint32_t kMark = 65 * 1514;  // RFC 8257 and the DCTCP paper: 65 packets at 10 Gb/s
  Dumbbell bed(with("dctcp"), 4 * kBdp, kMark);
  bed.two = true;
  bed.flow(0, {});
  bed.flow(2, seconds(1));
  bed.network.run_until(seconds(20));
  const auto seen = bed.watch(seconds(30));
  EXPECT_GE(seen.mean_queue, 0.5 * kMark);
  EXPECT_LE(seen.mean_queue, 1.2 * kMark);
  EXPECT_LE(seen.max_queue, 1.5 * kMark) << seen;
  EXPECT_GE(seen.utilisation, 0.97);
  EXPECT_EQ(bed.counter(0, "retransmitted"), 0u);
}

TEST(Bbr, KeepsTheQueueSmall) {
  Dumbbell bed(with("bbr"), 8 * kBdp);
  bed.flow(0, {});
  bed.network.run_until(seconds(2));
  const auto seen = bed.watch(seconds(30));
  // In flight are the bandwidth-delay product and three send quanta of 1 ms (the draft's 4.2.3.2),
  // so 37.5 kB stand in a buffer of 2 MB; one phase in eight asks for a quarter more for a round
  // trip.
  EXPECT_LE(seen.mean_queue, 0.25 * kBdp) << seen;
  EXPECT_LE(seen.max_queue, 0.6 * kBdp) << seen;
  EXPECT_GE(seen.utilisation, 0.95) << seen;
}

// The same deep buffer under CUBIC fills: the test above can fail.
TEST(Bbr, WhereCubicFillsTheBuffer) {
  SKIP_UNDER_ASAN();
  Dumbbell bed(with("cubic"), 8 * kBdp);
  bed.flow(0, {});
  bed.network.run_until(seconds(10));
  const auto seen = bed.watch(seconds(30));
  EXPECT_GE(seen.mean_queue, kBdp) << seen;
}

// A flow with a lifetime posts few bytes before it sends them. What has arrived behind a lost packet completes late,
// and the flow must go on sending meanwhile, as one does that has posted all of its bytes.
TEST(Lifetimes, StarveNoFlowThatLoses) {
  SKIP_UNDER_ASAN();
  tcp::TcpOptions held = with("astraea");
  held.congestion_options = {{"policy", std::string("hold")}, {"startup", std::string("none")}};
  for (const double loss : {0.0, 0.01, 0.03}) {
    std::array<double, 2> rate{};
    for (const bool lives : {false, true}) {
      Dumbbell bed(held);
      bed.bottleneck().set_impairment({.loss = loss}, {});
      bed.flow(0, {}, lives ? seconds(1000) : kNever);
      bed.network.nic(0).set_limits(100, 0, {.cwnd = kBdp, .pacing_rate = {}}, bed.network.now());
      bed.network.run_until(seconds(2));
      rate[lives] = bed.watch(seconds(20)).rate[0];
    }
    EXPECT_NEAR(rate[1] / rate[0], 1, 0.01) << "at a loss of " << loss << ": " << rate[1] << " and " << rate[0];
  }
}

// A run that ends while early segments wait for a hole: they are held, not leaked, and let go.
TEST(Conservation, ARunCutShortAccountsForSegmentsThatWait) {
  Dumbbell bed(with("cubic"), kBdp / 10);
  bed.flow(0, {});
  auto& receiver = *bed.network.nic(1).transport();
  while (receiver.held() == 0) {
    bed.network.run_until(bed.network.now() + microseconds(100));
    ASSERT_LT(bed.network.now(), seconds(10));
  }
  EXPECT_EQ(bed.network.pool().outstanding(), bed.network.held());
  EXPECT_GE(bed.network.held(), receiver.held());
  bed.network.clear();
  EXPECT_EQ(receiver.held(), 0u);
  EXPECT_EQ(bed.network.pool().outstanding(), 0u);
}

}  // namespace
}  // namespace loomnet
