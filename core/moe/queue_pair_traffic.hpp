// Queue pairs of ranks that use the circuits between two servers. They use the electrical fabric ("wires") while the
// circuits are being patched, and where two servers have no circuit.
#pragma once

#include <functional>
#include <vector>

#include "moe/region_traffic.hpp"

namespace loomnet::moe {

// The sending end of a queue pair between two servers of a region. `number` chooses among parallel circuits.
struct LightQueuePair {
  std::uint32_t from = 0, to = 0;  // servers
  NodeId host = 0;
  QpNumber qp = 0;
  std::uint32_t number = 0;
  std::vector<PlanePaths> wires;  // by NIC port: paths by the electrical fabric
};

class QueuePairTraffic final : public RegionTraffic, public EventHandler {
 public:
  // `crossing`: the longest time that a packet is on a circuit. `drains`: true, queue pairs move to wires before their
  // circuits change, and the panel waits until the circuits are empty; false, they stay, and the panel loses the
  // packets that are on them. `drained` is called when circuits that were held are empty.
  QueuePairTraffic(Network& network, std::uint32_t servers, Picoseconds crossing, bool drains,
                   std::function<void(Picoseconds)> drained);

  void add(LightQueuePair pair);  // it begins by wires

  void set_optical_nics(std::vector<NicPort> nics) override { nics_ = std::move(nics); }
  void hold(std::span<const circuits::ServerPair> pairs, Picoseconds now) override;
  bool in_flight(std::span<const circuits::ServerPair> pairs) const override;
  Picoseconds drain_time() const override { return drains_ ? crossing_ : Picoseconds{}; }
  void release(std::span<const circuits::ServerPair> pairs, const circuits::PortMap& ports, Picoseconds now) override;
  void on_event(std::uint64_t what, Picoseconds now) override;

 private:
  struct Held {
    LightQueuePair pair;
    bool by_light = false;
  };
  std::vector<Held>& between(std::uint32_t from, std::uint32_t to) { return pairs_[std::size_t{from} * servers_ + to]; }
  void to_wires(Held& one, Picoseconds now);
  std::vector<PlanePort> ports_towards(std::uint32_t from, std::uint32_t to, const circuits::PortMap& ports) const;

  Network& network_;
  std::uint32_t servers_;
  Picoseconds crossing_;
  bool drains_;
  std::function<void(Picoseconds)> drained_;
  ObjectId id_;
  std::vector<NicPort> nics_;
  std::vector<std::vector<Held>> pairs_;  // by servers from * servers + to
  Picoseconds empty_at_{};
};

}  // namespace loomnet::moe
