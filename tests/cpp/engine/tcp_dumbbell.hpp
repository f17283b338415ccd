// Two TCP flows over one bottleneck of the engine: 100 Mb/s, 20 ms of round trip, a buffer of one
// bandwidth-delay product (250 kB) unless told otherwise.
#pragma once

#include <algorithm>
#include <ostream>

#include "engine/clos.hpp"
#include "traffic/flow_traffic.hpp"
#include "transport/tcp/tcp_transport.hpp"

namespace loomnet::testing {

constexpr BitsPerSecond kRate = megabits(100);
constexpr Picoseconds kRtt = milliseconds(20);
constexpr std::uint32_t kBdp = 250'000;
// Stream bytes of a full segment per byte of link time: 1428 of 1514 + 24 (preamble, gap, FCS).
constexpr double kGoodputShare = 1428.0 / 1538.0;

// Two senders on one leaf, two receivers on another, one path between; the bottleneck is the
// uplink.
struct Dumbbell {
  static ClosShape shape(std::uint32_t buffer, std::uint32_t mark_at) {
    ClosShape s{.planes = 1, .leaves = 2, .spines = 1, .hosts_per_leaf = 2};
    s.host_link = {.rate = gigabits(1), .delay = microseconds(500)};
    s.fabric_link = {.rate = kRate, .delay = kRtt / 4 - microseconds(500)};
    s.fabric_link.data_limit = buffer;
    s.fabric_link.ecn_low = s.fabric_link.ecn_high = mark_at;
    return s;
  }
  explicit Dumbbell(const tcp::TcpOptions& options, std::uint32_t buffer = kBdp, std::uint32_t mark_at = 0)
      : Dumbbell(options, options, buffer, mark_at) {}
  // `second`: of the hosts of the second flow.
  Dumbbell(const tcp::TcpOptions& first, const tcp::TcpOptions& second, std::uint32_t buffer, std::uint32_t mark_at = 0)
      : clos(network, shape(buffer, mark_at)), traffic(network, false) {
    for (NodeId h = 0; h < 4; ++h) {
      network.nic(h).set_transport(std::make_unique<tcp::TcpTransport>(network.nic(h).sink(), h < 2 ? first : second));
    }
  }
  // Host `from` (0 or 2, on leaf 0) to the receiver beside it, for ever. One with a lifetime posts short writes.
  void flow(NodeId from, Picoseconds start, Picoseconds until = kNever) {
    const bool lives = until != kNever;
    const QpNumber qp = 100 + from;
    clos.connect(from, qp, from + 1, qp + 50);
    traffic.add({.source = from,
                 .destination = from + 1,
                 .qp = qp,
                 .bytes = 1ull << 40,
                 .message = lives ? 1u << 14 : 1u << 20,
                 .depth = lives ? 8 * kBdp >> 14 : 8,
                 .start = start,
                 .until = until});
    traffic.start();
  }
  tcp::Sender& sender(NodeId from) {
    return static_cast<tcp::TcpTransport*>(network.nic(from).transport())->sender(100 + from);
  }
  HalfLink& bottleneck() { return network.half(clos.fabric_link(0, 0, 0), true); }
  std::uint64_t counter(NodeId host, std::string_view name) {
    std::vector<TransportCounter> all;
    network.nic(host).transport()->counters(all);
    for (const auto& c : all) {
      if (c.name == name) return c.value;
    }
    throw std::out_of_range(std::string(name));
  }
  // Share of the link's time that full segments of acknowledged data took over the next `span`,
  // headers and framing included; queue: mean and largest, sampled every millisecond.
  struct Seen {
    double utilisation = 0, mean_queue = 0, max_queue = 0;
    std::array<double, 4> rate{};  // stream bits per second by sending host
  };
  friend std::ostream& operator<<(std::ostream& os, const Seen& s) {
    return os << "utilisation " << s.utilisation << ", queue mean " << s.mean_queue << " B, largest " << s.max_queue
              << " B, " << s.rate[0] / 1e6 << " and " << s.rate[2] / 1e6 << " Mb/s";
  }
  Seen watch(Picoseconds span) {
    std::array<std::uint64_t, 4> before{};
    for (NodeId h : {0u, 2u}) before[h] = has(h) ? sender(h).acked() : 0;
    Seen seen;
    const Picoseconds end = network.now() + span;
    int samples = 0;
    while (network.now() < end) {
      network.run_until(network.now() + milliseconds(1));
      const double queue = bottleneck().queued_bytes(network.now());
      seen.mean_queue += queue;
      seen.max_queue = std::max(seen.max_queue, queue);
      ++samples;
    }
    seen.mean_queue /= samples;
    for (NodeId h : {0u, 2u}) {
      if (has(h)) seen.rate[h] = 8.0 * static_cast<double>(sender(h).acked() - before[h]) / span.seconds();
    }
    seen.utilisation = (seen.rate[0] + seen.rate[2]) / (kGoodputShare * static_cast<double>(kRate.count));
    return seen;
  }
  bool has(NodeId h) const { return h == 0 || two; }
  bool two = false;

  Network network{1};
  Clos clos;
  FlowTraffic traffic;
};

inline tcp::TcpOptions with(const std::string& control) {
  tcp::TcpOptions o;
  o.congestion_control = control;
  return o;
}

}  // namespace loomnet::testing
