// What /proc tells of real threads that sleep in locks, timers, pipes and polls, or spin; and what follows from
// it for a rank as a whole.
#include "rank/rank_threads.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "rank/rank_watch.hpp"

namespace loomnet::rank {
namespace {

using namespace std::chrono_literals;

// Waits for what another thread or process does, up to 20 s.
bool soon(const std::function<bool()>& holds) {
  for (int i = 0; i < 10'000; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(2ms);
  }
  return false;
}

// A thread in one kind of call. The destructor lets it end.
class Sleeper {
 public:
  enum class In { lock, timed_lock, nanosleep, pipe, poll, spin, short_sleeps };

  // `first`: what the thread does before it sleeps.
  explicit Sleeper(In in, std::function<void()> first = [] {}) {
    EXPECT_EQ(pipe2(pipe_, O_CLOEXEC), 0);
    thread_ = std::thread([this, in, first] {
      first();
      tid_ = ThreadProbe::self();
      rest(in);
    });
    EXPECT_TRUE(soon([this] { return tid_ != 0; }));
  }
  ~Sleeper() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    (void)!write(pipe_[1], "x", 1);
    thread_.join();
    close(pipe_[0]);
    close(pipe_[1]);
  }
  int tid() const { return tid_; }
  bool seen(Sleep sleep) const {
    return soon([&] { return ThreadProbe::look(tid_).sleep == sleep; });
  }

