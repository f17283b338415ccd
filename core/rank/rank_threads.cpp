// Reads /proc/self/task: states from stat, time slices from schedstat, sleeps from status, system calls from syscall.
#include "rank/rank_threads.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

namespace loomnet::rank {
namespace {

constexpr std::size_t kMostProcesses = 16384;  // a rank may fork without end

// How reading a file of /proc ended. A process that has no descriptor left cannot open a file that exists.
enum class Read : std::uint8_t { done, absent, forbidden, failed };

Read slurp(const char* path, char* out, std::size_t size) {
  const auto failure = [] {
    const int why = errno;
    if (why == ENOENT || why == ESRCH) return Read::absent;
    return why == EPERM || why == EACCES ? Read::forbidden : Read::failed;
  };
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return failure();
  const auto n = ::read(fd, out, size - 1);
  const Read read = n > 0 ? Read::done : n == 0 ? Read::absent : failure();
  ::close(fd);
  if (n > 0) out[n] = 0;
  return read;
}

// The state letter of a stat file.
Read state_of(const char* path, char& state) {
  char text[512];
  const Read read = slurp(path, text, sizeof text);
  if (read != Read::done) return read;
  const char* end = std::strrchr(text, ')');  // the name before it may hold anything
  if (!end || end[1] != ' ') return Read::failed;
  state = end[2];
  return read;
}

bool runs(char state) { return state == 'R' || state == 'D'; }

// Whether the address lies in memory that the process shares with others. An address that cannot be looked up
// counts as shared, since another process may then be the one to wake the thread.
bool in_shared_memory(unsigned long long address) {
  const std::unique_ptr<FILE, int (*)(FILE*)> maps(std::fopen("/proc/self/maps", "re"), std::fclose);
  if (!maps) return true;
  char line[512];
  unsigned long long from = 0, to = 0;
  char rights[8];
  while (std::fgets(line, sizeof line, maps.get())) {
    if (std::sscanf(line, "%llx-%llx %7s", &from, &to, rights) != 3 || address < from || address >= to) continue;
    return rights[3] == 's';
  }
  return true;
}

// Of the text of /proc/…/syscall: whether it is a futex wait without a time limit that a thread of this process ends.
// A semaphore of Python's multiprocessing is a futex too, but another process may end that wait.
bool endless_futex(const char* text) {
  long number = 0;
  unsigned long long address = 0, operation = 0, value = 0, timeout = 0;
  if (std::sscanf(text, "%ld %llx %llx %llx %llx", &number, &address, &operation, &value, &timeout) != 5) {
    return false;
  }
  if (number != SYS_futex || timeout != 0) return false;
  const auto command = operation & FUTEX_CMD_MASK;
  if (command != FUTEX_WAIT && command != FUTEX_WAIT_BITSET && command != FUTEX_LOCK_PI) return false;
  // A thread that joins another one waits without the flag, but in private memory: the kernel ends that wait.
  return (operation & FUTEX_PRIVATE_FLAG) != 0 || !in_shared_memory(address);
}

// False if the directory cannot be read.
template <class F>
bool each_task(const char* directory, F&& use) {
  const std::unique_ptr<DIR, int (*)(DIR*)> tasks(::opendir(directory), ::closedir);
  if (!tasks) return false;
  while (const dirent* entry = ::readdir(tasks.get())) {
    if (const int tid = std::atoi(entry->d_name); tid > 0) use(tid);
  }
  return true;
}

int number_in(const char* link, const char* behind) {
  char text[128];
  const auto n = ::readlink(link, text, sizeof text - 1);
  if (n <= 0) return 0;
  text[n] = 0;
  const char* at = behind ? std::strstr(text, behind) : text;
  return at ? std::atoi(at + (behind ? std::strlen(behind) : 0)) : 0;
}

// The state and the parent of a process.
bool parent_of(int pid, char& state, int& parent) {
  char path[64], text[512];
  std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
  if (slurp(path, text, sizeof text) != Read::done) return false;
  const char* end = std::strrchr(text, ')');  // the name before it may hold anything
  return end && std::sscanf(end + 1, " %c %d", &state, &parent) == 2;
}

bool some_thread_runs(int pid) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/task", pid);
  bool found = false;
  each_task(path, [&](int tid) {
    char stat[96], state = 0;
    std::snprintf(stat, sizeof stat, "%s/%d/stat", path, tid);
    found = found || (state_of(stat, state) == Read::done && runs(state));
  });
  return found;
}

}  // namespace

