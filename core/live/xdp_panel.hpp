// An optical circuit switch as an XDP program between veths.
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

class XdpPanel {
 public:
  // Loads the program; all ports are without cross-connect. Throws LiveError, std::invalid_argument.
  explicit XdpPanel(std::size_t ports);
  ~XdpPanel();
  XdpPanel(const XdpPanel&) = delete;

  // Runs on these interfaces from now on, port by port; it leaves them with this object.
  void attach(const Netns& netns, const std::vector<std::string>& interfaces);
  // Replaces the whole table at once. Times of entries are of CLOCK_MONOTONIC. It returns when no packet
  // sees the table before.
  void publish(std::span<const panel_entry> entries);
  panel_counters counters(std::size_t port) const;  // of all CPUs together
  panel_counters totals() const;                    // of all ports
  std::size_t interfaces() const { return links_.size(); }
  // Has the kernel decide on a packet of this port (BPF_PROG_TEST_RUN).
  panel_question ask(std::uint32_t port) const;

 private:
  struct Close {
    void operator()(panel_bpf* program) const;
    void operator()(bpf_link* link) const;
  };
  std::size_t ports_;
  std::unique_ptr<panel_bpf, Close> program_;
  std::vector<std::unique_ptr<bpf_link, Close>> links_;
  std::size_t spare_ = 1;  // of the two tables, the one that no packet sees
};

}  // namespace loomnet
