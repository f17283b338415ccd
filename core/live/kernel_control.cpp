// See kernel_control.hpp.
#include "live/kernel_control.hpp"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/bpf.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>

#include <stdexcept>

#include "ebpf/control_abi.h"
#include "live/control_program.hpp"
#include "live/priority.hpp"

namespace loomnet {
namespace {

constexpr std::int64_t kSecond_ns = 1'000'000'000;

std::int64_t clock_ns(clockid_t clock) {
  timespec t{};
  ::clock_gettime(clock, &t);
  return t.tv_sec * kSecond_ns + t.tv_nsec;
}

void sleep_until(std::int64_t at_ns) {
  const timespec t{at_ns / kSecond_ns, at_ns % kSecond_ns};
  while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, nullptr) == EINTR) {
  }
}

}  // namespace

MappedMap::MappedMap(bpf_object* object, const char* name, std::size_t value_bytes, std::size_t count) {
  const bpf_map* map = bpf_object__find_map_by_name(object, name);
  if (!map || bpf_map__value_size(map) != value_bytes) {
    throw std::logic_error(std::string(name) + " differs between the kernel's program and its agent");
  }
  const std::size_t bytes = value_bytes * count;
  void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(map), 0);
  if (mapped == MAP_FAILED) throw LiveError(std::string("map ") + name + " of a congestion control", errno);
  memory_ = static_cast<std::uint8_t*>(mapped);
  bytes_ = bytes;
}

MappedMap::~MappedMap() {
  if (memory_) ::munmap(memory_, bytes_);
}

void KernelControl::Close::operator()(bpf_object* object) const { bpf_object__close(object); }

KernelControl::KernelControl(const std::string& control, const std::string& name, std::unique_ptr<KernelAgent> agent,
                             std::uint32_t slots)
    : name_(name),
      agent_(std::move(agent)),
      object_(
          load_control(control, name, slots, {.flags = agent_->first_flags(), .decides = agent_->policy_bytes() > 0})),
      slots_(object_.get(), "ln_slots", agent_->slot_bytes(), slots) {
  if (const std::size_t bytes = agent_->policy_bytes(); bytes > 0) {
    policy_ = MappedMap(object_.get(), "ln_policy", bytes, 1);
    agent_->write_policy(policy_.bytes());
  }
  link_ = Fd(register_control(object_.get(), name));
}

KernelControl::~KernelControl() { stop(); }

void KernelControl::start() {
  if (running()) return;
  stopping_ = false;
  thread_ = std::thread([this] { run(); });
}

void KernelControl::stop() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
}

// Wakes at multiples of wake_every() on CLOCK_MONOTONIC. One that comes too late for the next leaves it out.
void KernelControl::run() {
  ::prctl(PR_SET_NAME, "ln-control");
  const std::string scheduling = take_realtime_priority().text;
  const std::int64_t step = agent_->wake_every().count();
  const std::int64_t began = clock_ns(CLOCK_MONOTONIC), worked = clock_ns(CLOCK_THREAD_CPUTIME_ID);
  std::chrono::nanoseconds worked_before, lasted_before;
  {
    const std::lock_guard lock(mutex_);
    scheduling_ = scheduling;
    worked_before = worked_;
    lasted_before = lasted_;
  }
  std::int64_t due = (began / step + 1) * step;
  while (!stopping_) {
    sleep_until(due);
    const std::int64_t now = clock_ns(CLOCK_MONOTONIC);
    const std::lock_guard lock(mutex_);
    lateness_.record(Picoseconds{(now - due) * 1'000});
    agent_->wake(slots(), static_cast<std::uint64_t>(now));
    worked_ = worked_before + std::chrono::nanoseconds(clock_ns(CLOCK_THREAD_CPUTIME_ID) - worked);
    lasted_ = lasted_before + std::chrono::nanoseconds(now - began);
    const std::int64_t next = (clock_ns(CLOCK_MONOTONIC) / step + 1) * step;
    missed_ += static_cast<std::uint64_t>((next - due) / step - 1);
    due = next;
  }
}

KernelControl::Pace KernelControl::pace() const {
  const std::lock_guard lock(mutex_);
  return {lateness_.summary(), missed_, worked_, lasted_, scheduling_};
}

std::vector<std::pair<std::string, std::uint64_t>> KernelControl::counts() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<std::string, std::uint64_t>> out;
  for (const auto& [name, value] : agent_->counts()) out.emplace_back(name, value);
  out.emplace_back("flows_without_slot", slotless());
  return out;
}

std::uint64_t KernelControl::slotless() const {
  const std::uint32_t only = 0;
  ln_control_counts counts{};
  const int map = bpf_object__find_map_fd_by_name(object_.get(), ".data.counts");
  if (bpf_map_lookup_elem(map, &only, &counts)) throw LiveError("read the counts of " + name_, errno);
  return counts.slotless;
}

void KernelControl::record() {
  const std::lock_guard lock(mutex_);
  agent_->record();
}

std::vector<KernelDecision> KernelControl::take_decisions() {
  const std::lock_guard lock(mutex_);
  return agent_->take_decisions();
}

void KernelControl::measure() {
  if (!stats_) stats_ = checked_fd(bpf_enable_stats(BPF_STATS_RUN_TIME), "measure BPF programs");
}

std::pair<std::uint64_t, std::uint64_t> KernelControl::program_runs() const {
  bpf_prog_info info{};
  std::uint32_t size = sizeof info;
  const int fd = bpf_program__fd(bpf_object__find_program_by_name(object_.get(), "ln_cong_control"));
  if (bpf_obj_get_info_by_fd(fd, &info, &size)) throw LiveError("ask for the runs of " + name_, errno);
  return {info.run_cnt, info.run_time_ns};
}

std::string why_no_kernel_control(const std::string& control, bool decides) {
  try {
    bpf_object__close(load_control(control, "ln_tried", 1, {.decides = decides}));
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace loomnet
