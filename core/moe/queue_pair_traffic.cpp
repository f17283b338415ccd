#include "moe/queue_pair_traffic.hpp"

#include <algorithm>
#include <stdexcept>

namespace loomnet::moe {

QueuePairTraffic::QueuePairTraffic(Network& network, std::uint32_t servers, Picoseconds crossing, bool drains,
                                   std::function<void(Picoseconds)> drained)
    : network_(network),
      servers_(servers),
      crossing_(crossing),
      drains_(drains),
      drained_(std::move(drained)),
      id_(network.events().add(*this)),
      pairs_(std::size_t{servers} * servers) {}

void QueuePairTraffic::add(LightQueuePair pair) {
  if (pair.from >= servers_ || pair.to >= servers_ || pair.from == pair.to) {
    throw std::invalid_argument("region: a queue pair by light is between two of its servers");
  }
  between(pair.from, pair.to).push_back({std::move(pair), false});
}

void QueuePairTraffic::to_wires(Held& one, Picoseconds now) {
  if (!one.by_light) return;
  one.by_light = false;
  network_.nic(one.pair.host).set_paths(one.pair.qp, one.pair.wires, now);
}

void QueuePairTraffic::hold(std::span<const circuits::ServerPair> pairs, Picoseconds now) {
  if (!drains_) return;
  for (const auto& [a, b] : pairs) {
    for (Held& one : between(a, b)) to_wires(one, now);
    for (Held& one : between(b, a)) to_wires(one, now);
  }
  empty_at_ = now + crossing_;
  network_.events().schedule(empty_at_, id_);
}

bool QueuePairTraffic::in_flight(std::span<const circuits::ServerPair>) const { return network_.now() < empty_at_; }

void QueuePairTraffic::on_event(std::uint64_t, Picoseconds now) {
  if (now >= empty_at_) drained_(now);
}

// NIC ports of server `from` whose circuits lead to server `to`. Circuits are listed in the order of the lower server's
// ports, so that both ends list them alike.
std::vector<PlanePort> QueuePairTraffic::ports_towards(std::uint32_t from, std::uint32_t to,
                                                       const circuits::PortMap& ports) const {
  const std::uint32_t low = std::min(from, to), high = std::max(from, to);
  std::vector<PlanePort> found;
  for (std::uint32_t k = 0; k < ports.alpha; ++k) {
    const std::size_t port = std::size_t{low} * ports.alpha + k;
    const std::int32_t peer = ports.peer[port];
    if (peer == circuits::kNoPeer || static_cast<std::uint32_t>(peer) / ports.alpha != high) continue;
    found.push_back(nics_.at(from == low ? port : static_cast<std::size_t>(peer)).port);
  }
  return found;
}

void QueuePairTraffic::release(std::span<const circuits::ServerPair> pairs, const circuits::PortMap& ports,
                               Picoseconds now) {
  for (const auto& [a, b] : pairs) {
    for (const auto& [from, to] : {std::pair{a, b}, std::pair{b, a}}) {
      const std::vector<PlanePort> mine = ports_towards(from, to, ports);
      for (Held& one : between(from, to)) {
        if (mine.empty()) {
          to_wires(one, now);
          continue;
        }
        Nic& nic = network_.nic(one.pair.host);
        std::vector<PlanePaths> planes(nic.ports());
        planes.at(mine[one.pair.number % mine.size()]).uplinks = {0};
        nic.set_paths(one.pair.qp, std::move(planes), now);
        one.by_light = true;
      }
    }
  }
}

}  // namespace loomnet::moe
