// The event queue orders by (time, object, sequence) and never runs backwards.
#include "clock/event_queue.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "clock/random.hpp"

namespace loomnet {
namespace {

struct Recorder : EventHandler {
  std::vector<std::pair<std::int64_t, std::uint64_t>>* log = nullptr;
  std::uint64_t tag = 0;
  void on_event(std::uint64_t what, Picoseconds now) override { log->push_back({now.count, tag * 1000 + what}); }
};

TEST(EventQueue, EqualTimesByObjectThenSequence) {
  EventQueue queue;
  std::vector<std::pair<std::int64_t, std::uint64_t>> log;
  Recorder a, b;
  a.log = b.log = &log;
  a.tag = 1;
  b.tag = 2;
  const ObjectId ia = queue.add(a), ib = queue.add(b);
  queue.schedule({5}, ib, 1);
  queue.schedule({5}, ia, 2);
  queue.schedule({5}, ib, 3);
  queue.schedule({4}, ib, 4);
  queue.run_until({10});
  const std::vector<std::pair<std::int64_t, std::uint64_t>> expected{{4, 2004}, {5, 1002}, {5, 2001}, {5, 2003}};
  EXPECT_EQ(log, expected);
  EXPECT_EQ(queue.now().count, 10);
}

TEST(EventQueue, TenThousandRandomTimesComeSorted) {
  EventQueue queue;
  std::vector<std::pair<std::int64_t, std::uint64_t>> log;
  Recorder a;
  a.log = &log;
  const ObjectId id = queue.add(a);
  RandomStream random(1, 2, 3);
  for (int i = 0; i < 10'000; ++i) queue.schedule({random.below(500)}, id, i);
  queue.run_until(kNever);
  ASSERT_EQ(log.size(), 10'000u);
  EXPECT_TRUE(std::is_sorted(log.begin(), log.end()));  // equal times by sequence, which is `what`
}

// Handlers that keep scheduling over twelve orders of magnitude, so that the ring changes its shape,
// runs empty and is jumped over: everything comes in the order a plain sort gives.
TEST(EventQueue, EveryShapeOfTheRingKeepsTheOrder) {
  struct Chaos : EventHandler {
    EventQueue* queue = nullptr;
    std::vector<ObjectId> ids;
    RandomStream random{7, 8, 9};
    std::vector<std::pair<std::int64_t, std::uint64_t>> planned, seen;  // time, number
    std::uint64_t numbers = 0;
    void plan(Picoseconds now) {
      const std::int64_t scale = std::int64_t{1} << random.below(random.below(8) == 0 ? 40 : 12);
      const Picoseconds at = now + Picoseconds{static_cast<std::int64_t>(random() % scale)};
      planned.push_back({at.count, numbers});
      queue->schedule(at, ids[0], numbers++);
    }
    void on_event(std::uint64_t what, Picoseconds now) override {
      seen.push_back({now.count, what});
      // Grows to thousands pending, then drains.
      for (int i = random.below(100) < (numbers < 40'000 ? 60u : 40u) ? 2 : 0; i > 0; --i) {
        if (numbers < 200'000) plan(now);
      }
    }
  } chaos;
  EventQueue queue;
  chaos.queue = &queue;
  chaos.ids = {queue.add(chaos)};
  for (int i = 0; i < 200; ++i) chaos.plan({});
  std::size_t most = 0;
  while (!queue.empty()) {
    EXPECT_EQ(queue.pending(), chaos.numbers - chaos.seen.size());
    most = std::max(most, queue.pending());
    const Picoseconds next = queue.next();
    ASSERT_GE(next, queue.now());
    queue.run_until(next + nanoseconds(3));
  }
  EXPECT_GT(most, 2'000u);
  EXPECT_EQ(queue.next(), kNever);
  std::sort(chaos.planned.begin(), chaos.planned.end());  // equal times by number, as by sequence
  EXPECT_EQ(chaos.seen, chaos.planned);
}

TEST(EventQueue, AMillionEventsAtOneTimeAndOneAtTheEndOfTime) {
  struct Counter : EventHandler {
    std::uint64_t next = 0;
    bool ordered = true;
    void on_event(std::uint64_t what, Picoseconds) override { ordered &= what == next++; }
  } counter;
  EventQueue queue;
  const ObjectId id = queue.add(counter);
  for (std::uint64_t i = 0; i < 1'000'000; ++i) queue.schedule({5}, id, i);
  queue.schedule(kNever, id, 1'000'000);
  queue.run_until({5});
  EXPECT_EQ(counter.next, 1'000'000u);
  EXPECT_EQ(queue.pending(), 1u);
  queue.run_until(kNever);
  queue.schedule({6}, id, 1'000'001);  // the past: comes at once, at the end of time
  EXPECT_TRUE(queue.step());
  EXPECT_FALSE(queue.step());
  EXPECT_TRUE(counter.ordered);
}

// Whichever object of a domain stops the run: those of its time with smaller and with larger numbers are served.
TEST(EventQueue, AStopByADomainsEventIsAfterAllEventsOfItsTime) {
  struct Stopper : EventHandler {
    EventQueue* queue = nullptr;
    int seen = 0;
    void on_event(std::uint64_t stops, Picoseconds) override {
      ++seen;
      if (stops) queue->stop();
    }
  };
  for (const std::size_t who : {0u, 1u, 2u}) {
    EventQueue queue;
    std::array<Stopper, 3> all;
    std::array<ObjectId, 3> ids{};
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i].queue = &queue;
      ids[i] = queue.add(all[i], static_cast<Domain>(i + 1));
    }
    for (std::size_t i = 0; i < all.size(); ++i) queue.schedule({5}, ids[i], i == who);
    for (const ObjectId id : ids) queue.schedule({6}, id);
    EXPECT_FALSE(queue.run_until({10}));
    EXPECT_EQ(queue.now().count, 5);
    for (const Stopper& each : all) EXPECT_EQ(each.seen, 1);
  }
}

TEST(EventQueue, StopEndsARunAndThePastBecomesNow) {
  struct Stopper : EventHandler {
    EventQueue* queue;
    int seen = 0;
    ObjectId id = 0;
    void on_event(std::uint64_t, Picoseconds now) override {
      if (++seen == 1) {
        queue->schedule(now - nanoseconds(1), id);  // the past: runs now, not before
        queue->stop();
      }
    }
  } stopper;
  EventQueue queue;
  stopper.queue = &queue;
  stopper.id = queue.add(stopper);
  queue.schedule(nanoseconds(3), stopper.id);
  queue.run_until(nanoseconds(10));
  EXPECT_EQ(stopper.seen, 1);
  EXPECT_EQ(queue.now(), nanoseconds(3));
  queue.run_until(nanoseconds(10));
  EXPECT_EQ(stopper.seen, 2);
  EXPECT_EQ(queue.now(), nanoseconds(10));
}

TEST(Time, SerializationIsExact) {
  EXPECT_EQ(serialization_time(1, gigabits(400)).count, 20);
  EXPECT_EQ(serialization_time(4262, gigabits(100)).count, 4262 * 80);
  EXPECT_EQ(serialization_time(3, {7}).count, 3'428'571'428'571);  // 24/7 s, to the nearest ps
  EXPECT_EQ(bytes_in(microseconds(13), gigabits(800)), 1'300'000u);
}

TEST(Time, SerializationIsRoundedToTheNearestPicosecond) {
  EXPECT_EQ(serialization_time(1, {7}).count, 1'142'857'142'857);  // 8/7 s, …142.857 ps
  EXPECT_EQ(serialization_time(1, {6}).count, 1'333'333'333'333);  // …333.33
  EXPECT_EQ(serialization_time(2, {6}).count, 2'666'666'666'667);  // …666.67
  EXPECT_EQ(serialization_time(1, {16'000'000'000'000}).count, 1) << "half a picosecond is one";
  EXPECT_EQ(serialization_time(1, {16'000'000'000'001}).count, 0) << "and less is none";
}

TEST(Time, BytesOfATimeAreRoundedDown) {
  EXPECT_EQ(bytes_in(seconds(1), {8}), 1u);
  EXPECT_EQ(bytes_in(seconds(1) - Picoseconds{1}, {8}), 0u);
  EXPECT_EQ(bytes_in(seconds(1), {15}), 1u);
  EXPECT_EQ(bytes_in(milliseconds(1'500), {16}), 3u);
}

}  // namespace
}  // namespace loomnet
