// Episodes on a bottleneck of the engine: when they stop, what flows show there, and that stopping and deciding from
// outside changes nothing but the decisions.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/tcp_dumbbell.hpp"
#include "learning/episode.hpp"

namespace loomnet {
namespace {

using testing::Dumbbell;
using testing::kRate;
using testing::kRtt;

tcp::TcpOptions astraea(const std::string& policy) {
  tcp::TcpOptions o = testing::with("astraea");
  o.congestion_options = {{"policy", policy}};
  return o;
}

// A flow for ever, and one from 1 s to 2 s.
struct Stairs {
  explicit Stairs(const tcp::TcpOptions& options, std::uint32_t buffer = testing::kBdp)
      : Stairs(options, options, buffer) {}
  Stairs(const tcp::TcpOptions& first, const tcp::TcpOptions& second, std::uint32_t buffer = testing::kBdp)
      : bed(first, second, buffer) {
    for (const NodeId from : {0u, 2u}) bed.clos.connect(from, 100 + from, from + 1, 150 + from);
    add(0, {}, kNever);
    add(2, seconds(1), seconds(2));
    bed.traffic.start();
  }
  void add(NodeId from, Picoseconds start, Picoseconds until) {
    bed.traffic.add({.source = from,
                     .destination = from + 1,
                     .qp = 100 + from,
                     .bytes = 1ull << 40,
                     .message = 1 << 14,
                     .depth = 64,
                     .start = start,
                     .until = until});
  }
  EpisodeOptions options() const {
    const double rtt_us = kRtt.microseconds();
    return {.capacity_Bps = static_cast<double>(kRate.count) / 8,
            .buffer_bytes = testing::kBdp,
            .base_rtt_us = {rtt_us, rtt_us}};
  }
  Dumbbell bed;
};

TEST(Episode, StopsAtWakeUpsWhereAFlowIsDueAndTellsWhoCameAndWent) {
  Stairs stairs(astraea("outside"));
  Episode episode(stairs.bed.network, {&stairs.bed.traffic}, stairs.options());
  ASSERT_EQ(episode.flows(), 2u);
  std::array<int, 2> born{}, left{}, due{};
  Picoseconds before{}, gone{};
  while (episode.advance(seconds(3)) == Episode::Stand::decision) {
    EXPECT_EQ(episode.now().count % milliseconds(5).count, 0);
    EXPECT_GT(episode.now(), before);
    before = episode.now();
    int waiting = 0;
    for (const std::size_t flow : {0u, 1u}) {
      born[flow] += episode.born(flow);
      left[flow] += episode.left(flow);
      if (episode.left(flow)) gone = episode.now();
      if (!episode.waits(flow)) continue;
      ++waiting;
      ++due[flow];
      EXPECT_TRUE(episode.present(flow));
      EXPECT_EQ(episode.input(flow).size(), 55u);
      const auto terms = episode.terms(flow);
      EXPECT_NEAR(terms[Episode::seconds], 0.03, 0.0051);
      // 0: nothing came back in an interval that is shorter than the round trip.
      if (terms[Episode::rtt_us] > 0) EXPECT_GE(terms[Episode::rtt_us], 0.99 * kRtt.microseconds());
      EXPECT_GE(terms[Episode::window_packets], 4);
      episode.act(flow, 0);
      EXPECT_THROW(episode.act(flow, 0), std::logic_error);
    }
    EXPECT_GT(waiting, 0);
    EXPECT_EQ(episode.present(1), episode.now() > seconds(1) && !left[1]);
  }
  EXPECT_EQ(episode.now(), seconds(3));
  EXPECT_EQ(born, (std::array{1, 1}));
  EXPECT_EQ(left, (std::array{0, 1}));
  EXPECT_NEAR(due[0], 95, 5);
  // It ends with what it had posted.
  EXPECT_GE(gone, seconds(2));
  EXPECT_NEAR(due[1], (gone - seconds(1)).seconds() / 0.03, 3);
}

// What a run is: bytes that each flow has had acknowledged, and packets at the bottleneck, each 10 ms.
template <class Pass>
std::vector<std::uint64_t> trace(Stairs& stairs, Pass&& pass) {
  std::vector<std::uint64_t> seen;
  for (int i = 1; i <= 300; ++i) {
    pass(milliseconds(10) * i);
    for (const NodeId from : {0u, 2u}) seen.push_back(stairs.bed.sender(from).acked());
    seen.push_back(stairs.bed.bottleneck().counters().packets);
  }
  return seen;
}

TEST(Episode, HeldFromOutsideIsTheRunThatHolds) {
  Stairs ordinary(astraea("hold"));
  const auto alone = trace(ordinary, [&](Picoseconds at) { ordinary.bed.network.run_until(at); });
  Stairs led(astraea("outside"));
  Episode episode(led.bed.network, {&led.bed.traffic}, led.options());
  const auto seen = trace(led, [&](Picoseconds at) {
    while (episode.advance(at) == Episode::Stand::decision) {
      for (const std::size_t flow : {0u, 1u}) {
        if (episode.waits(flow)) episode.act(flow, 0);
      }
    }
  });
  EXPECT_EQ(seen, alone);
}

TEST(Episode, WithoutDecisionsWindowsStay) {
  Stairs led(astraea("outside"));
  Episode episode(led.bed.network, {&led.bed.traffic}, led.options());
  std::array<double, 2> windows{};
  int decisions = 0;
  while (episode.advance(seconds(3)) == Episode::Stand::decision) {
    for (const std::size_t flow : {0u, 1u}) {
      if (!episode.waits(flow)) continue;
      const double now = episode.terms(flow)[Episode::window_packets];
      if (windows[flow] > 0) EXPECT_EQ(now, windows[flow]) << flow;
      windows[flow] = now;
      ++decisions;
    }
  }
  EXPECT_GT(decisions, 100);
}

// Each decision moves the run: the same actions are the same run, others another one.
TEST(Episode, IsItsActions) {
  const auto run = [](double scale) {
    Stairs led(astraea("outside"));
    Episode episode(led.bed.network, {&led.bed.traffic}, led.options());
    int count = 0;
    return trace(led, [&](Picoseconds at) {
      while (episode.advance(at) == Episode::Stand::decision) {
        for (const std::size_t flow : {0u, 1u}) {
          if (episode.waits(flow)) episode.act(flow, scale * std::sin(++count));
        }
      }
    });
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(0.5));
}

TEST(Episode, RewardsAFullLinkWithoutAQueueAndNothingElse) {
  Stairs stairs(astraea("outside"));
  Episode episode(stairs.bed.network, {&stairs.bed.traffic}, stairs.options());
  // One flow at one bandwidth-delay product and a little more: 100 Mb/s, 20 ms.
  const double bdp = 250'000.0 / 1'514;
  double last = 0;
  while (episode.now() < seconds(1) && episode.advance(seconds(1)) == Episode::Stand::decision) {
    const double window = episode.terms(0)[Episode::window_packets];
    episode.act(0, window < bdp ? 1 : window > 1.02 * bdp ? -1 : 0);
    last = episode.reward().clipped;
  }
  const astraea::Reward full = episode.reward();
  EXPECT_NEAR(full.thr, 1428.0 / 1538, 0.03);
  EXPECT_EQ(full.lat, 0);
  EXPECT_EQ(full.fair, 0);  // nobody else is there
  EXPECT_NEAR(last, 0.1 * full.thr - 0.01 * full.stab, 1e-9);
  EXPECT_NEAR(episode.global_state()[8], 0.1, 1e-6);  // flows / 10
}

TEST(Episode, CountsWhatQueuesDropAndNotWhatLinksLose) {
  Stairs full(astraea("outside"), testing::kBdp / 10);
  Stairs lossy(astraea("outside"));
  lossy.bed.bottleneck().set_impairment({.loss = 0.01}, {});
  std::array<double, 2> queued{}, taken{};
  std::size_t which = 0;
  for (Stairs* stairs : {&full, &lossy}) {
    Episode episode(stairs->bed.network, {&stairs->bed.traffic}, stairs->options());
    while (episode.advance(seconds(3)) == Episode::Stand::decision) {
      for (const std::size_t flow : {0u, 1u}) {
        if (!episode.waits(flow)) continue;
        const auto terms = episode.terms(flow);
        queued[which] += terms[Episode::queue_loss_Bps] * terms[Episode::seconds];
        taken[which] += terms[Episode::loss_Bps] * terms[Episode::seconds];
        episode.act(flow, which == 0 ? 1 : 0);
      }
    }
    ++which;
  }
  EXPECT_GT(queued[0], 100'000);
  EXPECT_NEAR(queued[0], taken[0], 0.15 * queued[0]);
  EXPECT_EQ(queued[1], 0);
  EXPECT_GT(taken[1], 20'000);
}

TEST(Episode, RefusesWhatItCannotStep) {
  Stairs stairs(astraea("outside"));
  EpisodeOptions options = stairs.options();
  options.base_rtt_us.pop_back();
  EXPECT_THROW(Episode(stairs.bed.network, {&stairs.bed.traffic}, options), std::invalid_argument);
  tcp::TcpOptions any_time = astraea("outside");
  any_time.congestion_options.emplace_back("wake_us", std::uint64_t{0});
  Stairs unsteppable(any_time);
  Episode episode(unsteppable.bed.network, {&unsteppable.bed.traffic}, unsteppable.options());
  EXPECT_THROW(episode.advance(seconds(1)), std::invalid_argument);
}

TEST(Episode, LetsFlowsOfOtherControlsBe) {
  Stairs stairs(astraea("outside"), testing::with("cubic"));
  Episode episode(stairs.bed.network, {&stairs.bed.traffic}, stairs.options());
  bool beside = false;
  while (episode.advance(seconds(2)) == Episode::Stand::decision) {
    EXPECT_FALSE(episode.waits(1));
    EXPECT_TRUE(episode.input(1).empty());
    beside |= episode.present(1);
    episode.act(0, 0);
  }
  EXPECT_TRUE(beside);
}

}  // namespace
}  // namespace loomnet
