// The contract of a congestion control that drives the kernel's TCP. A BPF program of the control's name
// (ebpf/NAME.bpf.c) publishes each flow's counters in one half of a slot, and takes the flow's window from
// the other half. An agent reads the slots at its wake-ups and decides, or hands its policy to the program,
// which decides by itself while the agent watches. It makes no system calls: its owner maps the slots and the
// policy into memory and hands them in, with the time.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "transport/options.hpp"

namespace loomnet {

// One decision of one flow, for series. Rates are payload bytes per second, windows packets.
struct KernelDecision {
  std::uint64_t at_ns = 0;  // CLOCK_MONOTONIC
  std::uint32_t netns = 0;  // inode of the flow's network namespace
  std::uint16_t local_port = 0, remote_port = 0;
  std::uint32_t window = 0, commanded = 0;  // as it was, and as it shall be; 0: left alone
  std::uint32_t mode = 0;                   // of the program: 0 start-up, 1 agent, 2 fallback
  std::uint32_t fallbacks = 0;              // of the flow until now
  double throughput_Bps = 0, rtt_us = 0, least_rtt_us = 0, loss_Bps = 0;
  double queue_packets = 0, action = 0;
};

using NamedCounts = std::vector<std::pair<std::string_view, std::uint64_t>>;

template <std::size_t kCount>
NamedCounts named_counts(const std::array<std::string_view, kCount>& names,
                         const std::array<std::uint64_t, kCount>& counts) {
  NamedCounts out;
  for (std::size_t i = 0; i < kCount; ++i) out.emplace_back(names[i], counts[i]);
  return out;
}

class KernelAgent {
 public:
  virtual ~KernelAgent() = default;

  virtual std::chrono::nanoseconds wake_every() const = 0;
  virtual std::size_t slot_bytes() const = 0;
  // A new flow's flags in its slot, which hold before the agent has seen the flow.
  virtual std::uint32_t first_flags() const = 0;
  // Bytes of the policy that the program decides by (ln_policy in ebpf/control_abi.h); 0: the agent decides.
  virtual std::size_t policy_bytes() const { return 0; }
  // Writes it, once, before the first flow; zeros until then.
  virtual void write_policy(std::span<std::uint8_t>) {}
  // Looks at all slots and writes what it commands. `now_ns`: CLOCK_MONOTONIC. The content of slots is
  // not trusted.
  virtual void wake(std::span<std::uint8_t> slots, std::uint64_t now_ns) = 0;
  // Counters since the agent was made, by name.
  virtual NamedCounts counts() const = 0;
  // Keeps decisions from now on, 88 bytes each, up to some bound.
  virtual void record() = 0;
  // Those since the last call.
  virtual std::vector<KernelDecision> take_decisions() = 0;
};

}  // namespace loomnet
