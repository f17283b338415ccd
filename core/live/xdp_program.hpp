// One XDP switch's program, any of those by name: its object loaded, its ports, tables, state and
// counters. Where it is attached is up to the caller.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ebpf/metadata.h"
#include "ebpf/xdp_abi.h"
#include "live/system.hpp"
#include "live/xdp_reports.hpp"
#include "switch/program_kind.hpp"

struct bpf_object;

namespace loomnet {

class XdpProgram {
 public:
  // `settings`: checked ones of this kind. Throws std::invalid_argument for a kind that was not compiled
  // for the kernel, LiveError where the kernel refuses the program (missing CAP_BPF, no BPF).
  XdpProgram(const ProgramKind& kind, const ProgramSettings& settings, XdpReports& reports);
  ~XdpProgram();
  XdpProgram(const XdpProgram&) = delete;
  XdpProgram& operator=(const XdpProgram&) = delete;

  int program() const { return program_; }  // descriptor to attach in native mode
  const ProgramKind& kind() const { return kind_; }
  // Says that `ifindex` of the calling thread's network namespace is `port`: the namespace must be
  // the switch's, for that is where the kernel resolves the number.
  void set_port(SwitchPort port, int ifindex);
  // As SwitchProgram::set_tables. Fills a new map and puts it in place of the old one: a packet sees all
  // of the old tables or all of the new ones. Takes an RCU grace period (some milliseconds), so
  // publish to many switches from several threads, and never from the live loop.
  void set_tables(const TableBatch& batch);
  std::uint32_t generation() const { return generation_.load(std::memory_order_relaxed); }
  // The switch reboots: zeros in its state, no tables. As slow as set_tables.
  void reset();
  // Row by row, each row as it was at one moment.
  StateSnapshot snapshot() const;
  // From now on the program's clock reads `emulated` at `wall` (CLOCK_MONOTONIC, nanoseconds) and runs
  // at 1/dilation; an infinite one lets it stand.
  void set_clock(std::int64_t wall, Picoseconds emulated, double dilation);

  // --- for the live loop: no system call ---
  // Members of a group of the batch of this generation, or of the one before it; null: there is none.
  std::shared_ptr<const std::vector<SwitchPort>> members(std::uint32_t generation, std::uint16_t group) const;
  // Tells the program whose the packet with this uid is, before the frame is sent.
  bool wants_labels() const { return labels_ != nullptr; }
  void set_label(std::uint64_t uid, std::uint32_t flow, std::uint32_t message);
  // What the engine finds out when a packet has come back.
  void count(ln_host_counter which, std::uint64_t n) { counted_[which].fetch_add(n, std::memory_order_relaxed); }

  // Sums over all CPUs and ingress ports, and what count() counted.
  void counters(std::vector<SwitchCounter>& out) const;
  // Of one ingress port, packets of unnumbered interfaces under port LN_MAX_XDP_PORTS; without
  // count().
  void counters(SwitchPort ingress, std::vector<SwitchCounter>& out) const;
  // Sum of all drop_* counters of the kernel: packets that came in and do not come back.
  std::uint64_t drops() const;
  std::string_view reason(std::uint16_t value) const {
    return value < kind_.counters.size() ? kind_.counters[value] : std::string_view{};
  }

  struct TestRun {
    Verdict verdict;         // the program's own record, where the XDP code says no more
    std::uint32_t code = 0;  // XDP_DROP, XDP_REDIRECT, …
    std::uint32_t generation = 0;
    std::uint32_t nanoseconds = 0;  // that the kernel says the program took, its timer included
    std::optional<ln_metadata> metadata;
    std::optional<ln_label> label;    // where the metadata says that the packet was relabelled
    std::vector<std::uint8_t> frame;  // bytes after the run
  };
  // BPF_PROG_TEST_RUN with the namespace's loopback as ingress: give ifindex 1 a port first. The
  // calling thread must be pinned to one CPU. The frame: 14 bytes or more, 3,520 or fewer.
  void test_run(std::span<const std::uint8_t> frame, TestRun& out) const;
  struct EgressRun {
    EgressVerdict verdict{};
    std::array<std::uint32_t, LN_EGRESS_NOTES> note{};
    std::uint32_t nanoseconds = 0;  // of one run, on average
  };
  // The kernel build of the egress hook on a frame, `repeat` times: a build with one half-link, whose
  // rows and counters it keeps from call to call. Throws std::invalid_argument for a program without one.
  void test_egress(std::span<std::uint8_t> frame, const ln_egress_meta& meta, EgressRun& out, int repeat = 1) const;
  std::vector<StateSnapshot> egress_snapshot() const;
  void egress_counters(std::vector<SwitchCounter>& out) const;

 private:
  struct Groups {
    std::uint32_t generation = 0;
    std::vector<std::shared_ptr<const std::vector<SwitchPort>>> groups;
  };
  struct Published {
    Groups now, before;
  };
  struct Close {
    void operator()(bpf_object* object) const;
  };
  int map(const char* name) const;  // descriptor; -1: the object has none of this name
  void add_counters(std::uint32_t row, std::span<std::uint64_t> sum) const;
  // Returns the nanoseconds that the kernel says one run took.
  std::uint32_t run(int program, std::span<const std::uint8_t> frame, std::vector<std::uint8_t>& out,
                    std::uint32_t& code, int repeat = 1) const;

  const ProgramKind& kind_;
  std::size_t ports_;
  StateLayout layout_;
  std::vector<StateLayout> egress_lots_;
  std::unique_ptr<bpf_object, Close> object_;
  int program_ = -1, tables_ = -1, counters_ = -1, rows_ = -1;
  std::uint64_t seed_;
  ln_labelled* labels_ = nullptr;
  std::atomic<std::uint32_t> generation_{0};
  std::atomic<std::shared_ptr<const Published>> groups_;
  std::array<std::atomic<std::uint64_t>, LN_HOST_COUNTER_COUNT> counted_{};
};

}  // namespace loomnet
