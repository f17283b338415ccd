// A switch that runs outside the engine: its packets go through the gate into the kernel.
#pragma once

#include "engine/nodes/shared.hpp"

namespace loomnet {

class KernelNode final : public LinkReceiver {
 public:
  KernelNode(NodesShared& shared, NodeId node) : shared_(shared), node_(node) {}
  void receive(std::uint16_t port, PacketPtr packet, Picoseconds now) override {
    packet->ingress = port;
    shared_.gate->to_switch(node_, port, std::move(packet), now);
  }

 private:
  NodesShared& shared_;
  NodeId node_;
};

}  // namespace loomnet
