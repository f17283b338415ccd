// Executes a switch program's verdicts.
#include "engine/nodes/switch_node.hpp"

#include "clock/fetch.hpp"

namespace loomnet {

void SwitchNode::receive(std::uint16_t port, PacketPtr packet, Picoseconds now) {
  if (packet->queue == kMacControlClass) [[unlikely]]
    return obey(port, *packet, now);
  packet->ingress = port;
  if (needs_.view) [[unlikely]]
    return receive_view(port, std::move(packet), now);
  const Verdict verdict = program_.ingress(packet->header_bytes(), packet->wire_length, {now, port});
  if (verdict.action == Verdict::Action::forward) [[likely]] {
    return offer(verdict.value, std::move(packet), now);
  }
  carry_out(verdict, port, std::move(packet), now);
}

void SwitchNode::receive_view(std::uint16_t port, PacketPtr packet, Picoseconds now) {
  PacketView view(*packet, shared_.pool, needs_, scratch_);
  Verdict verdict = program_.ingress_view(view, {now, port});
  if (verdict.leaves()) {
    if (const auto broken = view.apply()) verdict = Verdict::drop(program_.count(*broken, port, 1));
  }
  carry_out(verdict, port, std::move(packet), now);
}

void SwitchNode::carry_out(Verdict verdict, std::uint16_t port, PacketPtr packet, Picoseconds now) {
  switch (verdict.action) {
    case Verdict::Action::forward:
      return offer(verdict.value, std::move(packet), now);
    case Verdict::Action::reply:
      return offer(port, std::move(packet), now);
    case Verdict::Action::replicate:
      return replicate(verdict.value, port, std::move(packet), now);
    case Verdict::Action::drop:  // the program has counted it by reason
      if (shared_.tap) [[unlikely]] {
        shared_.tap->refused(node_, *packet, program_.reason(verdict.value), now);
      }
      return;
    case Verdict::Action::absorb:
    case Verdict::Action::pass:  // the engine's switches have no network stack: nothing follows
      if (shared_.tap) [[unlikely]] {
        shared_.tap->ended(node_, *packet, ending(verdict.action), now);
      }
      return;
  }
}

// The program has named a port that no link is at; in the kernel such a packet finds no interface.
void SwitchNode::no_link(PacketPtr packet, Picoseconds now) {
  ++shared_.unconnected;
  const std::uint16_t reason = program_.count(LN_HOST_DROP_NO_DEVICE, packet->ingress, 1);
  carry_out(Verdict::drop(reason), packet->ingress, std::move(packet), now);
}

void SwitchNode::replicate(std::uint16_t group, std::uint16_t port, PacketPtr packet, Picoseconds now) {
  const auto members = program_.members(group);
  if (members.empty()) {
    const std::uint16_t reason = program_.count(LN_HOST_DROP_NO_GROUP, port, 1);
    return carry_out(Verdict::drop(reason), port, std::move(packet), now);
  }
  program_.count(LN_HOST_COPIES, port, members.size());
  for (std::size_t i = 1; i < members.size(); ++i) {
    offer(members[i - 1], shared_.pool.duplicate(*packet), now);
  }
  offer(members.back(), std::move(packet), now);
}

void SwitchNode::prepare(std::uint16_t port, const Packet& packet, int stage) const {
  if (stage == 2) return fetch(&program_, 2 * kCacheLine);
  const Verdict likely = program_.foresee(packet.header_bytes(), packet.wire_length, port);
  if (likely.action == Verdict::Action::forward && likely.value < egress_.size() && egress_[likely.value]) {
    egress_[likely.value]->prepare_offer();
  }
}

void SwitchNode::obey(std::uint16_t port, const Packet& packet, Picoseconds now) {
  if (port < egress_.size() && egress_[port]) egress_[port]->obey_pause(packet, now);
}

}  // namespace loomnet
