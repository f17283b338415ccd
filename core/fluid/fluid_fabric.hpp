// A network whose transfers are fluid: each part of a queue pair is a flow on the route that its packets would
// take, and shares the links of that route max-min with the others. There are no packets, so no queues, no
// losses and no marks; what a transport does about these does not happen either.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/network.hpp"
#include "fluid/fluid_network.hpp"
#include "transport/flow_front.hpp"

namespace loomnet::fluid {

class FluidTransport;

// What stands around the payload on the wire.
struct Frames {
  std::uint32_t payload = 4096;   // bytes of a full packet's payload
  std::uint32_t overhead = 142;   // bytes of its headers, FCS, preamble and gap
  std::uint64_t wire_bytes(std::uint64_t length) const {
    return length + overhead * std::max<std::uint64_t>((length + payload - 1) / payload, 1);
  }
};

struct Route {
  bool whole = false;  // it reaches the host; else something on the way has no light or no route
  std::vector<LinkIndex> links;
  // From when the last byte has left the first link to when it has reached the host: propagation, and the last
  // packet once more on every further link.
  Picoseconds latency{};
};

// Links are those of the network, by the number of the half-link; rates and carrier follow the network's
// changes. Switches must run programs that can say where a frame goes (SwitchProgram::peek).
class FluidFabric final : private NetworkWatcher {
 public:
  // The network is built: nodes and links stay as they are. It does not run once its fabric is gone.
  explicit FluidFabric(Network& network);
  ~FluidFabric() override;
  FluidFabric(const FluidFabric&) = delete;

  // Transfers of this host's queue pairs over the transport of that name are fluid.
  void add_transport(NodeId host, const std::string& name, const Frames& frames);

  FluidNetwork& links() { return links_; }
  Network& network() { return network_; }
  Route route(NodeId host, PlanePort port, HostId destination, const FlowFront& front,
              const Frames& frames);
  FluidTransport* transport_of(HostId host, const std::string& name);

 private:
  void link_changed(LinkId link) override;
  void circuits_changed(NodeId panel) override;
  void tables_changed(NodeId node) override;
  void take_rate(std::uint32_t half);
  static constexpr std::size_t kMostNodes = 64;  // on a route: more are a loop

  Network& network_;
  FluidNetwork links_;
  std::vector<FluidTransport*> transports_;                       // owned by their NICs
  std::vector<std::vector<FluidTransport*>> by_node_;
  std::unordered_map<HostId, NodeId> hosts_;
};

}  // namespace loomnet::fluid
