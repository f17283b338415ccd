// A thread for what takes the kernel longer than the live loop may wait: jobs are done in their order.
#pragma once

#include <sys/prctl.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "live/priority.hpp"
#include "live/system.hpp"

namespace loomnet {

class Worker {
 public:
  // `realtime`: jobs do not wait for a core behind the machine's other work.
  explicit Worker(const char* name, bool realtime = false) : thread_([this, name, realtime] { run(name, realtime); }) {}
  ~Worker() { stop(); }
  Worker(const Worker&) = delete;

  // Any thread.
  void post(std::function<void()> job) {
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      jobs_.push_back(std::move(job));
    }
    waiting_.notify_one();
  }
  // Returns when all jobs that were posted are done. Idempotent.
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    waiting_.notify_one();
    if (thread_.joinable()) thread_.join();
  }
  // The first job that failed, as its LiveError says; empty: none. After stop().
  const std::string& failure() const { return failure_; }

 private:
  void run(const char* name, bool realtime) {
    ::prctl(PR_SET_NAME, name);
    if (realtime) take_realtime_priority();
    for (;;) {
      std::unique_lock lock(mutex_);
      waiting_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      const std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      try {
        job();
      } catch (const LiveError& error) {
        if (failure_.empty()) failure_ = error.what();
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable waiting_;
  std::deque<std::function<void()>> jobs_;
  bool stopping_ = false;
  std::string failure_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace loomnet
