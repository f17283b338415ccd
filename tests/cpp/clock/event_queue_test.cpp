// The event queue orders by (time, object, sequence) and never runs backwards.
#include "clock/event_queue.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "clock/random.hpp"

namespace loomnet {
namespace {

struct Recorder : EventHandler {
  std::vector<std::pair<std::int64_t, std::uint64_t>>* log = nullptr;
  std::uint64_t tag = 0;
  void on_event(std::uint64_t what, Picoseconds now) override {
    log->push_back({now.count, tag * 1000 + what});
  }
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
  const std::vector<std::pair<std::int64_t, std::uint64_t>> expected{
      {4, 2004}, {5, 1002}, {5, 2001}, {5, 2003}};
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

}  // namespace
}  // namespace loomnet
