// Signal handlers that know whether a loaded program's code runs in their thread, and a timer of each thread's
// processor time that finds the same call in two of its ticks.
#include "switch/loaded/guarded_call.hpp"

#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <deque>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "switch/loaded/call_memory.hpp"

namespace loomnet {
namespace {

// SIGTRAP: a trap of aarch64. SIGABRT: the C library has found its heap broken, or a canary of the stack.
constexpr std::array kFaults = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
// A call that is found in two ticks has had more than one tick of processor time.
constexpr time_t kTickSeconds = 1;
int tick_signal() { return SIGRTMAX - 2; }  // one that neither Python nor the C library takes

struct Call {
  sigjmp_buf back;
  std::atomic<const LoadedProgram*> program{nullptr};  // whose code runs now
  std::atomic<std::uint64_t> number{0};
  std::uint64_t seen = 0;  // number of the call that the last tick has found
  int signal = 0;
  const void* address = nullptr;  // that it used
  const void* at = nullptr;       // where in the code it was
  bool armed = false;
  bool slow = false;  // a tick has found a call
  CallMemory memory;
  timer_t timer{};
  bool has_timer = false;
  std::vector<char> stack;  // for the handler, where the program has used the thread's up

  ~Call();
};
// Of initial-exec, so that a handler reads it without a call that might allocate.
__attribute__((tls_model("initial-exec"))) thread_local Call* here = nullptr;

thread_local void (*tell_slow)(void*) = nullptr;
thread_local void* tell_context = nullptr;

std::atomic<int> watchers{0};
// What a crash outside a program's code says; never freed, since a crash may come at the very end.
std::atomic<const std::string*> suspicion{nullptr};
std::array<struct sigaction, kFaults.size()> before;

Call::~Call() {
  here = nullptr;
  if (has_timer) ::timer_delete(timer);
  if (!stack.empty()) {
    stack_t none{};
    none.ss_flags = SS_DISABLE;
    ::sigaltstack(&none, nullptr);
  }
}

const void* place_in(void* context) {
  const auto& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return reinterpret_cast<const void*>(machine.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return reinterpret_cast<const void*>(machine.pc);
#elif defined(__riscv)
  return reinterpret_cast<const void*>(machine.__gregs[REG_PC]);
#else
  (void)machine;
  return nullptr;
#endif
}

void on_fault(int signal, siginfo_t* info, void* context) {
  Call* const call = here;
  if (call && call->program.load(std::memory_order_relaxed)) {
    call->signal = signal;
    call->address = info->si_addr;
    call->at = place_in(context);
    siglongjmp(call->back, 1);
  }
  if (const std::string* const said = suspicion.exchange(nullptr, std::memory_order_relaxed)) {
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, said->data(), said->size());
  }
  // Not the program's: as it was before.
  std::size_t which = 0;
  while (which + 1 < kFaults.size() && kFaults[which] != signal) ++which;
  const struct sigaction& old = before[which];
  if (old.sa_flags & SA_SIGINFO) return old.sa_sigaction(signal, info, context);
  if (old.sa_handler != SIG_DFL && old.sa_handler != SIG_IGN) return old.sa_handler(signal);
  ::sigaction(signal, &old, nullptr);
  if (info->si_code <= 0) ::raise(signal);  // sent by a process: it does not come again by itself
}

void on_tick(int, siginfo_t*, void* context) {
  const int kept = errno;
  Call* const call = here;
  if (!call) return;
  if (watchers.load(std::memory_order_relaxed) == 0) {
    const itimerspec never{};
    ::timer_settime(call->timer, 0, &never, nullptr);
    call->armed = false;
  }
  const std::uint64_t number = call->number.load(std::memory_order_relaxed);
  if (call->program.load(std::memory_order_relaxed)) {
    if (call->seen == number) {
      call->signal = tick_signal();
      call->at = place_in(context);
      siglongjmp(call->back, 1);
    }
    call->seen = number;
    call->slow = true;
  }
  errno = kept;
}

void install(int signal, void (*handler)(int, siginfo_t*, void*), struct sigaction* old) {
  struct sigaction now{};
  if (::sigaction(signal, nullptr, &now) == 0 && now.sa_flags & SA_SIGINFO && now.sa_sigaction == handler) return;
  struct sigaction action{};
  action.sa_sigaction = handler;
  // NODEFER: a handler that jumps out would leave its signal blocked.
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(signal, &action, old);
}

void arm() {
  thread_local Call call;
  if (!call.has_timer) {
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = tick_signal();
    event._sigev_un._tid = static_cast<pid_t>(::syscall(SYS_gettid));
    call.has_timer = ::timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &call.timer) == 0;
    stack_t present{};
    if (::sigaltstack(nullptr, &present) == 0 && present.ss_flags & SS_DISABLE) {
      call.stack.resize(std::size_t{1} << 16);
      stack_t own{};
      own.ss_sp = call.stack.data();
      own.ss_size = call.stack.size();
      ::sigaltstack(&own, nullptr);
    }
  }
  if (call.has_timer) {
    const itimerspec every{{kTickSeconds, 0}, {kTickSeconds, 0}};
    ::timer_settime(call.timer, 0, &every, nullptr);
  }
  call.armed = true;
  here = &call;
}

std::string what_happened(const Call& call, const LoadedProgram& program) {
  if (program.no_counter && *program.no_counter != 0) {
    const std::uint64_t number = std::exchange(*program.no_counter, 0) - 1;
    return "gave " + std::to_string(number) + " to ln_count or ln_drop, which is the number of no counter: they " +
           "take the symbols of LN_COUNTERS";
  }
  if (call.signal == tick_signal()) {
    return "has not come back from a packet after " + std::to_string(kTickSeconds) +
           " s of processor time: a loop without an end?";
  }
  char address[32];
  std::snprintf(address, sizeof address, "%p", call.address);
  switch (call.signal) {
    case SIGFPE:
      return "crashed (SIGFPE): a division by zero, or of the least number by -1";
    case SIGILL:
    case SIGTRAP:
      return "crashed (SIGILL): __builtin_trap(), or a division by zero or a null pointer that the compiler saw";
    case SIGABRT:
      return "crashed (SIGABRT): it has written over its own stack, or broken memory of the process";
    default: {
      const std::string place = call.memory.place_of(call.address);
      return "crashed (" + std::string(call.signal == SIGBUS ? "SIGBUS" : "SIGSEGV") + "): it used memory " +
             (place.empty() ? "at " + std::string(address) + ", which is not its own" : place);
    }
  }
}

// Where in the object's file the code was, for a tool that knows its lines; nothing where it was elsewhere.
std::string place_of(const Call& call, const LoadedProgram& program) {
  Dl_info own{}, there{};
  if (!call.at || !::dladdr(reinterpret_cast<const void*>(program.entry), &own) || !::dladdr(call.at, &there) ||
      own.dli_fbase != there.dli_fbase) {
    return "";
  }
  char offset[32];
  std::snprintf(offset, sizeof offset, "+0x%zx",
                static_cast<std::size_t>(static_cast<const char*>(call.at) - static_cast<const char*>(own.dli_fbase)));
  return " [" + program.name + offset + "]";
}

ProgramFault fault(const LoadedProgram& program, const std::string& what, const ln_packet& packet, const ln_meta& meta,
                   const std::string& place = "") {
  return ProgramFault(program.file + ": the switch program " + what + " (a packet of " + std::to_string(packet.length) +
                      " bytes, at " + std::to_string(meta.now) + " ps of the engine's clock, by port " +
                      std::to_string(meta.ingress) + ")" + place);
}

// From now on a crash outside switch programs names this file, too: a program that has written outside its memory makes
// other code crash later.
void suspect(const std::string& file) {
  static auto* const lock = new std::mutex;
  static auto* const files = new std::vector<std::string>;
  static auto* const said = new std::deque<std::string>;  // all are kept: a crash may be reading any of them
  const std::lock_guard held(*lock);
  if (std::find(files->begin(), files->end(), file) != files->end()) return;
  files->push_back(file);
  std::string names;
  for (const std::string& each : *files) names += (names.empty() ? "" : ", ") + each;
  said->push_back("loomnet: this process crashed outside the switch programs that ran in it: " + names +
                  " may have written outside its memory\n");
  suspicion.store(&said->back(), std::memory_order_relaxed);
}

}  // namespace

