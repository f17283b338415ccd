// Packet-hops per second of the virtual clock on one core: a permutation over a two-tier multi-plane
// Clos, lengths only. The floor within the same run is the bare event queue moving as many events.
//
//   virtual_hops_benchmark [transport=mrc|roce] [hosts_per_leaf=16] [megabytes=2]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "../cpp/engine/clos.hpp"
#include "engine/flow_traffic.hpp"
#include "transport/mrc/mrc_transport.hpp"
#include "transport/roce/roce_transport.hpp"

using namespace loomnet;

namespace {

double wall() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// As many events as the run had, over as many objects, with nothing behind them.
struct Bouncer : EventHandler {
  EventQueue* queue = nullptr;
  std::vector<ObjectId>* ids = nullptr;
  std::uint64_t left = 0;
  RandomStream random{1, 2, 3};
  void on_event(std::uint64_t, Picoseconds now) override {
    if (left == 0) return;
    --left;
    queue->schedule(now + Picoseconds{static_cast<std::int64_t>(random() & 0xfffff)},
                    (*ids)[random.below(static_cast<std::uint32_t>(ids->size()))]);
  }
};

double bare_events_per_second(std::uint64_t events, std::size_t pending) {
  EventQueue queue;
  Bouncer bouncer;
  std::vector<ObjectId> ids;
  for (std::size_t i = 0; i < pending; ++i) ids.push_back(queue.add(bouncer));
  bouncer.queue = &queue;
  bouncer.ids = &ids;
  bouncer.left = events;
  for (std::size_t i = 0; i < pending; ++i) queue.schedule({static_cast<std::int64_t>(i)}, ids[i]);
  const double begin = wall();
  queue.run_until(kNever);
  return static_cast<double>(queue.processed()) / (wall() - begin);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string transport = argc > 1 ? argv[1] : "mrc";
  const unsigned per_leaf = argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 16;
  const std::uint64_t bytes = (argc > 3 ? std::strtoull(argv[3], nullptr, 0) : 2) * 1'000'000;
  constexpr Picoseconds kRtt = microseconds(10);
  Network network(1, milliseconds(1));
  testing::ClosShape shape{.planes = 4, .leaves = 4, .spines = per_leaf, .hosts_per_leaf = per_leaf};
  for (LinkConfig* link : {&shape.host_link, &shape.fabric_link}) {
    const auto bdp = static_cast<std::uint32_t>(bytes_in(kRtt, link->rate));
    link->data_limit = bdp;
    link->control_limit = 2 * bdp;
    link->ecn_low = bdp / 5;
    link->ecn_high = bdp * 4 / 5;
    link->trim = true;
  }
  testing::Clos clos(network, shape);
  for (unsigned h = 0; h < shape.hosts(); ++h) {
    Nic& nic = network.nic(h);
    if (transport == "roce") {
      nic.set_transport(std::make_unique<RoceTransport>(nic.sink(), RoceOptions{.payload_mtu = 4096}));
    } else {
      nic.set_transport(
          std::make_unique<mrc::MrcTransport>(mrc::MrcOptions::sim(kRtt, shape.host_link.rate), nic.sink(), nic.ports()));
    }
  }
  FlowTraffic flows(network, false);
  for (unsigned h = 0; h < shape.hosts(); ++h) {
    const unsigned to = (h + shape.hosts() / 2 + 1) % shape.hosts();
    clos.connect(h, 100, to, 200, h);
    flows.add({.source = h, .destination = to, .qp = 100, .bytes = bytes, .message = 1 << 18, .depth = 4});
  }
  flows.start();
  const double begin = wall();
  while (!flows.done()) network.run_until(network.now() + microseconds(100));
  const double took = wall() - begin;
  std::uint64_t hops = 0, drops = 0;
  for (LinkId link = 0; link < network.links(); ++link) {
    for (const bool forward : {true, false}) {
      const LinkCounters& c = network.half(link, forward).counters();
      hops += c.packets;
      for (const auto d : c.drops) drops += d;
    }
  }
  const double rate = static_cast<double>(hops) / took;
  const double floor = bare_events_per_second(network.events().processed(), network.links() * 2);
  double last = 0;
  for (const FlowResult& r : flows.results()) last = std::max(last, r.end.seconds());
  std::printf("%s, %u hosts x 4 planes x 100 Gb/s, %llu B each: %llu packet-hops in %.3f s = %.2f M/s\n",
              transport.c_str(), shape.hosts(), static_cast<unsigned long long>(bytes),
              static_cast<unsigned long long>(hops), took, rate * 1e-6);
  std::printf("events per hop %.2f; bare event queue %.2f M events/s; ratio hops/events %.3f; "
              "drops %llu; goodput %.1f %% of 400 Gb/s\n",
              static_cast<double>(network.events().processed()) / static_cast<double>(hops), floor * 1e-6,
              rate / floor, static_cast<unsigned long long>(drops), bytes * 8 / last / 4e11 * 100);
  return 0;
}
