// An optical circuit switch in the kernel: a BPF program at XDP or at tc, its forwarding table and its counters.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ebpf/panel_abi.h"
#include "live/netns.hpp"

struct panel_bpf;
struct bpf_link;

namespace loomnet {

// Where the kernel runs the panel's program. At XDP the program sees single frames, and the senders' offloads must
// be off. At tc it sees packets as TCP made them, up to 64 KB, and the offloads stay on.
enum class PanelHook : std::uint8_t { xdp, tc };

class KernelPanel {
 public:
  // Loads the program. At first no port has a cross-connect. Throws LiveError, std::invalid_argument.
  explicit KernelPanel(std::size_t ports);
  ~KernelPanel();
  KernelPanel(const KernelPanel&) = delete;

  // Attaches the program to these interfaces; the number of an interface in the list is its port. An XDP program is
  // detached when this object is destroyed. A tc program needs a clsact queueing discipline, which is added, and
  // stays until the interface is deleted.
  void attach(const Netns& netns, const std::vector<std::string>& interfaces, PanelHook hook = PanelHook::xdp);
  // Replaces the whole table at once. Times in entries are nanoseconds of CLOCK_MONOTONIC. Returns when no packet
  // can see the old table any more: the wall time at which the new one came into force.
  std::int64_t publish(std::span<const panel_entry> entries);
  panel_counters counters(std::size_t port) const;  // of all CPUs together
  panel_counters totals() const;                    // of all ports
  std::size_t interfaces() const { return interfaces_; }
  // Runs the program of that hook on a test frame (BPF_PROG_TEST_RUN) and returns its decision: for a packet that
  // comes in by `port` now, or for the port, time and random bits of `question`.
  panel_question ask(std::uint32_t port, PanelHook hook = PanelHook::xdp) const;
  panel_question ask(const panel_question& question, PanelHook hook) const;

 private:
  struct Close {
    void operator()(panel_bpf* program) const;
    void operator()(bpf_link* link) const;
  };
  std::size_t ports_, interfaces_ = 0;
  std::unique_ptr<panel_bpf, Close> program_;
  std::vector<std::unique_ptr<bpf_link, Close>> links_;
  std::size_t spare_ = 1;  // index of the table that is not in use
};

}  // namespace loomnet
