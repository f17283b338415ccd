// The RoCE transport's surface towards the NIC: connections, posts, ports, timers, counters.
#include "transport/roce/roce_transport.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "clock/fetch.hpp"
#include "clock/random.hpp"
#include "packet/ethernet.hpp"
#include "packet/host_address.hpp"
#include "packet/udp.hpp"
#include "transport/roce/roce_state.hpp"

namespace loomnet::roce {
namespace {

constexpr std::uint64_t kPsnPurpose = 0x70736e;  // "psn"

std::uint64_t window_packets(const RoceOptions& o) {
  std::uint64_t bytes = o.in_flight_limit == 0 ? kNoLimit : o.in_flight_limit;
  if (o.window_bdps > 0) {
    const double bdp = static_cast<double>(bytes_in(o.network_rtt, {o.line_rate}));
    bytes = std::min(bytes, static_cast<std::uint64_t>(std::min(o.window_bdps * bdp, 0x1p62)));
  }
  return std::clamp<std::uint64_t>(bytes / o.payload_mtu, 1, kMaxOutstandingPsns);
}

const RoceOptions& checked(const RoceOptions& o) {
  o.check();
  return o;
}

}  // namespace

RoceTransport::RoceTransport(TransportSink& sink, const RoceOptions& options)
    : sink_(sink),
      options_(checked(options)),
      timeout_(options.ack_timeout()),
      answer_queue_(dscp::queue_of(options.answer_dscp())),
      window_(window_packets(options)),
      counters_(std::make_unique<Counters>()) {
  const std::string name = options_.control();
  if (name.empty()) return;
  control_ = choose_congestion_control("RoceOptions.congestion_control", name, options_.congestion_options, kSignals);
  for (const CongestionKind& kind : congestion_controls()) {
    if (kind.name == name) echoes_marks_ = kind.needs & signal::marks;
  }
  Regulator trial;
  regulate(trial, 0);  // refuses now what the first queue pair would be refused for
}

RoceTransport::~RoceTransport() = default;

std::size_t RoceTransport::idle_bytes(std::size_t planes) { return sizeof(Connection) + planes * sizeof(QueuePair); }

void RoceTransport::connect(const QpConfig& config, Picoseconds) {
  const auto refuse = [](const std::string& what) { throw std::invalid_argument(what); };
  if (config.local < 2 || config.local > kMask24) refuse("QpConfig.local: a number in 2 to 2^24-1");
  if (config.remote < 2 || config.remote > kMask24) refuse("QpConfig.remote: a number in 2 to 2^24-1");
  if (config.planes.empty()) refuse("QpConfig.planes: roce needs at least one plane");
  if (config.planes.size() > kMaxPlanes) refuse("QpConfig.planes: more than 8 planes");
  if (by_number_.contains(config.local)) refuse("QpConfig.local: queue pair exists already");

  auto c = std::make_unique<Connection>();
  c->local = config.local;
  c->remote = config.remote;
  c->source = config.source;
  c->destination = config.destination;
  c->flow = config.flow;
  c->ports = static_cast<std::uint8_t>(config.planes.size());
  const auto has_path = [](const PlanePaths& paths) { return !paths.uplinks.empty(); };
  c->planes = static_cast<std::uint8_t>(
      std::max<std::ptrdiff_t>(std::count_if(config.planes.begin(), config.planes.end(), has_path), 1));
  c->local_address = host_address(config.source);
  c->remote_address = host_address(config.destination);
  c->queue_pairs = std::make_unique<QueuePair[]>(c->planes);
  assign(*c, config.planes);
  for (std::uint8_t p = 0; p < c->planes; ++p) {
    QueuePair& qp = c->queue_pairs[p];
    qp.connection = c.get();
    qp.send_psn = qp.receive_psn = options_.initial_psn;
    if (control_) {
      qp.regulator = std::make_unique<Regulator>();
      qp.regulator->index = static_cast<std::uint32_t>(regulated_.size());
      regulated_.push_back(&qp);
      regulate(*qp.regulator, hash_key(config.source, config.destination, config.local) + p);
      watch_tick(qp);
    }
    address(qp, p);
  }
  queue_pairs_ += c->planes;
  most_ = std::max(most_, config.local);
  deadlines_.reserve(queue_pairs_);
  by_number_.add(config.local, static_cast<std::uint32_t>(connections_.size()));
  connections_.push_back(std::move(c));
}

void RoceTransport::address(QueuePair& qp, std::uint8_t part) {
  const Connection& c = *qp.connection;
  const bool rehashes = options_.rehash == Rehash::step && qp.stepped;
  qp.front = flow_front({c.source, c.destination, c.local, part, c.rerouted, rehashes ? std::uint64_t{qp.step} + 1 : 0},
                        kUdpPortRoceV2);
  if (options_.identity != StepIdentity::sport || !qp.stepped) return;
  std::uint8_t* port = qp.front.data() + kFrontBytes - UdpHeader::kSize;
  const std::uint32_t step = qp.step % kSportSteps;
  port[0] = static_cast<std::uint8_t>((port[0] & 0xf0) | step >> 8);
  port[1] = static_cast<std::uint8_t>(step);
}

// Whether the next packet may leave by the source port of its ring step. Another port may lead by another
// path, and go-back-N takes packets that overtake others for losses: so the port changes only when nothing
// that left by the old one is unacknowledged.
bool RoceTransport::in_turn(const QueuePair& qp) const {
  const Attributes& next = qp.connection->message(qp.requester.next_message()).attributes;
  if (next.step_bytes == 0 || (qp.stepped && qp.step == next.ring_step)) return true;
  return !qp.requester.in_flight();
}

void RoceTransport::turn(QueuePair& qp, const Attributes& next) {
  if (next.step_bytes == 0 || (qp.stepped && qp.step == next.ring_step)) return;
  qp.step = next.ring_step;
  qp.stepped = true;
  address(qp, static_cast<std::uint8_t>(&qp - qp.connection->queue_pairs.get()));
}

void RoceTransport::on_limits(QpNumber number, std::size_t part, const LimitsSet& set, Picoseconds now) {
  const std::uint32_t found = by_number_.find(number);
  if (found == NumberIndex::kAbsent) throw std::invalid_argument("QpConfig.local: no such queue pair");
  Connection& c = *connections_[found];
  if (part >= c.planes) throw std::out_of_range("roce: a queue pair has a part for each plane");
  QueuePair& qp = c.queue_pairs[part];
  if (!qp.regulator) {
    throw std::invalid_argument("roce: without a congestion control a sender has no window and no rate");
  }
  Regulator& r = *qp.regulator;
  const double before = r.limits.pacing_rate;
  set_limits(r.limits, set);
  r.next_send = repaced(r.next_send, now, before, r.limits.pacing_rate);
  ready_data(qp, now);
  announce(qp.port);
}

void RoceTransport::on_renew(QpNumber number, Picoseconds now) {
  const std::uint32_t found = by_number_.find(number);
  if (found == NumberIndex::kAbsent) throw std::invalid_argument("QpConfig.local: no such queue pair");
  Connection& c = *connections_[found];
  if (c.failed) return;
  if (!c.messages.empty()) throw std::logic_error("roce: a queue pair begins anew when it has nothing to do");
  if (std::max(most_, c.remote) > kMostRenewable) {  // the numbers of later lives would be others'
    throw std::invalid_argument("roce: beside queue pairs with numbers above 65,535 none can begin anew");
  }
  ++c.rerouted;
  for (std::uint8_t p = 0; p < c.planes; ++p) {
    QueuePair& qp = c.queue_pairs[p];
    ++qp.lives;
    // The requester counts on.
    qp.send_psn = static_cast<std::uint32_t>(first_psn(c.source, c.destination, c.local + (p << 24), qp.lives) -
                                             qp.requester.sent()) &
                  kMask24;
    if (qp.regulator) {
      Regulator& regulator = *qp.regulator;
      const std::uint32_t index = regulator.index;
      regulator = {};
      regulator.index = index;
      regulator.begin = qp.requester.sent_bytes();
      regulate(regulator, hash_key(hash_key(c.source, c.destination, c.local) + p, c.rerouted, 0));
      watch_tick(qp);
    }
    address(qp, p);
    ready_data(qp, now);
  }
}

// Both ends of a queue pair draw it alike, as if they had exchanged it.
std::uint32_t RoceTransport::first_psn(HostId sender, HostId receiver, std::uint64_t queue_pair,
                                       std::uint32_t life) const {
  const std::uint64_t drawn = hash_key(hash_key(sender, receiver, queue_pair), life, kPsnPurpose);
  return static_cast<std::uint32_t>(options_.initial_psn + drawn) & kMask24;
}

void RoceTransport::on_paths(QpNumber number, std::vector<PlanePaths> planes, Picoseconds now) {
  const std::uint32_t found = by_number_.find(number);
  if (found == NumberIndex::kAbsent) throw std::invalid_argument("QpConfig.local: no such queue pair");
  Connection& c = *connections_[found];
  if (planes.size() != c.ports) throw std::invalid_argument("QpConfig.planes: as many as before");
  assign(c, planes);
  ++c.rerouted;
  for (std::uint8_t p = 0; p < c.planes; ++p) address(c.queue_pairs[p], p);
  requeue();
  for (std::uint8_t p = 0; p < c.planes; ++p) ready_data(c.queue_pairs[p], now);
}

void RoceTransport::assign(Connection& c, const std::vector<PlanePaths>& paths) {
  const auto plane_of = [&](PlanePort p) { return paths[p].plane == PlanePaths::kPlaneOfPort ? p : paths[p].plane; };
  std::array<PlanePort, kMaxPlanes> by_plane{};
  std::uint8_t found = 0;
  for (PlanePort p = 0; p < c.ports; ++p) {
    if (paths[p].uplinks.empty()) continue;
    std::uint8_t at = found++;
    for (; at > 0 && plane_of(by_plane[at - 1]) > plane_of(p); --at) by_plane[at] = by_plane[at - 1];
    by_plane[at] = p;
  }
  if (found != 0 && found != c.planes) {
    throw std::invalid_argument("QpConfig.planes: roce stripes over " + std::to_string(c.planes) + " ports, and " +
                                std::to_string(found) + " have a path");
  }
  c.part_at.fill(kNoPart);
  for (std::uint8_t part = 0; part < c.planes; ++part) {
    c.queue_pairs[part].port = found ? by_plane[part] : kNowhere;
    if (found) c.part_at[by_plane[part]] = part;
  }
}

// Each queue pair that waits for a port does so at its own.
void RoceTransport::requeue() {
  const auto move = [&]<class Kind>(ReadyList Port::* list, Kind) {
    std::vector<QueuePair*> waiting;
    for (Port& port : ports_) {
      while (QueuePair* qp = Kind::pop(port.*list)) waiting.push_back(qp);
    }
    for (QueuePair* qp : waiting) {
      Kind::push(ports_[qp->port].*list, *qp);
      announce(qp->port);
    }
  };
  move(&Port::answers, Answers{});
  move(&Port::data, Data{});
  move(&Port::cnps, Cnps{});
}

void RoceTransport::on_post(QpNumber number, const WorkRequest& request, Picoseconds now) {
  const std::uint32_t found = by_number_.find(number);
  const bool unknown = found == NumberIndex::kAbsent;
  if (unknown || connections_[found]->failed) {
    ++(unknown ? counters_->posts_unknown_qp : counters_->messages_posted);
    if (!unknown) ++counters_->messages_failed;
    sink_.complete({number, Status::flushed, request.id, request.length});
    return;
  }
  Connection& c = *connections_[found];
  ++counters_->messages_posted;
  ++open_messages_;
  const bool with_immediate = request.opcode == Opcode::write_with_immediate;
  const std::uint64_t message = c.first_message + c.messages.size();
  c.messages.push({request.id, request.local, request.remote_address, request.remote_key, request.length,
                   request.immediate, with_immediate, 0, request.message, request.framing, request.attributes});
  for (std::uint32_t part = 0; part < c.planes; ++part) {
    const std::uint32_t begin = stripe_begin(request.length, c.planes, part);
    const std::uint32_t end = stripe_begin(request.length, c.planes, part + 1);
    // An empty part is sent only for its immediate, or as the whole of an empty write.
    if (begin == end && !with_immediate && (request.length > 0 || part > 0)) continue;
    ++c.messages[c.messages.size() - 1].parts_open;
    QueuePair& qp = c.queue_pairs[part];
    qp.requester.post(message, begin, end - begin, options_.payload_mtu);
    ready_data(qp, now);
  }
}

void RoceTransport::on_port(PlanePort port, bool up, Picoseconds now) {
  if (port >= kNowhere) return;
  ports_[port].up = up;
  if (up) {
    const Port& p = ports_[port];
    if (p.answers.head || p.data.head || p.cnps.head) sink_.port_ready(port);
    return;
  }
  for (const auto& c : connections_) {
    if (c->part_at[port] != kNoPart) ready_data(c->queue_pairs[c->part_at[port]], now);
  }
}

void RoceTransport::on_deadline(Picoseconds now) {
  run_ticks(now);
  while (deadlines_.next() <= now) {
    QueuePair& qp = *deadlines_.pop();
    Requester& r = qp.requester;
    qp.in_deadlines = false;
    if (r.deadline == kNever) continue;  // stopped since
    if (r.deadline > now) {              // extended since
      qp.in_deadlines = true;
      deadlines_.push(r.deadline, &qp);
      continue;
    }
    ++counters_->timeouts;
    Connection& c = *qp.connection;
    const auto psn = static_cast<std::uint32_t>(qp.send_psn + r.acked()) & kMask24;
    sink_.event({EventKind::rto, c.local, psn, now, timeout_});
    if (r.retries >= options_.retry_count) {
      fail(c, Status::retry_exceeded, r.oldest_message(), now);
      continue;
    }
    ++r.retries;
    r.go_back();
    r.deadline = kNever;
    if (qp.regulator) on_congestion(qp, Congestion::timeout, now);
    start_timer(qp, now);  // also where the port is down: its retries run out by time alone
    ready_data(qp, now);
  }
}

void RoceTransport::prepare(Upcoming, PlanePort port) const {
  fetch(&ports_[port % ports_.size()], sizeof(Port));
  fetch(counters_.get(), 128);
  fetch(connections_.data());
  fetch(by_number_.memory());
  const auto pair = [port](const QueuePair* first) {
    fetch(reinterpret_cast<const char*>(first) + port * sizeof(QueuePair), sizeof(QueuePair));
  };
  if (recent_.sending) pair(recent_.sending);
  if (recent_.receiving) pair(recent_.receiving);
  fetch(recent_.sending_for, 128);
  fetch(recent_.receiving_for, 128);
}

void RoceTransport::start_timer(QueuePair& qp, Picoseconds now) {
  if (timeout_ == kNever) return;
  qp.requester.deadline = now + timeout_;
  if (qp.in_deadlines) return;
  qp.in_deadlines = true;
  deadlines_.push(qp.requester.deadline, &qp);
}

void RoceTransport::part_done(Connection& c, std::uint64_t message) {
  if (c.failed) return;
  --c.message(message).parts_open;
  while (!c.messages.empty() && c.messages.front().parts_open == 0) {
    const Connection::Message m = c.messages.pop();
    ++c.first_message;
    --open_messages_;
    ++counters_->messages_completed;
    sink_.complete({c.local, Status::ok, m.id, m.length});
    if (c.failed) return;
  }
}

// The connection ends: `message` gets the status, every other open one is flushed.
void RoceTransport::fail(Connection& c, Status status, std::uint64_t message, Picoseconds now) {
  if (c.failed) return;
  c.failed = true;
  ++counters_->connections_failed;
  sink_.event({EventKind::qp_error, c.local, static_cast<std::uint32_t>(status), now});
  for (std::uint8_t p = 0; p < c.planes; ++p) {
    c.queue_pairs[p].requester.clear();
    c.queue_pairs[p].requester.deadline = kNever;
  }
  while (!c.messages.empty()) {
    const Connection::Message m = c.messages.pop();
    const std::uint64_t number = c.first_message++;
    --open_messages_;
    ++counters_->messages_failed;
    sink_.complete({c.local, number == message ? status : Status::flushed, m.id, m.length});
  }
}

TransportFigures RoceTransport::figures() const { return {.retransmitted = counters_->retransmitted}; }

const RoceTransport::Connection& RoceTransport::connection(QpNumber qp) const {
  const std::uint32_t found = by_number_.find(qp);
  if (found == NumberIndex::kAbsent) throw std::out_of_range("roce: no such queue pair");
  return *connections_[found];
}

std::size_t RoceTransport::state_parts(QpNumber qp) const { return connection(qp).planes; }

void RoceTransport::counters(std::vector<TransportCounter>& out) const {
  const Counters& c = *counters_;
  Reactions reactions;
  for (const QueuePair* qp : regulated_) {
    const Reactions& each = qp->regulator->control->reactions();
    reactions.cuts += each.cuts;
    reactions.floors += each.floors;
    reactions.at_floor += each.at_floor;
  }
  const TransportCounter all[] = {
      {"packets_sent", c.packets_sent},
      {"payload_bytes_sent", c.payload_bytes_sent},
      {"retransmitted", c.retransmitted},
      {"retransmitted_bytes", c.retransmitted_bytes},
      {"acks_sent", c.acks_sent},
      {"naks_sent", c.naks_sent},
      {"acks_received", c.acks_received},
      {"naks_received", c.naks_received},
      {"acks_stale", c.acks_stale},
      {"acks_out_of_range", c.acks_out_of_range},
      {"timeouts", c.timeouts},
      {"packets_placed", c.packets_placed},
      {"bytes_placed", c.bytes_placed},
      {"duplicates_dropped", c.duplicates_dropped},
      {"out_of_order_dropped", c.out_of_order_dropped},
      {"invalid_requests_dropped", c.invalid_requests_dropped},
      {"access_errors", c.access_errors},
      {"failed_qp_dropped", c.failed_qp_dropped},
      {"malformed_dropped", c.malformed_dropped},
      {"not_roce_dropped", c.not_roce_dropped},
      {"unknown_opcode_dropped", c.unknown_opcode_dropped},
      {"unknown_qp_dropped", c.unknown_qp_dropped},
      {"wrong_peer_dropped", c.wrong_peer_dropped},
      {"wrong_port_dropped", c.wrong_port_dropped},
      {"corrupt_dropped", c.corrupt_dropped},
      {"ce_received", c.ce_received},
      {"immediates_delivered", c.immediates_delivered},
      {"immediates_inconsistent", c.immediates_inconsistent},
      {"immediates_overflow", c.immediates_overflow},
      {"messages_posted", c.messages_posted},
      {"messages_completed", c.messages_completed},
      {"messages_failed", c.messages_failed},
      {"posts_unknown_qp", c.posts_unknown_qp},
      {"connections_failed", c.connections_failed},
      {"cnps_sent", c.cnps_sent},
      {"cnps_received", c.cnps_received},
      {"rate_cuts", reactions.cuts},
      {"rate_floor_reached", reactions.floors},
      {"rate_floor_ns", static_cast<std::uint64_t>(reactions.at_floor.count / 1000)},
  };
  out.insert(out.end(), std::begin(all), std::end(all));
}

}  // namespace loomnet::roce
