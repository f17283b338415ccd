// One process's use of its NIC: a progress thread that runs the collective executor, works that any
// thread may wait for, deadlines, marks, and the state word that says "waiting".
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "collective/executor.hpp"
#include "rank/rank_client.hpp"
#include "rank/rank_memory.hpp"
#include "rank/rank_threads.hpp"
#include "rank/rank_watch.hpp"

namespace loomnet::rank {

// What one call started: one operation or, coalesced, several. Read `status` and what follows only
// once it is done.
struct Work {
  std::uint64_t id = 0;
  CommunicatorId communicator = 0;
  std::string name;           // describe() of the first operation
  std::int64_t started_ns = 0, ended_ns = 0;
  std::int64_t limit_ns = 0;     // time limit, 0: none
  std::int64_t deadline_ps = kNoAlarm;  // on the session's clock
  bool asked = false;            // the script chose the limit itself; see RankWords::alarm_ps
  std::uint64_t bytes = 0;    // payload: the larger of input and output
  OperationStatus status = OperationStatus::ok;
  std::string message;
  GroupRank source = 0;       // of a receive
  Received received;          // of all its operations
  std::atomic<bool> done{false};

 private:
  friend class RankSession;
  std::uint32_t left = 0;     // operations
  std::vector<Waiter*> waiters;  // threads inside wait()
  bool wanted = false;        // next_finished() shall return it
  bool marked = false;        // its begin is in the mark ring
};
using WorkPtr = std::shared_ptr<Work>;

class RankSession final : private OperationSink, private StepWatch {
 public:
  // Attaches to inherited descriptors (duplicated, the caller's stay open). Throws
  // std::runtime_error or std::system_error. `await_sends` as CollectiveExecutor has it.
  RankSession(int memory_fd, int engine_event_fd, bool await_sends = true);
  ~RankSession() override;  // leave(0)
  RankSession(const RankSession&) = delete;
  RankSession& operator=(const RankSession&) = delete;

  std::uint32_t rank() const { return client_.rank(); }
  std::uint32_t world() const { return client_.world(); }

  // Thread-safe, all of them. Argument errors throw std::invalid_argument.
  void create(CommunicatorId id, const std::vector<JobRank>& members);
  void close(CommunicatorId id);
  void abort(CommunicatorId id, const std::string& reason);
  // If the operations are not over `timeout_ns` of emulated time from now (0: no limit), the communicator is
  // aborted. `asked`: the script chose this limit. A limit that it did not choose, such as PyTorch's default
  // of minutes, does not keep the engine from naming a deadlock at once.
  WorkPtr start(CommunicatorId id, std::vector<Operation> operations, std::int64_t timeout_ns, bool asked = true);
  // True when done; false if `timeout_ns` of emulated time (negative: none) passed first.
  bool wait(const WorkPtr& work, std::int64_t timeout_ns);
  // next_finished() shall return this work. False: the work is done already, and next_finished() will not
  // return it.
  bool want(const WorkPtr& work);
  // Sleeps until a work that was wanted has finished; null once the session has left. The calling thread is a
  // callback thread from its first call on: it counts as computing from one return to its next call, and does
  // not count at all while it sleeps here.
  WorkPtr next_finished();
  // Members of a new group and the number that the run gives to it, once `size` ranks have asked for
  // the group of this 128-bit name; `position`: this rank's in it; `whole`: it is the rank's default group. No
  // number: other ranks claim the same position, or `timeout_ns` passed first. Throws std::runtime_error where
  // the rank was cut off.
  RankClient::Meeting meet(std::uint64_t name_high, std::uint64_t name_low, std::uint32_t position, std::uint32_t size,
                           std::int64_t timeout_ns, bool asked, bool whole = false);

  // Sends these bytes to the controller of the rank's region; the report's number, none where the mark ring is
  // full. Throws std::invalid_argument for a report that is empty or above kMostReport bytes.
  std::optional<std::uint32_t> report(std::span<const std::uint8_t> bytes);
  // Waits for the answer to a report, once. None: `timeout_ns` of emulated time (0: no limit) passed first. Throws
  // std::runtime_error where the rank was cut off.
  std::optional<std::vector<std::uint8_t>> answer(std::uint32_t number, std::int64_t timeout_ns);

  bool mark(MarkKind kind, std::uint64_t value, std::uint64_t a = 0, std::uint64_t b = 0, std::uint32_t status = 0);
  // Marks each ring step that the rank receives on communicators that are created from now on. A mark that finds
  // no room in the mark ring is lost and counted.
  void mark_ring_steps();
  // Training step after which the run wants the job to end; -1: none.
  std::int64_t last_step();
  // Live: `dilation` of wall time pass per emulated time.
  void use_dilation(double dilation) { dilation_ = dilation; }
  // Emulated time, as far as the rank knows it.
  std::int64_t now_ps() const;
  // Virtual clock: blocks while `picoseconds` of emulated time pass. Computing, and the price of a poll
  // that found nothing (`poll`, which is counted).
  void compute(std::uint64_t picoseconds, bool poll = false);
  // The calling thread enters (true) or leaves a PyTorch call that may block on a future of the session.
  void future_call(bool enters);
  // … a call that this machine alone ends, as a connection between ranks that are there: emulated time stands
  // while the thread sleeps in it.
  void local_call(bool enters);
  // Virtual clock: the calling thread, which the script has started under this name, begins, or is about to end.
  // While it runs emulated time stands, as for a thread that has called. From the first such thread on calls start
  // only when the rank rests, in the order of their communicators: which of two threads calls first at one instant
  // is a matter of this machine's scheduler, and calls on one communicator keep their order.
  void thread_begins(const std::string& name);
  void thread_ends();
  // Names of threads whose first call came while the rank counted as waiting.
  std::vector<std::string> strays() const;
  // For traffic that another transport carries: an operation begins (its number) and ends.
  std::uint64_t foreign_begin();
  void foreign_end(std::uint64_t number, std::int64_t began_ns, std::uint64_t bytes, bool ok);

