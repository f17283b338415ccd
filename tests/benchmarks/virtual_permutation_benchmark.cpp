// A permutation on the virtual clock, simulation only: every host writes 2 MB to another, 100 Gb/s
// per host, 4 KB packets, over a two-tier Clos of four planes (4 x 25 Gb/s) and a three-tier fat
// tree. MRC sprays over all paths with trimming switches; RoCE goes by ECMP over queues without a
// limit (the stand-in for a lossless class), 256 KB unacknowledged. Building the fabric is not
// timed; all times are seconds of the core, so that other work on the machine counts as little as
// it can.
//
// by_time:0 serves each node's events of a window together (Network::use_lookahead), as a run of
// flows does; by_time:1 all in the order of time, as a run does that is traced, with the same
// results.
//
// Where the time goes (two tiers, 1,024 hosts, MRC, share of samples): links 40 %, transport 34 %,
// event queue 15 %, switches 4 %, NIC 3 %. A hop is one event (1.17 to 1.28 with the NICs' own
// wake-ups). Of the run alone callgrind counts, per hop on three tiers at 64 hosts, 1,630
// instructions of MRC and 1,350 of RoCE.
//
// The floor. At 64 hosts nearly all state fits in 2 MB of L2 and instructions decide. At 1,024
// hosts each hop meets memory last touched a flight time ago, several contents of the L2 ago: with
// an L2 of 2 MB callgrind counts 24 lines per MRC hop (two tiers) in the order of time, of which
// some ten are the hosts' transports, and 16 by nodes, where a host's packets of one window find
// its transport as the first has left it. A miss to L3 cost 200 ns alone and 12 ns among many on
// the machine this was written on (a shared virtual one), hence the fetching ahead
// (EventHandler::prepare), without which MRC takes up to 1.4 times as long. By nodes was 1.45 times
// as fast as by time with MRC on three tiers, 1.1 to 1.2 on two (a link of 25 Gb/s carries one
// packet or two in a window, one of 100 Gb/s six), RoCE 1.2 to 1.4.
//
// What did not help there: link-time optimisation; queues that hold lengths beside packets, so that
// none is touched while it waits (as many lines, in other places); a fourth stage of fetching
// ahead, for the queues of the next hop; serving a leaf right after its hosts. What is left: fewer
// lines of a host's transport and of a link per packet; windows on several cores; and large pages:
// the whole heap on them (GLIBC_TUNABLES=glibc.malloc.hugetlb=1) took some 5 to 15 % off.
#include <benchmark/benchmark.h>
#include <malloc.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <numeric>

#include "../cpp/engine/clos.hpp"
#include "fat_tree.hpp"
#include "traffic/flow_traffic.hpp"
#include "virtual_clock.hpp"

