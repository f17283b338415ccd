// RoCE from the wire: every packet is checked, then executed, acknowledged or dropped by name.
#include "transport/roce/roce_state.hpp"

namespace loomnet::roce {

namespace {
// Immediates that one plane may run ahead of the others: far beyond any send queue's depth, so that
// only a peer that misbehaves reaches it.
constexpr std::size_t kMaxImmediatesHeld = 65'536;
}  // namespace

void RoceTransport::on_packet(PlanePort port, PacketPtr packet, Picoseconds now) {
  Counters& count = *counters_;
  if (packet->corrupt) {
    ++count.corrupt_dropped;
    return;
  }
  const Received r = parse(*packet);
  switch (r.flaw) {
    case Flaw::none:
      break;
    case Flaw::truncated:
      ++count.malformed_dropped;
      return;
    case Flaw::not_roce:
      ++count.not_roce_dropped;
      return;
    case Flaw::wrong_opcode:
      ++count.unknown_opcode_dropped;
      return;
  }
  Connection* const found = named(r.qp, r);
  if (!found) {
    ++count.unknown_qp_dropped;
    return;
  }
  Connection& c = *found;
  if (r.source != c.remote_address || r.destination != c.local_address) {
    ++count.wrong_peer_dropped;
    return;
  }
  // A queue pair whose messages have one part takes packets from every port: what left by a path before
  // on_paths() changed it still comes by that path.
  const std::uint8_t part = c.planes == 1 ? 0 : port < c.ports ? c.part_at[port] : kNoPart;
  if (port >= c.ports || part == kNoPart) {
    ++count.wrong_port_dropped;
    return;
  }
  QueuePair& qp = c.queue_pairs[part];
  if (!is_of_this_life(qp, r)) {
    ++count.unknown_qp_dropped;  // of a queue pair that is no more
    return;
  }
  if (r.ecn == Ecn::ce) {
    ++count.ce_received;
    if (qp.regulator && r.opcode != RcOpcode::acknowledge && qp.regulator->control->traits.notified) {
      notify_congestion(qp, now);
    }
  }
  if (r.opcode == RcOpcode::congestion_notification) {
    ++count.cnps_received;
    if (qp.regulator) on_congestion(qp, Congestion::notified, now);
    return;
  }
  if (r.opcode == RcOpcode::acknowledge) {
    recent_.sending = c.queue_pairs.get();
    recent_.sending_for = &c;
    on_acknowledge(qp, r, now);
  } else {
    recent_.receiving = c.queue_pairs.get();
    recent_.receiving_for = &c;
    on_request(qp, r, *packet, now);
  }
}

// The connection that a packet names by the number of a queue pair of its own or of one in its place.
RoceTransport::Connection* RoceTransport::named(QpNumber number, const Received& packet) {
  const auto at = [&](QpNumber each) {
    const std::uint32_t found = by_number_.find(each);
    return found == NumberIndex::kAbsent ? nullptr : connections_[found].get();
  };
  Connection* const own = at(number);
  if (number <= kMostRenewable || (own && packet.source == own->remote_address)) [[likely]]
    return own;
  Connection* const renewed = at(number & kMostRenewable);
  return renewed && packet.source == renewed->remote_address ? renewed : own;
}

// Whether a packet is of the queue pair that stands here now. The first request of the next one makes the
// receiving half anew: nothing of the one before is left to come but repeated packets, late answers and
// notifications, which find no queue pair.
bool RoceTransport::is_of_this_life(QueuePair& qp, const Received& packet) {
  const Connection& c = *qp.connection;
  if (std::max(c.local, c.remote) > kMostRenewable) return true;
  const bool answers = packet.opcode == RcOpcode::acknowledge || packet.opcode == RcOpcode::congestion_notification;
  const auto ahead = static_cast<std::uint8_t>(life_of(packet.qp) - (answers ? qp.lives : qp.peer_lives));
  if (ahead == 0) [[likely]]
    return true;
  if (answers || ahead != 1 || qp.responder.failed()) return false;
  ++qp.peer_lives;
  qp.receive_psn =
      first_psn(c.destination, c.source, c.remote + (std::uint64_t(&qp - c.queue_pairs.get()) << 24), qp.peer_lives);
  qp.responder = {};
  qp.cnp_due = {};
  qp.marks = 0;
  return true;
}

void RoceTransport::notify_congestion(QueuePair& qp, Picoseconds now) {
  if (now < qp.cnp_due || !Cnps::push(ports_[qp.port].cnps, qp)) return;
  qp.cnp_due = now + options_.cnp_gap;
  announce(qp.port);
}

void RoceTransport::on_acknowledge(QueuePair& qp, const Received& received, Picoseconds now) {
  Counters& count = *counters_;
  Connection& c = *qp.connection;
  Requester& r = qp.requester;
  const Aeth aeth = received.aeth;
  if (!aeth.is_ack() && (!aeth.is_nak() || aeth.syndrome > Aeth::kNakRemoteOperational)) {
    ++count.malformed_dropped;
    return;
  }
  ++(aeth.is_ack() ? count.acks_received : count.naks_received);
  if (c.failed) {
    ++count.failed_qp_dropped;
    return;
  }
  // An ACK names the last PSN that arrived, a NAK the first that did not or that failed.
  const std::int64_t distance = psn_distance(received.psn, qp.send_psn, r.acked());
  const auto ahead = static_cast<std::int64_t>(r.sent() - r.acked());
  if (distance < (aeth.is_ack() ? -1 : 0)) {
    ++count.acks_stale;
    return;
  }
  if (distance >= ahead && distance >= 0) {
    ++count.acks_out_of_range;
    return;
  }
  const std::uint64_t end = r.acked() + static_cast<std::uint64_t>(distance) + (aeth.is_ack() ? 1 : 0);
  const std::uint64_t before = r.acked();
  if (r.acknowledge(end, [&](std::uint64_t message) { part_done(c, message); })) {
    if (c.failed) return;
    if (qp.regulator) on_progress(qp, end - before, received, now);
    r.retries = 0;
    r.deadline = kNever;
    if (r.in_flight()) start_timer(qp, now);
  } else if (aeth.is_ack()) {
    ++count.acks_stale;
  }
  if (aeth.syndrome == Aeth::kNakSequence) {
    r.go_back();
    if (qp.regulator) on_congestion(qp, Congestion::loss, now);
  } else if (aeth.is_nak()) {
    const Status status = aeth.syndrome == Aeth::kNakRemoteAccess     ? Status::remote_access_error
                          : aeth.syndrome == Aeth::kNakInvalidRequest ? Status::remote_invalid_request
                                                                      : Status::remote_operational;
    fail(c, status, r.oldest_message(), now);
    return;
  }
  ready_data(qp, now);
}

void RoceTransport::on_request(QueuePair& qp, const Received& received, const Packet& packet, Picoseconds now) {
  Counters& count = *counters_;
  Connection& c = *qp.connection;
  Responder& responder = qp.responder;
  if (c.failed && !responder.failed()) {
    // In the error state a queue pair answers nothing (9.9.3): the peer's retries run out.
    ++count.failed_qp_dropped;
    return;
  }
  switch (responder.judge(received, qp.receive_psn, options_.payload_mtu)) {
    case Responder::Verdict::refused_state:
      ++count.failed_qp_dropped;
      break;
    case Responder::Verdict::duplicate:
      ++count.duplicates_dropped;
      break;
    case Responder::Verdict::gap:
      ++count.out_of_order_dropped;
      break;
    case Responder::Verdict::invalid:
      ++count.invalid_requests_dropped;
      fail(c, Status::flushed, 0, now);
      break;
    case Responder::Verdict::accept: {
      if (!place(qp, received, packet)) {
        ++count.access_errors;
        responder.refuse(Aeth::kNakRemoteAccess);
        fail(c, Status::flushed, 0, now);
        break;
      }
      ++count.packets_placed;
      qp.marks += received.ecn == Ecn::ce;
      count.bytes_placed += received.payload_length;
      Executed executed;
      if (!responder.placed(received, executed)) break;
      if (responder.executed.size() >= kMaxImmediatesHeld) {
        ++count.immediates_overflow;
        responder.refuse(Aeth::kNakRemoteOperational);
        fail(c, Status::flushed, 0, now);
        break;
      }
      responder.executed.push(executed);
      deliver(c, now);
      break;
    }
  }
  ready_answer(qp);
}

// A frame from the wire may hold the first payload bytes among its header bytes.
bool RoceTransport::place(QueuePair& qp, const Received& received, const Packet& packet) {
  const QpNumber number = qp.connection->local;
  const Responder& to = qp.responder;
  std::uint32_t left = received.payload_length;
  std::uint64_t address = to.address();
  const auto in_header = std::min<std::uint32_t>(left, packet.header_length - received.header_end);
  if (in_header > 0) {
    const Payload head{packet.header.data() + received.header_end, in_header, 0, PayloadKind::region};
    if (!sink_.place(number, to.key(), address, head)) return false;
    address += in_header;
    left -= in_header;
  }
  if (left == 0) return true;
  Payload body = packet.payload;
  body.length = left;
  return sink_.place(number, to.key(), address, body);
}

// Hands over every write-with-immediate whose parts have executed on all planes.
void RoceTransport::deliver(Connection& c, Picoseconds now) {
  for (;;) {
    for (std::uint8_t p = 0; p < c.planes; ++p) {
      if (c.queue_pairs[p].responder.executed.empty()) return;
    }
    const Executed first = c.queue_pairs[0].responder.executed.pop();
    std::uint64_t length = first.length;
    bool consistent = true;
    for (std::uint8_t p = 1; p < c.planes; ++p) {
      const Executed part = c.queue_pairs[p].responder.executed.pop();
      consistent = consistent && part.immediate == first.immediate && part.address == first.address + length;
      length += part.length;
    }
    if (!consistent || length > 0xffffffffu) {
      // The planes disagree about their k-th immediate: the peer is not striping as it must.
      ++counters_->immediates_inconsistent;
      for (std::uint8_t p = 0; p < c.planes; ++p) {
        c.queue_pairs[p].responder.refuse(Aeth::kNakInvalidRequest);
        ready_answer(c.queue_pairs[p]);
      }
      return fail(c, Status::flushed, 0, now);
    }
    ++counters_->immediates_delivered;
    sink_.arrived({c.local, first.immediate, static_cast<std::uint32_t>(length), first.address});
  }
}

}  // namespace loomnet::roce
