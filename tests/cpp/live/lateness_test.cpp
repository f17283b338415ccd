// The live part's bookkeeping without a kernel: lateness buckets, the uid table, judgements,
// orders.
#include "live/lateness.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>
#include <vector>

#include "clock/random.hpp"
#include "live/command_queue.hpp"
#include "live/fidelity.hpp"
#include "live/live_clock.hpp"
#include "live/uid_table.hpp"

namespace loomnet {
namespace {

TEST(LatenessHistogram, PercentilesAreWithinABucketOfTheExactOnes) {
  for (const double scale : {10.0, 1e4, 1e9}) {
    RandomStream random(1, 2, static_cast<std::uint64_t>(scale));
    LatenessHistogram h;
    std::vector<std::int64_t> exact;
    for (int i = 0; i < 100'000; ++i) {
      const double u = random.uniform();
      const Picoseconds t{static_cast<std::int64_t>(u * u * u * scale * 1000)};
      h.record(t);
      exact.push_back(t.count);
    }
    std::sort(exact.begin(), exact.end());
    for (const double p : {0.5, 0.9, 0.99, 0.999}) {
      const auto want = static_cast<double>(exact[static_cast<std::size_t>(p * 100'000) - 1]);
      const auto got = static_cast<double>(h.percentile(p).count);
      EXPECT_GE(got, want) << p << " of " << scale;
      EXPECT_LE(got, want * 1.07 + 2000) << p << " of " << scale;
    }
    EXPECT_EQ(h.max().count, exact.back());
    EXPECT_EQ(h.percentile(1).count, exact.back());
  }
}

TEST(LatenessHistogram, EdgesAndMerge) {
  LatenessHistogram h;
  EXPECT_EQ(h.percentile(0.99).count, 0);
  h.record(-microseconds(5));
  EXPECT_EQ(h.max().count, 0);
  EXPECT_EQ(h.count(), 1u);
  h.record(seconds(100'000));  // beyond the last bucket: counted there, max exact
  EXPECT_EQ(h.max(), seconds(100'000));
  LatenessHistogram other;
  other.record(microseconds(3));
  h.merge(other);
  EXPECT_EQ(h.count(), 3u);
  EXPECT_NEAR(h.percentile(0.5).microseconds(), 3, 0.2);
  EXPECT_EQ(h.beyond(nanoseconds(-1)), 2u) << "one is in the first bucket";
  EXPECT_EQ(h.beyond(microseconds(2)), 2u);
  EXPECT_EQ(h.beyond(microseconds(4)), 1u);
  EXPECT_EQ(h.beyond(seconds(200'000)), 0u) << "in the last bucket";
  h.clear();
  EXPECT_EQ(h.count(), 0u);
}

TEST(Fidelity, LossIsUnexplainedBeyondNamedDrops) {
  const SwitchReckoning r{.given = 100, .returned = 90, .switch_drops = 6, .own_losses = 1};
  EXPECT_EQ(r.missing(), 10u);
  EXPECT_EQ(r.unexplained(), 3u);
}

TEST(LiveClock, DilationScalesTheClockAndNothingElse) {
  for (const double dilation : {1.0, 2.5, 100.0}) {
    LiveClock clock(dilation);
    clock.start(milliseconds(7));
    const Picoseconds t = milliseconds(7) + microseconds(400);
    const std::int64_t wall = clock.wall_of(t);
    EXPECT_GE(clock.at(wall), t);
    EXPECT_LE(clock.at(wall) - t, nanoseconds(2));
    EXPECT_EQ(clock.wall_of(kNever), INT64_MAX);
  }
  EXPECT_THROW(LiveClock(0), std::invalid_argument);
  EXPECT_THROW(LiveClock(-1), std::invalid_argument);
}

TEST(UidTable, AgreesWithAMapUnderRandomUse) {
  PacketPool pool;
  RandomStream random(3, 1, 4);
  UidTable table(16);
  std::map<std::uint64_t, std::uint64_t> model;  // uid -> uid of its packet
  std::uint64_t next = 1;
  for (int step = 0; step < 200'000; ++step) {
    const bool grow = model.size() < 2000 ? random.below(100) < 55 : random.below(100) < 45;
    if (grow) {
      // Mostly in order, now and then far away but with the same low bits: collisions.
      const std::uint64_t uid = random.below(4) ? next++ : (next++ | std::uint64_t{1} << 30);
      PacketPtr p = pool.allocate();
      model[uid] = p->uid;
      table.put({.uid = uid, .packet = std::move(p), .given = step});
    } else if (!model.empty()) {
      auto it = model.lower_bound(random.below(static_cast<std::uint32_t>(next)));
      if (it == model.end()) it = model.begin();
      const UidTable::Entry e = table.take(it->first);
      ASSERT_EQ(e.uid, it->first);
      ASSERT_EQ(e.packet->uid, it->second);
      model.erase(it);
    }
    ASSERT_EQ(table.size(), model.size());
  }
  EXPECT_EQ(table.take(0).uid, 0u);
  EXPECT_EQ(table.take(next + 5).uid, 0u);
  for (const auto& [uid, packet] : model) ASSERT_EQ(table.take(uid).uid, uid);
  EXPECT_EQ(table.size(), 0u);
}

TEST(UidTable, ASweepTakesExactlyTheOldOnes) {
  PacketPool pool;
  UidTable table(64);
  for (std::uint64_t uid = 1; uid <= 1000; ++uid) {
    table.put({.uid = uid * 3, .packet = pool.allocate(), .given = static_cast<std::int64_t>(uid)});
  }
  std::vector<std::uint64_t> lost;
  for (int round = 0; round < 400; ++round) {
    table.sweep(table.slots() / 100, 501, [&](UidTable::Entry&& e) { lost.push_back(e.uid); });
  }
  std::sort(lost.begin(), lost.end());
  ASSERT_EQ(lost.size(), 500u);
  EXPECT_EQ(lost.front(), 3u);
  EXPECT_EQ(lost.back(), 1500u);
  EXPECT_EQ(table.size(), 500u);
  EXPECT_EQ(table.take(1503).uid, 1503u);
  table.sweep(table.slots() * 2, INT64_MAX, [](UidTable::Entry&&) {});
  EXPECT_EQ(table.size(), 0u);
  EXPECT_EQ(pool.outstanding(), 0u);
}

TEST(CommandQueue, EveryOrderRunsOnceInItsThreadsOrder) {
  CommandQueue queue;
  constexpr int kThreads = 4, kOrders = 2000;
  std::vector<int> last(kThreads, -1);  // touched by the running side only
  int total = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kOrders; ++i) {
        ASSERT_TRUE(queue.post([&, t, i] {
          EXPECT_EQ(last[t], i - 1);
          last[t] = i;
          ++total;
        }));
        if (i % 500 == 0) {
          EXPECT_GE(queue.call([&] { return total; }), i);
        }
      }
    });
  }
  while (total < kThreads * kOrders) {
    if (!queue.run()) std::this_thread::yield();
  }
  for (auto& t : threads) t.join();
  while (queue.run()) {
  }
  EXPECT_EQ(total, kThreads * kOrders);
}

TEST(CommandQueue, WhoWaitsIsToldWhenTheLoopEnds) {
  CommandQueue queue;
  std::atomic<int> told{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      try {
        queue.call([] { return 1; });
      } catch (const std::logic_error&) {
        ++told;
      }
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  queue.close();  // nobody ran them
  for (auto& t : threads) t.join();
  EXPECT_EQ(told, 3);
  EXPECT_FALSE(queue.post([] {}));
}

}  // namespace
}  // namespace loomnet
