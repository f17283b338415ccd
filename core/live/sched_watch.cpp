// Loads ebpf/sched_watch.bpf.c, fills its maps, reads them.
#include "live/sched_watch.hpp"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "ebpf/sched_watch_abi.h"
#include "live/xdp_link.hpp"
#include "sched_watch.skel.h"

namespace loomnet {
namespace {

constexpr std::string_view kKinds[WATCH_KINDS] = {"other", "idle processor", "engine", "softirq", "rank"};

std::string_view kind(std::uint32_t number) { return number < WATCH_KINDS ? kKinds[number] : kKinds[WATCH_OTHER]; }

}  // namespace

void SchedWatch::Close::operator()(sched_watch_bpf* object) const { sched_watch_bpf__destroy(object); }

SchedWatch::SchedWatch() {
  const BpfLog log;
  object_.reset(sched_watch_bpf__open_and_load());
  if (!object_ || sched_watch_bpf__attach(object_.get()) != 0) {
    missing_ = "the kernel shows no scheduler events: " + log.last();
    object_.reset();
    return;
  }
  watch_softirqs();
}

SchedWatch::~SchedWatch() = default;

void SchedWatch::watch(pid_t thread, std::uint32_t kind) {
  if (!object_) return;
  const watch_thread row{.since = 0, .kind = kind, .unused = 0};
  bpf_map_update_elem(bpf_map__fd(object_->maps.watch_threads), &thread, &row, BPF_ANY);
}

void SchedWatch::watch_engine(pid_t thread) { watch(thread, WATCH_ENGINE); }

void SchedWatch::name_rank(pid_t process) {
  if (!object_) return;
  const std::uint32_t kind = WATCH_RANK;
  bpf_map_update_elem(bpf_map__fd(object_->maps.watch_processes), &process, &kind, BPF_ANY);
}

// The kernel's threads for softirqs, one a processor: process ids are the same as thread ids.
void SchedWatch::watch_softirqs() {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string number = entry.path().filename().string();
    if (number.find_first_not_of("0123456789") != std::string::npos) continue;
    std::string name;
    std::getline(std::ifstream(entry.path() / "comm"), name);
    if (name.starts_with("ksoftirqd/")) watch(static_cast<pid_t>(std::stol(number)), WATCH_SOFTIRQ);
  }
}

std::vector<SchedWatch::Wait> SchedWatch::waits() const {
  std::vector<Wait> all;
  if (!object_) return all;
  const int map = bpf_map__fd(object_->maps.watch_waits);
  watch_key key{}, next{};
  for (const watch_key* at = nullptr; bpf_map_get_next_key(map, at, &next) == 0; at = &key) {
    key = next;
    watch_wait wait{};
    if (bpf_map_lookup_elem(map, &key, &wait) != 0) continue;
    all.push_back({kind(key.waiter), kind(key.holder), std::string(key.name, strnlen(key.name, sizeof key.name)),
                   wait.count, static_cast<std::int64_t>(wait.total_ns), static_cast<std::int64_t>(wait.longest_ns)});
  }
  std::sort(all.begin(), all.end(), [](const Wait& a, const Wait& b) { return a.total_ns > b.total_ns; });
  return all;
}

}  // namespace loomnet
