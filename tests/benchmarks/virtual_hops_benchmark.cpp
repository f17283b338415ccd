// Packet-hops per second of the virtual clock on one core: a permutation over a two-tier multi-plane
// Clos, lengths only. The floor within the same run is the bare event queue moving as many events.
//
//   virtual_hops_benchmark [transport=mrc|roce] [hosts_per_leaf=16] [megabytes=2]
#include <cstdio>
#include <cstdlib>
#include <string>

#include "../cpp/engine/clos.hpp"
#include "traffic/flow_traffic.hpp"
#include "virtual_clock.hpp"

using namespace loomnet;

int main(int argc, char** argv) {
  const std::string transport = argc > 1 ? argv[1] : "mrc";
  const unsigned per_leaf = argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 16;
  const std::uint64_t bytes = (argc > 3 ? std::strtoull(argv[3], nullptr, 0) : 2) * 1'000'000;
  constexpr Picoseconds kRtt = microseconds(10);
  Network network(1, milliseconds(1));
  testing::ClosShape shape{.planes = 4, .leaves = 4, .spines = per_leaf, .hosts_per_leaf = per_leaf};
  shape.host_link = testing::trimming(shape.host_link, kRtt);
  shape.fabric_link = testing::trimming(shape.fabric_link, kRtt);
  testing::Clos clos(network, shape);
  if (transport == "roce") {
    testing::set_roce(network, shape.hosts(), {.payload_mtu = 4096});
  } else {
    testing::set_mrc(network, shape.hosts(), kRtt, shape.host_link.rate);
  }
  FlowTraffic flows(network, false);
  for (unsigned h = 0; h < shape.hosts(); ++h) {
    const unsigned to = (h + shape.hosts() / 2 + 1) % shape.hosts();
    clos.connect(h, 100, to, 200, h);
    flows.add({.source = h, .destination = to, .qp = 100, .bytes = bytes, .message = 1 << 18, .depth = 4});
  }
  flows.start();
  const double begin = testing::core_seconds();
  while (!flows.done()) network.run_until(network.now() + microseconds(100));
  const double took = testing::core_seconds() - begin;
  const auto [hops, drops] = testing::carried(network);
  const double rate = static_cast<double>(hops) / took;
  const double floor = testing::bare_events_per_second(network.events().processed(), network.links() * 2);
  double last = 0;
  for (const FlowResult& r : flows.results()) last = std::max(last, r.end.seconds());
  std::printf("%s, %u hosts x 4 planes x 100 Gb/s, %llu B each: %llu packet-hops in %.3f s = %.2f M/s\n",
              transport.c_str(), shape.hosts(), static_cast<unsigned long long>(bytes),
              static_cast<unsigned long long>(hops), took, rate * 1e-6);
  std::printf(
      "events per hop %.2f; bare event queue %.2f M events/s; ratio hops/events %.3f; "
      "drops %llu; goodput %.1f %% of 400 Gb/s\n",
      static_cast<double>(network.events().processed()) / static_cast<double>(hops), floor * 1e-6, rate / floor,
      static_cast<unsigned long long>(drops), bytes * 8 / last / 4e11 * 100);
  return 0;
}