 private:
  void rest(In in) {
    std::unique_lock lock(mutex_, std::defer_lock);
    char byte;
    switch (in) {
      case In::lock:
        lock.lock();
        changed_.wait(lock, [this] { return over_.load(); });
        return;
      case In::timed_lock:
        lock.lock();
        changed_.wait_for(lock, 1h, [this] { return over_.load(); });
        return;
      case In::nanosleep:
        while (!over_) std::this_thread::sleep_for(50ms);
        return;
      case In::pipe:
        (void)!read(pipe_[0], &byte, 1);
        return;
      case In::poll: {
        pollfd fd{pipe_[0], POLLIN, 0};
        (void)!poll(&fd, 1, -1);
        return;
      }
      case In::spin:
        while (!over_) {
        }
        return;
      case In::short_sleeps:
        while (!over_) std::this_thread::sleep_for(200us);
        return;
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> over_{false};
  std::atomic<int> tid_{0};
  int pipe_[2];
  std::thread thread_;
};
using In = Sleeper::In;

TEST(ThreadProbe, TellsALockFromOtherSleepAndFromRunning) {
  EXPECT_TRUE(Sleeper(In::lock).seen(Sleep::lock));
  EXPECT_TRUE(Sleeper(In::timed_lock).seen(Sleep::other)) << "its time limit wakes it as well";
  EXPECT_TRUE(Sleeper(In::nanosleep).seen(Sleep::other));
  EXPECT_TRUE(Sleeper(In::pipe).seen(Sleep::other));
  EXPECT_TRUE(Sleeper(In::poll).seen(Sleep::other));
  const Sleeper spinner(In::spin);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(ThreadProbe::look(spinner.tid()).sleep, Sleep::running);
}

TEST(ThreadProbe, AMutexThatAnotherThreadHoldsIsALock) {
  std::mutex mutex;
  std::atomic<int> tid{0};
  std::unique_lock held(mutex);
  std::thread waits([&] {
    tid = ThreadProbe::self();
    const std::lock_guard lock(mutex);
  });
  EXPECT_TRUE(soon([&] { return tid != 0 && ThreadProbe::look(tid).sleep == Sleep::lock; }));
  held.unlock();
  waits.join();
}

// Python's multiprocessing sleeps in such a semaphore until its children, which may compute meanwhile, raise it.
TEST(ThreadProbe, ASemaphoreInSharedMemoryIsNotALock) {
  for (const bool shared : {false, true}) {
    void* at = mmap(nullptr, sizeof(sem_t), PROT_READ | PROT_WRITE, MAP_ANONYMOUS | (shared ? MAP_SHARED : MAP_PRIVATE),
                    -1, 0);
    ASSERT_NE(at, MAP_FAILED);
    auto* semaphore = static_cast<sem_t*>(at);
    ASSERT_EQ(sem_init(semaphore, 1, 0), 0);  // the kernel's call is the same for both
    std::atomic<int> tid{0};
    std::thread waits([&] {
      tid = ThreadProbe::self();
      while (sem_wait(semaphore) != 0) {
      }
    });
    const Sleep right = shared ? Sleep::other : Sleep::lock;
    EXPECT_TRUE(soon([&] { return tid != 0 && ThreadProbe::look(tid).sleep == right; })) << shared;
    sem_post(semaphore);
    waits.join();
    munmap(at, sizeof(sem_t));
  }
}

TEST(ThreadProbe, AJoinIsALock) {
  std::atomic<bool> over{false};
  std::atomic<int> tid{0};
  std::thread inner([&] {
    while (!over) std::this_thread::sleep_for(1ms);
  });
  std::thread waits([&] {
    tid = ThreadProbe::self();
    inner.join();
  });
  EXPECT_TRUE(soon([&] { return tid != 0 && ThreadProbe::look(tid).sleep == Sleep::lock; }));
  over = true;
  waits.join();
}

TEST(ThreadProbe, AThreadThatHasEndedIsGone) {
  int tid = 0;
  std::thread([&] { tid = ThreadProbe::self(); }).join();
  EXPECT_TRUE(soon([&] { return ThreadProbe::look(tid).sleep == Sleep::gone; }));
}

TEST(ThreadProbe, ASleepInBetweenIsSeenByItsTimeSlices) {
  const Sleeper sleeper(In::nanosleep);
  ASSERT_TRUE(sleeper.seen(Sleep::other));
  const auto before = ThreadProbe::look(sleeper.tid());
  if (before.slices == 0) GTEST_SKIP() << "this kernel counts no time slices";
  EXPECT_TRUE(soon([&] {
    const auto after = ThreadProbe::look(sleeper.tid());
    return after.sleep == Sleep::other && after != before;
  }));
}

// Two threads on one processor: one computes at the lowest priority, the other takes the processor from it
// every few microseconds.
TEST(ThreadProbe, AThreadWhoseProcessorIsOftenTakenComputesAndDoesNotTick) {
  const auto here = [] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    return one;
  }();
  const auto pin = [&] { EXPECT_EQ(pthread_setaffinity_np(pthread_self(), sizeof here, &here), 0); };
  const Sleeper computing(In::spin, [&] {
    pin();
    const sched_param lowest{};
    EXPECT_EQ(sched_setscheduler(0, SCHED_IDLE, &lowest), 0);
  });
  std::atomic<int> tid{0};
  std::atomic<bool> stop{false};
  std::thread ticking([&] {
    pin();
    tid = ThreadProbe::self();
    while (!stop) std::this_thread::sleep_for(std::chrono::microseconds(20));
  });
  const auto short_slices = [](int thread) {
    const auto seen = ThreadProbe::look(thread);
    return seen.slices > 100 && seen.run_ns / seen.slices < ThreadProbe::kTickNs;
  };
  EXPECT_TRUE(soon([&] { return short_slices(computing.tid()) && short_slices(tid); }));
  EXPECT_FALSE(ThreadProbe::ticks(ThreadProbe::look(computing.tid())));
  EXPECT_TRUE(ThreadProbe::ticks(ThreadProbe::look(tid)));
  stop = true;
  ticking.join();
}

// While it lives, the process can open no further descriptor.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit none{0, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_;
};

TEST(ThreadProbe, AProcessWithoutADescriptorLeftLosesNoThread) {
  const Sleeper sleeper(In::pipe);
  ASSERT_TRUE(sleeper.seen(Sleep::other));
  std::vector<ThreadProbe::Seen> others;
  Sleep sleep;
  {
    const NoDescriptors none;
    sleep = ThreadProbe::look(sleeper.tid()).sleep;
    others = ThreadProbe::others({});
  }
  EXPECT_EQ(sleep, Sleep::running) << "cannot be looked at";
  EXPECT_FALSE(others.empty());
}

// A child and a grandchild, whose main threads sleep; in the grandchild another thread spins, or none.
class Child {
 public:
  explicit Child(bool spins) {
    EXPECT_EQ(pipe2(end_, 0), 0);
    EXPECT_EQ(pipe2(ready_, 0), 0);
    pid_ = fork();
    char byte;
    if (pid_ != 0) {
      (void)!read(ready_[0], &byte, 1);
      return;
    }
    close(end_[1]);
    if (fork() == 0) {
      pthread_t thread;
      const auto spin = [](void* self) -> void* {
        (void)!write(static_cast<Child*>(self)->ready_[1], "x", 1);
        for (std::atomic<bool> over{false}; !over;) {
        }
        return nullptr;
      };
      if (spins) {
        pthread_create(&thread, nullptr, spin, this);
      } else {
        (void)!write(ready_[1], "x", 1);
      }
      (void)!read(end_[0], &byte, 1);  // until the test closes its end
      _exit(0);
    }
    wait(nullptr);
    _exit(0);
  }
  ~Child() {
    for (const int fd : {end_[0], end_[1], ready_[0], ready_[1]}) close(fd);
    waitpid(pid_, nullptr, 0);
  }

