// What the benchmarks of the virtual clock share: core time, the bare event queue as a floor, links
// and transports of a fabric, and what its links carried.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <vector>

#include "engine/network.hpp"
#include "transport/mrc/dscp.hpp"
#include "transport/mrc/mrc_transport.hpp"
#include "transport/roce/roce_transport.hpp"

namespace loomnet::testing {

// Seconds of this core: what the one thread used, whatever else the machine does.
inline double core_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// The floor: as many events as the run had, with as many pending, and nothing behind them.
struct Bouncer : EventHandler {
  EventQueue* queue = nullptr;
  std::vector<ObjectId>* ids = nullptr;
  std::uint64_t left = 0;
  RandomStream random{1, 2, 3};
  void on_event(std::uint64_t, Picoseconds now) override {
    if (left == 0) return;
    --left;
    queue->schedule(now + Picoseconds{static_cast<std::int64_t>(random() & 0x1fffff)},
                    (*ids)[random.below(static_cast<std::uint32_t>(ids->size()))]);
  }
};

inline double bare_events_per_second(std::uint64_t events, std::size_t pending) {
  EventQueue queue;
  Bouncer bouncer;
  std::vector<ObjectId> ids;
  for (std::size_t i = 0; i < pending; ++i) ids.push_back(queue.add(bouncer));
  bouncer.queue = &queue;
  bouncer.ids = &ids;
  bouncer.left = events;
  for (std::size_t i = 0; i < pending; ++i) queue.schedule({static_cast<std::int64_t>(i)}, ids[i]);
  const double begin = core_seconds();
  queue.run_until(kNever);
  return static_cast<double>(queue.processed()) / (core_seconds() - begin);
}

// Queues as MRC wants them, for one bandwidth-delay product: ECN, trimming, bounded control.
inline LinkConfig trimming(LinkConfig link, Picoseconds rtt) {
  const auto bdp = static_cast<std::uint32_t>(bytes_in(rtt, link.rate));
  link.data_limit = bdp;
  link.control_limit = 2 * bdp;
  link.ecn_low = bdp / 5;
  link.ecn_high = bdp * 4 / 5;
  link.trim = true;
  link.trim_dscp = mrc::dscp::kTrimmed;
  return link;
}

inline void set_mrc(Network& network, unsigned hosts, Picoseconds rtt, BitsPerSecond rate) {
  const mrc::MrcOptions options = mrc::MrcOptions::sim(rtt, rate);
  for (unsigned h = 0; h < hosts; ++h) {
    Nic& nic = network.nic(h);
    nic.set_transport(std::make_unique<mrc::MrcTransport>(options, nic.sink(), nic.ports()));
  }
}

inline void set_roce(Network& network, unsigned hosts, const roce::RoceOptions& options) {
  for (unsigned h = 0; h < hosts; ++h) {
    Nic& nic = network.nic(h);
    nic.set_transport(std::make_unique<roce::RoceTransport>(nic.sink(), options));
  }
}

struct Carried {
  std::uint64_t hops = 0, drops = 0;
};

inline Carried carried(Network& network) {
  Carried sum;
  for (LinkId link = 0; link < network.links(); ++link) {
    for (const bool forward : {true, false}) {
      const LinkCounters& c = network.half(link, forward).counters();
      sum.hops += c.packets;
      sum.drops += c.dropped();
    }
  }
  return sum;
}

}  // namespace loomnet::testing
