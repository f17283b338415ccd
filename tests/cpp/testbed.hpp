// Test bed of every transport: hosts with bare NICs on P planes, each plane a star of faulty pipes,
// one deterministic event loop. It knows no transport: a factory makes them, hooks describe them.
//
//   Testbed bed({.hosts = 2, .planes = 4, .seed = 7}, factory);
//   bed.connect(0, 100, 1, 200);
//   bed.up(0, 2).loss = 0.2;                       // host 0 towards plane 2
//   bed.at(milliseconds(1), [&] { bed.set_link(0, 1, false); });
//   bed.post_write(0, 100, source, kBase, kKey, /*immediate=*/5);
//   ASSERT_TRUE(bed.run_until_idle(seconds(1))) << bed.transcript();
//   EXPECT_EQ(bed.leaked(), 0u);
#pragma once

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "clock/random.hpp"
#include "clock/time.hpp"
#include "testbed_nic.hpp"
#include "testbed_pipe.hpp"

namespace loomnet::testbed {

struct BedOptions {
  std::size_t hosts = 2;
  std::size_t planes = 1;
  std::uint64_t seed = 1;
  BitsPerSecond rate = gigabits(100);   // of each NIC port
  Picoseconds delay = microseconds(1);  // of each pipe: host to host is twice this
  BitsPerSecond down_rate{};            // plane towards host: 0 adds neither a queue nor time
};

using Factory = std::function<std::unique_ptr<Transport>(HostId host, TransportSink& sink, std::size_t planes)>;

class Testbed {
 public:
  // Asked once per packet inside the fabric; extra delay, or nullopt to lose the packet.
  using Filter = std::function<std::optional<Picoseconds>(HostId from, PlanePort plane, Packet&)>;
  using Route = std::function<std::optional<HostId>(HostId from, PlanePort plane, const Packet&)>;
  using Trim = std::function<bool(Packet&)>;  // a full queue: cut it, true if it may go on
  using Describe = Transcript::Describe;
  using Paths = std::function<std::vector<PlanePaths>(HostId from, HostId to)>;

  Filter filter;
  Route route = [](HostId, PlanePort, const Packet& p) { return innermost_ipv6_host(p); };
  Trim trim;
  Describe describe;
  Paths paths = [this](HostId, HostId to) { return local_paths(options_.planes, to); };

  Testbed(BedOptions options, const Factory& factory) : options_(options) {
    for (HostId h = 0; h < options.hosts; ++h) {
      nics_.push_back(std::make_unique<Nic>(
          h, options.planes,
          Nic::Hooks{
              [this] { return pool_.allocate(); }, [this](HostId host, PlanePort port) { pull_soon(host, port, now_); },
              [this](HostId host, Line::What what, std::uint32_t a, std::uint32_t b) { note(what, host, 0, a, b); },
              [this] { return now_; }}));
      for (std::size_t p = 0; p < options.planes; ++p) {
        const std::uint64_t id = (static_cast<std::uint64_t>(h) << 8) | p;
        ends_.push_back(std::make_unique<End>());
        ends_.back()->up.rate = options.rate;
        ends_.back()->down.rate = options.down_rate;
        ends_.back()->up.delay = ends_.back()->down.delay = options.delay;
        ends_.back()->up_random = RandomStream(options.seed, id, 1);
        ends_.back()->down_random = RandomStream(options.seed, id, 2);
      }
    }
    for (HostId h = 0; h < options.hosts; ++h) {
      nics_[h]->transport = factory(h, *nics_[h], options.planes);
    }
  }
  ~Testbed() {
    nics_.clear();
    for (auto& end : ends_) end->control.clear(), end->data.clear();
    events_.clear();
  }

  Nic& nic(HostId host) { return *nics_.at(host); }
  Transport& transport(HostId host) { return *nics_.at(host)->transport; }
  Pipe& up(HostId host, std::size_t plane) { return end(host, plane).up; }
  Pipe& down(HostId host, std::size_t plane) { return end(host, plane).down; }
  PacketPool& pool() { return pool_; }
  Picoseconds now() const { return now_; }

