// An optical circuit switch in the engine: light that comes in by a port leaves as the device's entry of
// that port says.
#pragma once

#include <span>
#include <vector>

#include "ebpf/panel.h"
#include "engine/nodes/shared.hpp"
#include "link/half_link.hpp"
#include "panel/panel_device.hpp"

namespace loomnet {

// Both cross-connects of each circuit; `circuits`: of each port the port that it is joined to, -1 for none.
// Throws std::invalid_argument.
std::vector<panel::CrossConnect> duplex(std::span<const std::int32_t> circuits);

// What happened to a panel's ports, the oldest first. `left_out`: how many more there were than are kept.
struct PanelEvents {
  static constexpr std::size_t kMost = 100'000;
  std::vector<panel::DeviceEvent> kept;
  std::uint64_t left_out = 0;
};

class PanelNode final : public LinkReceiver {
 public:
  PanelNode(NodesShared& shared, NodeId node, std::span<HalfLink* const> egress,
            const panel::DeviceOptions& options, bool kernel);
  void receive(std::uint16_t port, PacketPtr packet, Picoseconds now) override;

  panel::PanelDevice& device() { return device_; }
  const panel::PanelDevice& device() const { return device_; }
  // Takes over the device's entries, all at once: between two packets.
  void publish(Picoseconds now);
  // The port that light of this port leaves by now; -1: none comes out.
  std::int32_t passes_to(std::uint16_t port, Picoseconds now) const;
  // Moves the device's events to those of the run.
  void keep_events();
  const PanelEvents& events() const { return events_; }
  const panel_counters& counters(std::uint16_t port) const { return counters_[port]; }

 private:
  NodesShared& shared_;
  NodeId node_;
  bool kernel_;  // packets are decided on there, by the entries that publish() sends
  std::span<HalfLink* const> egress_;  // by port
  panel::PanelDevice device_;
  std::vector<panel_entry> entries_;     // by ingress port
  std::vector<panel_counters> counters_;  // likewise
  PanelEvents events_;
  RandomStream chance_;
};

}  // namespace loomnet
