// RoCE in the steady state: no allocation per packet, and deadlines cheap with many queue pairs.
#include <gtest/gtest.h>

#include "counted_memory.hpp"
#include "testbed_bare.hpp"
#include "transport/roce/roce_transport.hpp"
#include "under_asan.hpp"

namespace loomnet {
namespace {

using Pair = testbed::BarePair<roce::RoceTransport>;

TEST(RoceSteadyState, NothingIsAllocatedPerPacket) {
  SKIP_UNDER_ASAN();
  Pair pair(roce::RoceOptions{}, 16);
  const auto round = [&] {
    for (QpNumber q = 0; q < 16; ++q) {
      for (int i = 0; i < 4; ++i) pair.post(q, 50'000);
    }
    return pair.carry();
  };
  round();
  const std::size_t before = testbed::allocations;
  std::size_t packets = 0;
  for (int i = 0; i < 20; ++i) packets += round();
  EXPECT_EQ(testbed::allocations, before);
  EXPECT_GT(packets, 20u * 16 * 4 * 25);
  EXPECT_EQ(pair.near.completed, 21u * 64);
  EXPECT_EQ(pair.far.arrivals, 21u * 64);
  EXPECT_EQ(pair.far.placed, 21u * 64 * 50'000);
  EXPECT_EQ(pair.pool.outstanding(), 0u);
}

// Timers that were stopped or extended cost one look each when their old time comes, no more.
TEST(RoceSteadyState, ManyQueuePairsLeaveOneDeadlineEach) {
  Pair pair(roce::RoceOptions{}, 500);
  for (int i = 0; i < 10; ++i) {
    for (QpNumber q = 0; q < 500; ++q) pair.post(q, 4096);
    pair.carry();
  }
  ASSERT_FALSE(pair.a.outstanding());
  std::size_t looks = 0;
  while (pair.a.next_deadline() != kNever) {
    pair.now = std::max(pair.now, pair.a.next_deadline());
    pair.a.on_deadline(pair.now);
    ++looks;
  }
  EXPECT_LE(looks, 500u * 4);
  std::vector<TransportCounter> counters;
  pair.a.counters(counters);
  for (const auto& c : counters) {
    if (c.name == "timeouts") {
      EXPECT_EQ(c.value, 0u);
    }
  }
}

}  // namespace
}  // namespace loomnet
