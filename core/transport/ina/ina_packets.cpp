// Packets in and out of a NIC's members, their timers and counters.
#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>

#include "transport/ina/ina_state.hpp"

namespace loomnet::ina {
namespace {

constexpr std::array<std::uint8_t, 4 * AGGREGATE_MAX_VALUES> kZeros{};
constexpr std::size_t kAhead = 4;  // packets that wait for a port while others' ports are served

}  // namespace

void InaTransport::on_packet(PlanePort port, PacketPtr packet, Picoseconds now) {
  const std::optional<Inbound> in = parse(*packet);
  if (!in) {
    ++drop_format_;
    return;
  }
  const std::uint8_t type = in->header.type;
  aggregate_header header = in->header;
  const std::uint8_t* ip = packet->header.data() + 14;
  if ((ip[1] >> 4 & 3) == 3) header.flags |= AGGREGATE_ECN;  // marked behind the last switch
  const std::uint32_t job = std::uint32_t{header.job} << 1;
  bool known = false;
  for (const bool server : {false, true}) {
    // A RESULT that the root has made is for workers and for the server, which may share a host.
    const bool for_it = type == AGGREGATE_RESULT ? !server || header.source == AGGREGATE_FROM_SWITCH
                                                 : server != (type == AGGREGATE_NAK);
    const std::uint32_t at = for_it ? by_job_.find(job | server) : NumberIndex::kAbsent;
    if (at == NumberIndex::kAbsent) continue;
    known = true;
    deliver(at, port, header, in->payload, now);
  }
  if (!known) ++drop_group_;
}

void InaTransport::deliver(std::uint32_t at, PlanePort port, const aggregate_header& header,
                           std::span<const std::uint8_t> payload, Picoseconds now) {
  Member& m = *members_[at];
  if (m.server) {
    if (header.type == AGGREGATE_RESEND && header.source < m.asked_by.size()) m.asked_by[header.source] = port;
    m.server->on_packet(header, payload, now);
  } else {
    take(m, m.each_worker([&](auto& w) { return w.on_packet(header, payload, now); }));
    feed(m);
    finish(m);
  }
  settle(m, at, now);
}

void InaTransport::on_deadline(Picoseconds now) {
  while (deadlines_.next() <= now) {
    const std::uint32_t at = deadlines_.front();
    Member& m = *members_[at];
    m.each([&](auto& each) { each.on_deadline(now); });
    settle(m, at, now);
  }
}

void InaTransport::on_port(PlanePort port, bool up, Picoseconds) {
  up_ = up ? up_ | 1u << port : up_ & ~(1u << port);
  if (up) sink_.port_ready(port);
  // What waited for the port is lost with it, and its senders' timers send it again.
  for (Ring<PacketPtr>* ring : {&control_[port], &data_[port]}) {
    for (; !up && !ring->empty(); ring->pop()) ++drop_no_port_;
  }
  for (const auto& m : members_) {
    for (const PlanePort other : m->ports) {
      if (m->wants()) sink_.port_ready(other);
    }
  }
}

void InaTransport::settle(Member& m, std::uint32_t index, Picoseconds) {
  deadlines_.set(index, m.each([](auto& each) { return each.deadline(); }));
  if (!m.wants()) return;
  for (const PlanePort port : m.ports) {
    if (data_[port].size() < kAhead) sink_.port_ready(port);
  }
}

PacketPtr InaTransport::packet_of(Member& m, const Outgoing& out) {
  PacketPtr packet = sink_.allocate();
  packet->flow = m.flow;
  const std::uint32_t length = 4 * out.wire_values;
  // A REMIND has no values, but bytes: the switch writes its answer into them.
  const std::uint8_t* from = out.values.empty() ? kZeros.data() : out.values.data();
  bool kept = out.values.empty();  // the bytes are there and the same for as long as the packet is
  if (Request* r = m.server ? nullptr : m.request_of(out.sequence)) {
    const auto d = static_cast<std::uint32_t>(out.sequence - r->first);
    packet->message = r->request.message;
    describe(packet->attributes, r->request.attributes, r->request.framing,
             r->request.framing + std::uint64_t{d} * 4 * options_.values);
    if (!r->request.local) from = nullptr;
    kept = true;
  }
  Payload payload{from, length, 0, from && length ? PayloadKind::region : PayloadKind::none};
  std::array<std::uint8_t, kZeros.size()> padded;
  const bool short_one = from && !out.values.empty() && out.values.size() < length;
  if (short_one) {
    padded.fill(0);
    std::memcpy(padded.data(), from, out.values.size());
    payload.data = padded.data();
  }
  if (payload.kind == PayloadKind::region && (short_one || !kept)) {
    packet->payload = payload;
    packet->pool->own_payload(*packet);
    payload = packet->payload;
  }
  build(*packet, out.header, {m.source, m.destination, m.source_port}, payload);
  return packet;
}

std::optional<PlanePort> InaTransport::route(const Member& m, Outgoing& out) const {
  const PlanePort tree = m.port_of(out.sequence);
  PlanePort port = tree;
  if (m.server && out.header.flags & AGGREGATE_UNICAST) {
    port = m.asked_by[static_cast<std::size_t>(std::countr_zero(out.header.workers))];
  }
  for (std::size_t i = 0; !(up_ >> port & 1); ++i) {
    if (i == m.ports.size()) return std::nullopt;
    port = m.ports[i];
  }
  // Another tree's slots would keep it from the others': it goes past all memory to the server.
  if (port != tree && out.header.type == AGGREGATE_DATA && options_.policy().has_servers()) {
    out.header.type = AGGREGATE_RESEND;
  }
  return port;
}

void InaTransport::stage(Member& m, Picoseconds now) {
  // One at a time: a packet whose port has enough to send waits with the member.
  while (m.wants() && !m.ports.empty()) {
    for (const PlanePort port : m.ports) {
      if (data_[port].size() >= kAhead && up_ >> port & 1) return;
    }
    std::optional<Outgoing> out = m.each([&](auto& each) { return each.pull(now); });
    if (!out) return;
    const std::optional<PlanePort> port = route(m, *out);
    if (!port) {
      ++drop_no_port_;  // its sender's timer sends it again
      continue;
    }
    auto& ring = out->header.type == AGGREGATE_NAK ? control_[*port] : data_[*port];
    ring.push(packet_of(m, *out));
    sink_.port_ready(*port);
  }
}

Pulled InaTransport::pull(PlanePort port, QueueClass queue, Picoseconds now) {
  if (port >= ports_ || !(up_ >> port & 1)) return Pulled::idle();
  if (queue != kControlClass && queue != kDataClass) return Pulled::idle();
  Ring<PacketPtr>& ring = queue == kControlClass ? control_[port] : data_[port];
  if (ring.empty()) {
    for (std::uint32_t at = 0; at < members_.size(); ++at) {
      Member& m = *members_[at];
      if (!m.wants()) continue;
      stage(m, now);
      deadlines_.set(at, m.each([](auto& each) { return each.deadline(); }));
    }
  }
  if (ring.empty()) return Pulled::idle();
  return Pulled::of(ring.pop());
}

std::size_t InaTransport::held() const {
  std::size_t n = 0;
  for (std::size_t p = 0; p < ports_; ++p) n += control_[p].size() + data_[p].size();
  return n;
}

void InaTransport::release() {
  for (std::size_t p = 0; p < ports_; ++p) {
    while (!control_[p].empty()) control_[p].pop();
    while (!data_[p].empty()) data_[p].pop();
  }
}

void InaTransport::counters(std::vector<TransportCounter>& out) const {
  std::vector<TransportCounter> workers, servers;
  WorkerCounters{}.append(workers);
  ServerCounters{}.append(servers);
  const auto add = [](std::vector<TransportCounter>& sum, const auto& of) {
    std::vector<TransportCounter> each;
    of.append(each);
    for (std::size_t i = 0; i < each.size(); ++i) sum[i].value += each[i].value;
  };
  for (const auto& m : members_) {
    if (m->server) {
      add(servers, m->server->counters());
    } else {
      m->each_worker([&](const auto& w) { add(workers, w.counters()); });
    }
  }
  out.insert(out.end(), workers.begin(), workers.end());
  for (const TransportCounter& c : servers) {  // both drop, for reasons of the same names
    const auto same = std::find_if(out.begin(), out.end(), [&](const auto& o) { return o.name == c.name; });
    if (same == out.end()) {
      out.push_back(c);
    } else {
      same->value += c.value;
    }
  }
  out.push_back({"drop_format", drop_format_});
  out.push_back({"drop_group", drop_group_});
  out.push_back({"drop_no_port", drop_no_port_});
  out.push_back({"place_refused", place_refused_});
}

TransportFigures InaTransport::figures() const {
  TransportFigures figures;
  for (const auto& m : members_) {
    if (!m->server) figures.retransmitted += m->each_worker([](const auto& w) { return w.counters().resend; });
  }
  return figures;
}

void InaTransport::state(QpNumber qp, std::size_t part, Observer& out) const {
  const std::uint32_t at = by_number_.find(qp);
  if (at == NumberIndex::kAbsent || part > 0) throw std::out_of_range("ina: no such queue pair");
  const Member& m = *members_[at];
  if (m.server) {
    out.value("srtt_s", m.server->srtt().seconds());
    out.value("under_way", static_cast<double>(m.server->highest() + 1 - m.server->base()));
    const std::uint64_t missing = m.server->missing();
    out.value("lacks_0_31", static_cast<double>(missing & 0xffffffff));
    out.value("lacks_32_63", static_cast<double>(missing >> 32));
  } else if (const auto* w = std::get_if<Worker>(&m.worker)) {
    out.value("cwnd", w->cwnd());
    out.value("srtt_s", w->srtt().seconds());
    out.value("under_way", static_cast<double>(w->next() - w->base()));
  } else {
    const auto& s = std::get<SwitchMlWorker>(m.worker);
    out.value("timeout_s", s.timeout().seconds());
    out.value("under_way", static_cast<double>(s.submitted() - s.base()));
  }
}

}  // namespace loomnet::ina