int ThreadProbe::self() {
  const int found = number_in("/proc/thread-self", "/task/");
  return found > 0 ? found : static_cast<int>(::syscall(SYS_gettid));
}

int ThreadProbe::main() {
  const int found = number_in("/proc/self", nullptr);
  return found > 0 ? found : ::getpid();
}

ThreadProbe::Seen ThreadProbe::look(int tid) {
  Seen seen{tid, Sleep::running, 0};
  char path[64], text[512];
  std::snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
  char state = 0;
  const Read read = state_of(path, state);
  if (read == Read::absent || (read == Read::done && (state == 'Z' || state == 'X'))) {
    seen.sleep = Sleep::gone;
    return seen;
  }
  std::snprintf(path, sizeof path, "/proc/self/task/%d/schedstat", tid);
  unsigned long long run = 0, wait = 0, slices = 0;
  if (slurp(path, text, sizeof text) == Read::done && std::sscanf(text, "%llu %llu %llu", &run, &wait, &slices) == 3) {
    seen.slices = slices;
    seen.run_ns = run;
  }
  seen.disk = state == 'D';
  if (read != Read::done || state != 'S') return seen;  // a thread that cannot be looked at counts as running
  std::snprintf(path, sizeof path, "/proc/self/task/%d/syscall", tid);
  const Read call = slurp(path, text, sizeof text);
  if (call == Read::failed) return seen;
  if (call != Read::done) {
    // A process that is not dumpable may not open the file above. The name of the kernel's function
    // cannot tell a lock with a time limit from one without.
    std::snprintf(path, sizeof path, "/proc/self/task/%d/wchan", tid);
    const bool futex = slurp(path, text, sizeof text) == Read::done && std::strstr(text, "futex") != nullptr;
    seen.sleep = futex ? Sleep::lock : Sleep::other;
  } else if (text[0] == 'r' || text[0] == '-') {
    seen.sleep = Sleep::running;  // it has begun to run meanwhile, or is in no system call
  } else {
    seen.sleep = endless_futex(text) ? Sleep::lock : Sleep::other;
  }
  return seen;
}

bool ThreadProbe::ticks(const Seen& seen) {
  if (seen.slices == 0 || seen.run_ns / seen.slices >= kTickNs) return false;
  // A thread that computes has short time slices too where others often take its processor, but it does not sleep.
  char path[64], text[16384];
  std::snprintf(path, sizeof path, "/proc/self/task/%d/status", seen.tid);
  if (slurp(path, text, sizeof text) != Read::done) return false;
  const char* line = std::strstr(text, "\nvoluntary_ctxt_switches:");
  unsigned long long sleeps = 0;
  return line && std::sscanf(line, "\nvoluntary_ctxt_switches: %llu", &sleeps) == 1 && sleeps != 0 &&
         seen.run_ns / sleeps < kTickNs;
}

bool ThreadProbe::brief(const Seen& seen, std::uint64_t slept_run_ns) {
  return slept_run_ns != 0 && !seen.disk && seen.run_ns - slept_run_ns < kBriefNs;
}

std::vector<ThreadProbe::Seen> ThreadProbe::others(const std::vector<int>& but) {
  std::vector<Seen> seen;
  const bool read = each_task("/proc/self/task", [&](int tid) {
    if (std::find(but.begin(), but.end(), tid) == but.end()) seen.push_back(look(tid));
  });
  // Threads that cannot be listed count as one that runs.
  if (!read) seen.push_back({0, Sleep::running, 0});
  return seen;
}

