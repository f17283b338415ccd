// What BPF objects share: attaching by descriptor alone, so that a killed run detaches itself, and
// libbpf's log as part of the error.
#pragma once

#include <string>

#include "live/netns.hpp"
#include "live/system.hpp"

namespace loomnet {

// Attaches a program to an interface of the namespace the caller's thread is in, natively (never
// generic XDP: its frames would be copied and would lose their metadata). Throws LiveError.
Fd attach_xdp(int program_fd, const std::string& interface);

// While alive, libbpf's messages of this thread are kept instead of printed.
class BpfLog {
 public:
  BpfLog();
  ~BpfLog();
  BpfLog(const BpfLog&) = delete;
  BpfLog& operator=(const BpfLog&) = delete;
  std::string last() const;  // the last lines, for an error's detail
};

// Number of possible CPUs: the length of a per-CPU map's value array.
int possible_cpus();

}  // namespace loomnet
