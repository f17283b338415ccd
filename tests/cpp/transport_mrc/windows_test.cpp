// The receiver's bitmap and SACK bases, the sender's PSN table and its SLEEK sums.
#include <gtest/gtest.h>

#include <map>

#include "clock/random.hpp"
#include "transport/mrc/receive_window.hpp"
#include "transport/mrc/send_window.hpp"
#include "transport/mrc/timer_heap.hpp"

namespace loomnet::mrc {
namespace {

constexpr PsnCount kFirst = (1ull << 24) + 0xfffff0;  // wraps soon

TEST(ReceiveWindow, ClassifiesAndAdvances) {
  ReceiveWindow w;
  w.start(kFirst);
  EXPECT_EQ(w.classify(kFirst - 1, 8), Arrived::duplicate);
  EXPECT_EQ(w.classify(kFirst, 8), Arrived::fresh);
  EXPECT_EQ(w.classify(kFirst - 1 + 1024, 8), Arrived::fresh) << "the upper edge is inclusive";
  EXPECT_EQ(w.classify(kFirst + 1024, 8), Arrived::beyond_window);
  w.accept(kFirst + 1, 8);
  EXPECT_EQ(w.cack(), kFirst - 1);
  EXPECT_EQ(w.out_of_order(), 1u);
  EXPECT_EQ(w.classify(kFirst + 1, 8), Arrived::duplicate);
  w.accept(kFirst, 8);
  EXPECT_EQ(w.cack(), kFirst + 1);
  EXPECT_EQ(w.out_of_order(), 0u);
}

// Cumulative ACK fb; fd fe 100 101 102 received; fc and ff missing.
TEST(ReceiveWindow, GoldenSack) {
  ReceiveWindow w;
  w.start((1ull << 24) + 0xfc);
  for (const unsigned n : {0xfdu, 0xfeu, 0x100u, 0x101u, 0x102u}) w.accept((1ull << 24) + n, 8);
  const auto sack = w.build(SackBase::covering, (1ull << 24) + 0x100, true);
  EXPECT_EQ(sack.base, (1ull << 24) + 0xfc);
  EXPECT_EQ(sack.bitmap, 0x76u);
  EXPECT_FALSE(sack.more);
}

TEST(ReceiveWindow, CoveringReportsALateArrivalThatTheOthersMiss) {
  for (const SackBase rule : {SackBase::covering, SackBase::max, SackBase::trigger}) {
    ReceiveWindow w;
    w.start(kFirst);
    for (PsnCount n = kFirst + 2; n < kFirst + 200; ++n) w.accept(n, 8);
    while (w.build(rule, kFirst + 199, false).more) {
    }
    w.accept(kFirst + 1, 8);  // late: far below max - 63
    const auto sack = w.build(rule, kFirst + 199, false);
    const bool told = sack.base <= kFirst + 1 && (sack.bitmap >> (kFirst + 1 - sack.base) & 1);
    EXPECT_EQ(told, rule == SackBase::covering);
  }
}

TEST(ReceiveWindow, CoveringAsksForMoreUntilAllIsTold) {
  ReceiveWindow w;
  w.start(kFirst);
  std::map<PsnCount, bool> told;
  for (PsnCount n = kFirst + 1; n < kFirst + 300; n += 1 + n % 3) w.accept(n, 8), told[n] = false;
  int sacks = 0;
  bool more = true;
  while (more) {
    const auto s = w.build(SackBase::covering, kFirst + 299, false);
    for (int i = 0; i < 64; ++i) {
      if (!(s.bitmap >> i & 1)) continue;
      ASSERT_TRUE(told.contains(s.base + static_cast<unsigned>(i))) << "never received";
      told[s.base + static_cast<unsigned>(i)] = true;
    }
    more = s.more;
    ASSERT_LE(++sacks, 6);
  }
  for (const auto& [n, done] : told) EXPECT_TRUE(done) << n - kFirst;
  EXPECT_GE(sacks, 5);
}

TEST(ReceiveWindow, RandomOrderAgainstASimpleModel) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    RandomStream random(seed, 1, 1);
    ReceiveWindow w;
    w.start(kFirst);
    std::map<PsnCount, bool> model;
    for (int i = 0; i < 3'000; ++i) {
      const PsnCount n = w.cack() + 1 + random.below(random.below(4) == 0 ? 300 : 6);
      const bool had = model.contains(n);
      ASSERT_EQ(w.classify(n, 2), n > w.cack() + 256 ? Arrived::beyond_window
                                  : had              ? Arrived::duplicate
                                                     : Arrived::fresh);
      if (had || n > w.cack() + 256) continue;
      model[n] = true;
      w.accept(n, 2);
      PsnCount cack = w.cack();
      ASSERT_FALSE(model.contains(cack + 1));
      for (PsnCount k = n; k > cack && k > n - 5; --k)
        ASSERT_EQ(model.contains(k), w.classify(k, 2) == Arrived::duplicate);
      const auto s = w.build(SackBase::covering, n, true);
      for (unsigned b = 0; b < 64; ++b) {
        ASSERT_EQ(static_cast<bool>(s.bitmap >> b & 1), model.contains(s.base + b));
      }
    }
  }
}

