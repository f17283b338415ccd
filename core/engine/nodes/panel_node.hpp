// An optical circuit switch in the engine: a packet that comes in by a port is forwarded or dropped by the device's
// entry of that port.
#pragma once

#include <span>
#include <vector>

#include "ebpf/panel.h"
#include "engine/nodes/shared.hpp"
#include "link/half_link.hpp"
#include "panel/panel_device.hpp"

namespace loomnet {

// The two cross-connects of each circuit. `circuits` has for each port the port that it is joined to, or -1.
// Throws std::invalid_argument.
std::vector<panel::CrossConnect> duplex(std::span<const std::int32_t> circuits);

// Changes of status and carrier of a panel's ports, oldest first. `left_out` counts the events that were not kept.
struct PanelEvents {
  static constexpr std::size_t kMost = 100'000;
  std::vector<panel::DeviceEvent> kept;
  std::uint64_t left_out = 0;
};

class PanelNode final : public LinkReceiver {
 public:
  PanelNode(NodesShared& shared, NodeId node, std::span<HalfLink* const> egress, const panel::DeviceOptions& options,
            bool kernel);
  void receive(std::uint16_t port, PacketPtr packet, Picoseconds now) override;

  panel::PanelDevice& device() { return device_; }
  const panel::PanelDevice& device() const { return device_; }
  // Copies the device's entries into the table that packets are decided by. All change at once, between two packets.
  void publish(Picoseconds now);
  // The egress port for light that comes in by this port now; -1 where the light does not come out.
  std::int32_t passes_to(std::uint16_t port, Picoseconds now) const;
  // Takes new events from the device and appends them to events().
  void keep_events();
  const PanelEvents& events() const { return events_; }
  const panel_counters& counters(std::uint16_t port) const { return counters_[port]; }

 private:
  NodesShared& shared_;
  NodeId node_;
  bool kernel_;  // the kernel forwards this panel's packets, by the entries that publish() sends
  std::span<HalfLink* const> egress_;  // by port
  panel::PanelDevice device_;
  std::vector<panel_entry> entries_;     // by ingress port
  std::vector<panel_counters> counters_;  // likewise
  PanelEvents events_;
  RandomStream chance_;
};

}  // namespace loomnet
