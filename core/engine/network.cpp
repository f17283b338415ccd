// Building the fabric, moving packets between its models, applying changes.
#include "engine/network.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "engine/nodes/kernel_node.hpp"
#include "engine/nodes/switch_node.hpp"

namespace loomnet {
namespace {
constexpr std::uint64_t kUnlimited = 1ull << 62;  // bytes of a buffer without a size
}

Network::Network(std::uint64_t seed, Picoseconds meter_bin, std::size_t meter_bins)
    : seed_(seed), meter_bin_(meter_bin), meter_bins_(meter_bins) {}

Network::~Network() { clear(); }

NodeId Network::add_host(std::size_t ports, std::optional<HostId> identity) {
  const auto id = static_cast<NodeId>(nodes_.size());
  Node node;
  node.nic = std::make_unique<Nic>(events_, pool_, identity.value_or(id), ports, meter_bin_, domain(id));
  node.nic->clients().limit_meters(meter_bins_);
  node.egress.resize(ports);
  node.halves.resize(ports);
  nodes_.push_back(std::move(node));
  return id;
}

NodeId Network::add_switch(std::size_t ports, std::unique_ptr<SwitchProgram> program, const SwitchOptions& options,
                           std::unique_ptr<SwitchProgram> hooks) {
  const auto id = static_cast<NodeId>(nodes_.size());
  Node node;
  node.kernel = program == nullptr;
  node.program = std::move(program);
  node.kernels = std::move(hooks);
  node.hooks = node.program ? node.program.get() : node.kernels.get();
  node.egress.resize(ports);
  node.halves.resize(ports);
  if (options.buffer_bytes || options.pfc) {
    node.buffer =
        std::make_unique<SharedBuffer>(options.buffer_bytes ? options.buffer_bytes : kUnlimited, options.buffer_alpha);
  }
  if (options.pfc) {
    if (node.kernel) throw std::invalid_argument("network: a switch in the kernel has no PFC");
    node.buffer->use_pauses(events_, pool_, ports, domain(id));
    pause_watch_.add(id, *node.buffer->pauses());
  }
  if (node.kernel) {
    node.receiver = std::make_unique<KernelNode>(shared_, id);
  } else {
    node.receiver = std::make_unique<SwitchNode>(shared_, id, *node.program, node.egress);
  }
  nodes_.push_back(std::move(node));
  return id;
}

NodeId Network::add_panel(const std::vector<std::int32_t>& circuits, const panel::DeviceOptions& options, bool kernel) {
  const std::vector<panel::CrossConnect> patched = duplex(circuits);
  const auto id = static_cast<NodeId>(nodes_.size());
  Node node;
  node.kernel = kernel;
  node.egress.resize(circuits.size());
  node.halves.resize(circuits.size());
  nodes_.push_back(std::move(node));
  Node& made = nodes_.back();
  auto panel = std::make_unique<PanelNode>(shared_, id, made.egress, options, kernel);
  made.panel = panel.get();
  made.receiver = std::move(panel);
  constexpr Picoseconds kLongAgo = -seconds(1000);  // no dark time and no transceiver takes as long
  made.panel->device().connect(patched, panel::Mode::overwrite, kLongAgo);
  made.panel->device().advance({});
  made.panel->device().take_events();
  made.panel->publish({});
  return id;
}

void Network::publish_panels() {
  for (Node& node : nodes_) {
    if (node.panel) node.panel->publish(events_.now());
  }
}

LinkReceiver& Network::receiver(NodeId node) {
  Node& n = nodes_.at(node);
  return n.nic ? static_cast<LinkReceiver&>(*n.nic) : *n.receiver;
}

LinkId Network::connect(Endpoint a, Endpoint b, const LinkConfig& forward, const LinkConfig& backward,
                        std::uint64_t stream) {
  return connect(a, b, std::make_shared<const LinkConfig>(forward), std::make_shared<const LinkConfig>(backward),
                 stream);
}

LinkId Network::connect(Endpoint a, Endpoint b, const std::shared_ptr<const LinkConfig>& forward,
                        const std::shared_ptr<const LinkConfig>& backward, std::uint64_t stream) {
  for (const Endpoint& end : {a, b}) {
    if (nodes_.at(end.node).egress.at(end.port)) {
      throw std::invalid_argument("network: port " + std::to_string(end.port) + " of node " + std::to_string(end.node) +
                                  " is already connected");
    }
  }
  const auto id = static_cast<LinkId>(ends_.size());
  const auto half = [&](Endpoint from, Endpoint to, const std::shared_ptr<const LinkConfig>& config,
                        std::uint64_t stream) {
    links_.push_back(std::make_unique<HalfLink>(events_, pool_, config, receiver(to.node), to.port, seed_, stream,
                                                domain(from.node), domain(to.node)));
    HalfLink* link = links_.back().get();
    Node& node = nodes_[from.node];
    node.egress[from.port] = link;
    node.halves[from.port] = static_cast<std::uint32_t>(links_.size() - 1);
    if (node.nic) node.nic->attach(static_cast<PlanePort>(from.port), *link);
    if (node.buffer) link->share(*node.buffer);
    if (!node.hooks) return;
    auto hook = node.hooks->make_egress({node.halves[from.port], from.port, is_host(to.node)}, link->egress_seed());
    if (hook) link->set_egress(std::move(hook));
  };
  half(a, b, forward, stream);
  half(b, a, backward, stream ? stream + 1 : 0);
  ends_.emplace_back(a, b);
  shorten_lookahead(std::min(forward->delay, backward->delay));
  use_pfc(b, *forward, *backward);
  use_pfc(a, *backward, *forward);
  if (watch_all_) watch(id);
  for (const Endpoint& end : {a, b}) {
    if (nodes_[end.node].panel) notify(end, true, events_.now());
  }
  return id;
}

void Network::use_pfc(Endpoint to, const LinkConfig& forward, const LinkConfig& backward) {
  const PfcConfig& pfc = forward.pfc;
  if (pfc.xoff == 0) return;
  const std::string where =
      "network: PFC at port " + std::to_string(to.port) + " of node " + std::to_string(to.node) + ": ";
  PauseControl* control = pauses(to.node);
  if (!control) throw std::invalid_argument(where + "the node is no switch with PFC");
  for (const Endpoint& end : {to, far_end(to)}) {
    if (egress(end.node, end.port)->pausable()) continue;
    throw std::invalid_argument(where + "the queue discipline of a port under PFC is priority or laggard_first");
  }
  if (forward.rate.count == 0 || backward.rate.count == 0) {
    throw std::invalid_argument(where + "the link must have a rate both ways (no panel between)");
  }
  if (const std::uint64_t needed = pfc_headroom(forward, backward); pfc.headroom < needed) {
    throw std::invalid_argument(where + "headroom " + std::to_string(pfc.headroom) + " B is less than the " +
                                std::to_string(needed) + " B that may arrive until a pause holds");
  }
  SharedBuffer& buffer = *nodes_[to.node].buffer;
  const std::uint64_t reserved = std::uint64_t{pfc.xoff} + pfc.headroom;
  if (!buffer.reserve(reserved)) {
    throw std::invalid_argument(where + "xoff and headroom are " + std::to_string(reserved) +
                                " B, the switch's buffer has " + std::to_string(buffer.unreserved()) + " B left");
  }
  control->guard(to.port, pfc, forward.rate, *nodes_[to.node].egress[to.port]);
}

void Network::set_gate(KernelGate* gate) {
  shared_.gate = gate;
  for (Node& node : nodes_) {
    if (node.nic) node.nic->set_kernel(gate);
  }
}

void Network::set_tap(Tap* tap, bool all_links) {
  shared_.tap = tap;
  watch_all_ = tap && all_links;
  for (Node& node : nodes_) {
    if (node.nic) node.nic->watch(tap);
  }
  set_lookahead(events_.lookahead());
  if (tap && !all_links) return;
  for (LinkId link = 0; link < links(); ++link) watch(link);
}

void Network::count_losses(QueueLosses* losses) {
  for (const auto& link : links_) link->count_losses(losses);
}

void Network::apply(const LinkChange& change) {
  const Picoseconds now = events_.now();
  if (change.up && *change.up != half(change.link, true).up()) {
    for (const bool forward : {true, false}) half(change.link, forward).set_up(*change.up, now);
    notify(ends_[change.link].first, *change.up, now);
    notify(ends_[change.link].second, *change.up, now);
  }
  if (change.delay) shorten_lookahead(*change.delay);
  for (const bool forward : {true, false}) {
    if (!(forward ? change.forward : change.backward)) continue;
    HalfLink& link = half(change.link, forward);
    if (change.rate) link.set_rate(*change.rate, now);
    if (change.queue_share) link.set_queue_share(*change.queue_share, now);
    if (change.delay) link.set_delay(*change.delay, now);
    if (change.impairment) link.set_impairment(*change.impairment, now);
  }
  for (NetworkWatcher* each : watchers_) each->link_changed(change.link);
}

void Network::settle(NodeId node) {
  for (HalfLink* link : nodes_.at(node).egress) {
    if (link && link->egress()) (void)link->queued_bytes(events_.now());
  }
}

void Network::set_tables(NodeId node, std::shared_ptr<const TableBatch> tables) {
  SwitchProgram* const hooks = nodes_.at(node).hooks;
  if (!hooks) throw std::invalid_argument("network: the node runs no program here");
  settle(node);
  hooks->set_tables(std::move(tables));
  for (NetworkWatcher* each : watchers_) each->tables_changed(node);
}

void Network::reset_switch(NodeId node) {
  SwitchProgram* const hooks = nodes_.at(node).hooks;
  if (!hooks) throw std::invalid_argument("network: the node runs no program here");
  settle(node);
  hooks->reset();
}

void Network::schedule(Picoseconds at, const LinkChange& change) {
  if (change.link >= ends_.size()) throw std::out_of_range("network: no such link");
  planned_.add(at, change);
}

void Network::schedule(Picoseconds at, NodeId node, std::shared_ptr<const TableBatch> tables) {
  if (!nodes_.at(node).program) {
    throw std::invalid_argument("network: the node runs no program here");
  }
  planned_.add(at, node, std::move(tables));
}

void Network::from_switch(NodeId node, std::uint16_t port, PacketPtr packet) {
  const Picoseconds ideal = packet->ideal;
  if (HalfLink* out = nodes_[node].egress[port]) out->offer(std::move(packet), ideal);
}

void Network::from_host(NodeId host, PlanePort port, PacketPtr packet, Picoseconds now) {
  nodes_[host].nic->from_kernel(port, std::move(packet), now);
}

void Network::inject(Endpoint to, std::span<const std::uint8_t> frame) {
  PacketPtr packet = pool_.allocate();
  const std::size_t n = std::min(frame.size(), kMaxHeaderBytes);
  std::copy_n(frame.begin(), n, packet->header.begin());
  packet->header_length = static_cast<std::uint16_t>(n);
  packet->wire_length = static_cast<std::uint32_t>(frame.size());
  packet->payload.length = static_cast<std::uint32_t>(frame.size() - n);
  packet->ideal = events_.now();
  receiver(to.node).receive(to.port, std::move(packet), events_.now());
}

Picoseconds Network::shortest_delay() const {
  Picoseconds shortest = links_.empty() ? Picoseconds{} : kNever;
  for (const auto& link : links_) shortest = std::min(shortest, link->config().delay);
  return shortest;
}

void Network::use_lookahead() {
  if (!lookahead_forbidden_) set_lookahead(shortest_delay());
}

void Network::job_ended(JobId job) {
  if (std::find(moved_.begin(), moved_.end(), job) == moved_.end()) moved_.push_back(job);
  events_.stop();
}

void Network::iteration_ended(JobId job) {
  if (watches_iterations_) job_ended(job);
}

std::vector<JobId> Network::take_moved() { return std::exchange(moved_, {}); }

void Network::forbid_lookahead() {
  lookahead_forbidden_ = true;
  set_lookahead({});
}

void Network::shorten_lookahead(Picoseconds delay) {
  if (delay < events_.lookahead()) set_lookahead(delay);
}

void Network::hold_order() {
  ++order_held_;
  set_lookahead(events_.lookahead());
}

void Network::release_order() {
  --order_held_;
  set_lookahead(events_.lookahead());
}

Nic& Network::nic(NodeId host) {
  Node& node = nodes_.at(host);
  if (!node.nic) {
    throw std::invalid_argument("network: node " + std::to_string(host) + " is no host");
  }
  return *node.nic;
}

std::size_t Network::held() const {
  std::size_t n = 0;
  for (const auto& link : links_) n += link->held();
  for (const Node& node : nodes_) n += node.nic ? node.nic->held() : 0;
  return n;
}

void Network::clear() {
  for (const auto& link : links_) link->clear();
  for (Node& node : nodes_) {
    if (node.nic) node.nic->clear();
  }
}

}  // namespace loomnet
