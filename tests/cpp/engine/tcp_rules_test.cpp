// The rule-based baselines beside other controls on one bottleneck, and under ECN: what cannot be set
// up by one control for a whole run.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/tcp_dumbbell.hpp"
#include "under_asan.hpp"

namespace loomnet {
namespace {

using testing::Dumbbell;
using testing::kBdp;
using testing::with;

struct Shares {
  double utilisation = 0;
  double first = 0;  // share of the first flow
};

Shares shares(const tcp::TcpOptions& first, const tcp::TcpOptions& second, std::uint32_t buffer) {
  Dumbbell bed(first, second, buffer);
  bed.two = true;
  bed.flow(0, {});
  bed.flow(2, seconds(2));
  bed.network.run_until(seconds(20));
  const auto seen = bed.watch(seconds(60));
  return {seen.utilisation, seen.rate[0] / (seen.rate[0] + seen.rate[2])};
}

// The draft, "A Dual-Time-Scale Approach for Coexistence": version 3 probes no more often than CUBIC
// does where that is slower, and heeds losses, so that it leaves CUBIC what version 1 takes.
TEST(Bbr3, LeavesCubicMoreThanVersion1InShallowBuffers) {
  SKIP_UNDER_ASAN();
  for (const std::uint32_t buffer : {kBdp / 4, kBdp / 2}) {
    const Shares one = shares(with("bbr"), with("cubic"), buffer);
    const Shares three = shares(with("bbr3"), with("cubic"), buffer);
    EXPECT_GT(one.first, 0.85) << buffer;
    EXPECT_LT(three.first, one.first - 0.1) << buffer;
    EXPECT_GT(three.utilisation, 0.93) << buffer;
  }
}

TEST(Bbr3, SharesABufferOfOneBdpWithCubic) {
  SKIP_UNDER_ASAN();
  const Shares one = shares(with("bbr"), with("cubic"), kBdp);
  const Shares three = shares(with("bbr3"), with("cubic"), kBdp);
  EXPECT_LT(std::abs(three.first - 0.5), std::abs(one.first - 0.5));
}

tcp::TcpOptions copa(bool mode_switch) {
  tcp::TcpOptions o = with("copa");
  o.congestion_options = {{"mode_switch", mode_switch}};
  return o;
}

// Section 2.2 of the publication: in default mode Copa gives way to what fills buffers; in
// competitive mode it does not.
TEST(Copa, CompetesWithCubicOnlyInCompetitiveMode) {
  SKIP_UNDER_ASAN();
  const Shares gives_way = shares(copa(false), with("cubic"), kBdp);
  const Shares competes = shares(copa(true), with("cubic"), kBdp);
  EXPECT_LT(gives_way.first, 0.15);
  EXPECT_GT(competes.first, 0.3);
  EXPECT_LT(competes.first, 0.7);
}

TEST(Vegas, GivesWayToCubic) {
  SKIP_UNDER_ASAN();
  const Shares seen = shares(with("vegas"), with("cubic"), kBdp);
  EXPECT_LT(seen.first, 0.25);
}

TEST(Bbr3, HeedsMarksWithEcnAlone) {
  constexpr std::uint32_t kMark = 40 * 1514;
  const auto mean_queue = [](bool ecn) {
    tcp::TcpOptions o = with("bbr3");
    o.congestion_options = {{"bbr3_ecn", ecn}};
    Dumbbell bed(o, o, 4 * kBdp, kMark);
    bed.two = true;
    bed.flow(0, {});
    bed.flow(2, seconds(2));
    bed.network.run_until(seconds(10));
    const auto seen = bed.watch(seconds(30));
    EXPECT_GT(seen.utilisation, 0.9) << seen;
    return seen.mean_queue;
  };
  const double with_marks = mean_queue(true), without = mean_queue(false);
  EXPECT_LT(with_marks, 0.5 * without);
}

}  // namespace
}  // namespace loomnet
