// How long the live loop and the kernel's softirq threads waited for a processor, and behind which task: from
// the scheduler's own events, where the kernel shows them to BPF programs.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

struct sched_watch_bpf;

namespace loomnet {

class SchedWatch {
 public:
  // Waits of 50 us and more of one kind of thread behind one task.
  struct Wait {
    std::string_view waiter, holder;  // "engine", "softirq", "rank", "idle processor", "other"
    std::string name;                 // of the task that held the processor
    std::uint64_t count = 0;
    std::int64_t total_ns = 0, longest_ns = 0;
  };

  // Never throws. If the kernel does not show these events, missing() gives the reason.
  SchedWatch();
  ~SchedWatch();
  SchedWatch(const SchedWatch&) = delete;

  const std::string& missing() const { return missing_; }
  void watch_engine(pid_t thread);
  // Where this process held a processor, waits() calls the holder "rank".
  void name_rank(pid_t process);
  // All waits since the start, the longest in total first; none after close().
  std::vector<Wait> waits() const;
  // Detaches the program and removes its maps from the kernel.
  void close() { object_.reset(); }

 private:
  struct Close {
    void operator()(sched_watch_bpf* object) const;
  };
  void watch(pid_t thread, std::uint32_t kind);
  void watch_softirqs();

  std::unique_ptr<sched_watch_bpf, Close> object_;
  std::string missing_;
};

}  // namespace loomnet