  // Both ends of one queue pair between hosts a and b.
  void connect(HostId a, QpNumber qa, HostId b, QpNumber qb) {
    auto one = [this](HostId from, QpNumber local, HostId to, QpNumber remote) {
      QpConfig c;
      c.local = local, c.remote = remote, c.source = from, c.destination = to, c.flow = local;
      c.planes = paths(from, to), c.reverse = paths(to, from);
      call(from, [&] { transport(from).connect(c, now_); });
    };
    one(a, qa, b, qb);
    one(b, qb, a, qa);
  }

  void post(HostId host, QpNumber qp, WorkRequest request) {
    request.posted = now_;
    note(Line::What::posted, host, 0, qp, request.length);
    call(host, [&] { transport(host).on_post(qp, request, now_); });
  }
  // `source` must stay as it is until the completion. Returns the request's id.
  std::uint64_t post_write(HostId host, QpNumber qp, std::span<const std::uint8_t> source, std::uint64_t address,
                           std::uint32_t key, std::optional<std::uint32_t> immediate = std::nullopt) {
    WorkRequest w;
    w.id = ++last_id_;
    w.local = source.data(), w.length = static_cast<std::uint32_t>(source.size());
    w.remote_address = address, w.remote_key = key;
    w.opcode = immediate ? Opcode::write_with_immediate : Opcode::write;
    w.immediate = immediate.value_or(0);
    post(host, qp, w);
    return w.id;
  }

  // Carrier of a host's port, seen by the host; what is on the wire is lost with it. As with the
  // real NIC, a transport that has something for a port that came up must call port_ready().
  void set_link(HostId host, PlanePort port, bool is_up) {
    Nic& n = nic(host);
    if (n.ports.at(port).up == is_up) return;
    n.ports[port].up = is_up;
    ++n.ports[port].generation;
    note(is_up ? Line::What::port_up : Line::What::port_down, host, port, 0, 0);
    call(host, [&] { n.transport->on_port(port, is_up, now_); });
  }
  // Loses everything both ways without a word to anyone.
  void set_silent(HostId host, PlanePort port, bool silent) {
    up(host, port).silent_down = down(host, port).silent_down = silent;
  }
  // Hands a packet to a host as if it had come from the wire (fuzzing, forged replies).
  void inject(HostId host, PlanePort port, PacketPtr packet) { deliver(host, port, std::move(packet)); }

  void at(Picoseconds t, std::function<void()> action) {
    push({.at = t, .kind = Event::Kind::action, .action = std::move(action)});
  }

  void run_until(Picoseconds t) {
    while (!events_.empty() && events_.front().at <= t) step();
    now_ = std::max(now_, t);
  }
  // Until nothing is outstanding and no packet is on its way; false if that takes longer than
  // `max`.
  bool run_until_idle(Picoseconds max) {
    while (busy()) {
      if (events_.empty() || events_.front().at > max) return false;
      step();
    }
    return true;
  }
  bool busy() const {
    if (in_flight_ > 0 || actions_ > 0) return true;
    return std::any_of(nics_.begin(), nics_.end(), [](auto& n) { return n->transport->outstanding(); });
  }
  // Packets that neither the fabric nor anyone else accounts for, once the bed is idle. Control
  // packets that a transport has made and not sent yet count, so give it time to send them.
  std::size_t leaked() const { return pool_.outstanding() - in_flight_; }
  std::uint64_t steps() const { return steps_; }

  // The last things that happened, oldest first, for a failure message.
  std::string transcript(std::size_t last = 200) const {
    return "seed " + std::to_string(options_.seed) + "\n" + transcript_.text(last, describe);
  }
  friend std::ostream& operator<<(std::ostream& os, const Testbed& bed) { return os << bed.transcript(); }

