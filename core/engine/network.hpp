// A fabric in the engine: hosts, switches, panels and the links between them, on one event queue.
//
// The virtual clock calls run_until() freely. The live clock calls it up to the wall clock and moves
// packets in and out of the kernel through KernelGate and from_switch()/from_host().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "clock/event_queue.hpp"
#include "link/half_link.hpp"
#include "link/shared_buffer.hpp"
#include "nic/nic.hpp"
#include "switch/program.hpp"

namespace loomnet {

using NodeId = std::uint32_t;
using LinkId = std::uint32_t;

// Where packets go that leave the engine for a kernel-placed switch or a host's kernel.
class KernelGate : public HostKernel {
 public:
  virtual void to_switch(NodeId node, std::uint16_t port, PacketPtr packet, Picoseconds now) = 0;
};

struct Endpoint {
  NodeId node = 0;
  std::uint16_t port = 0;
};

// A change of one direction of a link; unset fields stay.
struct LinkChange {
  LinkId link = 0;
  bool forward = true;   // true: first end towards second
  bool backward = true;
  // Carrier, of both directions: a link that has lost one tells the other end, which stops as well.
  std::optional<bool> up;
  std::optional<BitsPerSecond> rate;
  std::optional<double> queue_share;  // of the configured limits and marking thresholds
  std::optional<Picoseconds> delay;
  std::optional<Impairment> impairment;
};

struct SwitchOptions {
  std::uint64_t buffer_bytes = 0;  // shared packet buffer; 0: each port its own limits only
  double buffer_alpha = 1.0;
  // Its ports may be under PFC: links that end here with LinkConfig::pfc. They reserve their part of
  // the buffer, if that is limited.
  bool pfc = false;
};

class Network {
 public:
  explicit Network(std::uint64_t seed, Picoseconds meter_bin = milliseconds(1),
                   std::size_t meter_bins = 1 << 20);
  ~Network();
  Network(const Network&) = delete;

  // --- building -------------------------------------------------------------------------------
  // `identity` is its address and what its random streams are keyed by: the node's own number unless
  // the fabric is built in part.
  NodeId add_host(std::size_t ports, std::optional<HostId> identity = {});
  // A switch that the engine runs. Null program: the switch is placed in the kernel, and its
  // packets go through the gate.
  NodeId add_switch(std::size_t ports, std::unique_ptr<SwitchProgram> program,
                    const SwitchOptions& options = {});
  // Glass: ports are cross-connected in pairs, -1 for none; egress links must have rate 0.
  NodeId add_panel(std::vector<std::int32_t> circuits);
  LinkId connect(Endpoint a, Endpoint b, const LinkConfig& forward, const LinkConfig& backward,
                 std::uint64_t stream = 0);  // of a->b; the other direction's is one more
  void set_gate(KernelGate* gate);
  // Tells `tap` (null: nobody) from now on of NICs, switches and operations, and of all links or of
  // those given to watch().
  void set_tap(Tap* tap, bool all_links);
  Tap* tap() const { return tap_; }
  void watch(LinkId link) {
    half(link, true).watch(tap_, 2 * link);
    half(link, false).watch(tap_, 2 * link + 1);
  }

  // --- control --------------------------------------------------------------------------------
  void apply(const LinkChange& change);                   // now
  void schedule(Picoseconds at, const LinkChange& change);
  void schedule(Picoseconds at, NodeId node, std::shared_ptr<const TableBatch> tables);
  void set_circuits(NodeId panel, std::vector<std::int32_t> circuits);

  // --- packets from the kernel ------------------------------------------------------------------
  // A kernel-placed switch sent `packet` out of `port`. Timed by packet->ideal, not by now.
  void from_switch(NodeId node, std::uint16_t port, PacketPtr packet);
  // A frame of a host's kernel.
  void from_host(NodeId host, PlanePort port, PacketPtr packet, Picoseconds now);
  // Puts raw bytes on a link towards `to`, as a faulty device would (tests of robustness).
  void inject(Endpoint to, std::span<const std::uint8_t> frame);