 private:
  int end_[2], ready_[2];
  pid_t pid_;
};

TEST(ThreadProbe, DescendantsThatSleepDoNotRun) {
  const Child child(false);
  EXPECT_TRUE(soon([] { return !ThreadProbe::children_run(); }));
}

#if !defined(LOOMNET_SANITIZES_THREAD)  // which refuses threads in a child that a threaded process has forked
TEST(ThreadProbe, AThreadOfAGrandchildRuns) {
  const Child child(true);
  std::this_thread::sleep_for(50ms);  // until the main threads of both sleep
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(ThreadProbe::children_run());
}
#endif

// Blocks the calling thread's entry as a call of the session does.
class InSession {
 public:
  explicit InSession(Threads& threads) : waiter_(threads.self()) {}
  void end() { waiter_.end(); }

 private:
  Waiter waiter_;
};

TEST(Threads, AWaiterCountsUntilItsCallEndsAndNotTwice) {
  Threads threads;
  EXPECT_FALSE(threads.all_wait()) << "no thread is no thread that waits";
  Thread& own = threads.self();
  EXPECT_FALSE(threads.some_wait());
  {
    Waiter outer(own);
    EXPECT_TRUE(threads.all_wait());
    {
      Waiter inner(own);
      inner.end();
      EXPECT_TRUE(inner.ended());
      EXPECT_TRUE(threads.all_wait());
    }
    EXPECT_EQ(own.waits, 1u);
    outer.end();
    EXPECT_TRUE(own.returning);
    outer.returned();
    EXPECT_FALSE(own.returning);
  }
  EXPECT_FALSE(threads.all_wait());
}

TEST(Threads, OneThreadThatDoesNotWaitIsEnoughForTheVirtualClock) {
  Threads threads;
  const InSession waits(threads);
  EXPECT_TRUE(threads.all_wait());
  bool made = false;
  std::thread([&] { threads.self(&made); }).join();
  EXPECT_TRUE(made);
  EXPECT_TRUE(threads.some_wait());
  EXPECT_FALSE(threads.all_wait());
}

TEST(Threads, TheMainThreadCountsBeforeItHasCalled) {
  Threads threads;
  threads.add_main();
  std::thread([&] {
    const InSession waits(threads);
    EXPECT_FALSE(threads.all_wait());
  }).join();
}

TEST(Threads, ACallbackThreadCountsWhileItHasAWorkInHand) {
  Threads threads;
  const InSession waits(threads);
  std::thread([&] {
    Thread& own = threads.self();
    own.callback = true;
    EXPECT_TRUE(threads.all_wait());
    own.busy = true;
    EXPECT_FALSE(threads.all_wait());
    EXPECT_FALSE(threads.callbacks_wait());
    const InSession also(threads);
    EXPECT_TRUE(threads.all_wait());
    EXPECT_TRUE(threads.callbacks_wait());
  }).join();
}

// A job may make a thread for each step. On the live clock nothing asks the kernel which are gone.
TEST(Threads, ThreadsThatHaveEndedAreForgotten) {
  Threads threads;
  for (int i = 0; i < 2000; ++i) {
    std::thread([&] { threads.self(); }).join();
  }
  EXPECT_LT(threads.size(), 200u);
}

// A rank made of threads that sleep. The thread of the test stands for the progress thread, which asks.
class Rank {
 public:
  // A thread that the session sees blocked, and threads that it does not, PyTorch's call included or not.
  void in_session() {
    add(In::lock, [this] { ++threads.self().waits; });
  }
  void in_future(In in) {
    add(in, [this] { ++threads.self().futures; });
  }
  void in_local(In in) {
    add(in, [this] { ++threads.self().locals; });
  }
  // Its call has ended, and it sleeps in the session's mutex.
  void returning() {
    add(In::lock, [this] {
      waiter_.emplace(threads.self());
      waiter_->end();
    });
  }
  void elsewhere(In in) {
    add(in, [this] { threads.self(); });
  }
  void callback(In in) {
    add(in, [this] {
      Thread& own = threads.self();
      own.callback = own.busy = true;
    });
  }
  void quiet(In in) {
    add(in, [this] { threads.begin("quiet"); });
  }
  void bystander(In in) {
    add(in, [] {});
  }

