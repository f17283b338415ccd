// The threads of a rank's process that may post, and what each of them does: it is blocked in a call of the
// session, sleeps in a lock or a future, sleeps elsewhere, or runs. The virtual clock moves only while none of
// them runs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace loomnet::rank {

// A thread that has called the session, or the process's main thread.
struct Thread {
  int tid = 0;
  std::uint32_t waits = 0;    // calls of the session that it is blocked in
  std::uint32_t futures = 0;  // PyTorch calls it is in that may block on a future of the session
  std::uint32_t locals = 0;   // calls it is in that this machine ends, however long it sleeps in them
  // Its blocked call has ended, and it has yet to take the session's mutex back, in which it may sleep: it runs.
  bool returning = false;
  bool callback = false;      // it runs callbacks of finished works …
  bool busy = false;          // … and has one in hand
  // A thread that the script has started and that has not called yet: it holds the clock while it runs, since
  // it may be about to call. It does not hold the clock while it sleeps.
  bool quiet = false;
  std::string name;                // as the script calls it; empty: not known
  std::uint64_t slept_run_ns = 0;  // the CPU time it had used when it was last found asleep outside a lock; 0: never
  std::uint64_t sleeping_at = 0;   // quiet: its time slices when it was last found asleep outside a lock …
  int sleeping_looks = 0;          // … in how many looks in a row it was found so …
  std::int64_t sleeping_ns = 0;    // … and since when
  std::int64_t held_ns = 0;        // quiet: how long it has held the clock so far, of the machine's time
};

// One blocked call of a thread of the session, from construction to end(). end() may come from another thread:
// the blocked thread counts as running from then on, even before the scheduler lets it run. All with the
// session's mutex held.
class Waiter {
 public:
  explicit Waiter(Thread& thread) : thread_(thread) { ++thread.waits; }
  ~Waiter() {
    end();
    returned();
  }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;
  void end() {
    if (ended_) return;
    ended_ = true;
    --thread_.waits;
    thread_.returning = true;
  }
  // By the blocked thread, when it has the mutex again.
  void returned() { thread_.returning = false; }
  bool ended() const { return ended_; }

 private:
  Thread& thread_;
  bool ended_ = false;
};

// What the kernel says of one thread.
enum class Sleep : std::uint8_t {
  gone,     // no such thread any more
  running,  // it runs, is about to, waits for a disk, or cannot be looked at
  lock,     // in a futex of the process without a time limit: a lock, a condition, a future, a join
  other,    // in any other call: a timer, a file, a socket, a child, a lock shared with other processes
};

// Reads /proc of the own process. One thread at a time.
class ThreadProbe {
 public:
  struct Seen {
    int tid;
    Sleep sleep;
    std::uint64_t slices;      // times it was scheduled
    std::uint64_t run_ns = 0;  // CPU time it has used
    bool disk = false;         // of one that runs: it waits for a disk
    bool operator==(const Seen&) const = default;
  };
  static constexpr std::uint64_t kTickNs = 200'000, kBriefNs = 1'000'000;
  // Numbers of the calling thread and of the main thread as /proc names them, also inside another
  // PID namespace than /proc's.
  static int self();
  static int main();
  static Seen look(int tid);
  // Whether a thread has run but shortly between its sleeps so far: it wakes, looks and sleeps again. On a busy
  // machine such a thread waits for a processor most of the time, and looks as if it ran.
  static bool ticks(const Seen& seen);
  // Whether a thread has used so little CPU time since it was found asleep, when it had used `slept_run_ns` (0: it
  // never was), that it may have woken for a look alone, as one that polls a socket does.
  static bool brief(const Seen& seen, std::uint64_t slept_run_ns);
  // All threads of the process but these.
  static std::vector<Seen> others(const std::vector<int>& but);
  // Whether any thread of any descendant of the process runs.
  static bool children_run();
};

// What a rank does as a whole.
enum class Activity : std::uint8_t {
  computing,
  beside,  // its threads sleep or have just woken for a moment, or sleep while only threads that tick run beside them
  waiting,  // each of its threads waits for the network, or for another thread that does
  outside,  // all its threads sleep, and at least one of them in a call of which it cannot be seen what ends it
};

// The threads that may post. All calls but look() with the session's mutex held. A reference to an entry
// is good for as long as its thread lives.
class Threads {
 public:
  // The entry of the calling thread. `made`: this was its first call.
  Thread& self(bool* made = nullptr);
  // The main thread may post although it has not called yet.
  void add_main();
  std::size_t size() const { return threads_.size(); }

  // The calling thread has begun, or is about to end. A quiet thread that has held the clock for kMostHeldNs does
  // not hold it any more: it computes beside the job, and may never call.
  void begin(const std::string& name);
  void end();
  bool some_quiet() const;

  // By the session's own count, without asking the kernel: all wait in the session, quiet threads left out; or at
  // least one does (`some`), as it is enough on the live clock.
  bool all_wait() const;
  bool some_wait() const;
  bool callbacks_wait() const;
  bool in_future() const;

  // A probe in three parts, so that the kernel is asked with the mutex released.
  struct Question {
    struct Unclear {
      ThreadProbe::Seen seen;
      std::uint64_t slept_run_ns = 0;  // of Thread
    };
    std::vector<Unclear> unclear;  // threads that the session does not see blocked in a call of its own
    std::vector<int> bystanders_but;  // all threads that may post, and the progress thread; the others are bystanders
    bool local = false;  // at least one thread is in a call that this machine ends, or returns from one of the session
    bool plain_lock = false;  // at least one unclear thread is in no call that waits for a future
    bool waited = false;  // at least one thread will be woken by the network
    struct Quiet {
      ThreadProbe::Seen seen;
      std::uint64_t settled = 0;  // its time slices if it is known to sleep until they change
      bool holds = false;  // it runs, or may be about to
    };
    std::vector<Quiet> quiet;
  };
  // `owed`: a work is under way whose future is held.
  Question ask(bool owed, int progress_tid) const;
  // `children`: a running descendant counts as computing too, which takes long to find out.
  static Activity look(Question& question, bool children);
  // Forgets threads that are gone, and keeps what was seen of quiet ones at `now_ns`. `look_ns`: since the look before.
  void answer(const Question& question, std::int64_t now_ns, std::int64_t look_ns);

 private:
  static Activity look_at_callers(Question& question, bool children);
  static constexpr std::size_t kPruneFrom = 64;
  static constexpr std::int64_t kMostHeldNs = 5'000'000'000;
  // A thread that sleeps in a timer or a socket may be about to go on. Seen asleep in so many looks, over so long,
  // it counts as asleep until it has run again.
  static constexpr int kSleepingLooks = 8;
  static constexpr std::int64_t kSleepingNs = 25'000'000;
  static bool settled(const Thread& thread) { return thread.sleeping_looks >= kSleepingLooks; }
  static bool holds(const Thread& thread) { return thread.quiet && thread.held_ns < kMostHeldNs; }
  std::map<int, Thread> threads_;
  // Entries of threads that are gone are dropped whenever there are this many: a job may make a thread per
  // step, and on the live clock answer() drops none.
  std::size_t prune_at_ = kPruneFrom;
};

}  // namespace loomnet::rank
