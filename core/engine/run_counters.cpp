// Sums over links and transports.
#include "engine/run_counters.hpp"

namespace loomnet {

RunCounters run_counters(Network& network, std::span<const NodeId> hosts) {
  RunCounters sum;
  for (LinkId link = 0; link < network.links(); ++link) {
    for (const bool forward : {true, false}) {
      for (const std::uint64_t drops : network.half(link, forward).counters().drops) sum.lost += drops;
    }
  }
  std::vector<TransportCounter> counters;
  for (const NodeId host : hosts) {
    sum.payload += network.nic(host).meter().bytes();
    sum.working |= network.nic(host).meter().outstanding();
    const Transport* transport = network.nic(host).transport();
    if (!transport) continue;
    counters.clear();
    transport->counters(counters);
    for (const TransportCounter& c : counters) {
      if (c.name == "retransmitted" || c.name == "data_retransmitted") sum.retransmitted += c.value;
      if (c.name == "ev_readmitted") sum.readmitted += c.value;
      if (c.name == "paths_good") sum.paths_good += c.value;
      if (c.name == "paths_total") sum.paths_total += c.value;
    }
  }
  return sum;
}

}  // namespace loomnet
