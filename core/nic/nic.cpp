// The NIC's ports, regions and mux; results are handed on only after the transport has returned.
#include "nic/nic.hpp"

#include <bit>
#include <stdexcept>
#include <string>

#include "packet/ethernet.hpp"
#include "packet/ipv6.hpp"
#include "packet/rdma.hpp"
#include "packet/step_stamp.hpp"
#include "packet/udp.hpp"

namespace loomnet {

Nic::Nic(EventQueue& events, PacketPool& pool, HostId host, std::size_t ports, Picoseconds meter_bin, Domain domain)
    : events_(events), pool_(pool), host_(host), id_(events.add(*this, domain)), ports_(ports), clients_(meter_bin) {
  if (ports == 0 || ports > kMaxPlanes) throw std::invalid_argument("nic: ports must be 1 to 8");
}

Nic::~Nic() = default;

void Nic::set_transport(std::unique_ptr<Transport> transport, std::uint8_t number) {
  const std::string name(transport->name());
  std::unique_ptr<Transport>* same = nullptr;
  for (auto& other : transports_) {
    if (other->name() == name) {
      if (clients_.carried_by(*other)) {
        throw std::invalid_argument("nic: transport " + name + " has queue pairs already");
      }
      same = &other;
    } else if (other->protocol() == transport->protocol()) {
      throw std::invalid_argument("nic: transports " + std::string(other->name()) + " and " + name +
                                  " cannot be told apart by their frames");
    }
  }
  if (same) {
    *same = std::move(transport);
  } else {
    transports_.push_back(std::move(transport));
    carriers_.push_back(number);
  }
  transport_ = transports_.front().get();
  find_alone();
  Transport& made = same ? **same : *transports_.back();
  for (PlanePort port = 0; port < ports_.size(); ++port) {
    if (!ports_[port].up) made.on_port(port, false, now_);
  }
}

Transport* Nic::transport(std::string_view name) {
  for (const auto& t : transports_) {
    if (t->name() == name) return t.get();
  }
  return nullptr;
}

Transport& Nic::take_number(const QpConfig& config, const QpOwner& owner, std::string_view name) {
  Transport* by = name.empty() ? transport_ : transport(name);
  if (config.source == config.destination && !config.group) {
    if (!local_) set_local_link({});
    by = local_.get();
  }
  if (!by) {
    throw std::invalid_argument("nic: host " + std::to_string(host_) + " has no transport" +
                                (name.empty() ? "" : " " + std::string(name)));
  }
  if (const Transport* other = clients_.transport_of(config.local)) {
    throw std::invalid_argument("QpConfig.local: queue pair " + std::to_string(config.local) +
                                " exists already, over " + std::string(other->name()));
  }
  clients_.own(config.local, owner);
  return *by;
}

void Nic::connect(const QpConfig& config, Picoseconds now, const QpOwner& owner, std::string_view name) {
  Transport& by = take_number(config, owner, name);
  now_ = now;
  by.connect(config, now);
  clients_.connected(config.local, by);
  settle(now);
}

void Nic::connect_at(Picoseconds at, QpConfig config, const QpOwner& owner, std::string_view name) {
  Transport& by = take_number(config, owner, name);
  clients_.connected(config.local, by);
  if (!later_) later_ = std::make_unique<LaterQueuePairs>();
  if (later_->add(at, by, std::move(config))) events_.schedule(at, id_, kConnect);
}

void Nic::connect_due(Picoseconds now) {
  for (const auto& [by, config] : later_->take(now)) {
    by->connect(config, now);
    settle(now);  // as if each had been connected by itself
  }
  if (later_->empty()) later_.reset();
}

void Nic::set_local_link(const LocalLinkConfig& config) {
  if (local_ && local_->has_queue_pairs()) {
    throw std::invalid_argument("local link: host " + std::to_string(host_) + " uses it already");
  }
  local_ = std::make_unique<LocalLink>(sink(), config);
  find_alone();
}

Transport& Nic::connected_by(QpNumber qp, const char* what) {
  Transport* by = clients_.transport_of(qp);
  if (!by) {
    throw std::invalid_argument(std::string(what) + ": host " + std::to_string(host_) + " has no queue pair " +
                                std::to_string(qp));
  }
  return *by;
}

void Nic::set_paths(QpNumber qp, std::vector<PlanePaths> planes, Picoseconds now) {
  Transport& by = connected_by(qp, "set_paths");
  if (QpConfig* config = later(qp)) {
    if (planes.size() != config->planes.size()) throw std::invalid_argument("set_paths: as many planes as before");
    config->planes = std::move(planes);
    return;
  }
  now_ = now;
  by.on_paths(qp, std::move(planes), now);
  settle(now);
}

void Nic::renew(QpNumber qp, Picoseconds now) {
  Transport& by = connected_by(qp, "renew");
  now_ = now;
  by.on_renew(qp, now);
  settle(now);
}

std::vector<std::uint64_t> Nic::acked(QpNumber qp) {
  const Transport& by = connected_by(qp, "acked");
  std::vector<std::uint64_t> found(by.state_parts(qp));
  for (std::size_t part = 0; part < found.size(); ++part) found[part] = by.acked(qp, part);
  return found;
}

Pupil* Nic::pupil(QpNumber qp, std::size_t part) {
  Transport& by = connected_by(qp, "pupil");
  return later(qp) ? nullptr : by.pupil(qp, part);
}

void Nic::set_limits(QpNumber qp, std::size_t part, const LimitsSet& set, Picoseconds now) {
  Transport& by = connected_by(qp, "set_limits");
  now_ = now;
  by.on_limits(qp, part, set, now);
  settle(now);
}

void Nic::set_trees(QpNumber qp, std::vector<std::vector<std::uint16_t>> trees, Picoseconds now) {
  Transport& by = connected_by(qp, "set_trees");
  if (QpConfig* config = later(qp); config && config->group) {
    config->group->trees = std::move(trees);
    return;
  }
  now_ = now;
  by.on_trees(qp, std::move(trees), now);
  settle(now);
}

// Of a queue pair that is not connected: the first transport, which refuses it.
Transport& Nic::carrier_of(QpNumber qp) {
  if (alone_) [[likely]]
    return *transport_;
  Transport* by = clients_.transport_of(qp);
  return by ? *by : *transport_;
}

void Nic::post(QpNumber qp, WorkRequest request, Picoseconds now) {
  now_ = now;
  request.posted = now;
  request.message = pool_.next_message();
  if (tap_) [[unlikely]]
    tap_->posted(host_, qp, request, now);
  carrier_of(qp).on_post(qp, request, now);
  settle(now);
}

void Nic::set_port(PlanePort port, bool up, Picoseconds now) {
  now_ = now;
  ports_.at(port).up = up;
  for (const auto& t : transports_) t->on_port(port, up, now);
  settle(now);
}

void Nic::from_kernel(PlanePort port, PacketPtr packet, Picoseconds now) {
  Port& p = ports_[port];
  if (!p.up) {
    ++counters_.port_down;
    return;
  }
  if (p.kernel_bytes + packet->wire_length > kKernelQueue) {
    ++counters_.kernel_queue_full;
    return;
  }
  packet->kernel = true;
  p.kernel_bytes += packet->wire_length;
  p.kernel.push(std::move(packet));
  send(port, now);
}

namespace {

// TCP payload of a kernel frame, retransmissions included: what breaks a silence at this host.
std::uint32_t tcp_payload(const Packet& packet) {
  constexpr std::size_t kIp = 14, kTcp = kIp + 40;
  const auto& h = packet.header;
  if (packet.header_length < kTcp + 20 || h[kIp] >> 4 != 6 || h[kIp + 6] != 6) return 0;
  const std::uint32_t length = std::uint32_t{h[kIp + 4]} << 8 | h[kIp + 5];
  const std::uint32_t header = static_cast<std::uint32_t>(h[kTcp + 12] >> 4) * 4;
  return length > header ? length - header : 0;
}

}  // namespace

void Nic::receive(std::uint16_t port, PacketPtr packet, Picoseconds now) {
  if (packet->queue == kMacControlClass) [[unlikely]]
    return obey_pause(port, *packet, now);
  if (packet->kernel) {
    if (const std::uint32_t bytes = tcp_payload(*packet)) clients_.kernel_job().meter.payload(bytes, now);
    if (kernel_) {
      kernel_->to_host(host_, static_cast<PlanePort>(port), std::move(packet), now);
    } else {
      ++counters_.kernel_absent;
    }
    return;
  }
  Transport* to = alone_ ? transport_ : transport_for(*packet);
  if (!to) {
    ++counters_.transport_absent;
    return;
  }
  now_ = now;
  to->on_packet(static_cast<PlanePort>(port), std::move(packet), now);
  settle(now);
}

// Where a NIC has one transport, that transport gets every frame and counts the frames of other protocols.
Transport* Nic::transport_for(const Packet& packet) {
  if (transports_.size() <= 1) return transport_;
  const FrameProtocol protocol = protocol_of(packet.header_bytes());
  if (protocol.udp_port == kUdpPortStep) return stepped_to(packet);
  for (const auto& t : transports_) {
    if (t->protocol() == protocol) return t.get();
  }
  return nullptr;
}

// Behind a step header may be any transport's header. They all have the BTH in front, and the numbers of a
// NIC's queue pairs are unique over its transports.
Transport* Nic::stepped_to(const Packet& packet) const {
  const auto header = packet.header_bytes();
  const bool tunnelled = header[EthernetHeader::kSize + 6] == kNextHeaderIpv6;
  const std::size_t at = EthernetHeader::kSize + (tunnelled ? 2 : 1) * Ipv6Header::kSize + UdpHeader::kSize;
  if (header.size() < at + kStepHeaderBytes + Bth::kSize) return nullptr;
  ByteReader in(header.subspan(at + kStepHeaderBytes));
  return clients_.transport_of(Bth::parse(in).destination_qp);
}

void Nic::obey_pause(std::uint16_t number, const Packet& packet, Picoseconds now) {
  Port& port = ports_[number];
  if (!port.egress) return;
  const bool waited = port.egress->paused();
  port.egress->obey_pause(packet, now);
  if (!waited || port.egress->paused()) return;
  port_ready(static_cast<PlanePort>(number));
  now_ = now;
  settle(now);
}

bool Nic::place(QpNumber qp, std::uint32_t key, std::uint64_t address, const Payload& payload) {
  if (payload.length == 0) return true;
  MemoryRegions::Region* to = regions_.find(key);
  if (to && clients_.several_jobs() && clients_.job_of(qp) != to->job) [[unlikely]] {
    ++counters_.foreign_key_refused;
    return false;
  }
  if (!to || !to->holds(address, payload.length)) {
    ++counters_.placement_refused;
    return false;
  }
  if (to->base && payload.data) {
    std::memcpy(to->base + (address - to->address), payload.data, payload.length);
  }
  to->placed = now_;
  to->job->meter.payload(payload.length, now_);
  return true;
}

void Nic::port_ready(PlanePort port) {
  ports_[port].ready = true;
  ready_ports_ |= 1u << port;
}

void Nic::settle(Picoseconds now) {
  if (settling_) return;  // a client posted from within: the loop below picks it up
  settling_ = true;
  while (ready_ports_ || !completions_.empty() || !arrivals_.empty() || !caught_up_.empty()) {
    while (ready_ports_) {
      const auto port = static_cast<PlanePort>(std::countr_zero(ready_ports_));
      ready_ports_ &= ready_ports_ - 1;
      send(port, now);
    }
    // By index: a client that posts from within may append.
    for (std::size_t i = 0; i < arrivals_.size(); ++i) {
      const Arrival arrival = arrivals_[i];
      if (NicClient* client = clients_.client_of(arrival.qp)) client->on_arrival(arrival, now);
    }
    arrivals_.clear();
    for (std::size_t i = 0; i < completions_.size(); ++i) {
      const Completion completion = completions_[i];
      if (tap_) [[unlikely]]
        tap_->completed(host_, completion, now);
      if (NicClient* client = clients_.client_of(completion.qp)) client->on_completion(completion, now);
    }
    completions_.clear();
    for (std::size_t i = 0; i < caught_up_.size(); ++i) {
      const QpNumber qp = caught_up_[i];
      if (NicClient* client = clients_.client_of(qp)) client->on_caught_up(qp, now);
    }
    caught_up_.clear();
  }
  settling_ = false;
  const Picoseconds deadline = alone_ ? transport_->next_deadline() : earliest_deadline();
  if (deadline < deadline_) {
    deadline_ = deadline;
    events_.schedule(deadline, id_, kDeadline);
  }
}

Picoseconds Nic::earliest_deadline() const {
  Picoseconds at = local_ ? local_->next_deadline() : kNever;
  for (const auto& t : transports_) at = std::min(at, t->next_deadline());
  return at;
}

// Each transport has its turn at a free port, behind the one that sent last. Without a packet, the
// earliest time at which one of them may have one.
Pulled Nic::pull_in_turn(PlanePort port, QueueClass queue, Picoseconds now) {
  std::uint8_t& turn = ports_[port].turn;
  Pulled best = Pulled::idle();
  for (std::size_t n = transports_.size(); n > 0; --n) {
    Pulled pulled = transports_[turn]->pull(port, queue, now);
    if (pulled.packet) pulled.packet->carrier = carriers_[turn];
    turn = static_cast<std::uint8_t>((turn + 1) % transports_.size());
    if (pulled.packet) return pulled;
    if (pulled.kind == Pulled::Kind::not_before &&
        (best.kind == Pulled::Kind::idle || pulled.not_before < best.not_before)) {
      best = std::move(pulled);
    }
  }
  return best;
}

PacketPtr Nic::next_packet(PlanePort port, Picoseconds now) {
  Port& p = ports_[port];
  Picoseconds not_before = kNever;
  const auto pull = [&](QueueClass queue) -> PacketPtr {
    Pulled pulled = alone_ ? transport_->pull(port, queue, now) : pull_in_turn(port, queue, now);
    if (alone_ && pulled.packet) pulled.packet->carrier = carriers_.front();
    if (pulled.kind == Pulled::Kind::not_before && pulled.not_before < not_before) {
      not_before = pulled.not_before;
    }
    return std::move(pulled.packet);
  };
  PacketPtr packet;
  if (p.ready && transport_) packet = pull(kControlClass);
  // PFC: all but control waits, and is asked for again when the pause ends or, behind the link's own
  // event of that time, has run out.
  if (!packet && p.egress->paused()) [[unlikely]] {
    wake(port, p.egress->pause_end() + Picoseconds{1});
    return nullptr;
  }
  if (!packet && p.kernel_turn && !p.kernel.empty()) {
    packet = p.kernel.pop();
    p.kernel_bytes -= packet->wire_length;
    p.kernel_turn = false;
    return packet;
  }
  if (!packet && p.ready && transport_) {
    packet = pull(kDataClass);
    if (!packet) {
      p.ready = false;
      if (not_before != kNever) wake(port, not_before);
    } else {
      p.kernel_turn = true;
    }
  }
  if (!packet && !p.kernel.empty()) {
    packet = p.kernel.pop();
    p.kernel_bytes -= packet->wire_length;
  }
  return packet;
}

void Nic::send(PlanePort port, Picoseconds now) {
  Port& p = ports_[port];
  if (!p.egress || !p.up) return;
  now_ = now;
  while (p.ready || !p.kernel.empty()) {
    if (p.egress->busy_until() > now) {
      wake(port, p.egress->busy_until());
      return;
    }
    PacketPtr packet = next_packet(port, now);
    if (!packet) return;
    packet->ideal = now;
    p.egress->offer(std::move(packet), now);
  }
}

void Nic::wake(PlanePort port, Picoseconds at) {
  Port& p = ports_[port];
  if (at < p.wake) {
    p.wake = at;
    events_.schedule(at, id_, port);
  }
}

void Nic::on_event(std::uint64_t what, Picoseconds now) {
  now_ = now;
  if (what == kDeadline) {
    if (now < deadline_) return;
    deadline_ = kNever;
    if (kernel_) [[unlikely]]
      kernel_->deadline_served(now);
    if (alone_) {
      if (transport_->next_deadline() <= now) transport_->on_deadline(now);
    } else {
      for (const auto& t : transports_) {
        if (t->next_deadline() <= now) t->on_deadline(now);
      }
      if (local_ && local_->next_deadline() <= now) local_->on_deadline(now);
    }
  } else if (what == kConnect) {
    connect_due(now);
  } else {
    Port& p = ports_[what];
    if (now < p.wake) return;
    p.wake = kNever;
    p.ready = true;  // a pacing time has come or the link is free: ask again
    ready_ports_ |= 1u << what;
  }
  settle(now);
}

// With several transports it is not known yet which of them comes next: nothing is fetched.
void Nic::prepare(std::uint64_t what, int stage) const {
  if (what >= kConnect || !alone_) return;
  if (stage == 1) {
    fetch(&ports_[what]);
    fetch(transport_, Transport::kHotBytes);
  } else if (stage == 2) {
    transport_->prepare(Transport::Upcoming::pull, static_cast<PlanePort>(what));
    if (ports_[what].egress) ports_[what].egress->prepare_offer();
  }
}

void Nic::prepare(std::uint16_t port, const Packet& packet, int stage) const {
  if (!alone_) return;
  if (stage == 2) {
    fetch(transport_, Transport::kHotBytes);
    fetch(regions_.memory());
  } else {
    transport_->prepare(packet.queue == kControlClass ? Transport::Upcoming::control : Transport::Upcoming::data,
                        static_cast<PlanePort>(port));
  }
}

std::size_t Nic::held() const {
  std::size_t n = 0;
  for (const auto& t : transports_) n += t->held();
  for (const Port& p : ports_) n += p.kernel.size();
  return n;
}

void Nic::clear() {
  for (const auto& t : transports_) t->release();
  for (Port& p : ports_) {
    p.kernel.clear();
    p.kernel_bytes = 0;
  }
}

}  // namespace loomnet
