// TCP from the wire: every segment is checked, then taken, acknowledged or dropped by name.
#include <algorithm>

#include "packet/host_address.hpp"
#include "transport/tcp/connection.hpp"

namespace loomnet::tcp {
namespace {

std::int64_t unwrap(std::uint32_t number, std::uint32_t start, std::uint64_t near) {
  const auto distance = static_cast<std::int32_t>(number - start - static_cast<std::uint32_t>(near));
  return static_cast<std::int64_t>(near) + distance;
}

Status reset_status(std::uint8_t byte) {
  switch (static_cast<Status>(byte)) {
    case Status::remote_access_error:
    case Status::remote_invalid_request:
      return static_cast<Status>(byte);
    default:
      return Status::remote_operational;
  }
}

}  // namespace

TcpTransport::Connection* TcpTransport::find(const Received& r, PlanePort port) {
  const auto found = by_tuple_.find(key(host_of(r.source), r.tcp.destination_port, r.tcp.source_port));
  if (found == by_tuple_.end() || r.source != found->second->remote_address ||
      r.destination != found->second->local_address) {
    ++counters_.unknown_connection_dropped;
    return nullptr;
  }
  if (port >= found->second->planes) {
    ++counters_.wrong_port_dropped;
    return nullptr;
  }
  return found->second;
}

void TcpTransport::on_packet(PlanePort port, PacketPtr packet, Picoseconds now) {
  if (packet->corrupt) {
    ++counters_.corrupt_dropped;
    return;
  }
  const Received r = parse(*packet);
  if (r.flaw != Flaw::none) {
    ++(r.flaw == Flaw::truncated ? counters_.malformed_dropped : counters_.not_tcp_dropped);
    return;
  }
  Connection* c = find(r, port);
  if (!c) return;
  if (r.ecn == Ecn::ce) ++counters_.ce_received;
  if (r.tcp.has(tcp_flag::kRst)) {
    on_reset(*c, r, *packet, now);
  } else if (r.tcp.has(tcp_flag::kSyn)) {
    on_handshake(*c, r, now);
  } else if (!r.tcp.has(tcp_flag::kAck) || r.tcp.has(tcp_flag::kFin | tcp_flag::kUrg)) {
    ++counters_.unexpected_flags_dropped;  // connections are not closed here
  } else if (c->failed) {
    ++counters_.failed_connection_dropped;
    c->reset_due = true;  // RFC 9293 3.10.7.1: <SEQ=SEG.ACK>
    c->reset_sequence = r.tcp.acknowledgement;
  } else {
    on_segment(*c, r, std::move(packet), now);
  }
  settle(*c, now);
}

// Whatever comes out of turn is dropped: a connection is there without it.
void TcpTransport::on_handshake(Connection& c, const Received& r, Picoseconds now) {
  const bool numbered = r.tcp.sequence + 1 == c.receive_start && r.payload_length == 0 &&
                        !r.tcp.has(tcp_flag::kFin | tcp_flag::kUrg) && !c.failed;
  if (numbered && c.handshake == Handshake::listening) {
    c.handshake = Handshake::syn_ack_due;
  } else if (numbered && c.handshake == Handshake::syn_sent) {
    c.handshake = Handshake::ack_due;
    c.sender.established(now - c.greeted_at, now);
  } else {
    ++counters_.unexpected_flags_dropped;
    return;
  }
  ++counters_.handshakes_received;
}

void TcpTransport::on_reset(Connection& c, const Received& r, const Packet& packet, Picoseconds now) {
  if (c.failed) {
    ++counters_.failed_connection_dropped;
    return;
  }
  // RFC 5961 3.2: only the exact number resets; anything else draws a challenge.
  if (r.tcp.sequence != c.receive_start + static_cast<std::uint32_t>(c.receiver.next())) {
    ++counters_.resets_invalid_dropped;
    c.receiver.demand_ack();
    return;
  }
  ++counters_.resets_received;
  const bool reason = r.payload_length > 0 && packet.header_length > r.header_end;
  fail(c, reason ? reset_status(packet.header[r.header_end]) : Status::remote_operational, now);
}

void TcpTransport::on_segment(Connection& c, const Received& r, PacketPtr packet, Picoseconds now) {
  if (c.handshake == Handshake::syn_ack_sent) {  // whatever comes now acknowledges it
    c.handshake = Handshake::done;
    c.sender.established(now - c.greeted_at, now);
  }
  Acknowledgement ack;
  const std::int64_t end = unwrap(r.tcp.acknowledgement, c.send_start, c.sender.acked());
  if (end < 0) {
    ++counters_.acks_stale;
  } else {
    ack.end = static_cast<std::uint64_t>(end);
    ack.window = std::uint64_t{r.tcp.window} << window_scale_;
    ack.ece = r.tcp.has(tcp_flag::kEce) && (options_.ecn || c.sender.accurate_ecn());
    ack.timestamps = r.options.timestamps;
    ack.ts_echo = r.options.ts_echo;
    ack.with_data = r.payload_length > 0;
    for (std::size_t i = 0; i < r.options.sack_count; ++i) {
      const std::int64_t first = unwrap(r.options.sack[i].begin, c.send_start, c.sender.acked());
      const std::int64_t last = unwrap(r.options.sack[i].end, c.send_start, c.sender.acked());
      if (first < 0 || last <= first) {
        ++counters_.sack_blocks_invalid;
        continue;
      }
      ack.sack[ack.sack_count++] = {static_cast<std::uint64_t>(first), static_cast<std::uint64_t>(last)};
    }
    ++counters_.acks_received;
    c.sender.on_ack(ack, now);
    complete(c);
  }
  if (r.payload_length == 0) return;

  ++counters_.segments_received;
  Arriving a;
  a.begin = unwrap(r.tcp.sequence, c.receive_start, c.receiver.next());
  a.length = r.payload_length;
  a.header_end = r.header_end;
  a.push = r.tcp.has(tcp_flag::kPsh);
  a.ce = r.ecn == Ecn::ce;
  a.cwr = r.tcp.has(tcp_flag::kCwr);
  a.timestamps = r.options.timestamps;
  a.ts_value = r.options.ts_value;
  const std::uint32_t answer = r.tcp.acknowledgement;
  const bool goes_on =
      c.receiver.take(a, std::move(packet), now,
                      [&](const Packet& p, std::uint16_t header_end, std::uint32_t skip, std::uint32_t length) {
                        return deliver(c, p, header_end, skip, length, now);
                      });
  if (goes_on) return;
  c.reset_due = true;
  c.reset_sequence = answer;
  fail(c, Status::flushed, now);
}

// Bytes of the stream lie behind the headers, first among the packet's header bytes, then in its
// payload.
bool TcpTransport::deliver(Connection& c, const Packet& packet, std::uint16_t header_end, std::uint32_t skip,
                           std::uint32_t length, Picoseconds) {
  const auto take = [&](Payload piece) {
    switch (c.reader.take(piece, c.local, sink_, counters_)) {
      case StreamReader::Result::ok:
        return true;
      case StreamReader::Result::framing_error:
        ++counters_.framing_errors;
        c.reset_reason = Status::remote_invalid_request;
        return false;
      case StreamReader::Result::access_error:
        ++counters_.access_errors;
        c.reset_reason = Status::remote_access_error;
        return false;
    }
    return false;
  };
  const std::uint32_t inside = packet.header_length - header_end;
  if (skip < inside) {
    const std::uint32_t n = std::min(inside - skip, length);
    if (!take({packet.header.data() + header_end + skip, n, 0, PayloadKind::region})) return false;
    length -= n;
    skip = 0;
  } else {
    skip -= inside;
  }
  if (length == 0) return true;
  Payload body = packet.payload;
  if (body.data) body.data += skip;
  body.length = length;
  return take(body);
}

}  // namespace loomnet::tcp
