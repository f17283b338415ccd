// Each congestion control by itself, on samples written by hand: against the formulas of its
// source.
#include <gtest/gtest.h>

#include <cmath>

#include "transport/congestion/bbr.hpp"
#include "transport/congestion/cubic.hpp"
#include "transport/congestion/dctcp.hpp"

namespace loomnet::congestion {
namespace {

constexpr std::uint32_t kMss = 1000;

FlowLimits window_of(double segments) {
  FlowLimits w;
  w.mss = kMss;
  w.cwnd = static_cast<std::uint64_t>(segments * kMss);
  return w;
}
double segments(const FlowLimits& w) { return static_cast<double>(w.cwnd) / w.mss; }

// The threshold that a reduction sets.
std::uint64_t threshold_after(CongestionControl& control, const FlowLimits& limits, Congestion kind,
                              std::uint64_t flight, Picoseconds now) {
  CongestionEvent event;
  event.kind = kind;
  event.flight = flight;
  event.now = now;
  control.on_congestion(event);
  return limits.ssthresh;
}

// One ACK per segment, `rtt` for a whole window: what an always busy sender sees.
struct AckClock {
  Picoseconds now = seconds(1), rtt;
  std::uint64_t total = 0;
  AckSample next(const FlowLimits& w, std::uint64_t marked = 0) {
    AckSample s;
    now += Picoseconds{static_cast<std::int64_t>(static_cast<double>(rtt.count) * kMss / static_cast<double>(w.cwnd))};
    total += kMss;
    s.now = now;
    s.acked = s.delivered = kMss;
    s.ce_delivered = marked;
    s.rtt = s.srtt = s.min_rtt = rtt;
    s.acked_end = s.delivered_total = total;
    s.sent_end = total + w.cwnd;
    s.in_flight = s.prior_in_flight = w.cwnd;
    s.cwnd_limited = true;
    return s;
  }
};

TEST(Reno, AddsOneSegmentPerRoundTripAboveTheThreshold) {
  FlowLimits w = window_of(20);
  Reno reno(w);
  w.ssthresh = w.cwnd;
  AckClock clock{.rtt = milliseconds(10)};
  for (int round = 0; round < 10; ++round) {
    const int acks = static_cast<int>(segments(w));
    for (int i = 0; i < acks; ++i) reno.on_ack(clock.next(w));
  }
  EXPECT_NEAR(segments(w), 30, 0.5);
  EXPECT_EQ(threshold_after(reno, w, Congestion::loss, 30 * kMss, clock.now), 15u * kMss);
  EXPECT_EQ(threshold_after(reno, w, Congestion::timeout, 3 * kMss, clock.now), 2u * kMss);
}

TEST(Reno, SlowStartAddsWhatIsAcknowledgedAndStopsAtTheThreshold) {
  FlowLimits w = window_of(10);
  w.ssthresh = 16 * kMss;
  Reno reno(w);
  AckClock clock{.rtt = milliseconds(10)};
  for (int i = 0; i < 6; ++i) reno.on_ack(clock.next(w));
  EXPECT_EQ(segments(w), 16);
  AckSample s = clock.next(w);
  s.cwnd_limited = false;
  reno.on_ack(s);
  s = clock.next(w);
  s.reducing = true;
  reno.on_ack(s);
  EXPECT_EQ(segments(w), 16);
}

// RFC 9438 4.2: W_cubic(t) = C (t - K)^3 + W_max with K = cbrt((W_max - cwnd) / C).
TEST(Cubic, FollowsItsCurveThroughThePlateauAndBeyond) {
  FlowLimits w = window_of(1000);
  Cubic cubic(w, {.hystart = false});
  AckClock clock{.rtt = milliseconds(100)};
  w.ssthresh = w.cwnd = threshold_after(cubic, w, Congestion::loss, w.cwnd, clock.now);
  EXPECT_EQ(segments(w), 700);
  EXPECT_DOUBLE_EQ(cubic.w_max(), 1000);
  const double k = Cubic::k_of(1000, 700);
  EXPECT_NEAR(k, std::cbrt(300 / 0.4), 1e-9);
  cubic.on_ack(clock.next(w));
  const Picoseconds epoch = clock.now;
  double worst = 0, at_k = 0;
  while ((clock.now - epoch).seconds() < 1.6 * k) {
    cubic.on_ack(clock.next(w));
    const double t = (clock.now - epoch).seconds();
    worst = std::max(worst, std::abs(segments(w) - Cubic::window_at(t, k, 1000)));
    if (at_k == 0 && t >= k) at_k = segments(w);
  }
  EXPECT_LE(worst,
            0.015 * 1000);  // it aims at the curve one RTT ahead and gets there one RTT later
  EXPECT_NEAR(at_k, 1000, 2);
  EXPECT_GT(segments(w), 1050);
}

TEST(Cubic, FastConvergenceGivesRoomToNewcomers) {
  FlowLimits w = window_of(1000);
  Cubic cubic(w, {.hystart = false});
  w.cwnd = threshold_after(cubic, w, Congestion::loss, w.cwnd, seconds(1));
  w.cwnd = threshold_after(cubic, w, Congestion::loss, w.cwnd, seconds(2));  // again, below the last maximum
  EXPECT_NEAR(cubic.w_max(), 700 * (1 + 0.7) / 2, 1e-9);
  EXPECT_NEAR(segments(w), 490, 0.01);
  cubic.on_undo(seconds(2));
  EXPECT_NEAR(cubic.w_max(), 1000, 1e-9);
}

// RFC 9438 4.3: where Reno would be faster (small windows, short round trips), as fast as Reno.
TEST(Cubic, IsRenoFriendlyOnShortPaths) {
  FlowLimits w = window_of(20);
  Cubic cubic(w, {.hystart = false});
  w.ssthresh = w.cwnd = threshold_after(cubic, w, Congestion::loss, w.cwnd, seconds(1));
  EXPECT_EQ(segments(w), 14);
  AckClock clock{.rtt = milliseconds(1)};
  const double alpha = 3 * (1 - 0.7) / (1 + 0.7);
  for (int round = 0; round < 8; ++round) {
    const int acks = static_cast<int>(segments(w));
    for (int i = 0; i < acks; ++i) cubic.on_ack(clock.next(w));
  }
  EXPECT_NEAR(segments(w), 14 + 8 * alpha, 0.5);
}

// Linux: 5 % per round trip until a loss has told what the path holds, and again after a timeout.
TEST(Cubic, GrowsByATwentiethPerRoundTripUntilItHasSeenALimit) {
  FlowLimits w = window_of(1000);
  Cubic cubic(w, {.hystart = false});
  AckClock clock{.rtt = milliseconds(20)};
  const auto growth = [&] {  // of one round trip
    const double before = segments(w);
    for (int left = static_cast<int>(before); left > 0; --left) cubic.on_ack(clock.next(w));
    return segments(w) / before - 1;
  };
  w.ssthresh = w.cwnd;  // as HyStart leaves it
  EXPECT_NEAR(growth(), 0.05, 0.002);
  w.ssthresh = w.cwnd = threshold_after(cubic, w, Congestion::loss, w.cwnd, clock.now);
  EXPECT_LT(growth(), 0.02);
  w.ssthresh = w.cwnd = threshold_after(cubic, w, Congestion::timeout, w.cwnd, clock.now);
  EXPECT_NEAR(growth(), 0.05, 0.002);
}

TEST(Cubic, TimeWithoutTrafficDoesNotCount) {
  FlowLimits a = window_of(1000), b = window_of(1000);
  Cubic busy(a, {.hystart = false}), idle(b, {.hystart = false});
  a.ssthresh = a.cwnd = threshold_after(busy, a, Congestion::loss, a.cwnd, seconds(1));
  b.ssthresh = b.cwnd = threshold_after(idle, b, Congestion::loss, b.cwnd, seconds(1));
  AckClock one{.rtt = milliseconds(100)}, two{.rtt = milliseconds(100)};
  for (int i = 0; i < 5000; ++i) busy.on_ack(one.next(a)), idle.on_ack(two.next(b));
  two.now += seconds(30);
  idle.on_restart(two.now);
  for (int i = 0; i < 5000; ++i) busy.on_ack(one.next(a)), idle.on_ack(two.next(b));
  EXPECT_NEAR(segments(a), segments(b), 1);
}

TEST(HyStart, EndsSlowStartWhenTheRoundTripRises) {
  FlowLimits w = window_of(64);
  HyStart hystart;
  AckClock clock{.rtt = milliseconds(40)};
  bool left = false;
  int round = 0;
  for (; round < 20 && !left; ++round) {
    clock.rtt = milliseconds(40 + 2 * round);  // beyond 40/8 = 5 ms in the third round after the first
    const std::uint64_t end = clock.total + w.cwnd;
    while (clock.total < end && !left) {
      AckSample s = clock.next(w);
      s.now = clock.now += milliseconds(3);  // no train: gaps above 2 ms
      left = hystart.exit(s, w);
    }
  }
  EXPECT_TRUE(left);
  EXPECT_EQ(round, 4);
}

TEST(HyStart, EndsSlowStartWhenATrainOfAcksLastsHalfARoundTrip) {
  FlowLimits w = window_of(64);
  HyStart hystart;
  AckClock clock{.rtt = milliseconds(40)};
  const Picoseconds begin = clock.now;
  while (!hystart.exit(clock.next(w), w)) ASSERT_LT(clock.now - begin, milliseconds(60));
  EXPECT_NEAR((clock.now - begin).seconds(), 0.020, 0.002);
}

// RFC 8257 3.3: alpha = (1 - g) alpha + g F once per window; cwnd (1 - alpha/2) at a mark.
TEST(Dctcp, AlphaIsTheFilteredShareOfMarkedBytes) {
  FlowLimits w = window_of(100);
  Dctcp dctcp(w, {.g = 1.0 / 16});
  AckClock clock{.rtt = milliseconds(1)};
  EXPECT_EQ(dctcp.alpha(), 1);
  const auto one_window = [&](int marked) {
    for (int i = 0; i < 100; ++i) {
      AckSample s = clock.next(w, i < marked ? kMss : 0);
      s.cwnd_limited = false;
      dctcp.on_ack(s);
    }
  };
  dctcp.on_ack(clock.next(w));  // opens the first window
  w.cwnd = 100 * kMss;
  double expected = dctcp.alpha();
  for (const int marked : {0, 0, 25, 100, 0, 50}) {
    one_window(marked);
    expected = expected * 15 / 16 + marked / 100.0 / 16;
    EXPECT_NEAR(dctcp.alpha(), expected, 1e-3) << marked;
  }
  const double alpha = dctcp.alpha();
  EXPECT_NEAR(static_cast<double>(threshold_after(dctcp, w, Congestion::ecn, 0, clock.now)), 100'000 * (1 - alpha / 2),
              1);
  EXPECT_EQ(threshold_after(dctcp, w, Congestion::loss, 100'000, clock.now), 50'000u) << "a loss halves, as Reno's";
}

TEST(Filter, KeepsTheMaximumOfItsWindow) {
  WindowedMax filter(10);
  std::vector<double> values;
  RandomStream random(3, 1, 1);
  for (std::uint64_t t = 0; t < 500; ++t) {
    values.push_back(random.uniform() * (t < 250 ? 100 : 50));
    filter.update(values.back(), t);
    double best = 0, recent = 0;
    for (std::uint64_t i = t >= 10 ? t - 10 : 0; i <= t; ++i) best = std::max(best, values[i]);
    for (std::uint64_t i = t >= 3 ? t - 2 : 0; i <= t; ++i) recent = std::max(recent, values[i]);
    // Three samples stand for the window: never above its maximum, never below the latest ones.
    ASSERT_LE(filter.best(), best);
    ASSERT_GE(filter.best(), values.back());
  }
}

// A path of a fixed rate and propagation delay in one variable, the bytes in flight: enough to walk
// through BBR's states with times known beforehand.
struct BbrPath {
  static constexpr double kRate = 12.5e6;  // bytes per second
  static constexpr Picoseconds kProp = milliseconds(20);
  FlowLimits w = window_of(10);
  Bbr bbr{w, {}, {.mss = kMss, .initial_window = 10 * kMss, .stream = 1}};
  Picoseconds now = seconds(1);
  std::uint64_t delivered = 0;
  double rtt = kProp.seconds();

  // One round trip: what window and pacing let out is delivered at the path's rate, one sample.
  void round(std::uint64_t lost = 0) {
    // What was paced out during the last round trip is in flight now; above rate x delay it queues.
    const double paced = w.pacing_rate / 8 * rtt;
    const double flight = std::min(static_cast<double>(w.cwnd), std::max(paced, 4.0 * kMss));
    rtt = std::max(kProp.seconds(), flight / kRate);
    AckSample s;
    s.prior_delivered = delivered;
    now += Picoseconds{static_cast<std::int64_t>(rtt * 1e12)};
    delivered += static_cast<std::uint64_t>(flight);
    s.now = now;
    s.acked = s.delivered = static_cast<std::uint64_t>(flight);
    s.delivered_total = delivered;
    s.rate_bytes = s.delivered;
    s.rate_interval = s.rtt = Picoseconds{static_cast<std::int64_t>(rtt * 1e12)};
    s.srtt = s.rtt;
    s.prior_in_flight = s.in_flight = static_cast<std::uint64_t>(flight);
    s.lost = lost;
    bbr.on_ack(s);
  }
};

TEST(Bbr, StartupEndsAfterThreeRoundsWithoutAQuarterMore) {
  BbrPath path;
  EXPECT_EQ(path.bbr.phase(), Bbr::State::startup);
  int rounds = 0, full = 0;
  double last = 0;
  while (path.bbr.phase() == Bbr::State::startup) {
    path.round();
    ASSERT_LT(++rounds, 30);
    full = path.bbr.bottleneck_rate() < 1.25 * last ? full + 1 : 0;
    last = std::max(last, path.bbr.bottleneck_rate());
  }
  EXPECT_EQ(full, 3);
  EXPECT_NEAR(path.bbr.bottleneck_rate(), BbrPath::kRate, 0.01 * BbrPath::kRate);
  EXPECT_EQ(path.bbr.phase(), Bbr::State::drain);
  EXPECT_NEAR(path.bbr.pacing_gain(), 1 / 2.885, 1e-9);
  for (int i = 0; i < 10 && path.bbr.phase() == Bbr::State::drain; ++i) path.round();
  EXPECT_EQ(path.bbr.phase(), Bbr::State::probe_bw);
}

TEST(Bbr, PacesTheFirstWindowByTheHandshakeAndAPercentBelowItsEstimateFromThenOn) {
  BbrPath path;
  path.bbr.on_established(milliseconds(20), path.now);
  EXPECT_EQ(path.bbr.rtprop(), milliseconds(20));
  EXPECT_NEAR(path.w.pacing_rate, 0.99 * 2.885 * 10 * kMss * 8 / 0.020, 10);
  while (path.bbr.phase() != Bbr::State::probe_bw || path.bbr.pacing_gain() != 1) path.round();
  EXPECT_NEAR(path.w.pacing_rate / 8, 0.99 * path.bbr.bottleneck_rate(), 2);
}

// This path hands ACKs over in one lump per round trip, where BBR expects them evenly: the window
// makes room for a lump beyond twice rate x delay, but for no more than 100 ms of it.
TEST(Bbr, MakesRoomForAggregatedAcks) {
  BbrPath path;
  while (path.bbr.phase() != Bbr::State::probe_bw) path.round();
  for (int i = 0; i < 20; ++i) path.round();
  const double bdp = BbrPath::kRate * BbrPath::kProp.seconds();
  EXPECT_GT(static_cast<double>(path.w.cwnd), 2.5 * bdp);
  EXPECT_LT(static_cast<double>(path.w.cwnd), 2 * bdp + 0.1 * BbrPath::kRate + 64.0 * kMss);
}

TEST(Bbr, ProbesInEightPhasesAndLooksForTheRoundTripEveryTenSeconds) {
  BbrPath path;
  while (path.bbr.phase() != Bbr::State::probe_bw) path.round();
  std::vector<double> gains;
  while (gains.size() < 16) {
    path.round();
    gains.push_back(path.bbr.pacing_gain());
  }
  // 1.25 is followed by 0.75; one of each in every eight.
  EXPECT_EQ(std::count(gains.begin(), gains.begin() + 8, 1.25), std::count(gains.begin(), gains.begin() + 8, 0.75));
  const auto up = std::find(gains.begin(), gains.end(), 1.25);
  ASSERT_NE(up, gains.end());
  EXPECT_EQ(up[1], 0.75);

  // Its queue of three send quanta keeps the smallest RTT from being seen again: after 10 s it
  // drains.
  const Picoseconds begin = path.now;
  while (path.bbr.phase() == Bbr::State::probe_bw && path.now - begin < seconds(12)) path.round();
  ASSERT_EQ(path.bbr.phase(), Bbr::State::probe_rtt);
  const Picoseconds probing = path.now;
  EXPECT_EQ(segments(path.w), 4);
  while (path.bbr.phase() == Bbr::State::probe_rtt) {
    path.round();
    ASSERT_LT(path.now - probing, seconds(1));
  }
  EXPECT_GE(path.now - probing, milliseconds(200));
  EXPECT_LE(path.now - probing, milliseconds(300));
  EXPECT_EQ(path.bbr.phase(), Bbr::State::probe_bw);
  EXPECT_NEAR(path.bbr.bottleneck_rate(), BbrPath::kRate, 0.05 * BbrPath::kRate)
      << "low rates of the probe do not count";
  EXPECT_GT(segments(path.w), 100) << "the window is restored";
}

TEST(Bbr, LossConservesPacketsForARoundAndThenRestores) {
  BbrPath path;
  while (path.bbr.phase() != Bbr::State::probe_bw) path.round();
  for (int i = 0; i < 20; ++i) path.round();
  const std::uint64_t before = path.w.cwnd;
  EXPECT_EQ(threshold_after(path.bbr, path.w, Congestion::loss, before, path.now), kNoLimit);
  path.round(20 * kMss);
  EXPECT_GT(path.w.cwnd, 4u * kMss);
  path.bbr.on_recovered(path.now);
  path.round();  // the ACK that ended it
  EXPECT_GE(path.w.cwnd, before);
  threshold_after(path.bbr, path.w, Congestion::timeout, before, path.now);
  EXPECT_EQ(segments(path.w), 1);
  path.bbr.on_recovered(path.now);
  path.round();
  EXPECT_GE(path.w.cwnd, before);
}

TEST(Bbr, ARecoveryThatBeginsAsAnotherEndsGoesOnWithIt) {
  BbrPath path;
  while (path.bbr.phase() != Bbr::State::probe_bw) path.round();
  for (int i = 0; i < 20; ++i) path.round();
  const std::uint64_t before = path.w.cwnd;
  threshold_after(path.bbr, path.w, Congestion::loss, before, path.now);
  path.round(before / 2);
  const std::uint64_t reduced = path.w.cwnd;
  ASSERT_LT(reduced, before);
  path.bbr.on_recovered(path.now);
  threshold_after(path.bbr, path.w, Congestion::loss, reduced, path.now);
  path.round(reduced);
  EXPECT_LT(path.w.cwnd, before) << "not restored between the two";
  path.bbr.on_recovered(path.now);
  path.round();
  EXPECT_GE(path.w.cwnd, before) << "of before the first";
}

TEST(Bbr, AConnectionThatWaitedForItsFirstDataDoesNotBeginWithAProbeOfTheRoundTrip) {
  BbrPath path;
  path.bbr.on_established(BbrPath::kProp, path.now);
  path.now += seconds(11);
  path.bbr.on_restart(path.now);
  path.round();
  EXPECT_EQ(path.bbr.phase(), Bbr::State::startup);
  EXPECT_GT(segments(path.w), 10);
}

// A policer: a fifth and more is lost, and what is delivered comes at one rate.
struct PolicedPath {
  BbrPolicer policer;
  AckSample s;
  // One round trip of 20 ms with one ACK.
  BbrPolicer::Change round(std::uint64_t delivered, std::uint64_t lost, bool limited = false, bool probing = true) {
    s.now += milliseconds(20);
    s.delivered_total += delivered;
    s.lost_total += lost;
    return policer.on_ack(s, true, lost > 0, limited, probing);
  }
};

TEST(BbrPolicer, TwoIntervalsOfTheSameRateWithAFifthLostAreUsedForFortyEightRounds) {
  PolicedPath path;
  using Change = BbrPolicer::Change;
  EXPECT_EQ(path.round(100 * kMss, 0), Change::none);
  int rounds = 0;
  while (path.round(100 * kMss, 25 * kMss) == Change::none) ASSERT_LT(++rounds, 20);
  EXPECT_EQ(rounds, 7) << "the first loss begins the first of two intervals of four rounds";
  EXPECT_NEAR(path.policer.rate(), 100 * kMss / 0.020, 0.34 * 100 * kMss / 0.020);
  EXPECT_EQ(path.round(100 * kMss, 0, false, false), Change::none) << "counts in ProbeBW alone";
  for (int i = 1; i < 48; ++i) ASSERT_EQ(path.round(100 * kMss, 0), Change::none) << i;
  EXPECT_EQ(path.round(100 * kMss, 0), Change::ended);
  EXPECT_FALSE(path.policer.in_use());
  EXPECT_EQ(path.policer.rate(), 0);
}

TEST(BbrPolicer, NeitherFewerLossesNorOtherRatesNorASenderWithoutDataAreAPolicer) {
  PolicedPath few, uneven, limited, late;
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(few.round(100 * kMss, 15 * kMss), BbrPolicer::Change::none) << i;
    const std::uint64_t much = i / 4 % 2 == 0 ? 100 : 160;
    EXPECT_EQ(uneven.round(much * kMss, much * kMss / 4), BbrPolicer::Change::none) << i;
    EXPECT_EQ(limited.round(100 * kMss, 25 * kMss, i % 4 == 3), BbrPolicer::Change::none) << i;
    // One round of many loses all: intervals of more than sixteen rounds say nothing.
    EXPECT_EQ(late.round(100 * kMss, i % 18 == 0 ? 1000 * kMss : 0), BbrPolicer::Change::none) << i;
  }
}

}  // namespace
}  // namespace loomnet::congestion