bool ThreadProbe::children_run() {
  // Not every kernel lists the children of a thread, so all processes that can be seen are asked.
  struct Child {
    int pid;
    char state;
  };
  std::map<int, std::vector<Child>> children;  // by parent
  std::size_t known = 0;
  each_task("/proc", [&](int pid) {
    char state = 0;
    int parent = 0;
    if (known >= kMostProcesses || !parent_of(pid, state, parent)) return;
    ++known;
    children[parent].push_back({pid, state});
  });
  std::vector<int> family{main()};
  for (std::size_t i = 0; i < family.size(); ++i) {
    // Each process is taken out of the map once, so that the loop ends whatever the map says.
    const auto found = children.extract(family[i]);
    if (found.empty()) continue;
    for (const Child& child : found.mapped()) {
      if (runs(child.state) || some_thread_runs(child.pid)) return true;
      family.push_back(child.pid);
    }
  }
  return false;
}

Thread& Threads::self(bool* made) {
  thread_local int tid = 0;
  if (tid == 0) tid = ThreadProbe::self();
  const auto [at, fresh] = threads_.try_emplace(tid);
  if (made) *made = fresh || std::exchange(at->second.quiet, false);
  if (!fresh) return at->second;
  at->second.tid = tid;
  if (threads_.size() >= prune_at_) {
    std::erase_if(threads_, [](const auto& each) {
      return each.second.waits == 0 && ThreadProbe::look(each.first).sleep == Sleep::gone;
    });
    prune_at_ = std::max(kPruneFrom, 2 * threads_.size());
  }
  return threads_.at(tid);
}

void Threads::add_main() {
  const int tid = ThreadProbe::main();
  threads_[tid].tid = tid;
}

void Threads::begin(const std::string& name) {
  Thread& thread = self();
  thread = {.tid = thread.tid, .quiet = true, .name = name};  // the kernel may have given the number before
}

void Threads::end() {
  const auto at = threads_.find(self().tid);
  if (at->second.waits == 0) threads_.erase(at);
}

bool Threads::some_quiet() const {
  return std::any_of(threads_.begin(), threads_.end(), [](const auto& each) { return holds(each.second); });
}

bool Threads::all_wait() const {
  bool any = false;
  for (const auto& [tid, thread] : threads_) {
    if (thread.quiet || (thread.callback && !thread.busy)) continue;
    if (thread.waits == 0) return false;
    any = true;
  }
  return any;
}

bool Threads::some_wait() const {
  return std::any_of(threads_.begin(), threads_.end(), [](const auto& each) { return each.second.waits != 0; });
}

bool Threads::callbacks_wait() const {
  return std::none_of(threads_.begin(), threads_.end(),
                      [](const auto& each) { return each.second.busy && each.second.waits == 0; });
}

bool Threads::in_future() const {
  return std::any_of(threads_.begin(), threads_.end(), [](const auto& each) { return each.second.futures != 0; });
}

Threads::Question Threads::ask(bool owed, int progress_tid) const {
  Question question{.waited = owed};
  question.bystanders_but.push_back(progress_tid);
  for (const auto& [tid, thread] : threads_) {
    if (thread.quiet && !holds(thread)) continue;
    question.bystanders_but.push_back(tid);
    if (thread.quiet) question.quiet.push_back({{tid, Sleep::running, 0}, settled(thread) ? thread.sleeping_at : 0});
    if (thread.quiet || (thread.callback && !thread.busy)) continue;
    question.waited |= thread.waits != 0;
    if (thread.waits != 0) continue;
    question.local |= thread.locals != 0 || thread.returning;
    question.unclear.push_back({{tid, Sleep::running, 0}, thread.slept_run_ns});
    question.plain_lock |= thread.futures == 0 && !thread.callback;
  }
  return question;
}

