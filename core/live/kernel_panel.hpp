// An optical circuit switch in the kernel: one table and its counters, decided by at XDP or at tc.
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

// Where the kernel runs the panel's program. At XDP a veth hands over single frames with finished checksums;
// at tc what it carries keeps its offloads.
enum class PanelHook : std::uint8_t { xdp, tc };

class KernelPanel {
 public:
  // Loads the program; all ports are without cross-connect. Throws LiveError, std::invalid_argument.
  explicit KernelPanel(std::size_t ports);
  ~KernelPanel();
  KernelPanel(const KernelPanel&) = delete;

  // Runs on these interfaces from now on, port by port. An XDP program leaves them with this object; one
  // of tc, which they get a clsact queueing discipline for, goes with the interfaces.
  void attach(const Netns& netns, const std::vector<std::string>& interfaces, PanelHook hook = PanelHook::xdp);
  // Replaces the whole table at once. Times of entries are of CLOCK_MONOTONIC. It returns when no packet
  // sees the table before.
  void publish(std::span<const panel_entry> entries);
  panel_counters counters(std::size_t port) const;  // of all CPUs together
  panel_counters totals() const;                    // of all ports
  std::size_t interfaces() const { return interfaces_; }
  // Has the program of that hook decide on a packet (BPF_PROG_TEST_RUN): of this port now, or as asked.
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
  std::size_t spare_ = 1;  // of the two tables, the one that no packet sees
};

}  // namespace loomnet
