// The threads for which the live loop stands. They may touch the network, and what they ask of the loop runs at
// once in their own thread: the loop would come to it only when they let it go on.
#pragma once

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

namespace loomnet {

class Holders {
 public:
  void add() {
    const std::lock_guard lock(mutex_);
    threads_.push_back(std::this_thread::get_id());
    any_.store(true, std::memory_order_release);
  }
  // The calling thread's last add() ends. True: no thread holds the loop any more.
  bool remove() {
    const std::lock_guard lock(mutex_);
    const auto at = std::find(threads_.rbegin(), threads_.rend(), std::this_thread::get_id());
    if (at != threads_.rend()) threads_.erase(std::next(at).base());
    any_.store(!threads_.empty(), std::memory_order_release);
    return threads_.empty();
  }
  // Whether the loop stands for the calling thread.
  bool mine() const {
    if (!any_.load(std::memory_order_acquire)) return false;
    const std::lock_guard lock(mutex_);
    return std::find(threads_.begin(), threads_.end(), std::this_thread::get_id()) != threads_.end();
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    threads_.clear();
    any_.store(false, std::memory_order_release);
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::thread::id> threads_;
  std::atomic<bool> any_{false};
};

}  // namespace loomnet
