// One XDP switch's forward program: ebpf/forward.bpf.c loaded, its ports, tables and counters.
// Where it is attached is up to the caller.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ebpf/forward_abi.h"
#include "ebpf/metadata.h"
#include "switch/forward/forward_program.hpp"

struct forward_bpf;

namespace loomnet {

class XdpForward {
 public:
  // Throws LiveError when the kernel refuses the program (missing CAP_BPF, no BPF).
  XdpForward(std::size_t ports, const ForwardSettings& settings);
  ~XdpForward();
  XdpForward(const XdpForward&) = delete;
  XdpForward& operator=(const XdpForward&) = delete;

  int program() const;  // descriptor to attach in native mode
  // Says that `ifindex` of the calling thread's network namespace is `port`: the namespace must be
  // the switch's, for that is where the kernel resolves the number.
  void set_port(SwitchPort port, int ifindex);
  // As ForwardProgram::set_tables; see publish_forward_tables for what it costs.
  void set_tables(const TableBatch& batch);
  std::uint32_t generation() const { return generation_; }
  // Sums over all CPUs and ingress ports.
  void counters(std::vector<SwitchCounter>& out) const;
  // Of one ingress port, packets of unnumbered interfaces under port LN_MAX_XDP_PORTS.
  void counters(SwitchPort ingress, std::vector<SwitchCounter>& out) const;

  struct TestRun {
    Verdict verdict;         // the program's own record, where the XDP code says no more
    std::uint32_t code = 0;  // XDP_DROP, XDP_REDIRECT, …
    std::uint32_t generation = 0;
    std::optional<ln_metadata> metadata;
    std::vector<std::uint8_t> frame;  // bytes after the run
  };
  // BPF_PROG_TEST_RUN with the namespace's loopback as ingress: give ifindex 1 a port first. The
  // calling thread must be pinned to one CPU. The frame: 14 bytes or more, 3,520 or fewer.
  void test_run(std::span<const std::uint8_t> frame, TestRun& out) const;

 private:
  void add_counters(std::uint32_t row, std::span<std::uint64_t> sum) const;
  struct Destroy {
    void operator()(forward_bpf* object) const;
  };
  std::unique_ptr<forward_bpf, Destroy> object_;
  std::size_t ports_;
  std::uint32_t generation_ = 0;
};

}  // namespace loomnet
