// Carrier of a network's ports, which follows from the state of the link and, at a panel, of the circuit.
#include <stdexcept>
#include <string>

#include "engine/network.hpp"

namespace loomnet {

// The light that a host at a panel receives comes from the far end of the circuit. Its carrier therefore does not
// follow from its own link alone, and is taken from the panel's end of the link.
void Network::notify(Endpoint end, bool up, Picoseconds now) {
  Node& node = nodes_[end.node];
  if (node.panel) {
    see_light(end.node, end.port, now);
    for (const bool out : {false, true}) see_light(end.node, node.panel->device().target({end.port, out}), now);
    if (shared_.gate) shared_.gate->carriers_set();
    return;
  }
  if (node.nic && !nodes_[far_end(end).node].panel) {
    node.nic->set_port(static_cast<PlanePort>(end.port), up, now);
  }
  if (PauseControl* control = up ? pauses(end.node) : nullptr) control->on_carrier(end.port, now);
}

Endpoint Network::far_end(Endpoint end) const {
  const std::uint32_t half = nodes_[end.node].halves[end.port];
  const auto& [first, second] = ends_[half / 2];
  return half % 2 ? first : second;
}

bool Network::lit(Endpoint panel, Picoseconds now) const {
  const Node& node = nodes_[panel.node];
  const panel::PanelDevice& device = node.panel->device();
  const HalfLink* here = node.egress[panel.port];
  if (!here || !here->up() || !device.carrier(panel.port, now)) return false;
  if (device.options().carrier == panel::Carrier::none) return true;
  const HalfLink* source = node.egress[static_cast<std::size_t>(device.target({panel.port, true}))];
  return source && source->up();
}

void Network::set_carrier(Endpoint panel, bool up, Picoseconds now) {
  if (!nodes_[panel.node].egress[panel.port]) return;
  const Endpoint far = far_end(panel);
  Nic* nic = nodes_[far.node].nic.get();
  const auto port = static_cast<PlanePort>(far.port);
  if (!nic || nic->port_up(port) == up) return;
  nic->set_port(port, up, now);
  if (shared_.gate) shared_.gate->set_carrier(far.node, far.port, up, now);
}

void Network::see_light(NodeId panel, std::int32_t port, Picoseconds now) {
  if (port < 0) return;
  const Endpoint end{panel, static_cast<std::uint16_t>(port)};
  set_carrier(end, lit(end, now), now);
}

void Network::set_circuits(NodeId panel, const std::vector<std::int32_t>& circuits) {
  if (circuits.size() != ports(panel)) {
    throw std::invalid_argument("network: circuits must name every port of the panel");
  }
  const std::vector<panel::CrossConnect> wanted = duplex(circuits);
  operate(panel,
          [&](panel::PanelDevice& device, Picoseconds now) { device.connect(wanted, panel::Mode::overwrite, now); });
}

void Network::operate(NodeId panel, const std::function<void(panel::PanelDevice&, Picoseconds)>& request) {
  PanelNode* const node = nodes_.at(panel).panel;
  if (!node) throw std::invalid_argument("network: node " + std::to_string(panel) + " is no panel");
  panel::PanelDevice& device = node->device();
  const Picoseconds now = events_.now();
  const auto targets = [&] {
    std::vector<std::pair<std::int32_t, std::int32_t>> found;
    for (std::size_t at = 0; at < device.ports(); ++at) {
      const auto port = static_cast<panel::Port>(at);
      found.emplace_back(device.target({port, false}), device.target({port, true}));
    }
    return found;
  };
  const auto before = targets();
  request(device, now);
  const auto after = targets();
  node->publish(now);
  // All ports that change their circuit lose carrier before one of them gets it again. Otherwise a transport could
  // take its new peer for the old one.
  for (std::size_t port = 0; port < after.size(); ++port) {
    if (after[port] != before[port] && device.options().carrier != panel::Carrier::none) {
      set_carrier({panel, static_cast<std::uint16_t>(port)}, false, now);
    }
  }
  panel_moved(panel, now);
}

void Network::panel_moved(NodeId panel, Picoseconds now) {
  PanelNode& node = *nodes_[panel].panel;
  panel::PanelDevice& device = node.device();
  device.advance(now);
  for (std::size_t port = 0; port < device.ports(); ++port) {
    see_light(panel, static_cast<std::int32_t>(port), now);
  }
  if (shared_.gate) shared_.gate->carriers_set();
  node.keep_events();
  for (NetworkWatcher* each : watchers_) each->circuits_changed(panel);
  if (device.next_time() != kNever) panel_clock_.wake(panel, device.next_time());
}

void PanelClock::on_event(std::uint64_t panel, Picoseconds now) {
  network_.panel_moved(static_cast<NodeId>(panel), now);
}

}  // namespace loomnet