  // --- running ----------------------------------------------------------------------------------
  bool run_until(Picoseconds end, std::uint64_t most_events = ~0ull) {
    return events_.run_until(end, most_events);
  }
  Picoseconds now() const { return events_.now(); }
  // For jobs whose hosts hear of one another by packets alone, and of nothing in between (flows that
  // run by themselves): each node's events of as long a window as the shortest link has delay are
  // served together, unless somebody watches packets (set_tap), who sees them in order of time.
  // Results are the same. A run that is stopped ends with its window.
  void use_lookahead();
  static Domain domain(NodeId node) { return node + 1; }

  // --- looking ----------------------------------------------------------------------------------
  std::uint64_t seed() const { return seed_; }
  EventQueue& events() { return events_; }
  PacketPool& pool() { return pool_; }
  std::size_t nodes() const { return nodes_.size(); }
  std::size_t links() const { return links_.size() / 2; }
  bool is_host(NodeId node) const { return nodes_.at(node).nic != nullptr; }
  Nic& nic(NodeId host);
  SwitchProgram* program(NodeId node) { return nodes_.at(node).program.get(); }
  bool in_kernel(NodeId node) const { return nodes_.at(node).kernel; }
  HalfLink& half(LinkId link, bool forward) { return *links_.at(2 * link + (forward ? 0 : 1)); }
  HalfLink* egress(NodeId node, std::uint16_t port) { return nodes_.at(node).egress.at(port); }
  std::size_t ports(NodeId node) const { return nodes_.at(node).egress.size(); }
  // Number of the half-link that leaves here, as watch() gives it: 2 * link, or one more backward.
  std::uint32_t egress_half(NodeId node, std::uint16_t port) const {
    return nodes_.at(node).halves.at(port);
  }
  // PFC of a switch; null where it has none.
  PauseControl* pauses(NodeId node) {
    return nodes_.at(node).buffer ? nodes_[node].buffer->pauses() : nullptr;
  }
  // Circles of links that paused one another found so far; each counts once while it lasts.
  std::uint64_t pfc_deadlocks() const { return pfc_deadlocks_; }
  std::pair<Endpoint, Endpoint> ends(LinkId link) const { return ends_.at(link); }
  // Packets a switch sent out of a port that has no link.
  std::uint64_t unconnected() const { return unconnected_; }
  // Packets that some model holds now; pool().outstanding() minus this leaked (or is in the kernel).
  std::size_t held() const;
  // Ends the run: lets go of every packet the models hold.
  void clear();

 private:
  class SwitchNode;
  class KernelNode;
  class PanelNode;
  class Timetable;
  class PauseWatch;
  struct Node {
    std::unique_ptr<Nic> nic;
    std::unique_ptr<SwitchProgram> program;
    std::unique_ptr<SharedBuffer> buffer;
    std::unique_ptr<LinkReceiver> receiver;  // null for a host: its NIC is the receiver
    std::vector<HalfLink*> egress;
    std::vector<std::uint32_t> halves;  // by port, as egress
    std::unique_ptr<PauseWatch> watch;  // where there is PFC
    bool kernel = false;
  };
  LinkReceiver& receiver(NodeId node);
  void guard(Endpoint to, const LinkConfig& forward, const LinkConfig& backward);
  void on_stuck(NodeId node, std::uint16_t port);
  void notify(Endpoint end, bool up, Picoseconds now);
  void shorten_lookahead(Picoseconds delay);

  std::uint64_t seed_;
  Picoseconds meter_bin_;
  std::size_t meter_bins_;
  EventQueue events_;
  PacketPool pool_;
  KernelGate* gate_ = nullptr;
  Tap* tap_ = nullptr;
  bool watch_all_ = false;
  std::uint64_t unconnected_ = 0;
  std::uint64_t pfc_deadlocks_ = 0;
  std::vector<std::uint32_t> in_deadlock_;  // half-links of circles that have been counted
  std::vector<Node> nodes_;
  std::vector<std::unique_ptr<HalfLink>> links_;
  std::vector<std::pair<Endpoint, Endpoint>> ends_;
  std::unique_ptr<Timetable> timetable_;
};

}  // namespace loomnet
