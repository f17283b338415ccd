// Sums over links and transports.
#include "engine/run_counters.hpp"

namespace loomnet {

RunCounters run_counters(Network& network, std::span<const NodeId> hosts) {
  RunCounters sum;
  for (LinkId link = 0; link < network.links(); ++link) {
    for (const bool forward : {true, false}) {
      sum.lost += network.half(link, forward).counters().dropped();
    }
  }
  for (const NodeId host : hosts) {
    sum.payload += network.nic(host).meter().bytes();
    sum.working |= network.nic(host).meter().outstanding();
    const Transport* transport = network.nic(host).transport();
    if (!transport) continue;
    const TransportFigures figures = transport->figures();
    sum.retransmitted += figures.retransmitted;
    sum.readmitted += figures.readmitted;
    sum.paths_good += figures.paths_good;
    sum.paths_total += figures.paths_total;
  }
  return sum;
}

}  // namespace loomnet
