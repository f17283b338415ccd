// What leaves a port: control records become packets, and the ready queue pairs take turns.
#include "transport/mrc/dscp.hpp"
#include "transport/mrc/mrc_transport.hpp"

namespace loomnet::mrc {

Pulled MrcTransport::pull(PlanePort port, QueueClass queue, Picoseconds now) {
  if (port >= port_count_ || !(context_.own_up >> port & 1)) return Pulled::idle();
  if (queue == kControlClass) {
    PacketPtr packet = pull_control(port, context_.control[port], now);
    if (!packet) return Pulled::idle();
    ports_[port].state = Port::State::busy;
    return Pulled::of(std::move(packet));
  }
  if (queue != kDataClass) return Pulled::idle();
  if (PacketPtr probe = pull_control(port, context_.probes[port], now)) {
    ports_[port].state = Port::State::busy;
    return Pulled::of(std::move(probe));
  }
  Pulled pulled = pull_data(port, now);
  if (pulled.kind != Pulled::Kind::idle) {
    ports_[port].state = Port::State::busy;
  } else if (context_.control[port].empty()) {
    ports_[port].state = Port::State::idle;
  }
  wake(now, static_cast<PlaneMask>(1u << port));
  return pulled;
}

Pulled MrcTransport::pull_data(PlanePort port, Picoseconds now) {
  PlaneMask free = 0;
  for (PlanePort p = 0; p < port_count_; ++p) {
    const Port& other = ports_[p];
    const bool is_free =
        other.state == Port::State::idle || (other.state == Port::State::asked && other.asked_at == now);
    if (is_free && context_.own_up >> p & 1) free = static_cast<PlaneMask>(free | 1u << p);
  }
  bool elsewhere = false;
  std::uint32_t turn = ready_;
  for (std::size_t n = ready_count_; n > 0; --n) {
    QueuePair& qp = *qps_[turn];
    const std::uint32_t next = qp.next_ready;
    Sender::Offer offer = qp.sender.offer(port, free, now);
    if (offer.kind == Sender::Offer::Kind::packet) {
      ready_ = next;  // the others come first now
      settle(turn);
      return Pulled::of(std::move(offer.packet));
    }
    if (offer.kind == Sender::Offer::Kind::other_plane) {
      // That port is idle and first in this queue pair's rotation. If it does not take the packet
      // at this instant, it was busy with other traffic, and this port does.
      elsewhere = true;
      context_.wake = static_cast<PlaneMask>(context_.wake | 1u << offer.plane);
    }
    turn = next;
  }
  return elsewhere ? Pulled::wait(now + Picoseconds{1}) : Pulled::idle();
}

PacketPtr MrcTransport::pull_control(PlanePort port, ControlQueue& queue, Picoseconds now) {
  while (!queue.empty()) {
    Control& control = queue.front();
    if (control.kind == Op::endpoint_request || control.kind == Op::endpoint_response) {
      PacketPtr packet = endpoint_packet(port, control, now);
      queue.pop();
      return packet;
    }
    bool again = false;
    PacketPtr packet = qp_packet(port, control, now, again);
    if (again) {
      control.first = false;
    } else {
      queue.pop();
    }
    return packet;
  }
  return nullptr;
}

PacketPtr MrcTransport::endpoint_packet(PlanePort port, const Control& control, Picoseconds now) {
  const Peer& peer = *peers_[control.owner];
  const MrcOptions& o = context_.options;
  const bool probe = control.code == static_cast<std::uint8_t>(EndpointOp::ev_probe);
  const bool request = control.kind == Op::endpoint_request;
  Bth bth;
  bth.opcode = static_cast<std::uint8_t>(control.kind);
  bth.destination_qp = kEndpointQp;
  bth.psn = control.id;
  Envelope e{peer.self(),
             peer.host(),
             &peer.paths(port),
             control.fixed_path ? EntropyValue(port, control.uplink) : peer.reverse(port),
             request && probe ? dscp::kNoTrim : dscp::kControl,
             Ecn::not_ect};
  PacketPtr packet = context_.sink->allocate();
  ByteWriter out = begin(*packet, o, e, bth);
  if (request) {
    Erth erth;
    erth.op = control.code;
    erth.port_status_mask = peer.status_mask();
    erth.stamp = {o.timestamp(now), o.coarse_timestamps};
    erth.serialize(out);
    context_.count(probe ? Count::ev_probe_sent : Count::port_status_sent);
  } else {
    Eeth eeth;
    eeth.op = control.code;
    eeth.tx_ts = control.tx_ts;
    eeth.serialize(out);
  }
  finish(*packet, out, {});
  return packet;
}

PacketPtr MrcTransport::qp_packet(PlanePort port, const Control& control, Picoseconds now, bool& again) {
  QueuePair& qp = *qps_[control.owner];
  const MrcOptions& o = context_.options;
  const Sender::Identity& config = qp.sender.config();
  const auto local_id = static_cast<std::uint16_t>(config.local);
  const auto remote_id = static_cast<std::uint16_t>(config.remote);
  const bool probe = control.kind == Op::reliability_probe;

  Seth seth;
  CcState cc;
  Bth bth;
  bth.opcode = static_cast<std::uint8_t>(control.kind);
  bth.destination_qp = config.remote;
  bth.retransmission = control.retransmission;
  if (control.kind == Op::sack) {
    again = qp.receiver.fill_sack(control, seth, cc);
    bth.psn = seth.cack_psn;
  } else if (control.kind == Op::nack) {
    bth.psn = Psn::wrap(control.psn).raw();
  }
  const Envelope e{config.source,
                   config.destination,
                   &qp.peer.paths(port),
                   control.fixed_path ? EntropyValue(port, control.uplink) : qp.peer.reverse(port),
                   probe ? dscp::kNoTrim : dscp::kControl,
                   probe && o.ecn ? Ecn::ect0 : Ecn::not_ect};
  PacketPtr packet = context_.sink->allocate();
  packet->flow = config.flow;
  ByteWriter out = begin(*packet, o, e, bth);
  switch (control.kind) {
    case Op::sack:
      seth.source_pdc = local_id;
      seth.destination_pdc = remote_id;
      seth.serialize(out);
      cc.serialize(out);
      context_.count(Count::sack_sent);
      break;
    case Op::nack: {
      Neth neth;
      neth.reason = control.code;
      neth.entropy = control.entropy;
      neth.source_pdc = local_id;
      neth.destination_pdc = remote_id;
      neth.nack_psn = bth.psn;
      neth.tx_ts = control.tx_ts;
      neth.serialize(out);
      context_.count(Count::nack_sent);
      break;
    }
    case Op::transport_ack:
      Aeth{control.code, control.message}.serialize(out);
      context_.count(Count::nak_sent);
      break;
    default: {
      Peth peth;
      peth.probe_id = control.id;
      peth.source_pdc = local_id;
      peth.destination_pdc = remote_id;
      peth.stamp = {o.timestamp(now), o.coarse_timestamps};
      peth.serialize(out);
      context_.count(Count::probe_sent);
      break;
    }
  }
  finish(*packet, out, {});
  return packet;
}

}  // namespace loomnet::mrc
