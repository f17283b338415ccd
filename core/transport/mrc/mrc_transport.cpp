// Connecting, dispatch and timers; transmission is in mrc_transport_pull.cpp.
#include "transport/mrc/mrc_transport.hpp"

#include <bit>
#include <stdexcept>
#include <string>

#include "clock/fetch.hpp"
#include "packet/usid.hpp"
#include "transport/mrc/wire.hpp"

namespace loomnet::mrc {
namespace {

// One object for all NICs that are told the same, as those of a fabric are.
std::shared_ptr<const MrcOptions> shared(MrcOptions options, std::size_t ports) {
  if (options.mpr == 0) options.mpr = options.window_for(ports);
  thread_local std::weak_ptr<const MrcOptions> latest;
  std::shared_ptr<const MrcOptions> same = latest.lock();
  if (!same || *same != options) latest = same = std::make_shared<const MrcOptions>(options);
  return same;
}

void need(bool ok, const char* field, const char* rule) {
  if (!ok) throw std::invalid_argument(std::string("QpConfig.") + field + ": " + rule);
}

void check_paths(std::span<const PlanePaths> planes, std::size_t ports) {
  need(!planes.empty() && planes.size() <= ports, "planes", "one entry per NIC port, at least one");
  for (const PlanePaths& p : planes) {
    need(p.plane == PlanePaths::kPlaneOfPort || p.plane < kMaxPlanes, "planes.plane", "0 to 7");
    need(p.row.count <= p.row.usids.size(), "planes.row.count", "at most 6");
    need(p.row.uplink_slot < static_cast<int>(p.row.count), "planes.row.uplink_slot", "must name one of the uSIDs");
    need(!p.row.ways || (p.row.uplink_slot >= 0 &&
                         static_cast<std::size_t>(p.row.uplink_slot) + p.row.ways->length <= p.row.count),
         "planes.row.ways", "rows must lie within the uSIDs");
    need(p.row.cores_per_agg > 0, "planes.row.cores_per_agg", "1 or more");
    for (const std::uint16_t u : p.uplinks) need(u < kMaxUplinks, "planes.uplinks", "11 bits (EV 13..3)");
  }
}

}  // namespace

MrcTransport::MrcTransport(const MrcOptions& options, TransportSink& sink, std::size_t ports)
    : port_count_(static_cast<std::uint32_t>(ports)), context_(shared(options, ports), sink) {
  options.check();
  context_.congestion =
      choose_congestion_control("MrcOptions.cc", options.congestion, options.congestion_options, kSignals);
  if (ports == 0 || ports > kMaxPlanes) {
    throw std::invalid_argument("ports: 1 to " + std::to_string(kMaxPlanes));
  }
  context_.own_up = context_.ports = static_cast<PlaneMask>((1u << ports) - 1);
}

std::size_t MrcTransport::find(QpNumber qp) const {
  const std::uint32_t at = by_number_.find(qp);
  if (at == NumberIndex::kAbsent) {
    throw std::out_of_range("no queue pair " + std::to_string(qp) + " on this NIC");
  }
  return at;
}

void MrcTransport::connect(const QpConfig& config, Picoseconds now) {
  need(config.local > kEndpointQp && config.local <= kMask24, "local", "3 to 2^24 - 1");
  need(config.remote > kEndpointQp && config.remote <= kMask24, "remote", "3 to 2^24 - 1");
  need(!by_number_.contains(config.local), "local", "this queue pair is connected already");
  need(config.source != config.destination, "destination", "must be another host");
  check_paths(config.planes, port_count_);

  std::uint32_t peer = by_host_.find(config.destination);
  if (peer == NumberIndex::kAbsent) {
    peer = static_cast<std::uint32_t>(peers_.size());
    by_host_.add(config.destination, peer);
    peers_.push_back(std::make_unique<Peer>(context_, peer, config, now));
    peer_qps_.emplace_back();
  }
  const auto qp = static_cast<std::uint32_t>(qps_.size());
  qps_.push_back(std::make_unique<QueuePair>(context_, *peers_[peer], peer, config, qp, now));
  by_number_.add(config.local, qp);
  peer_qps_[peer].push_back(qp);
  settle(qp);
  settle_peer(peer, now);
  wake(now);
}

void MrcTransport::on_post(QpNumber number, const WorkRequest& request, Picoseconds now) {
  const auto qp = static_cast<std::uint32_t>(find(number));
  Sender& sender = qps_[qp]->sender;
  if (sender.failed()) {
    context_.count(Count::requests_flushed);
    context_.sink->complete({number, Status::flushed, request.id, request.length});
    return;
  }
  sender.post(request, now);
  settle(qp);
  wake(now);
}

void MrcTransport::on_packet(PlanePort port, PacketPtr packet, Picoseconds now) {
  Inbound in;
  if (port >= port_count_) return context_.count(Count::drop_address);
  if (const auto why = parse(*packet, context_.options, in)) return context_.count(*why);
  in.port = port;
  if (in.bth.destination_qp == kEndpointQp) {
    on_endpoint(port, in, now);
  } else {
    on_queue_pair(in, packet->payload, now);
  }
  wake(now);
}

void MrcTransport::on_endpoint(PlanePort port, const Inbound& in, Picoseconds now) {
  if (in.op != Op::endpoint_request && in.op != Op::endpoint_response) {
    return context_.count(Count::drop_opcode);
  }
  const std::uint32_t at = by_host_.find(in.source);
  if (at == NumberIndex::kAbsent) return context_.count(Count::drop_unknown_peer);
  Peer& peer = *peers_[at];
  if (in.destination != peer.self()) return context_.count(Count::drop_address);
  if (port >= peer.plane_count() || peer.paths(port).uplinks.empty()) {
    return context_.count(Count::drop_wrong_peer);
  }
  ByteReader reader(in.body);
  if (in.op == Op::endpoint_request) {
    peer.on_request(port, in.ev, in.bth, Erth::parse(reader), now);
  } else {
    peer.on_response(port, in.bth, Eeth::parse(reader), now);
  }
  settle_peer(at, now);
}

void MrcTransport::on_queue_pair(const Inbound& in, const Payload& payload, Picoseconds now) {
  const std::uint32_t at = by_number_.find(in.bth.destination_qp);
  if (at == NumberIndex::kAbsent) return context_.count(Count::drop_unknown_qp);
  QueuePair& qp = *qps_[at];
  if (in.source != qp.peer.host() || in.destination != qp.peer.self()) {
    return context_.count(Count::drop_wrong_peer);
  }
  if (qp.sender.failed() && in.op != Op::sack && in.op != Op::nack && in.op != Op::transport_ack) {
    return qp.receiver.refuse(in);
  }
  ByteReader reader(in.body);
  switch (in.op) {
    case Op::sack: {
      const Seth seth = Seth::parse(reader);
      qp.sender.on_sack(seth, CcState::parse(reader), in.bth.retransmission, now);
      break;
    }
    case Op::nack:
      qp.sender.on_nack(Neth::parse(reader), now);
      break;
    case Op::transport_ack:
      qp.sender.on_transport_ack(Aeth::parse(reader), now);
      break;
    case Op::reliability_probe:
      qp.receiver.on_probe(in, Peth::parse(reader));
      break;
    case Op::endpoint_request:
    case Op::endpoint_response:
      return context_.count(Count::drop_opcode);
    default:
      if (!qp.receiver.on_data(in, payload, now)) {
        qp.sender.fail(Status::flushed, Sender::kNobody, now);
        break;
      }
      recent_.receiving = &qp;
      recent_.receiving_from = &qp.peer;
      recent_.receiver = qp.receiver.places();
      // Nothing of the sender has changed, but data may have armed the probing of reverse paths.
      return timers_.at_latest(2 * qp.peer_index + 1, qp.peer.refresh_at());
  }
  settle(at);
}

void MrcTransport::on_port(PlanePort port, bool up, Picoseconds now) {
  if (port >= port_count_ || (context_.own_up >> port & 1) == up) return;
  context_.own_up = static_cast<PlaneMask>(context_.own_up ^ 1u << port);
  ports_[port] = {};
  context_.event(up ? EventKind::port_restored : EventKind::port_excluded, 0, port, now);
  for (std::uint32_t i = 0; i < peers_.size(); ++i) {
    peers_[i]->on_own_port(port, up, now);
    settle_peer(i, now);
  }
  if (!up) move_control(port, now);
  wake(now);
}

void MrcTransport::on_paths(QpNumber number, std::vector<PlanePaths> planes, Picoseconds now) {
  const std::uint32_t index = qps_[find(number)]->peer_index;
  Peer& peer = *peers_[index];
  check_paths(planes, port_count_);
  need(planes.size() == peer.plane_count(), "planes", "as many as before");
  for (PlanePort p = 0; p < planes.size(); ++p) Peer::name_plane(planes[p], p);
  PlaneMask same = 0;
  for (PlanePort p = 0; p < planes.size(); ++p) {
    if (planes[p] == peer.paths(p)) same = static_cast<PlaneMask>(same | 1u << p);
  }
  if (same == static_cast<PlaneMask>((1u << planes.size()) - 1)) return;
  peer.on_paths(planes, now);
  for (const std::uint32_t qp : peer_qps_[index]) qps_[qp]->sender.on_paths(planes, same);
  peer.changed = true;
  settle_peer(index, now);
  wake(now);
}

void MrcTransport::on_limits(QpNumber number, std::size_t part, const LimitsSet& set, Picoseconds now) {
  if (part > 0) throw std::out_of_range("mrc: a queue pair has one part");
  const std::uint32_t index = find(number);
  qps_[index]->sender.set_limits(set, now);
  settle(index);
  wake(now);
}

// Answers that waited for a port that died leave by another; probes of its paths are void.
void MrcTransport::move_control(PlanePort from, Picoseconds) {
  while (!context_.probes[from].empty()) context_.probes[from].pop();
  ControlQueue& queue = context_.control[from];
  for (; !queue.empty(); queue.pop()) {
    Control c = queue.front();
    c.fixed_path = false;
    if (c.kind == Op::endpoint_request || c.kind == Op::endpoint_response) continue;
    const int to = qps_[c.owner]->peer.control_plane();
    if (to < 0 || to == from) {
      context_.count(Count::drop_control_no_path);
    } else {
      context_.push_control(static_cast<PlanePort>(to), c);
    }
  }
}

void MrcTransport::on_deadline(Picoseconds now) {
  while (timers_.next() <= now) {
    const std::uint32_t owner = timers_.front();
    const std::uint32_t index = owner / 2;
    if (owner % 2) {
      if (peers_[index]->next_deadline() <= now) peers_[index]->on_deadline(now);
      timers_.set(owner, peers_[index]->next_deadline());
      settle_peer(index, now);
    } else {
      Sender& sender = qps_[index]->sender;
      if (sender.next_deadline() <= now) sender.on_deadline(now);
      timers_.set(owner, sender.next_deadline());
      settle(index);
    }
  }
  wake(now);
}

void MrcTransport::settle(std::uint32_t index) {
  QueuePair& qp = *qps_[index];
  if (qp.sender.ready() != qp.listed) qp.listed ? unlist(index) : list(index);
  if (qp.sender.outstanding() != qp.counted) {
    qp.counted = !qp.counted;
    qp.counted ? ++outstanding_ : --outstanding_;
  }
  timers_.at_latest(2 * index, qp.sender.next_deadline());
  recent_.sending = &qp;
  recent_.sending_to = &qp.peer;
  recent_.sender = qp.sender.places();
}

// Of a congestion control, that most acknowledgements touch.
constexpr std::size_t kControlBytes = 256;

void MrcTransport::prepare(Upcoming call, PlanePort port) const {
  fetch(&ports_, sizeof ports_);
  fetch(&context_);
  fetch(&context_.control[port % kMaxPlanes]);
  fetch(&context_.counters, 192);
  fetch(timers_.memory());
  fetch(qps_.data());
  if (call != Upcoming::pull) fetch(by_number_.memory());
  if (call != Upcoming::data && recent_.sending) {
    fetch(recent_.sending);
    fetch(&recent_.sending->sender, sizeof(Sender));
    fetch(recent_.sending_to, 192);
    for (const void* place : recent_.sender) fetch(place);
    // An acknowledgement is the control's; a packet sent is not.
    if (call == Upcoming::control) fetch(recent_.sender.back(), kControlBytes);
  }
  if (call != Upcoming::control && recent_.receiving) {
    fetch(recent_.receiving);
    fetch(&recent_.receiving->receiver, sizeof(Receiver));
    fetch(recent_.receiving_from, 192);
    for (const void* place : recent_.receiver) fetch(place);
  }
}

void MrcTransport::settle_peer(std::uint32_t index, Picoseconds now) {
  Peer& peer = *peers_[index];
  timers_.at_latest(2 * index + 1, peer.next_deadline());
  if (!peer.changed) return;
  peer.changed = false;
  for (const std::uint32_t qp : peer_qps_[index]) {
    qps_[qp]->sender.on_peer_change(now);
    settle(qp);
  }
}

void MrcTransport::list(std::uint32_t index) {
  QueuePair& qp = *qps_[index];
  qp.listed = true;
  if (ready_count_++ == 0) {
    qp.next_ready = qp.previous_ready = ready_ = index;
    return;
  }
  QueuePair& head = *qps_[ready_];
  qp.next_ready = ready_;
  qp.previous_ready = head.previous_ready;
  qps_[head.previous_ready]->next_ready = index;
  head.previous_ready = index;
}

void MrcTransport::unlist(std::uint32_t index) {
  QueuePair& qp = *qps_[index];
  qp.listed = false;
  if (--ready_count_ == 0) {
    ready_ = kNone;
    return;
  }
  qps_[qp.previous_ready]->next_ready = qp.next_ready;
  qps_[qp.next_ready]->previous_ready = qp.previous_ready;
  if (ready_ == index) ready_ = qp.next_ready;
}

void MrcTransport::wake(Picoseconds now, PlaneMask except) {
  unsigned mask = context_.wake & context_.own_up & context_.ports & ~except;
  context_.wake = 0;
  for (; mask != 0; mask &= mask - 1) {
    const auto p = static_cast<PlanePort>(std::countr_zero(mask));
    Port& port = ports_[p];
    if (port.state == Port::State::busy) continue;  // it pulls again by itself
    if (port.state == Port::State::asked && port.asked_at == now) continue;
    port.state = Port::State::asked;
    port.asked_at = now;
    context_.sink->port_ready(p);
  }
}

bool MrcTransport::deny(QpNumber number, EntropyValue ev, bool denied, Picoseconds now) {
  const auto qp = static_cast<std::uint32_t>(find(number));
  const bool done = qps_[qp]->sender.deny(ev, denied, now);
  settle(qp);
  wake(now);
  return done;
}

void MrcTransport::counters(std::vector<TransportCounter>& out) const {
  context_.counters.append(out);
  const TransportFigures now = figures();
  out.push_back({"paths_good", now.paths_good});
  out.push_back({"paths_total", now.paths_total});
  std::uint64_t cuts = 0;
  for (const auto& qp : qps_) cuts += qp->sender.congestion().reactions().cuts;
  out.push_back({"rate_cuts", cuts});
}

TransportFigures MrcTransport::figures() const {
  TransportFigures out;
  out.retransmitted = counter(Count::data_retransmitted);
  out.readmitted = counter(Count::ev_readmitted);
  for (const auto& qp : qps_) {
    out.paths_good += qp->sender.evs().active(qp->peer.live());
    out.paths_total += qp->sender.evs().slots();
  }
  return out;
}

std::uint64_t MrcTransport::acked(QpNumber qp, std::size_t) const { return sender(qp).delivered(); }

void MrcTransport::state(QpNumber qp, std::size_t part, Observer& out) const {
  if (part > 0) throw std::out_of_range("mrc: a queue pair has one part");
  const Sender& s = sender(qp);
  out.value("acked", static_cast<double>(acked(qp, part)));
  out.value("in_flight", static_cast<double>(s.flight()));  // as the window counts, whose series is beside it
  out.value("srtt_ps", static_cast<double>((s.delay().base_rtt() + s.delay().average()).count));
  out.value("min_rtt_ps", static_cast<double>(s.delay().base_rtt().count));
  observe_limits(s.limits(), s.congestion(), out);
}

}  // namespace loomnet::mrc
