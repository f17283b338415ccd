// A congestion control of ours in the kernel's TCP: its BPF program registered under a name of the run's,
// and the thread on which its agent (transport/kernel_agent.hpp) decides for the flows. Sockets of every
// network namespace may ask for the name; the kernel takes it away with this object or with the process.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "live/lateness.hpp"
#include "live/system.hpp"
#include "transport/kernel_agent.hpp"

struct bpf_object;

namespace loomnet {

// An array of the kernel's in this process's memory.
class MappedMap {
 public:
  MappedMap() = default;
  // Throws LiveError; std::logic_error for a map whose values have other sizes.
  MappedMap(bpf_object* object, const char* name, std::size_t value_bytes, std::size_t count);
  ~MappedMap();
  MappedMap(MappedMap&& other) noexcept { *this = std::move(other); }
  MappedMap& operator=(MappedMap&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  std::span<std::uint8_t> bytes() const { return {memory_, bytes_}; }

 private:
  std::uint8_t* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

class KernelControl {
 public:
  static constexpr std::size_t kMostName = 15;  // TCP_CA_NAME_MAX without its last byte

  // Registers the program of `control` as `name` with so many slots, a power of two. Throws LiveError for
  // what the kernel refuses, std::invalid_argument for the rest.
  KernelControl(const std::string& control, const std::string& name, std::unique_ptr<KernelAgent> agent,
                std::uint32_t slots = 1024);
  ~KernelControl();
  KernelControl(const KernelControl&) = delete;

  // The agent's thread. A stopped one may start again, and takes up the flows that are there.
  void start();
  void stop();
  bool running() const { return thread_.joinable(); }

  const std::string& name() const { return name_; }
  std::span<std::uint8_t> slots() { return slots_.bytes(); }
  // Whether the program in the kernel decides, with the thread as an observer, and the policy it decides by.
  bool decides() const { return !policy_.bytes().empty(); }
  std::span<std::uint8_t> policy() { return policy_.bytes(); }

  struct Pace {
    LatenessSummary lateness;         // of wake-ups
    std::uint64_t missed = 0;         // wake-ups left out, since the one before came too late
    std::chrono::nanoseconds worked{}, lasted{};  // processor time of the thread, and its life
    std::string scheduling;
  };
  Pace pace() const;
  std::vector<std::pair<std::string, std::uint64_t>> counts() const;
  void record();  // from now on decisions are kept
  std::vector<KernelDecision> take_decisions();

  // Runs of the program at acknowledgements and the nanoseconds in them, while measure() holds.
  void measure();
  std::pair<std::uint64_t, std::uint64_t> program_runs() const;
  // Flows that found no free slot: the kernel's own for life.
  std::uint64_t slotless() const;

 private:
  struct Close {
    void operator()(bpf_object* object) const;
  };
  void run();

  std::string name_;
  std::unique_ptr<KernelAgent> agent_;
  std::unique_ptr<bpf_object, Close> object_;
  Fd link_, stats_;
  MappedMap slots_, policy_;
  std::atomic<bool> stopping_{false};
  mutable std::mutex mutex_;  // guards the agent and what follows
  LatenessHistogram lateness_;
  std::uint64_t missed_ = 0;
  std::chrono::nanoseconds worked_{}, lasted_{};
  std::string scheduling_;
  std::thread thread_;
};

// Loads the program of `control` and takes it out again, without registering it; `decides`: so that it decides by
// itself. Why this kernel cannot have it, in one line; nothing: it can. Needs root.
std::string why_no_kernel_control(const std::string& control, bool decides = false);

}  // namespace loomnet
