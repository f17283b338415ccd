// Reads /proc/self/task: states from stat, the number of time slices from schedstat.
#include "nic/rank_sleep.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace loomnet::rank {
namespace {

bool slurp(const char* path, char* out, std::size_t size) {
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const auto n = ::read(fd, out, size - 1);
  ::close(fd);
  if (n <= 0) return false;
  out[n] = 0;
  return true;
}

}  // namespace

bool SleepWatch::read(Slices& out) {
  out.clear();
  const auto self = static_cast<int>(::syscall(SYS_gettid));
  const std::unique_ptr<DIR, int (*)(DIR*)> tasks(::opendir("/proc/self/task"), ::closedir);
  if (!tasks) return false;
  char path[64], text[512];
  while (const dirent* entry = ::readdir(tasks.get())) {
    const int tid = std::atoi(entry->d_name);
    if (tid <= 0 || tid == self) continue;
    std::snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    if (!slurp(path, text, sizeof text)) continue;  // it has just ended
    const char* state = std::strrchr(text, ')');    // the name may hold anything
    if (!state || state[1] != ' ' || state[2] != 'S') return false;
    std::snprintf(path, sizeof path, "/proc/self/task/%d/schedstat", tid);
    unsigned long long run = 0, wait = 0, slices = 0;
    if (!slurp(path, text, sizeof text) || std::sscanf(text, "%llu %llu %llu", &run, &wait, &slices) != 3) {
      return false;
    }
    out.emplace_back(tid, slices);
  }
  return true;
}

bool SleepWatch::others_asleep() { return read(before_) && read(after_) && before_ == after_; }

}  // namespace loomnet::rank
