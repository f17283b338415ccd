// BBR version 3 by itself, on samples written by hand: its states in order, its bounds after losses and
// marks, against the draft.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "transport/congestion/bbr3.hpp"

namespace loomnet::congestion {
namespace {

constexpr std::uint32_t kMss = 1000;
using State = Bbr3::State;

// A path of a fixed rate and propagation delay in one variable, the bytes in flight; a sample for
// each round trip.
struct Path {
  static constexpr double kRate = 12.5e6;  // bytes per second
  static constexpr Picoseconds kProp = milliseconds(20);
  static constexpr double kBdp = 250'000;
  explicit Path(bool ecn = false) : bbr(w, {.ecn = ecn}, {.mss = kMss, .initial_window = 10 * kMss, .stream = 1}) {
    bbr.on_established(kProp, now);
  }
  FlowLimits w{.mss = kMss, .cwnd = 10 * kMss};
  Bbr3 bbr;
  Picoseconds now = seconds(1);
  std::uint64_t delivered = 0, lost = 0;
  double rtt = kProp.seconds(), flight = 0;
  double standing = 0;  // bytes of others that wait in front

  void round(std::uint64_t loss = 0, double marked = 0) {
    const double paced = w.pacing_rate / 8 * rtt;
    flight = std::min(static_cast<double>(w.cwnd), std::max(paced, 4.0 * kMss));
    rtt = std::max(kProp.seconds(), flight / kRate) + standing / kRate;
    AckSample s;
    s.prior_delivered = delivered;
    s.prior_lost = lost;
    s.sent_in_flight = static_cast<std::uint64_t>(flight);
    now += Picoseconds{static_cast<std::int64_t>(rtt * 1e12)};
    if (loss > 0) {
      lost += loss;
      bbr.on_lost({.now = now,
                   .bytes = kMss,
                   .in_flight = static_cast<std::uint64_t>(flight),
                   .lost = loss,
                   .delivered_total = delivered});
    }
    delivered += static_cast<std::uint64_t>(flight) - loss;
    s.now = now;
    s.acked = s.delivered = static_cast<std::uint64_t>(flight) - loss;
    s.ce_delivered = static_cast<std::uint64_t>(marked * static_cast<double>(s.delivered));
    s.delivered_total = delivered;
    s.lost_total = lost;
    s.lost = loss;
    s.rate_bytes = s.delivered;
    s.rate_interval = s.rtt = s.srtt = Picoseconds{static_cast<std::int64_t>(rtt * 1e12)};
    s.prior_in_flight = s.in_flight = static_cast<std::uint64_t>(flight);
    bbr.on_ack(s);
  }
  void until(State state, int most = 400) {
    for (int i = 0; bbr.phase() != state; ++i) {
      ASSERT_LT(i, most) << "never in state " << static_cast<int>(state);
      round();
    }
  }
};

TEST(Bbr3, StartupDoublesUntilThePlateauThenDrainsAndCycles) {
  Path path;
  EXPECT_EQ(path.bbr.phase(), State::startup);
  EXPECT_NEAR(path.w.pacing_rate, 0.99 * 2.77 * 10 * kMss * 8 / 0.020, 10);
  std::vector<State> seen = {State::startup};
  for (int i = 0; i < 400; ++i) {
    path.round();
    if (path.bbr.phase() != seen.back()) seen.push_back(path.bbr.phase());
  }
  EXPECT_NEAR(path.bbr.max_bw(), Path::kRate, 0.01 * Path::kRate);
  // A state that ends with the round in which it began is not seen by a path of a sample a round.
  std::vector<State> order;
  for (const State state : seen) {
    if (state == State::refill || state == State::up || state == State::cruise) order.push_back(state);
  }
  ASSERT_GE(order.size(), 6u);
  for (std::size_t i = 0; i + 1 < order.size(); ++i) {
    if (order[i] == State::refill) EXPECT_EQ(order[i + 1], State::up);
    if (order[i] == State::up) EXPECT_NE(order[i + 1], State::up);
  }
}

TEST(Bbr3, GainsAreThoseOfTheDraftsTable) {
  Path path;
  const auto gain = [&](State state) {
    path.until(state);
    return path.bbr.pacing_gain();
  };
  EXPECT_EQ(gain(State::startup), 2.77);
  EXPECT_EQ(gain(State::drain), 0.5);
  EXPECT_EQ(gain(State::down), 0.9);
  EXPECT_EQ(gain(State::cruise), 1);
  EXPECT_EQ(gain(State::refill), 1);
  EXPECT_EQ(gain(State::up), 1.25);
}

// "Design Considerations for Choosing Constant Parameters": 2 to 3 s, or as many rounds as Reno needs,
// 63 at most: here 1.3 s.
TEST(Bbr3, ProbesForBandwidthAfterThreeSecondsOr63Rounds) {
  Path path;
  path.until(State::up);
  path.until(State::cruise);
  const Picoseconds begin = path.now;
  int rounds = 0;
  while (path.bbr.phase() == State::cruise) {
    path.round();
    ASSERT_LT(++rounds, 100);
  }
  EXPECT_EQ(path.bbr.phase(), State::refill);
  EXPECT_GE(rounds, 55);
  EXPECT_LE(rounds, 63);
  EXPECT_LT((path.now - begin).seconds(), 1.5);
}

// "Probing for Bandwidth In ProbeBW": beyond 2 % of losses a probe ends, and what was in flight when
// they crossed 2 % is the bound.
TEST(Bbr3, TooManyLossesInAProbeSetTheBoundAndEndIt) {
  Path path;
  path.until(State::up);
  path.round(2 * kMss);  // below 2 % of some 300 kB
  EXPECT_EQ(path.bbr.inflight_hi(), kNoLimit);
  path.until(State::up);
  path.round(20 * kMss);
  EXPECT_EQ(path.bbr.phase(), State::down);
  EXPECT_LT(path.bbr.inflight_hi(), static_cast<std::uint64_t>(path.flight));
  EXPECT_GE(static_cast<double>(path.bbr.inflight_hi()), 0.7 * Path::kBdp) << "no more than CUBIC's cut";
  const std::uint64_t bound = path.bbr.inflight_hi();
  path.until(State::cruise);
  EXPECT_LE(static_cast<double>(path.w.cwnd), 0.85 * static_cast<double>(bound) + 1) << "headroom";
}

TEST(Bbr3, InflightAtLossSolvesForThePrefix) {
  const LostPacket p{.bytes = 1000, .in_flight = 101'000, .lost = 2'500};
  const double found = Bbr3::inflight_at_loss(p);
  // lost_prev + prefix = 2 % of inflight_prev + prefix.
  const double prefix = found - 100'000;
  EXPECT_NEAR((1'500 + prefix) / (100'000 + prefix), 0.02, 1e-9);
}

// "When not Probing for Bandwidth": the short-term bounds fall to what the round delivered, by no more
// than 0.7, and the next probe forgets them.
TEST(Bbr3, LossesWhileCruisingLowerTheShortTermBoundsUntilTheNextProbe) {
  Path path;
  path.until(State::up);
  path.until(State::cruise);
  path.round();
  path.round(5 * kMss);
  path.round();
  EXPECT_LT(path.bbr.bw_lo(), 1.001 * Path::kRate);
  EXPECT_GE(path.bbr.bw_lo(), 0.7 * Path::kRate);
  EXPECT_LT(path.bbr.inflight_lo(), kNoLimit);
  EXPECT_LE(path.w.cwnd, path.bbr.inflight_lo());
  EXPECT_EQ(path.bbr.inflight_hi(), kNoLimit) << "no probe";
  path.until(State::refill);
  EXPECT_EQ(path.bbr.inflight_lo(), kNoLimit);
  EXPECT_GT(path.bbr.bw_lo(), 1e18);
}

// "ProbeRTT": half the bandwidth-delay product, 200 ms, where the least round trip is 5 s old.
TEST(Bbr3, ProbesTheRoundTripWithHalfTheBdpAfterFiveSeconds) {
  Path path;
  path.until(State::up);
  path.until(State::cruise);
  path.standing = 0.2 * Path::kBdp;  // of another flow: the least round trip is not seen again
  const Picoseconds least_seen = seconds(1);  // by the handshake; no round trip was shorter since
  path.until(State::probe_rtt, 1000);
  EXPECT_GT((path.now - least_seen).seconds(), 5);
  EXPECT_LT((path.now - least_seen).seconds(), 5.2);
  EXPECT_NEAR(static_cast<double>(path.w.cwnd), Path::kBdp / 2, 0.1 * Path::kBdp);
  path.standing = 0;
  const Picoseconds probing = path.now;
  while (path.bbr.phase() == State::probe_rtt) {
    path.round();
    ASSERT_LT((path.now - probing).seconds(), 1);
  }
  EXPECT_GE(path.now - probing, milliseconds(200));
  EXPECT_EQ(path.bbr.phase(), State::cruise);
  EXPECT_EQ(path.bbr.min_rtt(), Path::kProp);
  EXPECT_NEAR(path.bbr.max_bw(), Path::kRate, 0.1 * Path::kRate) << "low rates of the probe do not count";
}

TEST(Bbr3, AMistakenRecoveryGivesBackBoundsAndTheProbe) {
  Path path;
  path.until(State::up);
  path.round(20 * kMss);
  ASSERT_EQ(path.bbr.phase(), State::down);
  ASSERT_LT(path.bbr.inflight_hi(), kNoLimit);
  path.bbr.on_undo(path.now);
  EXPECT_EQ(path.bbr.inflight_hi(), kNoLimit);
  EXPECT_EQ(path.bbr.phase(), State::refill);
}

TEST(Bbr3, ATimeoutLeavesOnePacketAndRecoveryTheWindowBefore) {
  Path path;
  path.until(State::cruise);
  const std::uint64_t before = path.w.cwnd;
  CongestionEvent event;
  event.kind = Congestion::timeout;
  event.now = path.now;
  path.bbr.on_congestion(event);
  EXPECT_EQ(path.w.cwnd, kMss);
  path.bbr.on_recovered(path.now);
  EXPECT_GE(path.w.cwnd, before);
}

// Versions 2 and 3 of Linux: alpha as DCTCP's; a third of it lowers inflight_lo.
TEST(Bbr3, MarksLowerWhatIsInFlightWithEcnAlone) {
  Path heeds(true), ignores(false);
  EXPECT_TRUE(heeds.bbr.traits.accurate_ecn);
  EXPECT_FALSE(ignores.bbr.traits.accurate_ecn);
  for (Path* path : {&heeds, &ignores}) {
    path->until(State::up);
    path->until(State::cruise);
    for (int i = 0; i < 8; ++i) path->round(0, 0.2);
  }
  EXPECT_LT(heeds.bbr.inflight_lo(), kNoLimit);
  EXPECT_EQ(ignores.bbr.inflight_lo(), kNoLimit);
  EXPECT_LT(heeds.bbr.ecn_alpha(), 1);
  heeds.until(State::up);
  heeds.round(0, 0.8);
  heeds.round(0, 0.8);
  EXPECT_NE(heeds.bbr.phase(), State::up) << "half a round marked ends a probe";
}

}  // namespace
}  // namespace loomnet::congestion
