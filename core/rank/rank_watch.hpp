// Decides what a rank does as a whole from looks at its threads in /proc: how soon to look again, how many
// looks make a finding, and which look is void because a thread has moved meanwhile.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "rank/rank_threads.hpp"

namespace loomnet::rank {

// A look has three parts, so that the kernel is asked with the session's mutex released: begin() and end()
// are called with the mutex held, ask() without. All other calls are made with the mutex held.
class ThreadWatch {
 public:
  struct Look {
    Threads::Question question;
    bool owed = false;       // a work is under way whose future is held
    bool children = false;   // descendants are looked at as well, which takes long
    std::uint64_t moves = 0;
    Activity seen = Activity::computing;
  };

  explicit ThreadWatch(Threads& threads) : threads_(threads) {}

  // A thread takes the session's mutex. Another one may hold it that counts as waiting, because it has been woken to
  // look whether its wait is over. A look that finds the thread asleep in the mutex meanwhile is void.
  std::unique_lock<std::mutex> enter(std::mutex& mutex) {
    entering_.fetch_add(1, std::memory_order_seq_cst);
    std::unique_lock lock(mutex);
    entering_.fetch_sub(1, std::memory_order_seq_cst);
    ++moves_;
    return lock;
  }
  // A thread of the process runs, or is about to: what the kernel showed is void, a look that is under way
  // included, and the next look comes soon.
  void moved();
  // What the looks since the last moved() have shown.
  Activity activity() const { return activity_; }

  // The wait before the next look.
  int interval_ms() const { return interval_ms_; }
  // `but_tid`: a thread that is none of the rank's.
  Look begin(bool owed, int but_tid) const;
  static void ask(Look& look) { look.seen = Threads::look(look.question, look.children); }
  // Counts what was seen at `now_ns`, unless a thread has moved since begin().
  void end(const Look& look, std::int64_t now_ns);

 private:
  // Between two looks: while the session is likely to be waited for, while a thread computes, while all
  // threads are known to wait.
  static constexpr int kNearMs = 1, kFarMs = 16, kSettledMs = 20;
  // Between two looks at a rank whose threads all sleep outside: before and after that is a finding.
  static constexpr int kMaybeOutsideMs = 3, kOutsideMs = 5;
  // A thread that sleeps outside may be about to go on. Only a rank seen asleep in so many looks, over so
  // long, counts as outside.
  static constexpr int kOutsideLooks = 8;
  static constexpr std::int64_t kOutsideNs = 25'000'000;
  // Descendants are looked at once before that finding, and in every so many looks from there on.
  static constexpr int kChildrenLooks = 64;

  Threads& threads_;
  Activity activity_ = Activity::computing;
  int interval_ms_ = kNearMs;
  int outside_looks_ = 0;  // in a row
  std::int64_t outside_since_ns_ = 0;
  std::uint64_t moves_ = 0;
  std::atomic<int> entering_{0};  // threads in enter() that do not have the mutex yet
};

}  // namespace loomnet::rank
