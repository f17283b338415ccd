// An optical patch panel: light that comes in by a port leaves by the port that it is patched to.
#pragma once

#include <span>
#include <vector>

#include "engine/nodes/shared.hpp"
#include "link/half_link.hpp"

namespace loomnet {

class PanelNode final : public LinkReceiver {
 public:
  PanelNode(NodesShared& shared, NodeId node, std::span<HalfLink* const> egress)
      : shared_(shared), node_(node), egress_(egress), circuits_(egress.size(), -1) {}
  void receive(std::uint16_t port, PacketPtr packet, Picoseconds now) override;
  // The port that each port is patched to, -1 for none; circuits are symmetrical. Throws
  // std::invalid_argument, and the old circuits stay.
  void set_circuits(std::vector<std::int32_t> circuits);
  std::span<const std::int32_t> circuits() const { return circuits_; }
  std::uint64_t dark() const { return dark_; }  // packets that came in by a port without circuit

 private:
  NodesShared& shared_;
  NodeId node_;
  std::span<HalfLink* const> egress_;  // by port
  std::vector<std::int32_t> circuits_;
  std::uint64_t dark_ = 0;
};

}  // namespace loomnet
