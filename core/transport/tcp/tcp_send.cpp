// TCP towards the wire: whose turn it is on a port, and the segments themselves.
#include <algorithm>

#include "transport/tcp/connection.hpp"

namespace loomnet::tcp {

// Data and acknowledgements share one class, as they share a kernel's queue.
Pulled TcpTransport::pull(PlanePort number, QueueClass queue, Picoseconds now) {
  if (queue != kDataClass || number >= ports_.size() || !ports_[number].up) return Pulled::idle();
  Port& port = ports_[number];
  pulling_ = true;
  Pulled pulled = pull_from(port, now);
  pulling_ = false;
  return pulled;
}

Pulled TcpTransport::pull_from(Port& port, Picoseconds now) {
  while (port.paced.next() <= now) {
    Connection& c = *connections_[port.paced.front()];
    port.paced.set(c.index, kNever);
    settle(c, now);
  }
  while (Connection* c = port.head) {
    port.head = c->next_queued;
    if (!port.head) port.tail = nullptr;
    c->queued = false;
    PacketPtr packet = next_packet(*c, now);
    settle(*c, now);  // at the end of the list again if there is more
    if (packet) return Pulled::of(std::move(packet));
  }
  if (port.paced.next() != kNever) return Pulled::wait(port.paced.next());
  return Pulled::idle();
}

PacketPtr TcpTransport::next_packet(Connection& c, Picoseconds now) {
  if (c.reset_due) return reset_packet(c, now);
  if (c.failed) return nullptr;
  if (PacketPtr packet = handshake_packet(c, now)) return packet;
  if (c.receiver.early()) return ack_packet(c, now);
  const bool may_send = c.sender.ready(now) == Sender::Ready::now;
  // A data segment acknowledges too, unless SACK blocks would not fit beside a full one.
  if (c.receiver.ack_due() && (!may_send || c.receiver.blocks_wanted() > 0)) return ack_packet(c, now);
  return may_send ? data_packet(c, now) : nullptr;
}

PacketPtr TcpTransport::build(const Connection& c, TcpHeader header, const AckContent& ack, std::uint32_t stream_bytes,
                              bool ect, Picoseconds now) {
  constexpr std::size_t kIp = kEthernetBytes, kTcp = kIp + Ipv6Header::kSize;
  TcpOptionFields options;
  options.timestamps = true;
  options.ts_value = timestamp(now);
  options.ts_echo = ack.ts_echo;
  options.sack_count = ack.sack_count;
  for (std::size_t i = 0; i < ack.sack_count; ++i) {
    options.sack[i] = {c.receive_start + static_cast<std::uint32_t>(ack.sack[i].begin),
                       c.receive_start + static_cast<std::uint32_t>(ack.sack[i].end)};
  }
  counters_.sack_blocks_sent += ack.sack_count;
  if (ack.dsack) ++counters_.dsack_sent;
  header.source_port = c.local_port;
  header.destination_port = c.remote_port;
  header.acknowledgement = c.receive_start + static_cast<std::uint32_t>(ack.end);
  if (!(header.flags & tcp_flag::kSyn) || c.handshake == Handshake::syn_ack_sent) {
    header.flags |= tcp_flag::kAck;
  }
  if (ack.ece) header.flags |= tcp_flag::kEce;
  header.window = static_cast<std::uint16_t>(options_.receive_buffer >> window_scale_);
  const std::size_t tcp_bytes = TcpHeader::kSize + options.size();
  header.data_offset = static_cast<std::uint8_t>(tcp_bytes / 4);

  PacketPtr packet = sink_.allocate();
  std::uint8_t* h = packet->header.data();
  std::copy(c.front.begin(), c.front.end(), h);
  if (ect) {
    h[kIp + 1] |= static_cast<std::uint8_t>(Ecn::ect0) << 4;
    ++counters_.ect_sent;
  }
  const auto ip_payload = static_cast<std::uint16_t>(tcp_bytes + stream_bytes);
  h[kIp + 4] = static_cast<std::uint8_t>(ip_payload >> 8);
  h[kIp + 5] = static_cast<std::uint8_t>(ip_payload);
  ByteWriter out({h + kTcp, kMaxHeaderBytes - kTcp});
  header.serialize(out);
  options.serialize(out);
  packet->header_length = static_cast<std::uint16_t>(kTcp + tcp_bytes);
  packet->wire_length = static_cast<std::uint32_t>(kTcp + ip_payload);
  packet->flow = c.flow;
  packet->queue = kDataClass;
  packet->ect = ect;
  return packet;
}

PacketPtr TcpTransport::data_packet(Connection& c, Picoseconds now) {
  const Transmission t = c.sender.send(now);
  if (c.told_ahead && !c.sender.ahead()) [[unlikely]] {
    c.told_ahead = false;
    sink_.caught_up(c.local);
  }
  const Message& m = *t.message;
  TcpHeader header;
  header.sequence = c.send_start + static_cast<std::uint32_t>(t.begin);
  if (t.push) header.flags |= tcp_flag::kPsh;
  if (t.cwr) {
    header.flags |= tcp_flag::kCwr;
    ++counters_.cwr_sent;
  }
  // RFC 3168 6.1.5: retransmissions are not ECN-capable; DCTCP's are, as in Linux (tcp_ecn_send).
  const bool ect = c.sender.accurate_ecn() || (options_.ecn && !t.retransmission);
  PacketPtr packet = build(c, header, c.receiver.content(0), t.length, ect, now);
  std::uint32_t length = t.length;
  std::uint64_t offset = t.begin - m.begin;  // in the message, frame header included
  if (offset == 0) {
    FrameHeader frame;
    frame.operation = m.request.opcode == Opcode::write ? FrameHeader::kWrite : FrameHeader::kWriteWithImmediate;
    frame.length = m.request.length;
    frame.address = m.request.remote_address;
    frame.key = m.request.remote_key;
    frame.immediate = m.request.immediate;
    frame.number = m.number;
    ByteWriter out({packet->header.data() + packet->header_length, FrameHeader::kSize});
    frame.serialize(out);
    packet->header_length += FrameHeader::kSize;
    length -= FrameHeader::kSize;
    offset = FrameHeader::kSize;
  }
  describe(packet->attributes, m.request.attributes, m.request.framing, offset - FrameHeader::kSize);
  packet->payload.length = length;
  if (m.request.local && length > 0) {
    packet->payload.data = m.request.local + (offset - FrameHeader::kSize);
    packet->payload.kind = PayloadKind::region;
  }
  ++counters_.packets_sent;
  counters_.bytes_sent += t.length;
  return packet;
}

PacketPtr TcpTransport::ack_packet(Connection& c, Picoseconds now) {
  constexpr std::size_t kBlocks = 3;  // beside timestamps
  TcpHeader header;
  header.sequence = c.send_start + static_cast<std::uint32_t>(c.sender.next());
  ++counters_.acks_sent;
  return build(c, header, c.receiver.content(kBlocks), 0, c.sender.accurate_ecn(), now);
}

// SYN and SYN-ACK carry no data and take no number of the stream here; an ACK ends the handshake.
PacketPtr TcpTransport::handshake_packet(Connection& c, Picoseconds now) {
  TcpHeader header;
  switch (c.handshake) {
    case Handshake::syn_due:
    case Handshake::syn_ack_due:
      c.handshake = c.handshake == Handshake::syn_due ? Handshake::syn_sent : Handshake::syn_ack_sent;
      c.greeted_at = now;
      header.flags = tcp_flag::kSyn;
      header.sequence = c.send_start - 1;
      break;
    case Handshake::ack_due:
      c.handshake = Handshake::done;
      header.sequence = c.send_start + static_cast<std::uint32_t>(c.sender.next());
      break;
    default:
      return nullptr;
  }
  ++counters_.handshakes_sent;
  return build(c, header, c.receiver.content(0), 0, false, now);
}

// RFC 1122 4.2.2.12: a reset may carry data that says why; here one byte.
PacketPtr TcpTransport::reset_packet(Connection& c, Picoseconds now) {
  c.reset_due = false;
  TcpHeader header;
  header.sequence = c.reset_sequence;
  header.flags = tcp_flag::kRst;
  AckContent ack;
  ack.end = c.receiver.next();
  ++counters_.resets_sent;
  PacketPtr packet = build(c, header, ack, 1, false, now);
  packet->header[packet->header_length++] = static_cast<std::uint8_t>(c.reset_reason);
  return packet;
}

}  // namespace loomnet::tcp