Activity Threads::look(Question& question, bool children) {
  if (question.local) return Activity::computing;
  const Activity found = look_at_callers(question, children);
  if (found == Activity::computing) return found;
  bool held = false;
  for (auto& each : question.quiet) {
    each.seen = ThreadProbe::look(each.seen.tid);
    const bool asleep = each.seen.sleep == Sleep::lock ||
                        (each.seen.sleep == Sleep::other && each.settled != 0 && each.seen.slices == each.settled);
    each.holds = each.seen.sleep != Sleep::gone && !(asleep && ThreadProbe::look(each.seen.tid) == each.seen);
    held |= each.holds;
  }
  return held ? Activity::computing : found;
}

Activity Threads::look_at_callers(Question& question, bool children) {
  bool locks = true, woken = false;
  for (auto& [seen, slept_run_ns] : question.unclear) {
    seen = ThreadProbe::look(seen.tid);
    if (seen.sleep == Sleep::running) {
      // On a busy machine a thread that polls waits for a processor for longer than it sleeps.
      if (!ThreadProbe::brief(seen, slept_run_ns)) return Activity::computing;
      woken = true;
    }
    locks &= seen.sleep != Sleep::other;
  }
  // A lock may be another thread's to give back: one that runs will.
  std::vector<ThreadProbe::Seen> others;
  if (question.plain_lock) others = ThreadProbe::others(question.bystanders_but);
  const auto runs = [](const ThreadProbe::Seen& each) { return each.sleep == Sleep::running; };
  const auto computes = [&](const ThreadProbe::Seen& each) { return runs(each) && !ThreadProbe::ticks(each); };
  if (std::any_of(others.begin(), others.end(), computes)) return Activity::computing;
  const bool ticked = std::any_of(others.begin(), others.end(), runs);
  // Asleep at one moment, and not one after the other: a second reading shows that none ran in between.
  for (const auto& [seen, slept_run_ns] : question.unclear) {
    if (seen.sleep == Sleep::gone) continue;
    const ThreadProbe::Seen now = ThreadProbe::look(seen.tid);
    if (now == seen) continue;
    if (!ThreadProbe::brief(now, slept_run_ns)) return Activity::computing;
    woken = true;
  }
  if (woken) return Activity::beside;
  if (question.plain_lock) {
    const auto now = ThreadProbe::others(question.bystanders_but);
    const auto same = [](const ThreadProbe::Seen& a, const ThreadProbe::Seen& b) {
      return a.tid == b.tid && (a == b || ThreadProbe::ticks(b));
    };
    if (!std::equal(others.begin(), others.end(), now.begin(), now.end(), same)) return Activity::computing;
    if (ticked || now != others) return Activity::beside;
  }
  if (locks && question.waited) return Activity::waiting;
  return children && ThreadProbe::children_run() ? Activity::computing : Activity::outside;
}

void Threads::answer(const Question& question, std::int64_t now_ns, std::int64_t look_ns) {
  for (const auto& each : question.quiet) {
    const auto at = threads_.find(each.seen.tid);
    if (at == threads_.end() || !at->second.quiet) continue;
    Thread& thread = at->second;
    if (each.seen.sleep == Sleep::gone) {
      threads_.erase(at);
      continue;
    }
    if (each.holds) thread.held_ns += look_ns;
    if (each.seen.sleep != Sleep::other) continue;
    if (thread.sleeping_looks == 0 || each.seen.slices != thread.sleeping_at) {
      thread.sleeping_looks = 0;
      thread.sleeping_at = each.seen.slices;
      thread.sleeping_ns = now_ns;
    }
    // The last look counts once the time is over as well.
    if (thread.sleeping_looks + 1 < kSleepingLooks || now_ns - thread.sleeping_ns >= kSleepingNs)
      ++thread.sleeping_looks;
  }
  for (const auto& each : question.unclear) {
    const auto at = threads_.find(each.seen.tid);
    if (at == threads_.end()) continue;
    if (each.seen.sleep == Sleep::other) at->second.slept_run_ns = each.seen.run_ns;
    if (each.seen.sleep == Sleep::gone && at->second.waits == 0) threads_.erase(at);
  }
}

}  // namespace loomnet::rank
