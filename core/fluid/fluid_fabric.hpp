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

// What stands around the payload on the wire, in bytes.
struct Frames {
  std::uint32_t payload = 4096;   // of a full packet
  std::uint32_t overhead = 142;   // its headers, FCS, preamble and gap
  std::uint32_t ack = 178;        // an acknowledgement, FCS, preamble and gap too
  std::uint32_t first = 0;        // more headers in the first packet of each part of a write
  std::uint32_t stream = 0;       // what stands before a write and takes the place of payload
  bool one_port = false;          // a queue pair sends by one port; else it cuts writes into a part for each
  std::uint32_t part = 1;         // a part of a write is a multiple of it, but for the last
  std::uint32_t align = 1;        // a packet's payload is padded to a multiple of it
  std::uint32_t immediate = 0;    // more in the last packet of each part of a write with an immediate value
  // Payload bytes of part `number` of a write that is cut into `parts`: an even share of whole units, what is left
  // over missing from the last parts.
  std::uint64_t part_bytes(std::uint64_t length, std::uint64_t parts, std::uint64_t number) const {
    const std::uint64_t even = (length + parts - 1) / parts, share = (even + part - 1) / part * part;
    return std::min(share, length - std::min(length, share * number));
  }
  // Of a part with so much payload.
  std::uint64_t wire_bytes(std::uint64_t length, bool with_immediate = false) const {
    length += stream;
    const std::uint64_t packets = std::max<std::uint64_t>((length + payload - 1) / payload, 1);
    return (length + align - 1) / align * align + packets * overhead + first + (with_immediate ? immediate : 0);
  }
  std::uint64_t full() const { return std::uint64_t{payload} + overhead; }
  // The last packet of such a part.
  std::uint64_t last_bytes(std::uint64_t length, bool with_immediate = false) const {
    length += stream;
    const std::uint64_t rest = length == 0 ? 0 : (length - 1) % payload + 1;
    return (rest + align - 1) / align * align + overhead + (length <= payload ? first : 0) +
           (with_immediate ? immediate : 0);
  }
};

struct Route {
  bool whole = false;  // it reaches the host; else something on the way has no light or no route
  std::vector<LinkIndex> links;
  Picoseconds delay{};                  // propagation, over all links
  std::vector<BitsPerSecond> rates;     // of the links at which a packet is clocked
  // What so many bytes take beyond their time on the narrowest link: propagation, and a packet once more on every
  // other link. Behind full packets a shorter one waits on the link after the narrowest until the last of them has
  // left; further on only where nothing else has come between them. `last`: of these bytes, the last packet.
  Picoseconds latency(std::uint64_t bytes, std::uint64_t last, const Frames& frames) const;
  // From then on to when the sender has the acknowledgement, which crosses as many links back.
  Picoseconds answer(std::uint64_t bytes) const;
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
  Route route(NodeId host, PlanePort port, HostId destination, const FlowFront& front);
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