  // Low 32 bits of the innermost IPv6 destination (fd00::<host>), through one level of tunnel.
  static std::optional<HostId> innermost_ipv6_host(const Packet& p) {
    constexpr std::size_t kEthernet = 14, kIpv6 = 40;
    auto h = p.header_bytes();
    std::size_t ip = kEthernet;
    if (h.size() < ip + kIpv6) return std::nullopt;
    if (h[ip + 6] == 41) ip += kIpv6;
    if (h.size() < ip + kIpv6) return std::nullopt;
    const std::uint8_t* d = h.data() + ip + 36;
    return HostId{d[0]} << 24 | HostId{d[1]} << 16 | HostId{d[2]} << 8 | HostId{d[3]};
  }
  // Paths inside one T0 per plane: block : T0 : destination.
  static std::vector<PlanePaths> local_paths(std::size_t planes, HostId to) {
    PlanePaths one;
    one.row.usids = {0x2000, static_cast<std::uint16_t>(0x4000 + to)};
    one.row.count = 2;
    one.uplinks = {0};
    return std::vector<PlanePaths>(planes, one);
  }

 private:
  struct End {  // a host's link on one plane
    Pipe up, down;
    RandomStream up_random, down_random;
    PacketFifo control, data;  // waiting at the plane for the down pipe
    std::uint64_t data_bytes = 0;
    bool sending = false;
  };
  struct Event {
    enum class Kind : std::uint8_t { pull, deadline, fabric, deliver, drain, action };
    Picoseconds at{};
    std::uint64_t order = 0;
    Kind kind = Kind::action;
    HostId host = 0;
    PlanePort port = 0;
    std::uint32_t generation = 0;
    PacketPtr packet;
    std::function<void()> action;
  };
  static bool later(const Event& a, const Event& b) { return a.at != b.at ? a.at > b.at : a.order > b.order; }

  End& end(HostId host, std::size_t plane) { return *ends_.at(host * options_.planes + plane); }

  void push(Event e) {
    e.at = std::max(e.at, now_);
    e.order = ++last_order_;
    if (e.packet) ++in_flight_;
    if (e.kind == Event::Kind::action) ++actions_;
    events_.push_back(std::move(e));
    std::push_heap(events_.begin(), events_.end(), later);
  }

  void step() {
    std::pop_heap(events_.begin(), events_.end(), later);
    Event e = std::move(events_.back());
    events_.pop_back();
    now_ = e.at;
    ++steps_;
    if (e.packet) --in_flight_;
    switch (e.kind) {
      case Event::Kind::pull:
        pull(e.host, e.port, e.generation);
        break;
      case Event::Kind::deadline:
        deadline(e.host);
        break;
      case Event::Kind::fabric:
        cross(e.host, e.port, e.generation, std::move(e.packet));
        break;
      case Event::Kind::deliver:
        if (e.generation == nic(e.host).ports[e.port].generation) {
          deliver(e.host, e.port, std::move(e.packet));
        } else {
          record(Line::What::link_down, e.host, e.port, *e.packet);
        }
        break;
      case Event::Kind::drain:
        end(e.host, e.port).sending = false;
        drain(e.host, e.port);
        break;
      case Event::Kind::action:
        --actions_;
        e.action();
        break;
    }
  }

  // Any call into a transport ends with a look at its next deadline, as the contract says.
  template <typename Call>
  void call(HostId host, Call&& c) {
    c();
    Nic& n = nic(host);
    const Picoseconds d = n.transport->next_deadline();
    if (d >= n.deadline_at || d == kNever) return;
    n.deadline_at = std::max(d, now_);
    push({.at = n.deadline_at, .kind = Event::Kind::deadline, .host = host});
  }

