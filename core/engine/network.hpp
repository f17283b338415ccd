// A fabric in the engine: hosts, switches, panels and the links between them, on one event queue.
//
// The virtual clock calls run_until() freely. The live clock calls it up to the wall clock and moves
// packets in and out of the kernel through KernelGate and from_switch()/from_host().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "clock/event_queue.hpp"
#include "engine/link_change.hpp"
#include "engine/network_watcher.hpp"
#include "engine/nodes/panel_node.hpp"
#include "engine/nodes/shared.hpp"
#include "engine/panel_clock.hpp"
#include "engine/pause_watch.hpp"
#include "engine/planned_changes.hpp"
#include "link/half_link.hpp"
#include "link/shared_buffer.hpp"
#include "nic/nic.hpp"
#include "switch/program.hpp"

namespace loomnet {

struct Endpoint {
  NodeId node = 0;
  std::uint16_t port = 0;
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
  explicit Network(std::uint64_t seed, Picoseconds meter_bin = milliseconds(1), std::size_t meter_bins = 1 << 20);
  ~Network();
  Network(const Network&) = delete;

  // --- building -------------------------------------------------------------------------------
  // `identity` is its address and what its random streams are keyed by: the node's own number unless
  // the fabric is built in part.
  NodeId add_host(std::size_t ports, std::optional<HostId> identity = {});
  // A switch that the engine runs. Null program: the switch is placed in the kernel, and its
  // packets go through the gate; `hooks`, its program too, then has the egress hooks of its ports.
  NodeId add_switch(std::size_t ports, std::unique_ptr<SwitchProgram> program, const SwitchOptions& options = {},
                    std::unique_ptr<SwitchProgram> hooks = {});
  // Glass: egress links must have rate 0. `circuits`: what was patched long before the run, as
  // set_circuits() takes it. A host's port that is linked to a panel has carrier as the device's rule
  // says, and while the links that its light takes are up.
  NodeId add_panel(const std::vector<std::int32_t>& circuits,
                   const panel::DeviceOptions& options = {.profile = panel::profile("ideal")}, bool kernel = false);
  // Writes the tables of panels in the kernel anew, once the live clock runs, by whose time they are.
  void publish_panels();
  LinkId connect(Endpoint a, Endpoint b, const std::shared_ptr<const LinkConfig>& forward,
                 const std::shared_ptr<const LinkConfig>& backward, std::uint64_t stream = 0);
  LinkId connect(Endpoint a, Endpoint b, const LinkConfig& forward, const LinkConfig& backward,
                 std::uint64_t stream = 0);  // of a->b; the other direction's is one more
  void set_gate(KernelGate* gate);
  // From now on `tap` (null: none) records NICs, switches and operations, and all links or those given
  // to watch().
  void set_tap(Tap* tap, bool all_links);
  Tap* tap() const { return shared_.tap; }
  // Payload that the queues of all links drop from now on.
  void count_losses(QueueLosses* losses);
  void watch(LinkId link) {
    half(link, true).watch(shared_.tap, 2 * link);
    half(link, false).watch(shared_.tap, 2 * link + 1);
  }

  // --- control --------------------------------------------------------------------------------
  void apply(const LinkChange& change);                   // now
  void schedule(Picoseconds at, const LinkChange& change);
  void schedule(Picoseconds at, NodeId node, std::shared_ptr<const TableBatch> tables);
  // Of each port of the panel the port that it is joined to both ways, -1 for none: these and no others
  // from now on. Throws std::invalid_argument, and the old ones stay.
  void set_circuits(NodeId panel, const std::vector<std::int32_t>& circuits);
  // Calls `request` with a panel's device and the time. A host's port whose light comes from elsewhere
  // than before loses its carrier, and has it again when the device says so.
  void operate(NodeId panel, const std::function<void(panel::PanelDevice&, Picoseconds)>& request);
  // Replaces a switch's tables now, of a switch in the kernel those that its egress hooks read. Throws
  // std::invalid_argument where the engine runs no program there.
  void set_tables(NodeId node, std::shared_ptr<const TableBatch> tables);
  // The switch reboots: state and tables of the program that the engine runs there are gone.
  void reset_switch(NodeId node);
  // What has left the ports of this switch that have egress hooks, up to now, is with the hooks.
  void settle(NodeId node);
  // Reports changes to this watcher from now on, after those that were there before.
  void add_watcher(NetworkWatcher& watcher) { watchers_.push_back(&watcher); }
  void remove_watcher(NetworkWatcher& watcher) { std::erase(watchers_, &watcher); }

  // --- packets from the kernel ------------------------------------------------------------------
  // A kernel-placed switch sent `packet` out of `port`. Timed by packet->ideal, not by now.
  void from_switch(NodeId node, std::uint16_t port, PacketPtr packet);
  // A frame of a host's kernel.
  void from_host(NodeId host, PlanePort port, PacketPtr packet, Picoseconds now);
  // Puts raw bytes on a link towards `to`, as a faulty device would (tests of robustness).
  void inject(Endpoint to, std::span<const std::uint8_t> frame);

