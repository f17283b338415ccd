// RoCE towards the wire: whose turn it is on a port, and the packets themselves.
#include <algorithm>

#include "packet/step_stamp.hpp"
#include "packet/udp.hpp"
#include "transport/roce/roce_state.hpp"

namespace loomnet::roce {

inline bool RoceTransport::may_send(const QueuePair& qp, std::uint64_t window) const {
  if (!qp.requester.can_send(window)) return false;
  return !options_.port_by_step() || in_turn(qp);
}

void RoceTransport::ready_data(QueuePair& qp, Picoseconds now) {
  if (!may_send(qp, window_of(qp))) return;
  Port& port = ports_[qp.port];
  if (Data::push(port.data, qp)) announce(qp.port);
  // What a NIC hands to a dead port is lost, and the timer runs: nothing else ends the wait.
  if (!port.up && qp.requester.deadline == kNever) start_timer(qp, now);
}

void RoceTransport::ready_answer(QueuePair& qp) {
  if (qp.in_answers || !qp.responder.answer_due()) return;
  Answers::push(ports_[qp.port].answers, qp);
  announce(qp.port);
}

Pulled RoceTransport::pull(PlanePort number, QueueClass queue, Picoseconds now) {
  if (number >= kNowhere || !ports_[number].up) return Pulled::idle();
  Port& port = ports_[number];
  if (queue == kControlClass) {
    if (QueuePair* qp = Cnps::pop(port.cnps)) return Pulled::of(cnp_packet(*qp));
  }
  if (answer_queue_ == queue) {
    if (QueuePair* qp = Answers::pop(port.answers)) {
      PacketPtr packet = answer_packet(*qp);
      if (qp->responder.answer_due()) Answers::push(port.answers, *qp);
      return Pulled::of(std::move(packet));
    }
  }
  if (dscp::queue_of(options_.data_dscp) == queue) {
    if (control_) return pull_paced(port, now);
    while (QueuePair* qp = Data::pop(port.data)) {
      if (!may_send(*qp, window_)) continue;  // acknowledged or failed since
      PacketPtr packet = data_packet(*qp, now);
      if (may_send(*qp, window_)) Data::push(port.data, *qp);
      return Pulled::of(std::move(packet));
    }
  }
  return Pulled::idle();
}

// As pull() of data, in turn among queue pairs whose rate lets them send now.
Pulled RoceTransport::pull_paced(Port& port, Picoseconds now) {
  Picoseconds soonest = kNever;
  const QueuePair* first_waiting = nullptr;
  while (port.data.head && port.data.head != first_waiting) {
    QueuePair* qp = Data::pop(port.data);
    if (!may_send(*qp, window_of(*qp))) continue;
    if (qp->regulator->next_send > now) {
      soonest = std::min(soonest, qp->regulator->next_send);
      if (!first_waiting) first_waiting = qp;
      Data::push(port.data, *qp);
      continue;
    }
    PacketPtr packet = data_packet(*qp, now);
    if (may_send(*qp, window_of(*qp))) Data::push(port.data, *qp);
    return Pulled::of(std::move(packet));
  }
  return soonest == kNever ? Pulled::idle() : Pulled::wait(soonest);
}

// Everything up to and including BTH, but for `step` bytes in front of BTH; `extension` bytes of headers and
// `payload` bytes will follow.
PacketPtr RoceTransport::begin_packet(const QueuePair& qp, const Bth& bth, std::size_t extension, std::uint32_t payload,
                                      std::uint8_t code, bool ect, std::size_t step) {
  constexpr std::size_t kIp = 14, kUdp = kIp + Ipv6Header::kSize;
  PacketPtr packet = sink_.allocate();
  const std::size_t headers = kFrontBytes + step + Bth::kSize + extension;
  const auto udp_length = static_cast<std::uint16_t>(headers - kUdp + payload + bth.pad + kIcrcBytes);
  std::copy(qp.front.begin(), qp.front.end(), packet->header.begin());
  std::uint8_t* h = packet->header.data();
  const auto traffic_class = static_cast<std::uint8_t>(code << 2 | (ect ? 2 : 0));
  h[kIp] = static_cast<std::uint8_t>(h[kIp] | traffic_class >> 4);
  h[kIp + 1] = static_cast<std::uint8_t>((h[kIp + 1] & 0x0f) | traffic_class << 4);
  h[kIp + 4] = h[kUdp + 4] = static_cast<std::uint8_t>(udp_length >> 8);
  h[kIp + 5] = h[kUdp + 5] = static_cast<std::uint8_t>(udp_length);
  ByteWriter out({h + kFrontBytes + step, Bth::kSize});
  bth.serialize(out);
  packet->header_length = static_cast<std::uint16_t>(headers);
  packet->wire_length = static_cast<std::uint32_t>(kUdp + udp_length);
  packet->flow = qp.connection->flow;
  packet->queue = dscp::queue_of(code);
  packet->ect = ect;
  return packet;
}

PacketPtr RoceTransport::data_packet(QueuePair& qp, Picoseconds now) {
  Connection& c = *qp.connection;
  const Segment s = qp.requester.send(options_, window_of(qp));
  const Connection::Message& m = c.message(s.part->message);
  if (options_.port_by_step()) [[unlikely]]
    turn(qp, m.attributes);
  const RcOpcode opcode = write_opcode(s.first, s.last, m.with_immediate);
  const bool immediate = carries_immediate(opcode);
  Bth bth;
  bth.opcode = static_cast<std::uint8_t>(opcode);
  bth.pad = static_cast<std::uint8_t>(-s.length & 3);
  bth.destination_qp = number_in(qp.lives, c.remote);
  bth.ack_request = s.ack_request;
  bth.psn = static_cast<std::uint32_t>(qp.send_psn + s.sequence) & kMask24;
  const std::size_t extension = (s.first ? Reth::kSize : 0) + (immediate ? ImmDt::kSize : 0);
  const std::size_t step = options_.identity == StepIdentity::hdr ? kStepHeaderBytes : 0;
  PacketPtr packet =
      begin_packet(qp, bth, extension, s.length, options_.data_dscp, options_.ect || control_ != nullptr, step);
  ByteWriter out({packet->header.data() + packet->header_length - extension, extension});
  if (s.first) Reth{m.remote_address + s.part->offset, m.remote_key, s.part->length}.serialize(out);
  if (immediate) ImmDt{m.immediate}.serialize(out);
  packet->message = m.number;
  describe(packet->attributes, m.attributes, m.framing, s.part->offset + s.offset);
  if (step > 0) [[unlikely]] {
    std::uint8_t* at = packet->header.data() + kFrontBytes;
    store_big_endian<2>(at - UdpHeader::kSize + 2, kUdpPortStep);
    // Each queue pair of a message that is striped sends its own part of the step, and so its own last packet.
    put_step_header(at, packet->attributes, s.last && ends_step(m.attributes, m.framing, m.length), s.retransmission);
  }
  packet->payload.length = s.length;
  if (m.local && s.length > 0) {
    packet->payload.data = m.local + s.part->offset + s.offset;
    packet->payload.kind = PayloadKind::region;
  }
  ++counters_->packets_sent;
  counters_->payload_bytes_sent += s.length;
  if (s.retransmission) {
    ++counters_->retransmitted;
    counters_->retransmitted_bytes += s.length;
  }
  if (qp.requester.deadline == kNever) start_timer(qp, now);
  if (qp.regulator) on_sent(qp, s, packet->wire_length + kFramingOverhead, now);
  return packet;
}

PacketPtr RoceTransport::cnp_packet(QueuePair& qp) {
  Bth bth;
  bth.opcode = static_cast<std::uint8_t>(RcOpcode::congestion_notification);
  bth.becn = true;
  bth.destination_qp = number_in(qp.peer_lives, qp.connection->remote);
  PacketPtr packet = begin_packet(qp, bth, kCnpReservedBytes, 0, dscp::kExpeditedForwarding, false);
  std::fill_n(packet->header.data() + packet->header_length - kCnpReservedBytes, kCnpReservedBytes, std::uint8_t{0});
  ++counters_->cnps_sent;
  return packet;
}

PacketPtr RoceTransport::answer_packet(QueuePair& qp) {
  const Responder::Answer a = qp.responder.answer();
  Bth bth;
  bth.opcode = static_cast<std::uint8_t>(RcOpcode::acknowledge);
  bth.destination_qp = number_in(qp.peer_lives, qp.connection->remote);
  bth.psn = static_cast<std::uint32_t>(qp.receive_psn + a.sequence) & kMask24;
  bth.becn = echoes_marks_;
  const std::size_t extension = Aeth::kSize + (bth.becn ? kMarkEchoBytes : 0);
  PacketPtr packet = begin_packet(qp, bth, extension, 0, options_.answer_dscp(), false);
  ByteWriter out({packet->header.data() + packet->header_length - extension, extension});
  const Aeth aeth{a.syndrome, a.msn};
  aeth.serialize(out);
  if (bth.becn) out.u32(qp.marks);
  ++(aeth.is_ack() ? counters_->acks_sent : counters_->naks_sent);
  return packet;
}

}  // namespace loomnet::roce
