// Threads that pause a live run at once, each within its own pauses.
#include "live/live_run.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "live/live_fixture.hpp"

namespace loomnet {
namespace {

class LiveRunTest : public live_test::LiveTest {
 protected:
  void SetUp() override {
    LiveTest::SetUp();
    if (IsSkipped()) return;
    run_ = std::make_unique<LiveRun>(network_, std::vector<LiveRun::Port>{}, std::vector<LiveRun::Switch>{}, 1.0,
                                     seconds(1));
    run_->start();
  }
  // Whether the loop stands for this thread: then its work runs here.
  bool stands() {
    return run_->call([] { return std::this_thread::get_id(); }) == std::this_thread::get_id();
  }
  Network network_{1};
  std::unique_ptr<LiveRun> run_;
};

TEST_F(LiveRunTest, APauseWithinAPauseEndsWithItsOwnResume) {
  run_->pause();
  run_->pause();
  run_->resume();
  EXPECT_TRUE(stands());
  run_->resume();
  EXPECT_FALSE(stands());
  run_->resume();  // by a thread that holds nothing
  EXPECT_FALSE(stands());
}

TEST_F(LiveRunTest, TheLoopStandsForEachOfTwoThreadsThatPauseIt) {
  int touched = 0;   // the loop changes it without a lock, the threads for which it stands with one
  std::mutex turns;  // of the two threads, which may hold the loop at once
  const auto pause_often = [&] {
    for (int i = 0; i < 500; ++i) {
      run_->pause();
      {
        const std::lock_guard lock(turns);
        ++touched;
      }
      run_->resume();
      run_->call([&] { ++touched; });
    }
  };
  std::thread one(pause_often), other(pause_often);
  one.join();
  other.join();
  EXPECT_FALSE(stands());
  EXPECT_EQ(run_->call([&] { return touched; }), 2000);
}

}  // namespace
}  // namespace loomnet
