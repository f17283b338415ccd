// One process's use of its NIC: a progress thread that runs the collective executor, works that any
// thread may wait for, deadlines, marks, and the state word that says "waiting".
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "collective/executor.hpp"
#include "nic/rank_client.hpp"
#include "nic/rank_memory.hpp"
#include "nic/rank_sleep.hpp"

namespace loomnet::rank {

// What one call started: one operation or, coalesced, several. Read `status` and what follows only
// once it is done.
struct Work {
  std::uint64_t id = 0;
  CommunicatorId communicator = 0;
  std::string name;           // describe() of the first operation
  std::int64_t started_ns = 0, ended_ns = 0;
  std::int64_t deadline_ns = 0;  // 0: none
  std::uint64_t bytes = 0;    // payload: the larger of input and output
  OperationStatus status = OperationStatus::ok;
  std::string message;
  GroupRank source = 0;       // of a receive
  std::atomic<bool> done{false};

 private:
  friend class RankSession;
  std::uint32_t left = 0;     // operations
  std::uint32_t waiters = 0, callback_waiters = 0;  // threads inside wait()
  bool wanted = false;        // next_finished() shall return it
  bool marked = false;        // its begin is in the mark ring
};
using WorkPtr = std::shared_ptr<Work>;

class RankSession final : private OperationSink {
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
  // `timeout_ns` from now, 0 for none: then the communicator is aborted.
  WorkPtr start(CommunicatorId id, std::vector<Operation> operations, std::int64_t timeout_ns);
  // True when done; false if `timeout_ns` (negative: none) passed first.
  bool wait(const WorkPtr& work, std::int64_t timeout_ns);
  // Asks for the work from next_finished(). False: it is done already, and will not come.
  bool want(const WorkPtr& work);
  // Sleeps for the next finished work that was wanted; null once the session stops. A thread that
  // calls it runs callbacks in between, which counts as computing.
  WorkPtr next_finished();

  bool mark(MarkKind kind, std::uint64_t value, std::uint64_t a = 0, std::uint64_t b = 0,
            std::uint32_t status = 0);
  // Training step after which the run wants the job to end; -1: none.
  std::int64_t last_step();
  // Blocks while `picoseconds` of emulated time pass: computing as the virtual clock counts it.
  void compute(std::uint64_t picoseconds);
  // On the virtual clock: a thread that waits for a future counts as waiting once the whole process
  // sleeps; time must not stand still for it.
  void watch_sleep();
  // For traffic that another transport carries: an operation begins (its number) and ends.
  std::uint64_t foreign_begin();
  void foreign_end(std::uint64_t number, std::int64_t began_ns, std::uint64_t bytes, bool ok);
  // Says that the calling thread blocks in communication that is not this session's.
  void foreign_wait(bool begins);

  // Leaves: waits up to `linger_ns` until every posted write has completed, then says goodbye and
  // stops the threads. Works still unfinished are aborted. Idempotent.
  void leave(std::int64_t linger_ns);
  std::vector<std::pair<std::string, std::uint64_t>> counters() const;

 private:
  void finished(OperationId id, const OperationResult& result) override;
  void account(const WorkPtr& work, const OperationResult& result);
  void release(const WorkPtr& work);
  void progress();
  void start_progress();  // mutex held
  void update_state();    // mutex held
  void end_compute();     // mutex held
  void end_leave();       // mutex held
  bool settled() const;   // mutex held: nothing of this rank is under way any more
  std::uint64_t payload_bytes(CommunicatorId id, const Operation& o) const;  // mutex held
  void expire(std::int64_t now);
  void expire_departed(std::int64_t now);
  int sleep_ms(std::int64_t now) const;
  bool awaits_future() const;
  void awake() {  // mutex held: a thread of the process is here
    ++calls_;
    asleep_ = false;
  }

  static constexpr int kWatchMs = 1;  // between two looks whether the process sleeps
  // Silence after which an operation that still needs a rank that has exited is given up.
  static constexpr std::int64_t kDepartedGrace = 10'000'000'000;

  Memory memory_;
  WakeWord rank_wake_;
  EventFd engine_wake_;
  RankClient client_;
  CollectiveExecutor executor_;
  mutable std::mutex mutex_;
  std::condition_variable done_, ready_;
  std::unordered_map<std::uint64_t, WorkPtr> operations_;  // OperationId::value
  std::vector<std::pair<OperationId, OperationResult>> early_;  // finished inside start()
  bool starting_ = false;
  std::deque<WorkPtr> ready_works_;
  std::unordered_map<CommunicatorId, std::vector<JobRank>> communicators_;
  std::thread thread_;
  std::uint64_t next_work_ = 1, open_marks_ = 0;
  std::uint64_t computes_ = 0;    // compute marks made
  SleepWatch sleep_watch_;
  bool watch_sleep_ = false;
  std::uint64_t calls_ = 0;
  bool asleep_ = false;           // the process was seen asleep, and nothing has woken it since
  bool computing_ = false;        // a thread is inside compute(), counted in blocked_
  std::uint32_t blocked_ = 0, blocked_callbacks_ = 0, callbacks_ = 0;
  std::int64_t last_event_ns_ = 0;
  std::size_t departed_failed_ = 0;
  bool idle_ = true;  // the progress thread sleeps, or there is none
  bool leaving_ = false;          // a thread is inside leave(), counted in blocked_
  bool stop_ = false, left_ = false;
  int pid_ = 0;  // of the process that attached; a forked child leaves all alone
};

}  // namespace loomnet::rank