TEST(SendWindow, AcknowledgesAndAdvances) {
  SendWindow w;
  w.start(kFirst);
  for (int i = 0; i < 200; ++i) {
    w.append(0, 100, 60);
    w.fly(kFirst + static_cast<unsigned>(i), 3, microseconds(i));
  }
  EXPECT_EQ(w.inflight(), 20'000u);
  EXPECT_EQ(w.oldest_flying(), kFirst);
  EXPECT_EQ(w.acknowledge(kFirst), SentState::flying);
  EXPECT_EQ(w.acknowledge(kFirst + 1), SentState::flying);
  w.advance(kFirst + 1);
  EXPECT_EQ(w.una(), kFirst + 2);
  EXPECT_EQ(w.oldest_flying(), kFirst + 2);
  w.requeue(kFirst + 9);
  w.requeue(kFirst + 5);
  EXPECT_EQ(w.lowest_queued(), kFirst + 5) << "the oldest gap first";
  EXPECT_EQ(w.inflight(), 19'600u);
  EXPECT_EQ(w.payload_inflight(), 196u * 60);
  w.fly(kFirst + 5, 4, microseconds(999));
  EXPECT_EQ(w.at(kFirst + 5).copies, 2);
  EXPECT_EQ(w.lowest_queued(), kFirst + 9);
}

// later(p) by definition: bytes of packets sent after p and acknowledged since.
TEST(SendWindow, SleekSumsAgainstTheDefinition) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    RandomStream random(seed, 2, 2);
    SendWindow w;
    w.start(kFirst);
    std::map<PsnCount, std::uint64_t> order, later;  // of flying packets
    std::uint64_t clock = 0;
    for (int step = 0; step < 400; ++step) {
      const auto pick = [&] {
        auto at = order.begin();
        std::advance(at, random.below(static_cast<std::uint32_t>(order.size())));
        return at->first;
      };
      const std::uint32_t action = random.below(10);
      if (action < 5 || order.empty()) {
        PsnCount n = w.next();
        if (w.queued() > 0) n = w.lowest_queued();
        if (n == w.next()) w.append(0, 1 + random.below(9), 1);
        w.fly(n, 0, {});
        order[n] = ++clock;
        later[n] = 0;
      } else if (action < 8) {
        const PsnCount n = pick();
        for (auto& [m, bytes] : later) {
          if (order[m] < order[n]) bytes += w.at(n).nominal;
        }
        w.acknowledge(n);
        order.erase(n), later.erase(n);
      } else if (action < 9) {
        const PsnCount n = pick();
        w.requeue(n);
        order.erase(n), later.erase(n);
      } else {
        const std::uint64_t threshold = 1 + random.below(60);
        std::map<PsnCount, bool> lost;
        w.infer(threshold, [&](PsnCount n) { lost[n] = true, w.requeue(n); });
        for (auto it = later.begin(); it != later.end();) {
          ASSERT_EQ(lost.contains(it->first), it->second >= threshold) << "seed " << seed;
          it = lost.contains(it->first) ? (order.erase(it->first), later.erase(it)) : std::next(it);
        }
      }
      ASSERT_EQ(w.any_flying(), !order.empty());
      ASSERT_EQ(w.payload_inflight(), order.size());  // a byte of each
    }
  }
}

TEST(TimerHeap, AgainstASimpleModel) {
  RandomStream random(1, 3, 3);
  TimerHeap heap;
  std::map<std::uint32_t, Picoseconds> model;
  for (int i = 0; i < 20'000; ++i) {
    const std::uint32_t owner = random.below(50);
    const Picoseconds at = random.below(5) == 0 ? kNever : Picoseconds{random.below(1'000)};
    if (random.below(2)) {
      heap.set(owner, at);
      at == kNever ? (void)model.erase(owner) : (void)(model[owner] = at);
    } else {
      heap.at_latest(owner, at);
      if (at != kNever) model[owner] = model.contains(owner) ? std::min(model[owner], at) : at;
    }
    Picoseconds first = kNever;
    for (const auto& [o, t] : model) first = std::min(first, t);
    ASSERT_EQ(heap.next(), first);
  }
}

}  // namespace
}  // namespace loomnet::mrc
