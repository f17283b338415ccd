// Passes light on, and checks a panel's circuits.
#include "engine/nodes/panel_node.hpp"

#include <stdexcept>
#include <string>

namespace loomnet {

void PanelNode::receive(std::uint16_t port, PacketPtr packet, Picoseconds now) {
  const std::int32_t out = circuits_[port];
  HalfLink* const egress = out < 0 ? nullptr : egress_[static_cast<std::size_t>(out)];
  if (!egress) {
    ++dark_;
    ++shared_.dark;
    if (shared_.tap) [[unlikely]] shared_.tap->refused(node_, *packet, "drop_dark", now);
    return;
  }
  egress->offer(std::move(packet), now);
}

void PanelNode::set_circuits(std::vector<std::int32_t> circuits) {
  const auto ports = static_cast<std::int32_t>(egress_.size());
  if (static_cast<std::int32_t>(circuits.size()) != ports) {
    throw std::invalid_argument("network: circuits must name every port of the panel");
  }
  for (std::int32_t port = 0; port < ports; ++port) {
    const std::int32_t out = circuits[static_cast<std::size_t>(port)];
    if (out == -1) continue;
    if (out < 0 || out >= ports) {
      throw std::invalid_argument("network: circuit to a port that is not there");
    }
    if (out == port || circuits[static_cast<std::size_t>(out)] != port) {
      throw std::invalid_argument("network: ports " + std::to_string(port) + " and " +
                                  std::to_string(out) + " of a panel must name each other");
    }
  }
  circuits_ = std::move(circuits);
}

}  // namespace loomnet