  // In a child that the process has forked, calls that need the NIC throw std::runtime_error and the others do
  // nothing.

  // Leaves: waits up to `linger_ns` until every posted write has completed, then says goodbye and
  // stops the threads. Works still unfinished are aborted. Idempotent.
  void leave(std::int64_t linger_ns);
  std::vector<std::pair<std::string, std::uint64_t>> counters() const;

 private:
  // Whether this is a child of the process that attached. The child's copy of the mutex may be held for
  // ever, and the engine would take the child's entries in the rings for its parent's.
  bool forked() const;
  void refuse_fork() const;  // throws std::runtime_error in such a child
  void finished(OperationId id, const OperationResult& result) override;
  void step_received(std::uint32_t communicator, std::uint32_t ring_step) override;
  void account(const WorkPtr& work, const OperationResult& result);
  void release(const WorkPtr& work);
  void execute(const WorkPtr& work, std::vector<Operation> operations);
  void check(CommunicatorId id, const std::vector<Operation>& operations) const;
  void progress();
  // From now on time limits go by the engine's virtual clock, which moves only while every thread that may
  // post waits or sleeps. The main thread is one of these from the start.
  void use_virtual_clock();
  // What follows is called with the mutex held.
  Thread& awake();        // the calling thread runs: void what was known of the rank's rest
  void start_progress();
  void update_state();
  State rest() const;
  void start_held();
  void set_alarms();
  void resume(Waiter& waiter);  // the call of `waiter` ends: its thread counts as computing from now on
  void end_blocks();
  bool settled() const;   // nothing of this rank is under way any more
  std::uint64_t payload_bytes(CommunicatorId id, const Operation& o) const;
  void expire();
  void expire_departed();
  int sleep_ms() const;
  void count_call(std::uint32_t Thread::* calls, bool enters);
  bool awaits_future() const;
  void sleep(std::unique_lock<std::mutex>& lock);
  std::int64_t after(std::int64_t timeout_ns) const;
  // Blocks until `done` or the deadline, which the engine hears of; false: the deadline came first.
  bool block(std::unique_lock<std::mutex>& lock, Waiter& waiter, std::int64_t deadline_ps, bool asked,
             const std::function<bool()>& done);

  // A call that is inside block(). The progress thread ends the call, not the blocked thread: the rank must
  // count as computing even before the scheduler lets that thread run.
  struct Block {
    Waiter* waiter;
    std::int64_t due_ps;
    bool asked;
    const std::function<bool()>* done;
  };

  // Live: how long the network must be silent before operations that need a rank that has exited are given up.
  // On the virtual clock the engine knows that nothing more will arrive, and sends the notice `stranded`.
  static constexpr std::int64_t kDepartedGracePs = 10'000'000'000'000;

  Memory memory_;
  WakeWord rank_wake_;
  EventFd engine_wake_;
  RankClient client_;
  CollectiveExecutor executor_;
  mutable std::mutex mutex_;  // taken by watch_.enter(), but by the progress thread
  // Apart, because a forked child must not destroy them.
  struct Conditions {
    std::condition_variable done;   // a blocked call may have ended
    std::condition_variable ready;  // ready_works_ has grown
  };
  std::unique_ptr<Conditions> conditions_ = std::make_unique<Conditions>();
  std::unordered_map<std::uint64_t, WorkPtr> operations_;  // OperationId::value
  std::vector<std::pair<OperationId, OperationResult>> early_;  // finished inside start()
  bool starting_ = false;
  std::deque<WorkPtr> ready_works_;
  std::unordered_map<CommunicatorId, std::vector<JobRank>> communicators_;
  std::thread thread_;
  std::uint64_t next_work_ = 1, open_marks_ = 0;
  // Calls that start when the rank rests.
  struct Held {
    WorkPtr work;
    std::vector<Operation> operations;
  };
  std::vector<Held> held_;
  bool holds_ = false;  // several threads call
  std::vector<std::string> strays_;
  Threads threads_;
  mutable ThreadWatch watch_;  // virtual clock: of threads that are not blocked in the session
  std::vector<Block> blocks_;
  bool virtual_ = false;
  double dilation_ = 1.0;
  int progress_tid_ = 0;
  std::int64_t last_event_ps_ = 0;
  std::size_t departed_failed_ = 0;
  std::uint64_t stranded_ = 0;
  std::uint32_t meetings_ = 0, reports_ = 0;
  bool idle_ = true;  // the progress thread sleeps, or there is none
  bool blind_ = false;  // the progress thread sleeps until it is woken; it looks at no thread meanwhile
  bool leaving_ = false, stop_ = false, left_ = false;
  const unsigned forks_;  // as counted when the process attached; a forked child leaves all alone
};

}  // namespace loomnet::rank