ln_verdict guarded_call(const LoadedProgram& program, const void* config, const CallingHost& host, ln_packet& packet,
                        const ln_meta& meta) {
  if (!here || !here->armed) [[unlikely]]
    arm();
  Call& call = *here;
  CallMemory::Given& given = call.memory.lay_out(host, packet, meta);
  if (sigsetjmp(call.back, 0) == 0) {
    call.number.store(call.number.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    call.program.store(&program, std::memory_order_relaxed);
    const ln_verdict verdict = program.entry(config, &given.host.host, &given.packet, &given.meta);
    call.program.store(nullptr, std::memory_order_relaxed);
    if (call.slow) [[unlikely]] {
      call.slow = false;
      if (tell_slow) tell_slow(tell_context);
    }
    if (call.memory.take_back(packet)) [[likely]]
      return verdict;
    throw fault(program,
                "has written beside its packet's bytes, which are those from frame to end and from payload to "
                "payload_end",
                packet, meta);
  }
  call.program.store(nullptr, std::memory_order_relaxed);
  throw fault(program, what_happened(call, program), packet, meta, place_of(call, program));
}

SlowCalls::SlowCalls(void (*tell)(void*), void* context) : before_(tell_slow), context_before_(tell_context) {
  tell_slow = tell;
  tell_context = context;
}

SlowCalls::~SlowCalls() {
  tell_slow = before_;
  tell_context = context_before_;
}

std::shared_ptr<const void> watched_programs(const LoadedProgram& program) {
  suspect(program.file);
  for (std::size_t i = 0; i < kFaults.size(); ++i) install(kFaults[i], on_fault, &before[i]);
  install(tick_signal(), on_tick, nullptr);
  watchers.fetch_add(1, std::memory_order_relaxed);
  return {&watchers, [](const void*) { watchers.fetch_sub(1, std::memory_order_relaxed); }};
}

}  // namespace loomnet
