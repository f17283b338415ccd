// What follows from looks at a rank's threads, and which looks are void.
#include "rank/rank_watch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

namespace loomnet::rank {
namespace {

// Looks whose outcome the test gives.
class Watch : public ::testing::Test {
 protected:
  void look(Activity seen, std::int64_t at_ms, bool owed = false) {
    auto look = watch.begin(owed, 0);
    asked_children = look.children;
    look.seen = seen;
    watch.end(look, at_ms * 1'000'000);
  }
  Threads threads;
  ThreadWatch watch{threads};
  bool asked_children = false;
};

TEST_F(Watch, OutsideTakesEightLooksAndTwentyFiveMilliseconds) {
  for (int i = 0; i < 7; ++i) {
    look(Activity::outside, 100 * i);
    EXPECT_EQ(watch.activity(), Activity::computing) << i;
    EXPECT_EQ(watch.interval_ms(), 3);
  }
  look(Activity::outside, 700);
  EXPECT_EQ(watch.activity(), Activity::outside);
  EXPECT_EQ(watch.interval_ms(), 5);
  watch.moved();
  EXPECT_EQ(watch.activity(), Activity::computing);
  for (int i = 0; i < 25; ++i) {
    look(Activity::outside, 1000 + i);
    EXPECT_EQ(watch.activity(), Activity::computing) << i;
  }
  look(Activity::outside, 1025);
  EXPECT_EQ(watch.activity(), Activity::outside);
}

TEST_F(Watch, AThreadSeenRunningBeginsTheCountAnew) {
  for (int i = 0; i < 7; ++i) look(Activity::outside, 100 * i);
  look(Activity::computing, 700);
  for (int i = 8; i < 15; ++i) look(Activity::outside, 100 * i);
  EXPECT_EQ(watch.activity(), Activity::computing);
  look(Activity::outside, 1500);
  EXPECT_EQ(watch.activity(), Activity::outside);
}

TEST_F(Watch, ATickBesideTheRankChangesNoCount) {
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(watch.activity(), Activity::computing) << i;
    look(Activity::outside, 100 * i);
    look(Activity::beside, 100 * i + 50);
  }
  EXPECT_EQ(watch.activity(), Activity::outside);
  watch.moved();
  look(Activity::waiting, 1000);
  look(Activity::beside, 1001);
  EXPECT_EQ(watch.activity(), Activity::computing);
}

TEST_F(Watch, DescendantsAreLookedAtBeforeTheFindingAndNowAndThenAfterIt) {
  std::vector<int> with;
  for (int i = 1; i <= 200; ++i) {
    look(Activity::outside, i);
    if (asked_children) with.push_back(i);
  }
  EXPECT_THAT(with, ::testing::ElementsAre(8, 64, 128, 192));
}

TEST_F(Watch, WaitingTakesOneLook) {
  look(Activity::waiting, 0);
  EXPECT_EQ(watch.activity(), Activity::waiting);
  EXPECT_EQ(watch.interval_ms(), 20);
  look(Activity::computing, 20);
  EXPECT_EQ(watch.activity(), Activity::computing);
}

TEST_F(Watch, ALookDuringWhichAThreadMovedIsVoid) {
  for (const Activity seen : {Activity::waiting, Activity::outside}) {
    auto under_way = watch.begin(true, 0);
    under_way.seen = seen;
    watch.moved();
    watch.end(under_way, 0);
    EXPECT_EQ(watch.activity(), Activity::computing);
    EXPECT_EQ(watch.interval_ms(), 1);
  }
}

TEST_F(Watch, LooksAtARankThatComputesGrowRareUnlessAThreadIsLikelyToWait) {
  std::vector<int> intervals;
  for (int i = 0; i < 6; ++i) {
    look(Activity::computing, i);
    intervals.push_back(watch.interval_ms());
  }
  EXPECT_THAT(intervals, ::testing::ElementsAre(2, 4, 8, 16, 16, 16));
  look(Activity::computing, 6, true);
  EXPECT_EQ(watch.interval_ms(), 1) << "a work is owed";
  look(Activity::computing, 7);
  EXPECT_EQ(watch.interval_ms(), 2);
  ++threads.self().futures;
  look(Activity::computing, 8);
  EXPECT_EQ(watch.interval_ms(), 1) << "a thread is in a future";
}

// A thread that sleeps in the session's mutex looks like one that waits for a lock of the script's.
TEST_F(Watch, ALookIsVoidWhileAThreadSleepsInTheSessionsMutexAndOnceItHasBegunTo) {
  std::mutex mutex;
  std::unique_lock held(mutex);
  ++threads.self().waits;  // this thread is the one that has been woken to look whether its wait is over
  std::atomic<int> tid{0};
  std::thread caller([&] {
    tid = ThreadProbe::self();
    const auto lock = watch.enter(mutex);
  });
  while (tid == 0 || ThreadProbe::look(tid).sleep != Sleep::lock)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  auto under_way = watch.begin(false, 0);
  look(Activity::waiting, 0);
  EXPECT_EQ(watch.activity(), Activity::computing);
  held.unlock();
  caller.join();
  held.lock();
  under_way.seen = Activity::waiting;
  watch.end(under_way, 0);
  EXPECT_EQ(watch.activity(), Activity::computing) << "it has had the mutex since this look began";
  look(Activity::waiting, 1);
  EXPECT_EQ(watch.activity(), Activity::waiting);
}

}  // namespace
}  // namespace loomnet::rank