  void deadline(HostId host) {
    Nic& n = nic(host);
    if (now_ < n.deadline_at) return;  // an earlier one replaced it and was served
    n.deadline_at = kNever;
    call(host, [&] {
      if (n.transport->next_deadline() > now_) return;
      same_time_ = last_deadline_ == now_ ? same_time_ + 1 : 0;
      last_deadline_ = now_;
      if (same_time_ > 10'000) throw std::logic_error("a deadline does not move on\n" + transcript());
      note(Line::What::deadline, host, 0, 0, 0);
      n.transport->on_deadline(now_);
    });
  }

  void pull_soon(HostId host, PlanePort port, Picoseconds t) {
    Nic::Port& p = nic(host).ports[port];
    t = std::max({t, now_, p.free_at});
    if (!p.up || (p.pulling && p.pull_at <= t)) return;
    p.pulling = true;
    p.pull_at = t;
    push({.at = t, .kind = Event::Kind::pull, .host = host, .port = port, .generation = p.generation});
  }

  void pull(HostId host, PlanePort port, std::uint32_t generation) {
    Nic& n = nic(host);
    Nic::Port& p = n.ports[port];
    if (!p.pulling || p.pull_at != now_) return;
    p.pulling = false;
    if (!p.up) return;
    if (generation != p.generation) return pull_soon(host, port, now_);
    Picoseconds wait = kNever;
    for (QueueClass queue : {kControlClass, kDataClass}) {
      Pulled pulled;
      call(host, [&] { pulled = n.transport->pull(port, queue, now_); });
      if (pulled.kind == Pulled::Kind::not_before) {
        if (pulled.not_before <= now_) throw std::logic_error("not_before is not in the future\n" + transcript());
        wait = std::min(wait, pulled.not_before);
      }
      if (pulled.kind != Pulled::Kind::packet) continue;
      if (pulled.packet->queue != queue || pulled.packet->wire_length == 0) {
        throw std::logic_error("pull gave a packet of another class, or of no length\n" + transcript());
      }
      record(Line::What::sent, host, port, *pulled.packet);
      Pipe& pipe = up(host, port);
      ++pipe.sent;
      p.free_at = now_ + wire_time(*pulled.packet, pipe.rate);
      send(host, port, std::move(pulled.packet), p.free_at);
      return pull_soon(host, port, p.free_at);
    }
    if (wait != kNever) pull_soon(host, port, wait);
  }

  static Picoseconds wire_time(const Packet& packet, BitsPerSecond rate) {
    if (rate.count == 0) return {};
    return serialization_time(std::max(packet.wire_length, kMinFrameBytes) + kFramingOverhead, rate);
  }

  // Faults of one pipe; calls `onward(packet, time)` for each copy that gets through.
  template <typename Onward>
  void through(Pipe& pipe, RandomStream& random, HostId host, PlanePort port, PacketPtr packet, Picoseconds t,
               Onward&& onward) {
    // Always the same number of draws per packet, so that one fault does not shift the others.
    const double loss = random.uniform(), copy = random.uniform(), damage = random.uniform();
    const double late = random.uniform(), late_by = random.uniform(), copy_by = random.uniform();
    if (pipe.silent_down || loss < pipe.loss) {
      ++pipe.lost;
      return record(Line::What::lost, host, port, *packet);
    }
    if (copy < pipe.duplication) {
      ++pipe.duplicated;
      record(Line::What::duplicated, host, port, *packet);
      onward(pool_.duplicate(*packet), t + pipe.jitter.scaled(copy_by));
    }
    if (damage < pipe.corruption) {
      ++pipe.corrupted;
      packet->corrupt = true;
      record(Line::What::corrupted, host, port, *packet);
    }
    if (late < pipe.reorder) {
      ++pipe.delayed;
      record(Line::What::delayed, host, port, *packet);
      t += pipe.jitter.scaled(late_by);
    }
    onward(std::move(packet), t);
  }

  // Brings a packet to the far end at `t`, unless the port's carrier is lost before.
  void carry(Event::Kind kind, HostId host, PlanePort port, PacketPtr packet, Picoseconds t) {
    push({.at = t,
          .kind = kind,
          .host = host,
          .port = port,
          .generation = nic(host).ports[port].generation,
          .packet = std::move(packet)});
  }

  void send(HostId host, PlanePort port, PacketPtr packet, Picoseconds clocked_out) {
    End& e = end(host, port);
    through(e.up, e.up_random, host, port, std::move(packet), clocked_out + e.up.delay,
            [&](PacketPtr p, Picoseconds t) { carry(Event::Kind::fabric, host, port, std::move(p), t); });
  }

  // Inside the plane: host's packet meets the filter, the route and the far host's queue.
  void cross(HostId from, PlanePort port, std::uint32_t generation, PacketPtr packet) {
    if (generation != nic(from).ports[port].generation) {
      return record(Line::What::link_down, from, port, *packet);
    }
    const auto extra = filter ? filter(from, port, *packet) : std::optional(Picoseconds{});
    if (!extra) return record(Line::What::filtered, from, port, *packet);
    const auto to = route(from, port, *packet);
    if (!to || *to >= nics_.size()) return record(Line::What::no_route, from, port, *packet);
    if (!nic(*to).ports[port].up) return record(Line::What::link_down, *to, port, *packet);
    End& e = end(*to, port);
    if (e.down.rate.count == 0 || extra->count > 0) return arrive(*to, port, std::move(packet), now_ + *extra);
    const bool full = e.down.queue_limit > 0 && packet->queue != kControlClass &&
                      e.data_bytes + packet->wire_length > e.down.queue_limit;
    if (full) {
      if (!packet->trimmable || !trim || !trim(*packet)) {
        ++e.down.overflowed;
        return record(Line::What::queue_full, *to, port, *packet);
      }
      ++e.down.trimmed;
      record(Line::What::trimmed, *to, port, *packet);
      packet->queue = kControlClass;
    }
    ++in_flight_;
    if (packet->queue == kControlClass) {
      e.control.push(std::move(packet));
    } else {
      e.data_bytes += packet->wire_length;
      e.data.push(std::move(packet));
    }
    drain(*to, port);
  }

  void drain(HostId to, PlanePort port) {
    End& e = end(to, port);
    if (e.sending || (e.control.empty() && e.data.empty())) return;
    const bool control = !e.control.empty();
    PacketPtr packet = (control ? e.control : e.data).pop();
    --in_flight_;
    if (!control) e.data_bytes -= packet->wire_length;
    e.sending = true;
    const Picoseconds done = now_ + wire_time(*packet, e.down.rate);
    push({.at = done, .kind = Event::Kind::drain, .host = to, .port = port});
    arrive(to, port, std::move(packet), done);
  }

  void arrive(HostId to, PlanePort port, PacketPtr packet, Picoseconds t) {
    End& e = end(to, port);
    through(e.down, e.down_random, to, port, std::move(packet), t + e.down.delay,
            [&](PacketPtr p, Picoseconds at) { carry(Event::Kind::deliver, to, port, std::move(p), at); });
  }

  void deliver(HostId host, PlanePort port, PacketPtr packet) {
    Nic& n = nic(host);
    record(Line::What::received, host, port, *packet);
    if (packet->corrupt) {
      ++n.fcs_drops;
      return;
    }
    packet->ingress = port;
    call(host, [&] { n.transport->on_packet(port, std::move(packet), now_); });
  }

  void record(Line::What what, HostId host, PlanePort port, const Packet& p) {
    transcript_.record(now_, what, host, port, p);
  }
  void note(Line::What what, HostId host, PlanePort port, std::uint32_t a, std::uint32_t b) {
    transcript_.note(now_, what, host, port, a, b);
  }

  BedOptions options_;
  PacketPool pool_;  // outlives everything that may hold a packet
  std::vector<std::unique_ptr<End>> ends_;
  std::vector<std::unique_ptr<Nic>> nics_;
  std::vector<Event> events_;
  Transcript transcript_;
  Picoseconds now_{}, last_deadline_ = kNever;
  std::uint64_t last_order_ = 0, last_id_ = 0, steps_ = 0, same_time_ = 0;
  std::size_t in_flight_ = 0, actions_ = 0;
};

}  // namespace loomnet::testbed
