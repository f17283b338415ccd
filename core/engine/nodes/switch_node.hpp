// A switch whose program the engine runs.
#pragma once

#include <span>

#include "engine/nodes/shared.hpp"
#include "switch/packet_view.hpp"
#include "switch/program.hpp"

namespace loomnet {

class SwitchNode final : public LinkReceiver {
 public:
  // `egress`: its ports' links, null where a port has none.
  SwitchNode(NodesShared& shared, NodeId node, SwitchProgram& program, std::span<HalfLink* const> egress)
      : program_(program), egress_(egress), shared_(shared), node_(node), needs_(program.needs()) {}
  // The program decides; the packet, or a copy of it, is offered to each link that the verdict names.
  void receive(std::uint16_t port, PacketPtr packet, Picoseconds now) override;
  void prepare(std::uint16_t port, const Packet& packet, int stage) const override;

 private:
  void receive_view(std::uint16_t port, PacketPtr packet, Picoseconds now);
  void carry_out(Verdict verdict, std::uint16_t port, PacketPtr packet, Picoseconds now);
  void replicate(std::uint16_t group, std::uint16_t port, PacketPtr packet, Picoseconds now);
  void obey(std::uint16_t port, const Packet& packet, Picoseconds now);
  void offer(std::uint16_t port, PacketPtr packet, Picoseconds now) {
    if (port >= egress_.size() || !egress_[port]) [[unlikely]]
      return no_link(std::move(packet), now);
    egress_[port]->offer(std::move(packet), now);
  }
  void no_link(PacketPtr packet, Picoseconds now);

  SwitchProgram& program_;
  std::span<HalfLink* const> egress_;
  NodesShared& shared_;
  NodeId node_;
  const ProgramNeeds needs_;
  ViewScratch scratch_;
};

}  // namespace loomnet
