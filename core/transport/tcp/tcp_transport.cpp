// The TCP transport's surface towards the NIC: connections, posts, ports, timers.
#include "transport/tcp/tcp_transport.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "clock/random.hpp"
#include "packet/ethernet.hpp"
#include "packet/host_address.hpp"
#include "packet/rdma.hpp"
#include "transport/tcp/connection.hpp"

namespace loomnet::tcp {
namespace {

constexpr std::uint64_t kSequencePurpose = 0x697373;   // "iss"
constexpr std::uint64_t kRoutePurpose = 0x726f757465;  // "route"

// RFC 6528: an initial sequence number by hash of the connection; the far end works it out too.
std::uint32_t initial_sequence(HostId from, HostId to, std::uint16_t from_port, std::uint16_t to_port) {
  return static_cast<std::uint32_t>(
      hash_key(std::uint64_t{from} << 32 | to, std::uint64_t{from_port} << 16 | to_port, kSequencePurpose));
}

const TcpOptions& checked(const TcpOptions& options) {
  options.check();
  return options;
}

}  // namespace

TcpTransport::TcpTransport(TransportSink& sink, const TcpOptions& options)
    : sink_(sink),
      options_(checked(options)),
      control_(choose_congestion_control("TcpOptions.congestion_control", options_.congestion_control,
                                         options_.congestion_options, kSignals)) {
  while (options_.receive_buffer >> window_scale_ > 0xffff) ++window_scale_;
}

TcpTransport::~TcpTransport() = default;

void TcpTransport::connect(const QpConfig& config, Picoseconds now) {
  const auto refuse = [](const std::string& what) { throw std::invalid_argument(what); };
  if (config.local < 2 || config.local > kMask24) refuse("QpConfig.local: a number in 2 to 2^24-1");
  if (config.remote < 2 || config.remote > kMask24) refuse("QpConfig.remote: a number in 2 to 2^24-1");
  if (config.planes.empty()) refuse("QpConfig.planes: tcp needs at least one plane");
  if (config.planes.size() > kMaxPlanes) refuse("QpConfig.planes: more than 8 planes");
  if (by_qp_.contains(config.local)) refuse("QpConfig.local: queue pair exists already");
  const std::uint16_t local_port = tcp::port_of(config.local), remote_port = tcp::port_of(config.remote);
  const std::uint64_t tuple = key(config.destination, local_port, remote_port);
  if (by_tuple_.contains(tuple)) {
    refuse("QpConfig.local: its TCP ports " + std::to_string(local_port) + " and " + std::to_string(remote_port) +
           " are another connection's; queue pairs of two hosts must differ modulo 64512");
  }
  const std::uint64_t stream =
      hash_key(config.source, config.destination, std::uint64_t{local_port} << 16 | remote_port);
  auto made = std::make_unique<Connection>(options_, control_, counters_, stream);
  Connection& c = *made;
  c.index = static_cast<std::uint32_t>(connections_.size());
  c.local = config.local;
  c.source = config.source;
  c.destination = config.destination;
  c.flow = config.flow;
  c.local_address = host_address(config.source);
  c.remote_address = host_address(config.destination);
  c.local_port = local_port;
  c.remote_port = remote_port;
  c.send_start = initial_sequence(config.source, config.destination, local_port, remote_port);
  c.receive_start = initial_sequence(config.destination, config.source, remote_port, local_port);
  c.hash = static_cast<std::uint32_t>(hash_key(options_.seed, stream, kRoutePurpose) >> 32);
  c.planes = static_cast<std::uint8_t>(config.planes.size());
  c.routed = routed(config.planes);
  c.port = choose_port(c);
  Ipv6Header ip;
  // As Linux derives it (net.ipv6.auto_flowlabels); no switch here hashes it, as in the live
  // fabric.
  ip.flow_label = c.hash & 0xfffff;
  ip.next_header = kNextHeaderTcp;
  ip.source = c.local_address;
  ip.destination = c.remote_address;
  ByteWriter out(c.front);
  EthernetHeader{}.serialize(out);
  ip.serialize(out);
  by_qp_.emplace(c.local, &c);
  by_tuple_.emplace(tuple, &c);
  connections_.push_back(std::move(made));
  if (!options_.handshake) return;
  // One end opens: the host of the lower number, or the lower port of a connection to oneself.
  const bool opens =
      config.source != config.destination ? config.source < config.destination : local_port < remote_port;
  c.handshake = opens ? Handshake::syn_due : Handshake::listening;
  settle(c, now);
}

Sender& TcpTransport::sender(QpNumber qp) { return by_qp_.at(qp)->sender; }
const Sender& TcpTransport::sender(QpNumber qp) const { return by_qp_.at(qp)->sender; }

bool TcpTransport::ahead(QpNumber qp) {
  Connection& c = *by_qp_.at(qp);
  return c.told_ahead = c.sender.ahead();
}

TransportFigures TcpTransport::figures() const { return {.retransmitted = counters_.retransmitted}; }

void TcpTransport::on_limits(QpNumber qp, std::size_t part, const LimitsSet& set, Picoseconds now) {
  if (part > 0) throw std::out_of_range("tcp: a connection has one part");
  Connection& c = *by_qp_.at(qp);
  c.sender.set_limits(set, now);
  settle(c, now);
}

// As `ss -ti` shows it of a kernel's socket.
void TcpTransport::state(QpNumber qp, std::size_t part, Observer& out) const {
  if (part > 0) throw std::out_of_range("tcp: a connection has one part");
  const Sender& s = sender(qp);
  out.value("acked", static_cast<double>(acked(qp, part)));
  out.value("in_flight", static_cast<double>(s.board().in_flight()));
  out.value("srtt_ps", static_cast<double>(s.rtt().srtt().count));
  out.value("min_rtt_ps", s.rtt().known() ? static_cast<double>(s.rtt().min().count) : 0);
  observe_limits(s.window(), s.control(), out);
}

// Mask of the ports that have a path.
std::uint8_t TcpTransport::routed(const std::vector<PlanePaths>& planes) {
  unsigned mask = 0;
  for (std::size_t p = 0; p < planes.size(); ++p) mask |= planes[p].uplinks.empty() ? 0u : 1u << p;
  return static_cast<std::uint8_t>(mask);
}

PlanePort TcpTransport::port_of_connection(QpNumber qp) const { return by_qp_.at(qp)->port; }

// Hash-threshold over the next hops that are alive, as Linux rebalances a multipath route.
PlanePort TcpTransport::choose_port(const Connection& c) const {
  std::array<PlanePort, kMaxPlanes> alive{};
  std::uint32_t n = 0;
  for (PlanePort p = 0; p < c.planes; ++p) {
    if (ports_[p].up && c.routed >> p & 1) alive[n++] = p;
  }
  return n == 0 ? kNoPort : alive[static_cast<std::size_t>(std::uint64_t{c.hash} * n >> 32)];
}

void TcpTransport::on_post(QpNumber number, const WorkRequest& request, Picoseconds now) {
  const auto found = by_qp_.find(number);
  if (found == by_qp_.end() || found->second->failed) {
    const bool unknown = found == by_qp_.end();
    ++(unknown ? counters_.posts_unknown_qp : counters_.messages_posted);
    if (!unknown) ++counters_.messages_failed;
    sink_.complete({number, Status::flushed, request.id, request.length});
    return;
  }
  Connection& c = *found->second;
  ++counters_.messages_posted;
  ++open_messages_;
  c.sender.post(request, now);
  settle(c, now);
}

void TcpTransport::on_port(PlanePort number, bool up, Picoseconds now) {
  if (number >= ports_.size() || ports_[number].up == up) return;
  ports_[number].up = up;
  reroute(now);
}

void TcpTransport::on_paths(QpNumber number, std::vector<PlanePaths> planes, Picoseconds now) {
  const auto found = by_qp_.find(number);
  if (found == by_qp_.end()) throw std::invalid_argument("QpConfig.local: no such queue pair");
  Connection& c = *found->second;
  if (planes.size() != c.planes) throw std::invalid_argument("QpConfig.planes: as many as before");
  c.routed = routed(planes);
  reroute(now);
}

void TcpTransport::reroute(Picoseconds now) {
  for (Port& port : ports_) port.head = port.tail = nullptr;
  for (const auto& c : connections_) {
    c->queued = false;
    c->next_queued = nullptr;
    if (c->port != kNoPort) ports_[c->port].paced.set(c->index, kNever);
    const PlanePort port = choose_port(*c);
    if (port != c->port) {
      c->port = port;
      ++counters_.rerouted;
    }
    settle(*c, now);
  }
}

void TcpTransport::on_deadline(Picoseconds now) {
  while (timers_.next() <= now) {
    Connection& c = *connections_[timers_.front()];
    timers_.set(c.index, kNever);
    if (c.failed) continue;
    c.receiver.on_deadline(now);
    if (c.sender.deadline() <= now) {
      const std::uint64_t timeouts = counters_.rto;
      const Picoseconds waited = c.sender.rto();  // as it is doubled behind the timeout
      if (!c.sender.on_deadline(now)) {
        fail(c, Status::retry_exceeded, now);
        continue;
      }
      if (counters_.rto != timeouts) {
        sink_.event(
            {EventKind::rto, c.local, c.send_start + static_cast<std::uint32_t>(c.sender.acked()), now, waited});
      }
    }
    settle(c, now);
  }
}

bool TcpTransport::has_control(const Connection& c) const {
  const bool greets =
      c.handshake == Handshake::syn_due || c.handshake == Handshake::syn_ack_due || c.handshake == Handshake::ack_due;
  return c.reset_due || (!c.failed && (greets || c.receiver.ack_due()));
}

void TcpTransport::enqueue(Connection& c) {
  Port& port = ports_[c.port];
  c.queued = true;
  c.next_queued = nullptr;
  (port.tail ? port.tail->next_queued : port.head) = &c;
  port.tail = &c;
  announce(c.port);
}

void TcpTransport::settle(Connection& c, Picoseconds now) {
  if (!c.queued && c.port != kNoPort) {
    if (has_control(c)) {
      enqueue(c);
    } else if (!c.failed) {
      switch (c.sender.ready(now)) {
        case Sender::Ready::nothing:
          break;
        case Sender::Ready::paced:
          ports_[c.port].paced.at_latest(c.index, c.sender.paced_until());
          announce(c.port);
          break;
        case Sender::Ready::now:
          enqueue(c);
          break;
      }
    }
  }
  if (!c.failed) timers_.at_latest(c.index, std::min(c.sender.deadline(), c.receiver.deadline()));
}

void TcpTransport::complete(Connection& c) {
  Message m;
  while (!c.failed && c.sender.take_completed(m)) {
    --open_messages_;
    ++counters_.messages_completed;
    sink_.complete({c.local, Status::ok, m.request.id, m.request.length});
  }
}

// The connection ends: its oldest message gets the status, every other one is flushed.
void TcpTransport::fail(Connection& c, Status status, Picoseconds now) {
  if (c.failed) return;
  c.failed = true;
  ++counters_.connections_failed;
  sink_.event({EventKind::qp_error, c.local, static_cast<std::uint32_t>(status), now});
  c.receiver.release();
  timers_.set(c.index, kNever);
  Message m;
  while (c.sender.take_completed(m, true)) {
    --open_messages_;
    ++counters_.messages_failed;
    sink_.complete({c.local, std::exchange(status, Status::flushed), m.request.id, m.request.length});
  }
}

std::size_t TcpTransport::held() const {
  std::size_t n = 0;
  for (const auto& c : connections_) n += c->receiver.held();
  return n;
}

void TcpTransport::release() {
  for (const auto& c : connections_) c->receiver.release();
}

}  // namespace loomnet::tcp
