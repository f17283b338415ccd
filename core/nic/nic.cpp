// The NIC's ports, regions and mux; results are handed on only after the transport has returned.
#include "nic/nic.hpp"

#include <bit>
#include <stdexcept>

namespace loomnet {

Nic::Nic(EventQueue& events, PacketPool& pool, HostId host, std::size_t ports, Picoseconds meter_bin,
         Domain domain)
    : events_(events), pool_(pool), host_(host), id_(events.add(*this, domain)), ports_(ports), meter_(meter_bin) {
  if (ports == 0 || ports > kMaxPlanes) throw std::invalid_argument("nic: ports must be 1 to 8");
}

Nic::~Nic() = default;

std::uint32_t Nic::register_region(std::uint8_t* base, std::uint64_t address, std::uint64_t length) {
  if (address + length < address) throw std::invalid_argument("nic: region wraps the address space");
  if (free_regions_.empty()) {
    if (regions_.size() + 1 >= 1u << kRegionBits) throw std::length_error("nic: 2^24 regions");
    regions_.emplace_back();
    free_regions_.push_back(static_cast<std::uint32_t>(regions_.size()));
  }
  const std::uint32_t number = free_regions_.back();
  free_regions_.pop_back();
  Region& r = regions_[number - 1];
  const std::uint8_t use = r.use;
  r = {base, address, length};
  r.use = static_cast<std::uint8_t>(use + 1);
  r.key = static_cast<std::uint32_t>(use) << kRegionBits | number;
  return r.key;
}

Nic::Region* Nic::region(std::uint32_t key) {
  const std::uint32_t number = key & ((1u << kRegionBits) - 1);
  if (number == 0 || number > regions_.size() || regions_[number - 1].key != key) return nullptr;
  return &regions_[number - 1];
}

void Nic::deregister(std::uint32_t key) {
  Region* r = region(key);
  if (!r) throw std::invalid_argument("nic: unknown key");
  r->key = 0;
  free_regions_.push_back(key & ((1u << kRegionBits) - 1));
}

Picoseconds Nic::last_placed(std::uint32_t key) {
  const Region* r = region(key);
  if (!r) throw std::invalid_argument("nic: unknown key");
  return r->placed;
}

void Nic::connect(const QpConfig& config, Picoseconds now) {
  now_ = now;
  transport_->connect(config, now);
  settle(now);
}

void Nic::post(QpNumber qp, WorkRequest request, Picoseconds now) {
  now_ = now;
  request.posted = now;
  request.message = pool_.next_message();
  if (tap_) [[unlikely]] tap_->posted(host_, qp, request, now);
  transport_->on_post(qp, request, now);
  settle(now);
}

void Nic::set_port(PlanePort port, bool up, Picoseconds now) {
  now_ = now;
  ports_.at(port).up = up;
  if (transport_) {
    transport_->on_port(port, up, now);
    settle(now);
  }
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
  if (packet->queue == kMacControlClass) [[unlikely]] return obey_pause(port, *packet, now);
  if (packet->kernel) {
    if (const std::uint32_t bytes = tcp_payload(*packet)) meter_.payload(bytes, now);
    if (kernel_) {
      kernel_->to_host(host_, static_cast<PlanePort>(port), std::move(packet), now);
    } else {
      ++counters_.kernel_absent;
    }
    return;
  }
  if (!transport_) {
    ++counters_.transport_absent;
    return;
  }
  now_ = now;
  transport_->on_packet(static_cast<PlanePort>(port), std::move(packet), now);
  settle(now);
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

bool Nic::place(QpNumber, std::uint32_t key, std::uint64_t address, const Payload& payload) {
  if (payload.length > 0) {
    Region* to = region(key);
    if (!to || address < to->address || address - to->address > to->length ||
        payload.length > to->length - (address - to->address)) {
      ++counters_.placement_refused;
      return false;
    }
    if (to->base && payload.data) {
      std::memcpy(to->base + (address - to->address), payload.data, payload.length);
    }
    to->placed = now_;
    meter_.payload(payload.length, now_);
  }
  return true;
}

void Nic::port_ready(PlanePort port) {
  ports_[port].ready = true;
  ready_ports_ |= 1u << port;
}

void Nic::settle(Picoseconds now) {
  if (settling_) return;  // a client posted from within: the loop below picks it up
  settling_ = true;
  while (ready_ports_ || !completions_.empty() || !arrivals_.empty()) {
    while (ready_ports_) {
      const auto port = static_cast<PlanePort>(std::countr_zero(ready_ports_));
      ready_ports_ &= ready_ports_ - 1;
      send(port, now);
    }
    // By index: a client that posts from within may append.
    for (std::size_t i = 0; i < arrivals_.size(); ++i) {
      const Arrival arrival = arrivals_[i];
      if (client_) client_->on_arrival(arrival, now);
    }
    arrivals_.clear();
    for (std::size_t i = 0; i < completions_.size(); ++i) {
      const Completion completion = completions_[i];
      if (tap_) [[unlikely]] tap_->completed(host_, completion, now);
      if (client_) client_->on_completion(completion, now);
    }
    completions_.clear();
  }
  settling_ = false;
  if (!transport_) return;
  const Picoseconds deadline = transport_->next_deadline();
  if (deadline < deadline_) {
    deadline_ = deadline;
    events_.schedule(deadline, id_, kDeadline);
  }
}

PacketPtr Nic::next_packet(PlanePort port, Picoseconds now) {
  Port& p = ports_[port];
  Picoseconds not_before = kNever;
  const auto pull = [&](QueueClass queue) -> PacketPtr {
    Pulled pulled = transport_->pull(port, queue, now);
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
    if (transport_ && transport_->next_deadline() <= now) transport_->on_deadline(now);
  } else {
    Port& p = ports_[what];
    if (now < p.wake) return;
    p.wake = kNever;
    p.ready = true;  // a pacing time has come or the link is free: ask again
    ready_ports_ |= 1u << what;
  }
  settle(now);
}

void Nic::prepare(std::uint64_t what, int stage) const {
  if (what == kDeadline || !transport_) return;
  if (stage == 1) {
    fetch(&ports_[what]);
    fetch(transport_.get(), Transport::kHotBytes);
  } else if (stage == 2) {
    transport_->prepare(Transport::Upcoming::pull, static_cast<PlanePort>(what));
    if (ports_[what].egress) ports_[what].egress->prepare_offer();
  }
}

void Nic::prepare(std::uint16_t port, const Packet& packet, int stage) const {
  if (!transport_) return;
  if (stage == 2) {
    fetch(transport_.get(), Transport::kHotBytes);
    fetch(regions_.data());
  } else {
    transport_->prepare(packet.queue == kControlClass ? Transport::Upcoming::control
                                                      : Transport::Upcoming::data,
                        static_cast<PlanePort>(port));
  }
}

std::size_t Nic::held() const {
  std::size_t n = transport_ ? transport_->held() : 0;
  for (const Port& p : ports_) n += p.kernel.size();
  return n;
}

void Nic::clear() {
  if (transport_) transport_->release();
  for (Port& p : ports_) {
    p.kernel.clear();
    p.kernel_bytes = 0;
  }
}

}  // namespace loomnet