namespace loomnet {
namespace {

enum Fabric : int { kTwoTier, kThreeTier };
enum Kind : int { kMrc, kRoce };
constexpr std::uint64_t kBytes = 2'000'000;
constexpr Picoseconds kRtt = microseconds(12);

double heap_bytes() {
  const struct mallinfo2 m = mallinfo2();
  return static_cast<double>(m.uordblks + m.hblkhd);
}

double resident_bytes() {
  unsigned long size = 0, resident = 0;
  if (std::FILE* f = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(f, "%lu %lu", &size, &resident) != 2) resident = 0;
    std::fclose(f);
  }
  return static_cast<double>(resident) * 4096;
}

// Every host another one's source and another one's destination, never its own.
std::vector<unsigned> derangement(unsigned hosts) {
  std::vector<unsigned> to(hosts);
  std::iota(to.begin(), to.end(), 0u);
  RandomStream random(1, hosts, 0x7065726d);
  for (unsigned i = hosts - 1; i > 0; --i) std::swap(to[i], to[random.below(i)]);  // Sattolo: one cycle
  return to;
}

class World {
 public:
  World(Fabric fabric, Kind kind, unsigned hosts, bool host_routes) : network_(1, milliseconds(1)), hosts_(hosts) {
    const BitsPerSecond rate = fabric == kTwoTier ? gigabits(25) : gigabits(100);
    const unsigned planes = fabric == kTwoTier ? 4 : 1;
    LinkConfig link{.rate = rate, .delay = microseconds(1)};
    const LinkConfig up = link;
    if (kind == kMrc) link = testing::trimming(link, kRtt);
    LinkConfig down = link;
    down.last_hop = true;
    down.trim_dscp = mrc::dscp::kTrimmedLastHop;
    down.ecn_low = down.ecn_high = 0;
    unsigned side = 1;  // leaves, spines and hosts per leaf alike; of a fat tree: k = 2 * side
    if (fabric == kTwoTier) {
      while (side * side < hosts) side *= 2;
      testing::ClosShape shape{.planes = planes, .leaves = hosts / side, .spines = side, .hosts_per_leaf = side};
      shape.host_link = shape.fabric_link = link;
      shape.host_routes = host_routes;
      auto clos = std::make_shared<testing::Clos>(network_, shape);
      connect_ = [clos](unsigned a, QpNumber qa, unsigned b, QpNumber qb) { clos->connect(a, qa, b, qb, a); };
    } else {
      while (2 * side * side * side < hosts) side *= 2;
      auto tree = std::make_shared<testing::FatTree>(network_, 2 * side, up, link, down);
      connect_ = [tree](unsigned a, QpNumber qa, unsigned b, QpNumber qb) { tree->connect(a, qa, b, qb, a); };
    }
    if (kind == kMrc) {
      testing::set_mrc(network_, hosts, kRtt, rate);
    } else {
      testing::set_roce(network_, hosts, {.payload_mtu = 4096, .in_flight_limit = 256'000 / planes});
    }
  }

  Network& network() { return network_; }
  void connect(unsigned a, QpNumber qa, unsigned b, QpNumber qb) { connect_(a, qa, b, qb); }
  // A flow of 2 MB from every host, over a queue pair of its own.
  void add_permutation(FlowTraffic& flows) {
    const std::vector<unsigned> to = derangement(hosts_);
    for (unsigned h = 0; h < hosts_; ++h) {
      connect(h, 100, to[h], 200);
      flows.add({.source = h, .destination = to[h], .qp = 100, .bytes = kBytes, .message = 1 << 18, .depth = 8});
    }
  }

 private:
  Network network_;
  unsigned hosts_;
  std::function<void(unsigned, QpNumber, unsigned, QpNumber)> connect_;
};

void permutation(benchmark::State& state) {
  const auto fabric = static_cast<Fabric>(state.range(0));
  const auto kind = static_cast<Kind>(state.range(1));
  const auto hosts = static_cast<unsigned>(state.range(2));
  const bool by_time = state.range(3);
  double hops = 0, took = 0, events = 0, drops = 0, finish = 0, heap = 0, pending = 0, samples = 0;
  for (auto _ : state) {
    World world(fabric, kind, hosts, kind == kRoce);
    Network& network = world.network();
    const double before = heap_bytes();
    FlowTraffic flows(network, false);
    world.add_permutation(flows);
    flows.start();
    network.use_lookahead();
    if (by_time) network.events().set_lookahead(network.events().lookahead(), false);
    const double begin = testing::core_seconds();
    while (!flows.done()) {
      network.run_until(network.now() + microseconds(10));
      pending += static_cast<double>(network.events().pending());
      ++samples;
    }
    const double seconds = testing::core_seconds() - begin;
    state.SetIterationTime(seconds);
    took += seconds;
    heap += heap_bytes() - before;
    const testing::Carried carried = testing::carried(network);
    hops += static_cast<double>(carried.hops);
    drops += static_cast<double>(carried.drops);
    events += static_cast<double>(network.events().processed());
    for (const FlowResult& r : flows.results()) finish = std::max(finish, r.end.seconds());
  }
  const double runs = static_cast<double>(state.iterations());
  const double floor = testing::bare_events_per_second(static_cast<std::uint64_t>(events / runs),
                                                       static_cast<std::size_t>(pending / samples));
  state.counters["Mhops/s"] = hops / took * 1e-6;
  state.counters["hops"] = hops / runs;
  state.counters["events_per_hop"] = events / hops;
  state.counters["of_bare_queue"] = hops / took / floor;
  state.counters["bytes_per_flow"] = heap / runs / hosts;
  state.counters["drops"] = drops / runs;
  state.counters["emulated_us"] = finish * 1e6;
}
BENCHMARK(permutation)
    ->ArgNames({"tiers3", "roce", "hosts", "by_time"})
    ->ArgsProduct({{kTwoTier, kThreeTier}, {kMrc, kRoce}, {64, 1024}, {false, true}})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

// Heap that idle queue pairs take, each to a peer of its own.
void idle_queue_pairs(benchmark::State& state) {
  const auto kind = static_cast<Kind>(state.range(0));
  double bytes = 0;
  constexpr unsigned kHosts = 64;
  for (auto _ : state) {
    World world(kTwoTier, kind, kHosts, false);
    const double before = heap_bytes();
    for (unsigned a = 0; a < kHosts; ++a) {
      for (unsigned b = 0; b < a; ++b) world.connect(a, 100 + b, b, 100 + a);
    }
    bytes = (heap_bytes() - before) / (kHosts * (kHosts - 1));
  }
  state.counters["bytes_per_qp"] = bytes;
}
BENCHMARK(idle_queue_pairs)->ArgName("roce")->Arg(kMrc)->Arg(kRoce)->Iterations(1)->Unit(benchmark::kMillisecond);

// 16,384 hosts on four planes, a queue pair each way per host, the first 10 us of the permutation.
void large_fabric(benchmark::State& state) {
  const auto kind = static_cast<Kind>(state.range(0));
  constexpr unsigned kHosts = 16'384;
  double resident = 0, hops = 0, took = 0;
  for (auto _ : state) {
    malloc_trim(0);
    const double before = resident_bytes();
    World world(kTwoTier, kind, kHosts, kind == kRoce);
    FlowTraffic flows(world.network(), false);
    world.add_permutation(flows);
    flows.start();
    const double begin = testing::core_seconds();
    world.network().run_until(microseconds(10));
    took += testing::core_seconds() - begin;
    hops += static_cast<double>(testing::carried(world.network()).hops);
    resident = resident_bytes() - before;
  }
  state.counters["resident_MB"] = resident * 1e-6;
  state.counters["Mhops/s"] = hops / took * 1e-6;
}
BENCHMARK(large_fabric)->ArgName("roce")->Arg(kMrc)->Arg(kRoce)->Iterations(1)->Unit(benchmark::kSecond);

}  // namespace
}  // namespace loomnet

BENCHMARK_MAIN();
