// SCHED_FIFO needs CAP_SYS_NICE and, in some containers, a share of the group's real-time budget.
#include "live/priority.hpp"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace loomnet {

ThreadPriority take_realtime_priority() {
  const sched_param parameter{.sched_priority = 1};
  if (::sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &parameter) == 0) return {true, "SCHED_FIFO 1"};
  const std::string why = std::generic_category().message(errno);
  if (::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), -20) == 0) {
    return {false, "nice -20: SCHED_FIFO refused (" + why + ")"};
  }
  return {false, "normal: SCHED_FIFO and nice -20 refused (" + why + "); needs CAP_SYS_NICE"};
}

void BorrowedPriority::take() {
  policy_ = ::sched_getscheduler(0);
  if (policy_ < 0 || ::sched_getparam(0, &before_) != 0) return;
  const sched_param parameter{.sched_priority = 1};
  if (::sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &parameter) != 0) return;
  thread_ = static_cast<pid_t>(::syscall(SYS_gettid));
}

void BorrowedPriority::give_back() {
  const pid_t thread = std::exchange(thread_, 0);
  if (thread == 0 || ::sched_setscheduler(thread, policy_, &before_) == 0) return;
  // Without CAP_SYS_NICE a thread keeps the flag once it has it.
  ::sched_setscheduler(thread, policy_ | SCHED_RESET_ON_FORK, &before_);
}

}  // namespace loomnet
