// A link fed with Poisson arrivals of equal frames is an M/D/1 queue: waits, idleness and queue length
// against the formulas (Pollaczek and Khinchine; Little).
#include <gtest/gtest.h>

#include <cmath>

#include "clock/random.hpp"
#include "link/half_link.hpp"
#include "under_asan.hpp"

namespace loomnet {
namespace {

constexpr std::uint32_t kFrame = 1000;
constexpr Picoseconds kDelay = microseconds(1);

struct Sum : LinkReceiver {
  std::vector<Picoseconds> arrived;
  void receive(std::uint16_t, PacketPtr, Picoseconds now) override { arrived.push_back(now); }
};

class MD1 : public ::testing::TestWithParam<double> {};

TEST_P(MD1, MeanWaitWithinOnePercent) {
  SKIP_UNDER_ASAN();
  const double load = GetParam();
  constexpr std::size_t kPackets = 4'000'000;
  EventQueue events;
  PacketPool pool;
  Sum far;
  HalfLink link(events, pool, {.rate = gigabits(100), .delay = kDelay}, far, 0, 1);
  far.arrived.reserve(kPackets);
  const double service = (kFrame + 24) * 80;  // picoseconds: 24 B of preamble, gap and FCS
  RandomStream random(7, 1, 1);

  std::vector<Picoseconds> offered;
  offered.reserve(kPackets);
  double at = 0;
  for (std::size_t i = 0; i < kPackets; ++i) {
    at += -std::log(1 - random.uniform()) * service / load;
    const Picoseconds now{static_cast<std::int64_t>(at)};
    events.run_until(now);
    PacketPtr packet = pool.allocate();
    packet->wire_length = kFrame;
    packet->header_length = 192;
    packet->payload.length = kFrame - 192;
    offered.push_back(now);
    ASSERT_EQ(link.offer(std::move(packet), now), Offer::accepted);
  }
  events.run_until(kNever - Picoseconds{1});
  ASSERT_EQ(far.arrived.size(), kPackets);

  double waited = 0, queued = 0;
  std::size_t delayed = 0;
  for (std::size_t i = 0; i < kPackets; ++i) {  // one queue: first in, first out
    const auto wait = (far.arrived[i] - offered[i] - kDelay).count - static_cast<std::int64_t>(service);
    ASSERT_GE(wait, 0);
    waited += static_cast<double>(wait);
    delayed += wait > 0;
  }
  const double span = static_cast<double>(far.arrived.back().count);
  queued = waited / span;
  const double mean = waited / kPackets;
  EXPECT_NEAR(mean / (load * service / (2 * (1 - load))), 1, 0.01);
  EXPECT_NEAR(static_cast<double>(delayed) / kPackets / load, 1, 0.01) << "share that finds it busy";
  EXPECT_NEAR(queued / (load * load / (2 * (1 - load))), 1, 0.015) << "mean number waiting";
}

INSTANTIATE_TEST_SUITE_P(Loads, MD1, ::testing::Values(0.2, 0.5, 0.8));

}  // namespace
}  // namespace loomnet
