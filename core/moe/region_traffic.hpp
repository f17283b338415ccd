// The traffic between a region's servers that goes by circuits, as its controller holds and releases it.
#pragma once

#include <span>
#include <vector>

#include "circuits/nic_map.hpp"
#include "circuits/region_controller.hpp"
#include "engine/network.hpp"

namespace loomnet::moe {

// A NIC: a port of a host.
struct NicPort {
  NodeId host = 0;
  PlanePort port = 0;
};

class RegionTraffic {
 public:
  virtual ~RegionTraffic() = default;
  // NICs at the panel: entry i * alpha + k is optical NIC k of server i.
  virtual void set_optical_nics(std::vector<NicPort> nics) = 0;
  // As the functions of these names in circuits::RegionWorld.
  virtual void hold(std::span<const circuits::ServerPair> pairs, Picoseconds now) = 0;
  virtual bool in_flight(std::span<const circuits::ServerPair> pairs) const = 0;
  // How long it may take until circuits that are held are empty.
  virtual Picoseconds drain_time() const { return {}; }
  virtual void release(std::span<const circuits::ServerPair> pairs, const circuits::PortMap& ports,
                       Picoseconds now) = 0;
};

}  // namespace loomnet::moe
