// Sums over links and transports.
#include "engine/run_counters.hpp"

#include <algorithm>

namespace loomnet {

RunCounters run_counters(Network& network, std::span<const NodeId> hosts, std::optional<JobId> job) {
  RunCounters sum;
  sum.lost = network.lost_in_panels();
  for (LinkId link = 0; link < network.links(); ++link) {
    for (const bool forward : {true, false}) {
      sum.lost += network.half(link, forward).counters().dropped();
    }
  }
  Picoseconds payload{}, end{}, opened = kNever;
  for (const NodeId host : hosts) {
    const Nic& nic = network.nic(host);
    for (const auto& each : nic.clients().jobs()) {
      if (job && each->id != *job) continue;
      sum.payload += each->meter.bytes();
      sum.working |= each->meter.outstanding();
      sum.finished += each->meter.work().size();
      payload = std::max(payload, each->meter.last_payload());
      end = std::max(end, each->meter.last_end());
      if (each->meter.outstanding()) opened = std::min(opened, each->meter.opened());
    }
    sum.timeouts += nic.timeouts();
    for (const auto& transport : nic.transports()) {
      const TransportFigures figures = transport->figures();
      sum.retransmitted += figures.retransmitted;
      sum.readmitted += figures.readmitted;
      sum.paths_good += figures.paths_good;
      sum.paths_total += figures.paths_total;
    }
  }
  sum.quiet_since = std::max(payload, sum.working ? opened : end);
  return sum;
}

}  // namespace loomnet