  // --- running ----------------------------------------------------------------------------------
  bool run_until(Picoseconds end, std::uint64_t most_events = ~0ull) { return events_.run_until(end, most_events); }
  Picoseconds now() const { return events_.now(); }
  // For jobs whose hosts influence one another by packets alone, and that need no answer from outside
  // while they run (flows that run by themselves). Each node's events of one window are served
  // together; a window is as long as the shortest link's delay. With a tap (set_tap) events are served
  // in order of time. Results are the same. A run that is stopped ends with its window.
  void use_lookahead();
  // From now on events are served in the order of time, whatever use_lookahead() is asked for: a job is
  // here whose hosts hear of one another by more than packets.
  void forbid_lookahead();
  // From now on events are served in the order of time, until release_order() has been called as often: hosts may
  // act on one another at once meanwhile. Called between events or from an event of domain kAnybody.
  void hold_order();
  void release_order();
  // Called when a job has ended: run_until() returns, as after EventQueue::stop(), and its caller looks at the job.
  void job_ended(JobId job);
  // Called when an iteration of a job has ended. It does the same, unless watch_iterations(false) was called because
  // no controller and no fault acts on iterations.
  void iteration_ended(JobId job);
  void watch_iterations(bool watch) { watches_iterations_ = watch; }
  // Jobs that are to be looked at for this, each once; none from now on.
  std::vector<JobId> take_moved();
  // Shortest delay of the links as they are now; 0 without links.
  Picoseconds shortest_delay() const;
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
  // The program whose egress hooks the switch's ports have, in the kernel or not; null: none.
  SwitchProgram* hooks(NodeId node) { return nodes_.at(node).hooks; }
  const PanelNode* panel(NodeId node) const { return nodes_.at(node).panel; }  // null: none
  bool in_kernel(NodeId node) const { return nodes_.at(node).kernel; }
  HalfLink& half(LinkId link, bool forward) { return *links_.at(2 * link + (forward ? 0 : 1)); }
  HalfLink* egress(NodeId node, std::uint16_t port) { return nodes_.at(node).egress.at(port); }
  // Where the link at this port ends.
  Endpoint far_end(Endpoint end) const;
  std::size_t ports(NodeId node) const { return nodes_.at(node).egress.size(); }
  // Number of the half-link that leaves here, as watch() gives it: 2 * link, or one more backward.
  std::uint32_t egress_half(NodeId node, std::uint16_t port) const { return nodes_.at(node).halves.at(port); }
  // PFC of a switch; null where it has none.
  PauseControl* pauses(NodeId node) { return nodes_.at(node).buffer ? nodes_[node].buffer->pauses() : nullptr; }
  std::uint64_t pfc_deadlocks() const { return pause_watch_.deadlocks(); }
  std::pair<Endpoint, Endpoint> ends(LinkId link) const { return ends_.at(link); }
  // Packets that a switch sent out of a port that has no link.
  std::uint64_t unconnected() const { return shared_.unconnected; }
  std::uint64_t lost_in_panels() const { return shared_.lost_in_panels; }
  // Packets that some model holds now; pool().outstanding() minus this leaked (or is in the kernel).
  std::size_t held() const;
  // Ends the run: lets go of every packet the models hold.
  void clear();

 private:
  struct Node {
    std::unique_ptr<Nic> nic;
    std::unique_ptr<SwitchProgram> program;
    std::unique_ptr<SwitchProgram> kernels;  // of a switch in the kernel, for its egress hooks alone
    SwitchProgram* hooks = nullptr;          // one of these two, or null
    std::unique_ptr<SharedBuffer> buffer;
    std::unique_ptr<LinkReceiver> receiver;  // null for a host: its NIC is the receiver
    PanelNode* panel = nullptr;  // the receiver, if that is a panel
    std::vector<HalfLink*> egress;
    std::vector<std::uint32_t> halves;  // by port, as egress
    bool kernel = false;
  };
  LinkReceiver& receiver(NodeId node);
  // Turns PFC on where `forward` ends, if its settings ask for it. Throws std::invalid_argument.
  void use_pfc(Endpoint to, const LinkConfig& forward, const LinkConfig& backward);
  void notify(Endpoint end, bool up, Picoseconds now);
  friend class PanelClock;
  // Whether the host at this port of a panel has carrier.
  bool lit(Endpoint panel, Picoseconds now) const;
  void set_carrier(Endpoint panel, bool up, Picoseconds now);  // of the host at a panel's port
  void see_light(NodeId panel, std::int32_t port, Picoseconds now);  // -1: nothing is there
  // Statuses of a panel's ports may have changed.
  void panel_moved(NodeId panel, Picoseconds now);
  void shorten_lookahead(Picoseconds delay);
  void set_lookahead(Picoseconds lookahead) {
    events_.set_lookahead(lookahead, shared_.tap == nullptr && order_held_ == 0);
  }

  std::uint64_t seed_;
  Picoseconds meter_bin_;
  std::size_t meter_bins_;
  EventQueue events_;
  PacketPool pool_;
  NodesShared shared_{pool_};
  std::vector<JobId> moved_;  // in the order in which they did
  bool watches_iterations_ = true;
  bool watch_all_ = false;
  bool lookahead_forbidden_ = false;
  unsigned order_held_ = 0;
  PauseWatch pause_watch_{*this};
  std::vector<NetworkWatcher*> watchers_;
  std::vector<Node> nodes_;
  std::vector<std::unique_ptr<HalfLink>> links_;
  std::vector<std::pair<Endpoint, Endpoint>> ends_;
  PlannedChanges planned_{*this, events_};
  PanelClock panel_clock_{*this, events_};
};

}  // namespace loomnet
