// Executes a switch program's verdicts.
#include "engine/nodes/switch_node.hpp"

#include "clock/fetch.hpp"

namespace loomnet {

void SwitchNode::receive(std::uint16_t port, PacketPtr packet, Picoseconds now) {
  if (packet->queue == kMacControlClass) [[unlikely]] return obey(port, *packet, now);
  packet->ingress = port;
  const Verdict verdict =
      program_.ingress(packet->header_bytes(), packet->wire_length, {now, port});
  switch (verdict.action) {
    case Verdict::Action::forward:
    case Verdict::Action::reply:
      offer(verdict.value, std::move(packet), now);
      break;
    case Verdict::Action::replicate: {
      const auto members = program_.members(verdict.value);
      for (std::size_t i = 1; i < members.size(); ++i) {
        offer(members[i - 1], shared_.pool.duplicate(*packet), now);
      }
      if (!members.empty()) offer(members.back(), std::move(packet), now);
      break;
    }
    case Verdict::Action::drop:  // the program has counted it by reason
      if (shared_.tap) [[unlikely]] {
        shared_.tap->refused(node_, *packet, program_.reason(verdict.value), now);
      }
      break;
    case Verdict::Action::pass:  // the engine's switches have no stack of their own
      break;
  }
}

void SwitchNode::prepare(std::uint16_t port, const Packet& packet, int stage) const {
  if (stage == 2) return fetch(&program_, 2 * kCacheLine);
  const Verdict likely = program_.foresee(packet.header_bytes(), packet.wire_length, port);
  if (likely.action == Verdict::Action::forward && likely.value < egress_.size() &&
      egress_[likely.value]) {
    egress_[likely.value]->prepare_offer();
  }
}

void SwitchNode::obey(std::uint16_t port, const Packet& packet, Picoseconds now) {
  if (port < egress_.size() && egress_[port]) egress_[port]->obey_pause(packet, now);
}

}  // namespace loomnet
