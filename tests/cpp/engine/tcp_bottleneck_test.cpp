// TCP on one bottleneck of the engine: 100 Mb/s, 20 ms of round trip, a buffer of one
// bandwidth-delay product (250 kB). What each congestion control makes of it: throughput, queue,
// shares.
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>

#include "engine/clos.hpp"
#include "traffic/flow_traffic.hpp"
#include "transport/tcp/tcp_transport.hpp"

namespace loomnet {
namespace {

using testing::Clos;
using testing::ClosShape;

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
  explicit Dumbbell(tcp::TcpOptions options, std::uint32_t buffer = kBdp, std::uint32_t mark_at = 0)
      : clos(network, shape(buffer, mark_at)), traffic(network, false) {
    for (NodeId h = 0; h < 4; ++h) {
      network.nic(h).set_transport(std::make_unique<tcp::TcpTransport>(network.nic(h).sink(), options));
    }
  }
  // Host `from` (0 or 2, on leaf 0) to the receiver beside it, for ever.
  void flow(NodeId from, Picoseconds start) {
    const QpNumber qp = 100 + from;
    clos.connect(from, qp, from + 1, qp + 50);
    traffic.add({.source = from,
                 .destination = from + 1,
                 .qp = qp,
                 .bytes = 1ull << 40,
                 .message = 1 << 20,
                 .depth = 8,
                 .start = start});
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

tcp::TcpOptions with(const std::string& control) {
  tcp::TcpOptions o;
  o.congestion_control = control;
  return o;
}

class EachControl : public ::testing::TestWithParam<const char*> {};

TEST_P(EachControl, FillsACleanPath) {
  Dumbbell bed(with(GetParam()), kBdp, std::string(GetParam()) == "dctcp" ? 65 * 1514 : 0);
  bed.flow(0, {});
  bed.network.run_until(seconds(10));
  const auto seen = bed.watch(seconds(30));
  EXPECT_GE(seen.utilisation, 0.95) << seen;
  EXPECT_LE(seen.utilisation, 1.0);
  EXPECT_EQ(bed.counter(0, "rto"), 0u);
}
INSTANTIATE_TEST_SUITE_P(Controls, EachControl, ::testing::Values("reno", "cubic", "dctcp", "bbr"),
                         [](const auto& info) { return std::string(info.param); });

TEST(TwoFlows, CubicConvergesToFairShares) {
  Dumbbell bed(with("cubic"));
  bed.two = true;
  bed.flow(0, {});
  bed.flow(2, seconds(5));
  bed.network.run_until(seconds(40));
  const auto seen = bed.watch(seconds(60));
  const double a = seen.rate[0], b = seen.rate[2];
  const double jain = (a + b) * (a + b) / (2 * (a * a + b * b));
  EXPECT_GE(jain, 0.95) << seen;
  EXPECT_GE(seen.utilisation, 0.95) << seen;
}

TEST(Dctcp, HoldsTheQueueNearK) {
  constexpr std::uint32_t kMark = 65 * 1514;  // RFC 8257 and the DCTCP paper: 65 packets at 10 Gb/s
  Dumbbell bed(with("dctcp"), 4 * kBdp, kMark);
  bed.two = true;
  bed.flow(0, {});
  bed.flow(2, seconds(1));
  bed.network.run_until(seconds(20));
  const auto seen = bed.watch(seconds(30));
  EXPECT_GE(seen.mean_queue, 0.5 * kMark);
  EXPECT_LE(seen.mean_queue, 1.2 * kMark);
  EXPECT_LE(seen.max_queue, 1.5 * kMark) << seen;
  EXPECT_GE(seen.utilisation, 0.97);
  EXPECT_EQ(bed.counter(0, "retransmitted"), 0u);
}

TEST(Bbr, KeepsTheQueueSmall) {
  Dumbbell bed(with("bbr"), 8 * kBdp);
  bed.flow(0, {});
  bed.network.run_until(seconds(2));
  const auto seen = bed.watch(seconds(30));
  // In flight are the bandwidth-delay product and three send quanta of 1 ms (the draft's 4.2.3.2),
  // so 37.5 kB stand in a buffer of 2 MB; one phase in eight asks for a quarter more for a round
  // trip.
  EXPECT_LE(seen.mean_queue, 0.25 * kBdp) << seen;
  EXPECT_LE(seen.max_queue, 0.6 * kBdp) << seen;
  EXPECT_GE(seen.utilisation, 0.95) << seen;
}

// The same deep buffer under CUBIC fills: the test above can fail.
TEST(Bbr, WhereCubicFillsTheBuffer) {
  Dumbbell bed(with("cubic"), 8 * kBdp);
  bed.flow(0, {});
  bed.network.run_until(seconds(10));
  const auto seen = bed.watch(seconds(30));
  EXPECT_GE(seen.mean_queue, kBdp) << seen;
}

// A run that ends while early segments wait for a hole: they are held, not leaked, and let go.
TEST(Conservation, ARunCutShortAccountsForSegmentsThatWait) {
  Dumbbell bed(with("cubic"), kBdp / 10);
  bed.flow(0, {});
  auto& receiver = *bed.network.nic(1).transport();
  while (receiver.held() == 0) {
    bed.network.run_until(bed.network.now() + microseconds(100));
    ASSERT_LT(bed.network.now(), seconds(10));
  }
  EXPECT_EQ(bed.network.pool().outstanding(), bed.network.held());
  EXPECT_GE(bed.network.held(), receiver.held());
  bed.network.clear();
  EXPECT_EQ(receiver.held(), 0u);
  EXPECT_EQ(bed.network.pool().outstanding(), 0u);
}

}  // namespace
}  // namespace loomnet
