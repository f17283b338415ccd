// Checks a panel's circuits.
#include "engine/nodes/panel_node.hpp"

#include <stdexcept>

namespace loomnet {

void PanelNode::set_circuits(std::vector<std::int32_t> circuits) {
  const auto ports = static_cast<std::int32_t>(egress_.size());
  if (static_cast<std::int32_t>(circuits.size()) != ports) {
    throw std::invalid_argument("network: circuits must name every port of the panel");
  }
  for (const std::int32_t out : circuits) {
    if (out < -1 || out >= ports) {
      throw std::invalid_argument("network: circuit to a port that is not there");
    }
  }
  circuits_ = std::move(circuits);
}

}  // namespace loomnet
