// The engine's panel: applies requests to the device and forwards packets by its entries.
#include "engine/nodes/panel_node.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace loomnet {
namespace {

constexpr std::uint64_t kChancePurpose = 0x11947;
constexpr const char* kReasons[PANEL_VERDICTS] = {nullptr, "drop_unmapped", "drop_blocked", "drop_dark", "drop_light"};

std::uint64_t whole_ns(Picoseconds now) { return static_cast<std::uint64_t>(now.count / 1000); }

}  // namespace

std::vector<panel::CrossConnect> duplex(std::span<const std::int32_t> circuits) {
  const auto ports = static_cast<std::int32_t>(circuits.size());
  std::vector<panel::CrossConnect> found;
  for (std::int32_t port = 0; port < ports; ++port) {
    const std::int32_t out = circuits[static_cast<std::size_t>(port)];
    if (out == -1) continue;
    if (out < 0 || out >= ports) throw std::invalid_argument("network: circuit to a port that is not there");
    if (out == port || circuits[static_cast<std::size_t>(out)] != port) {
      throw std::invalid_argument("network: ports " + std::to_string(port) + " and " + std::to_string(out) +
                                  " of a panel must name each other");
    }
    found.push_back({static_cast<panel::Port>(port), static_cast<panel::Port>(out)});
  }
  return found;
}

PanelNode::PanelNode(NodesShared& shared, NodeId node, std::span<HalfLink* const> egress,
                     const panel::DeviceOptions& options, bool kernel)
    : shared_(shared),
      node_(node),
      kernel_(kernel),
      egress_(egress),
      device_(egress.size(), options),
      entries_(egress.size()),
      counters_(egress.size()),
      chance_(options.seed, node, kChancePurpose) {
  publish({});
}

void PanelNode::publish(Picoseconds now) {
  for (std::size_t port = 0; port < entries_.size(); ++port) {
    entries_[port] = device_.entry(static_cast<panel::Port>(port), now);
  }
  if (kernel_ && shared_.gate) shared_.gate->publish_panel(node_, entries_);
}

void PanelNode::receive(std::uint16_t port, PacketPtr packet, Picoseconds now) {
  if (kernel_) {
    packet->ingress = port;
    return shared_.gate->to_switch(node_, port, std::move(packet), now);
  }
  const panel_entry& entry = entries_[port];
  const std::uint32_t chance = entry.drop ? static_cast<std::uint32_t>(chance_() >> 32) : 0;
  panel_verdict verdict = panel_decide(&entry, whole_ns(now), chance);
  HalfLink* const egress = verdict == PANEL_FORWARD ? egress_[entry.peer] : nullptr;
  // A cross-connect may lead to a port that has no fibre.
  if (verdict == PANEL_FORWARD && !egress) verdict = PANEL_DROP_UNMAPPED;
  panel_counters& counters = counters_[port];
  ++counters.packets[verdict];
  if (verdict != PANEL_FORWARD) {
    ++shared_.lost_in_panels;
    if (shared_.tap) [[unlikely]]
      shared_.tap->refused(node_, *packet, kReasons[verdict], now);
    return;
  }
  counters.bytes += packet->wire_length;
  egress->offer(std::move(packet), now);
}

void PanelNode::keep_events() {
  const std::vector<panel::DeviceEvent> found = device_.take_events();
  const std::size_t room = PanelEvents::kMost - events_.kept.size();
  const std::size_t taken = std::min(found.size(), room);
  events_.kept.insert(events_.kept.end(), found.begin(), found.begin() + static_cast<std::ptrdiff_t>(taken));
  events_.left_out += found.size() - taken;
}

std::int32_t PanelNode::passes_to(std::uint16_t port, Picoseconds now) const {
  const panel_entry& entry = entries_[port];
  return panel_decide(&entry, whole_ns(now), ~0u) == PANEL_FORWARD ? static_cast<std::int32_t>(entry.peer) : -1;
}

}  // namespace loomnet
