// What all nodes of one fabric share: the packet pool, the recorder, the way into kernels.
#pragma once

#include <cstdint>
#include <span>

#include "ebpf/panel_abi.h"
#include "engine/link_change.hpp"
#include "nic/nic.hpp"
#include "packet/tap.hpp"

namespace loomnet {

// Where packets go that leave the engine for a kernel-placed switch or a host's kernel.
class KernelGate : public HostKernel {
 public:
  virtual void to_switch(NodeId node, std::uint16_t port, PacketPtr packet, Picoseconds now) = 0;
  // The table of a panel that the kernel runs; its times are emulated, in nanoseconds.
  virtual void publish_panel(NodeId node, std::span<const panel_entry> entries) = 0;
  // A panel's light has come to a host's port, or has gone, at this time.
  virtual void set_carrier(NodeId host, std::uint16_t port, bool up, Picoseconds at) = 0;
  // Those are all that change now.
  virtual void carriers_set() = 0;
};

struct NodesShared {
  PacketPool& pool;
  Tap* tap = nullptr;             // null: nothing is recorded
  KernelGate* gate = nullptr;     // null: every node is in the engine
  std::uint64_t lost_in_panels = 0;
  std::uint64_t unconnected = 0;  // packets that a switch sent out of a port that has no link
};

}  // namespace loomnet
