// Everything of a run that the kernel holds: the veths between the engine and its kernel-placed
// nodes, their AF_XDP sockets and UMEMs, the XDP switches. Built in batches, torn down in parallel.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "engine/network.hpp"
#include "live/engine_endpoint.hpp"
#include "live/kernel_panel.hpp"
#include "live/netlink.hpp"
#include "live/umem.hpp"
#include "live/xdp_switch.hpp"
#include "live/xsk.hpp"

namespace loomnet {

enum class PortKind : std::uint8_t {
  xdp_switch,    // the uid comes back as source MAC: every packet is accounted for
  xdp_panel,     // the same, but that the packet comes back as it was: source MAC too
  other_switch,  // Open vSwitch, Linux: what comes back is a new packet, lateness is per hop
  host,          // a host's kernel
};

// One veth: `interface` in the node's namespace, its peer with the engine.
struct LivePort {
  NodeId node = 0;
  std::uint16_t port = 0;
  PortKind kind = PortKind::xdp_switch;
  const Netns* netns = nullptr;
  std::string interface;
  MacAddress mac{};  // of `interface`; all zero: the kernel's choice
};

struct LiveSwitch {
  NodeId node = 0;
  const Netns* netns = nullptr;
  std::string program = "forward";
  std::uint64_t seed = 0;  // as ProgramSettings::seed
  ProgramOptions options;
  std::shared_ptr<const TableBatch> tables;  // null: none yet, everything is dropped and counted
};

// A host's veth whose other end is the panel's: no frame of it passes the engine.
struct LiveFibre {
  NodeId host = 0;
  std::uint16_t port = 0;  // of the host
  const Netns* netns = nullptr;
  std::string interface;  // in the host's namespace
  MacAddress mac{};
};

// Of the interface that is a host's port.
struct CarrierChange {
  NodeId node = 0;
  std::uint16_t port = 0;
  bool up = false;
};

struct LivePanel {
  NodeId node = 0;
  const Netns* netns = nullptr;
  std::size_t ports = 0;
  PanelHook hook = PanelHook::xdp;  // its interfaces are those of the LivePorts, from port 0 on
  std::vector<LiveFibre> fibres;    // with PanelHook::tc its interfaces, by port
};

struct LiveFabricConfig {
  std::uint32_t mtu = 3400;  // of all veths; native XDP allows 3,506
  std::size_t sockets_per_umem = 64;
  std::uint32_t frames_per_umem = kMaxUmemFrames;
  XskConfig xsk;
};

class LiveFabric {
 public:
  // Ports of an XDP switch are those of its node, numbered from 0 without gaps. The namespaces must
  // outlive the fabric. Throws LiveError or std::invalid_argument; nothing is left behind then.
  LiveFabric(std::vector<LivePort> ports, const std::vector<LiveSwitch>& switches, const LiveFabricConfig& config = {},
             const std::vector<LivePanel>& panels = {});
  ~LiveFabric();
  LiveFabric(const LiveFabric&) = delete;
  LiveFabric& operator=(const LiveFabric&) = delete;

  // Idempotent; the destructor calls it. Returns when every interface is gone.
  void close();

  const std::vector<LivePort>& ports() const { return ports_; }
  XskSocket& socket(std::size_t port) { return *sockets_[port]; }
  FrameArena& frames() { return arena_; }
  XdpSwitch& xdp_switch(std::size_t i) { return *switches_[i].program; }
  XdpSwitch* switch_of(NodeId node);  // null: not an XDP switch

  KernelPanel* panel_of(NodeId node);        // null: not a panel in the kernel

  // Publishes a batch on an XDP switch, or lets it reboot; any thread but the loop's. Throws
  // std::invalid_argument for a node that is no XDP switch.
  void set_tables(NodeId node, const TableBatch& batch);
  void reset(NodeId node);
  StateSnapshot snapshot(NodeId node);
  // XdpProgram::set_clock of every switch.
  void set_clock(std::int64_t wall, Picoseconds emulated, double dilation);
  EngineEndpoint& endpoint() { return *endpoint_; }
  XdpReports& reports() { return reports_; }
  // Carriers of nodes' interfaces: takes their other ends down or up, the engine's or those of panels by tc, with
  // one batch of requests for each namespace. Any thread but the loop's. Throws LiveError.
  void set_carriers(std::span<const CarrierChange> changes);
  void set_carrier(std::size_t port, bool up) {
    const CarrierChange change{ports_[port].node, ports_[port].port, up};
    set_carriers({&change, 1});
  }
  const std::vector<LivePanel>& tc_panels() const { return tc_panels_; }
  bool has_fibre(NodeId host, std::uint16_t port) const;
  // Checks the ends of XDP panels' veths. Native XDP into a veth loses every frame unless the veth's other end has
  // a program too or GRO on. The kernel also drops redirected frames that it still has to cut into segments, and
  // receivers drop those whose checksum it has not yet filled in. Throws
  // std::runtime_error, one line, where a panel's neighbours are not as it needs them.
  void check_panels();

  // Packets lost between the engine and one port's node, as sockets and veths count them:
  // index = port. For the conservation of a run, not for the loop.
  struct PortLosses {
    XskStatistics xsk;
    std::uint64_t engine_end_dropped = 0;  // veth counters of the engine's end …
    std::uint64_t node_end_dropped = 0;    // … and of the node's
    // The same loss may stand in several counters; these count it once.
    std::uint64_t from_node() const { return std::max(xsk.drops(), engine_end_dropped); }
    std::uint64_t to_node() const { return node_end_dropped; }
    std::uint64_t total() const { return from_node() + to_node(); }
  };
  std::vector<PortLosses> losses();
  // "h0's eth0"
  std::string port_name(std::size_t port) const { return ports_[port].netns->label() + "'s " + ports_[port].interface; }

 private:
  struct Switch {
    NodeId node;
    std::unique_ptr<XdpSwitch> program;
  };
  struct Group {
    std::unique_ptr<Umem> umem;
    std::vector<std::unique_ptr<XskSocket>> sockets;
  };
  std::string engine_name(std::size_t port) const { return "ln-e" + std::to_string(port); }
  void create_links(const LiveFabricConfig& config);
  void create_fibres();
  void open_sockets(const LiveFabricConfig& config);
  void attach_panels(const std::vector<LivePanel>& panels);
  std::vector<std::string> interfaces_of(NodeId node, const std::string& name) const;
  void attach_switches(const std::vector<LiveSwitch>& switches);
  XdpProgram& program_of(NodeId node);

  std::vector<LivePort> ports_;
  Netns netns_;
  FrameArena arena_;
  XdpReports reports_;
  std::unique_ptr<EngineEndpoint> endpoint_;
  std::vector<Group> groups_;
  std::vector<XskSocket*> sockets_;  // index = port
  std::vector<Switch> switches_;
  std::vector<std::pair<NodeId, std::unique_ptr<KernelPanel>>> panels_;
  std::vector<LivePanel> tc_panels_;
  std::mutex carriers_guard_;
  std::unique_ptr<Rtnetlink> carriers_;  // kept: a change of circuits may change many
  std::map<NodeId, std::unique_ptr<Rtnetlink>> fibre_carriers_;  // by panel
  bool links_made_ = false, fibres_made_ = false;
};

}  // namespace loomnet
