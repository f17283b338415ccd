// Orders from other threads to the live loop: a lock-guarded list, looked at once per pass through
// one atomic flag, so that a pass without orders takes no lock.
#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

namespace loomnet {

class CommandQueue {
 public:
  using Command = std::function<void()>;

  // Any thread. False: the queue is closed, the command will not run.
  bool post(Command command) {
    const std::lock_guard lock(mutex_);
    if (closed_) return false;
    commands_.push_back(std::move(command));
    waiting_.store(true, std::memory_order_release);
    return true;
  }

  // Any thread but the loop's: runs `work` there and gives back its result or exception. Throws
  // std::logic_error if the loop ended before it came to it.
  template <typename Work>
  auto call(Work work) -> decltype(work()) {
    using Result = decltype(work());
    auto task = std::make_shared<std::packaged_task<Result()>>(std::move(work));
    std::future<Result> result = task->get_future();
    if (!post([task] { (*task)(); })) throw std::logic_error("the live loop has ended");
    task.reset();
    try {
      return result.get();
    } catch (const std::future_error&) {
      throw std::logic_error("the live loop has ended");
    }
  }

  // The loop: runs what waits, in order. True if there was anything.
  bool run() {
    if (!waiting_.load(std::memory_order_acquire)) return false;
    std::vector<Command> now;
    {
      const std::lock_guard lock(mutex_);
      now.swap(commands_);
      waiting_.store(false, std::memory_order_relaxed);
    }
    for (Command& c : now) c();
    return !now.empty();
  }

  // The loop, at its end: nothing is taken any more; callers that wait in call() return.
  void close() {
    std::vector<Command> dropped;
    const std::lock_guard lock(mutex_);
    closed_ = true;
    dropped.swap(commands_);
  }

 private:
  std::mutex mutex_;
  std::vector<Command> commands_;
  std::atomic<bool> waiting_{false};
  bool closed_ = false;
};

}  // namespace loomnet
