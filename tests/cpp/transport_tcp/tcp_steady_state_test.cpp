// TCP in the steady state: no allocation per packet, and little memory per idle connection.
#include <gtest/gtest.h>

#include "counted_memory.hpp"
#include "testbed_bare.hpp"
#include "transport/tcp/tcp_transport.hpp"
#include "under_asan.hpp"

namespace loomnet::tcp {
namespace {

using Pair = testbed::BarePair<TcpTransport>;

TcpOptions options(const std::string& control) {
  TcpOptions o;
  o.congestion_control = control;
  return o;
}

class SteadyState : public ::testing::TestWithParam<const char*> {};

TEST_P(SteadyState, NothingIsAllocatedPerPacket) {
  SKIP_UNDER_ASAN();
  Pair pair(options(GetParam()), 16);
  const auto round = [&] {
    for (QpNumber q = 0; q < 16; ++q) {
      for (int i = 0; i < 4; ++i) pair.post(q, 50'000);
    }
    return pair.carry(50);
  };
  for (int i = 0; i < 30; ++i) round();  // until every ring has seen its largest window
  const std::size_t before = testbed::allocations;
  std::size_t packets = 0;
  for (int i = 0; i < 20; ++i) packets += round();
  EXPECT_LE(testbed::allocations - before, packets / 1000) << packets;
  EXPECT_GT(packets, 20u * 16 * 4 * 35);
  EXPECT_EQ(pair.far.arrivals, 50u * 64);
  EXPECT_EQ(pair.far.placed, 50u * 64 * 50'000);
}
INSTANTIATE_TEST_SUITE_P(Controls, SteadyState,
                         ::testing::Values("reno", "cubic", "dctcp", "bbr", "bbr3", "vegas", "copa", "vivace",
                                           "astraea"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Memory, AnIdleConnectionTakesLessThanTwoKilobytes) {
  Pair small(options("bbr"), 1);
  const std::size_t before = testbed::allocated_bytes;
  Pair pair(options("bbr"), 1000);
  EXPECT_LT((testbed::allocated_bytes - before) / 2000, 2048u);
}

}  // namespace
}  // namespace loomnet::tcp