  Activity activity(bool owed = false, bool children = false) {
    auto question = threads.ask(owed, ThreadProbe::self());
    return Threads::look(question, children);
  }
  bool is(Activity expected, bool owed = false, bool children = false) {
    return soon([&] { return activity(owed, children) == expected; });
  }
  // A look of which the threads' entries hear.
  Activity noted_activity() {
    auto question = threads.ask(false, ThreadProbe::self());
    const Activity found = Threads::look(question, false);
    threads.answer(question, 0, 0);
    return found;
  }

  Threads threads;

 private:
  void add(In in, std::function<void()> first) {
    sleepers_.push_back(std::make_unique<Sleeper>(in, std::move(first)));
    EXPECT_TRUE(sleepers_.back()->seen(in == In::lock ? Sleep::lock : in == In::spin ? Sleep::running : Sleep::other));
  }
  std::vector<std::unique_ptr<Sleeper>> sleepers_;
  std::optional<Waiter> waiter_;
};

TEST(Ranks, WaitIfOneIsInTheSessionAndTheOthersInLocks) {
  Rank rank;
  rank.in_session();
  rank.in_future(In::lock);
  rank.elsewhere(In::lock);
  rank.callback(In::lock);
  EXPECT_TRUE(rank.is(Activity::waiting));
}

TEST(Ranks, WaitInAFutureOnlyWhileAWorkIsOwed) {
  Rank rank;
  rank.in_future(In::lock);
  EXPECT_TRUE(rank.is(Activity::waiting, true));
  EXPECT_TRUE(rank.is(Activity::outside, false));
}

TEST(Ranks, ComputeIfOneSleepsInACallThatThisMachineEnds) {
  Rank rank;
  rank.in_session();
  rank.in_local(In::pipe);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(rank.activity(), Activity::computing);
}

TEST(Ranks, ComputeIfOneHasYetToReturnFromACallOfTheSession) {
  Rank rank;
  rank.in_session();
  rank.returning();
  for (int i = 0; i < 50; ++i) EXPECT_EQ(rank.activity(), Activity::computing);
}

TEST(Ranks, AreOutsideIfOneSleepsInWhatTheNetworkDoesNotEnd) {
  for (const In in : {In::timed_lock, In::nanosleep, In::pipe, In::poll}) {
    Rank rank;
    rank.in_session();
    rank.elsewhere(in);
    EXPECT_TRUE(rank.is(Activity::outside)) << static_cast<int>(in);
  }
}

TEST(Ranks, ComputeIfOneRuns) {
  Rank rank;
  rank.in_session();
  rank.in_future(In::spin);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(rank.activity(true), Activity::computing);
}

TEST(Ranks, ComputeIfOneIsInALockThatARunningBystanderMayHold) {
  Rank rank;
  rank.in_session();
  rank.elsewhere(In::lock);
  rank.bystander(In::poll);
  EXPECT_TRUE(rank.is(Activity::waiting)) << "a bystander that sleeps";
  rank.bystander(In::spin);
  EXPECT_TRUE(rank.is(Activity::computing)) << "a bystander that has run for a while";
  for (int i = 0; i < 50; ++i) EXPECT_EQ(rank.activity(), Activity::computing);
}

// Gloo's loop wakes every 10 ms in every rank.
TEST(Ranks, AreNotTakenForComputingByBystandersThatTick) {
  Rank rank;
  rank.elsewhere(In::lock);
  std::atomic<bool> stop{false};
  std::thread ticking([&] {
    while (!stop) std::this_thread::sleep_for(std::chrono::microseconds(20));
  });
  EXPECT_TRUE(rank.is(Activity::beside));
  int computing = 0;
  for (int i = 0; i < 200; ++i) computing += rank.activity() == Activity::computing;
  EXPECT_EQ(computing, 0);
  stop = true;
  ticking.join();
}

// As a store of PyTorch polls its server until all ranks are there: on a busy machine every second look finds it
// about to run, and the rank would never be found outside.
TEST(Ranks, AreNotTakenForComputingByAThreadOfTheirsThatPolls) {
  Rank rank;
  rank.in_session();
  rank.elsewhere(In::short_sleeps);
  EXPECT_TRUE(soon([&] { return rank.noted_activity() == Activity::outside; }));
  int beside = 0, computing = 0;
  for (int i = 0; i < 20'000 && beside < 10; ++i) {
    const Activity found = rank.noted_activity();
    beside += found == Activity::beside;
    computing += found == Activity::computing;
  }
  EXPECT_EQ(beside, 10) << "looks at which it had just woken";
  EXPECT_EQ(computing, 0);
}

TEST(Ranks, ComputeAgainOnceAThreadOfTheirsHasRunForLongerThanAPollTakes) {
  Rank rank;
  rank.in_session();
  std::atomic<bool> known{false}, wake{false}, stop{false};
  std::thread thread([&] {
    rank.threads.self();
    known = true;
    while (!wake) std::this_thread::sleep_for(1ms);
    while (!stop) {
    }
  });
  EXPECT_TRUE(soon([&] { return known.load(); }));
  EXPECT_TRUE(soon([&] { return rank.noted_activity() == Activity::outside; }));
  wake = true;
  EXPECT_TRUE(soon([&] { return rank.noted_activity() == Activity::computing; }));
  for (int i = 0; i < 50; ++i) EXPECT_EQ(rank.noted_activity(), Activity::computing);
  stop = true;
  thread.join();
}

TEST(ThreadProbe, AThreadIsBriefForAMillisecondOfItsTimeAndNotWhileItWaitsForADisk) {
  ThreadProbe::Seen seen{.tid = 1, .sleep = Sleep::running, .slices = 9, .run_ns = 5'000'000};
  EXPECT_FALSE(ThreadProbe::brief(seen, 0)) << "it was never found asleep";
  EXPECT_TRUE(ThreadProbe::brief(seen, 4'000'001));
  EXPECT_FALSE(ThreadProbe::brief(seen, 4'000'000));
  EXPECT_FALSE(ThreadProbe::brief(seen, 6'000'000)) << "another thread that has the number now";
  seen.disk = true;
  EXPECT_FALSE(ThreadProbe::brief(seen, 4'999'999));
}

// What a future waits for is the network's, so that a thread that runs for other reasons does not hold the clock.
TEST(Ranks, WaitInAFutureWhateverBystandersDo) {
  Rank rank;
  rank.in_session();
  rank.in_future(In::lock);
  rank.bystander(In::spin);
  EXPECT_TRUE(rank.is(Activity::waiting));
}

TEST(Ranks, WaitThoughAThreadOfTheirsHasEnded) {
  Rank rank;
  rank.in_session();
  std::thread([&] { rank.threads.self(); }).join();
  EXPECT_FALSE(rank.threads.all_wait());
  EXPECT_TRUE(rank.is(Activity::waiting));
  ThreadWatch watch(rank.threads);
  EXPECT_TRUE(soon([&] {
    auto look = watch.begin(false, ThreadProbe::self());
    ThreadWatch::ask(look);
    watch.end(look, 0);
    return rank.threads.size() == 1;
  }));
  EXPECT_TRUE(rank.threads.all_wait()) << "the thread is forgotten";
}

#if !defined(LOOMNET_SANITIZES_THREAD)
TEST(Ranks, ComputeIfOneSleepsWhileADescendantRuns) {
  const Child child(true);
  Rank rank;
  rank.elsewhere(In::pipe);
  EXPECT_TRUE(rank.is(Activity::computing, false, true));
  EXPECT_TRUE(rank.is(Activity::outside, false, false)) << "descendants were not asked about";
}
#endif

// A rank of which one thread is blocked in the session and one has been started and has not called yet.
class QuietThread : public ::testing::Test {
 protected:
  void SetUp() override { rank.in_session(); }
  // Looks, so many milliseconds apart, until the rank is found waiting; how long that took.
  std::int64_t waits_after_ms(std::int64_t apart_ms) {
    ThreadWatch watch(rank.threads);
    for (std::int64_t at_ms = 0; at_ms < 100'000; at_ms += apart_ms) {
      auto look = watch.begin(false, ThreadProbe::self());
      ThreadWatch::ask(look);
      watch.end(look, at_ms * 1'000'000);
      if (watch.activity() == Activity::waiting) return at_ms;
    }
    return -1;
  }
  Rank rank;
};

TEST_F(QuietThread, HoldsTheClockWhileItRunsForFiveSecondsInAll) {
  rank.quiet(In::spin);
  EXPECT_TRUE(rank.threads.all_wait()) << "it has not called";
  EXPECT_TRUE(rank.threads.some_quiet());
  EXPECT_EQ(rank.activity(), Activity::computing);
  EXPECT_GT(waits_after_ms(1), 1000);
  EXPECT_FALSE(rank.threads.some_quiet()) << "it computes beside the job";
}

TEST_F(QuietThread, DoesNotHoldTheClockInALock) {
  rank.quiet(In::lock);
  EXPECT_EQ(waits_after_ms(1), 0);
  EXPECT_TRUE(rank.threads.some_quiet());
}

TEST_F(QuietThread, HoldsTheClockInATimerUntilItIsKnownToSleepOn) {
  rank.quiet(In::nanosleep);
  const std::int64_t first = waits_after_ms(10);
  if (first < 0) GTEST_SKIP() << "this kernel counts no time slices";
  EXPECT_GE(first, 30);
  EXPECT_EQ(waits_after_ms(10), 0) << "it has slept ever since";
}

TEST(Threads, AQuietThreadThatCallsCountsAsNew) {
  Threads threads;
  bool made = false;
  threads.begin("quiet");
  EXPECT_TRUE(threads.self().quiet);
  threads.self(&made);
  EXPECT_TRUE(made);
  EXPECT_FALSE(threads.some_quiet());
  EXPECT_EQ(threads.self().name, "quiet");
  threads.end();
  EXPECT_EQ(threads.size(), 0U);
}

}  // namespace
}  // namespace loomnet::rank
