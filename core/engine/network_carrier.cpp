// Carrier of a network's ports: what a link's ends see of its state, and hosts of a panel's circuits.
#include <stdexcept>
#include <string>

#include "engine/network.hpp"

namespace loomnet {

// A host at a panel sees light from the far side of the circuit, not of its own link alone: the panel's
// end of the link is where that is known.
void Network::notify(Endpoint end, bool up, Picoseconds now) {
  Node& node = nodes_[end.node];
  if (node.panel) {
    see_light(end.node, end.port, now);
    return see_light(end.node, node.panel->circuits()[end.port], now);
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

bool Network::lit(Endpoint panel) {
  const Node& node = nodes_[panel.node];
  const std::int32_t other = node.panel->circuits()[panel.port];
  if (other < 0) return false;
  const HalfLink* here = node.egress[panel.port];
  const HalfLink* there = node.egress[static_cast<std::size_t>(other)];
  return here && there && here->up() && there->up();
}

void Network::set_carrier(Endpoint panel, bool up, Picoseconds now) {
  if (!nodes_[panel.node].egress[panel.port]) return;
  const Endpoint far = far_end(panel);
  Nic* nic = nodes_[far.node].nic.get();
  const auto port = static_cast<PlanePort>(far.port);
  if (nic && nic->port_up(port) != up) nic->set_port(port, up, now);
}

void Network::see_light(NodeId panel, std::int32_t port, Picoseconds now) {
  if (port < 0) return;
  const Endpoint end{panel, static_cast<std::uint16_t>(port)};
  set_carrier(end, lit(end), now);
}

void Network::set_circuits(NodeId panel, std::vector<std::int32_t> circuits) {
  PanelNode* const node = nodes_.at(panel).panel;
  if (!node) throw std::invalid_argument("network: node " + std::to_string(panel) + " is no panel");
  const std::vector<std::int32_t> old(node->circuits().begin(), node->circuits().end());
  node->set_circuits(std::move(circuits));
  const Picoseconds now = events_.now();
  const auto ports = static_cast<std::int32_t>(old.size());
  // All ports that move are dark before one of them has light again: no transport takes its new peer for
  // the old one.
  for (std::int32_t port = 0; port < ports; ++port) {
    const auto at = static_cast<std::size_t>(port);
    if (old[at] != node->circuits()[at]) {
      set_carrier({panel, static_cast<std::uint16_t>(port)}, false, now);
    }
  }
  for (std::int32_t port = 0; port < ports; ++port) see_light(panel, port, now);
  if (watcher_) watcher_->circuits_changed(panel);
}

}  // namespace loomnet
