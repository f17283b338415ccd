// Building the fabric, moving packets between its models, applying changes at their time.
#include "engine/network.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "engine/pause_cycle.hpp"

namespace loomnet {
namespace {
constexpr std::uint64_t kUnlimited = 1ull << 62;  // bytes of a buffer without a size
}

// A switch whose program the engine runs: decide, then offer to the egress link.
class Network::SwitchNode final : public LinkReceiver {
 public:
  SwitchNode(Network& network, NodeId node, SwitchProgram& program,
             std::span<HalfLink* const> egress)
      : program_(program), egress_(egress), network_(network), node_(node) {}
  void receive(std::uint16_t port, PacketPtr packet, Picoseconds now) override {
    if (packet->queue == kMacControlClass) [[unlikely]] return obey(port, *packet, now);
    packet->ingress = port;
    const Verdict verdict = program_.ingress(packet->header_bytes(), packet->wire_length, {now, port});
    switch (verdict.action) {
      case Verdict::Action::forward:
      case Verdict::Action::reply:
        offer(verdict.value, std::move(packet), now);
        break;
      case Verdict::Action::replicate: {
        const auto members = program_.members(verdict.value);
        for (std::size_t i = 1; i < members.size(); ++i) {
          offer(members[i - 1], network_.pool_.duplicate(*packet), now);
        }
        if (!members.empty()) offer(members.back(), std::move(packet), now);
        break;
      }
      case Verdict::Action::drop:  // the program has counted it by reason
        if (network_.tap_) [[unlikely]] {
          network_.tap_->refused(node_, *packet, program_.reason(verdict.value), now);
        }
        break;
      case Verdict::Action::pass:  // the engine's switches have no stack of their own
        break;
    }
  }
  void prepare(std::uint16_t port, const Packet& packet, int stage) const override {
    if (stage == 2) return fetch(&program_, 2 * kCacheLine);
    const Verdict likely = program_.foresee(packet.header_bytes(), packet.wire_length, port);
    if (likely.action == Verdict::Action::forward && likely.value < egress_.size() &&
        egress_[likely.value]) {
      egress_[likely.value]->prepare_offer();
    }
  }

 private:
  SwitchProgram& program_;
  std::span<HalfLink* const> egress_;  // by port
  Network& network_;
  NodeId node_;

  void obey(std::uint16_t port, const Packet& packet, Picoseconds now) {
    if (port < egress_.size() && egress_[port]) egress_[port]->obey_pause(packet, now);
  }
  void offer(std::uint16_t port, PacketPtr packet, Picoseconds now) {
    if (port >= egress_.size() || !egress_[port]) {
      ++network_.unconnected_;
      return;
    }
    egress_[port]->offer(std::move(packet), now);
  }
};

class Network::KernelNode final : public LinkReceiver {
 public:
  KernelNode(Network& network, NodeId node) : network_(network), node_(node) {}
  void receive(std::uint16_t port, PacketPtr packet, Picoseconds now) override {
    packet->ingress = port;
    network_.gate_->to_switch(node_, port, std::move(packet), now);
  }

 private:
  Network& network_;
  NodeId node_;
};

class Network::PanelNode final : public LinkReceiver {
 public:
  PanelNode(Network& network, NodeId node, std::vector<std::int32_t> circuits)
      : circuits(std::move(circuits)), network_(network), node_(node) {}
  void receive(std::uint16_t port, PacketPtr packet, Picoseconds now) override {
    const std::int32_t out = circuits[port];
    if (out < 0) {
      ++dark;
      return;
    }
    network_.nodes_[node_].egress[out]->offer(std::move(packet), now);
  }
  std::vector<std::int32_t> circuits;
  std::uint64_t dark = 0;  // packets that met no mirror

 private:
  Network& network_;
  NodeId node_;
};

// Hears of ports of one switch that stay paused, and looks whether they wait for themselves.
class Network::PauseWatch final : public PauseControl::StuckObserver, public EventHandler {
 public:
  PauseWatch(Network& network, NodeId node) : network_(network), node_(node) {}
  void on_stuck(std::uint16_t port) override {
    // Other switches must have come as far before they are looked at.
    EventQueue& events = network_.events_;
    if (events.lookahead().count == 0) return network_.on_stuck(node_, port);
    if (id_ == 0) id_ = events.add(*this);
    events.schedule(events.now() + events.lookahead(), id_, port);
  }
  void on_event(std::uint64_t port, Picoseconds) override {
    network_.on_stuck(node_, static_cast<std::uint16_t>(port));
  }

 private:
  Network& network_;
  NodeId node_;
  ObjectId id_ = 0;
};

// Changes that were planned: faults, repairs, reconverged tables.
class Network::Timetable final : public EventHandler {
 public:
  explicit Timetable(Network& network) : network_(network), id_(network.events_.add(*this)) {}
  void add(Picoseconds at, const LinkChange& change) {
    rows_.push_back({change, 0, nullptr});
    network_.events_.schedule(at, id_, rows_.size() - 1);
  }
  void add(Picoseconds at, NodeId node, std::shared_ptr<const TableBatch> tables) {
    rows_.push_back({{}, node, std::move(tables)});
    network_.events_.schedule(at, id_, rows_.size() - 1);
  }
  void on_event(std::uint64_t what, Picoseconds) override {
    Row& row = rows_[what];
    if (row.tables) {
      network_.nodes_[row.node].program->set_tables(std::move(row.tables));
    } else {
      network_.apply(row.change);
    }
  }

 private:
  struct Row {
    LinkChange change;
    NodeId node;
    std::shared_ptr<const TableBatch> tables;
  };
  Network& network_;
  ObjectId id_;
  std::vector<Row> rows_;
};

Network::Network(std::uint64_t seed, Picoseconds meter_bin, std::size_t meter_bins)
    : seed_(seed), meter_bin_(meter_bin), meter_bins_(meter_bins), timetable_(std::make_unique<Timetable>(*this)) {}

Network::~Network() { clear(); }

NodeId Network::add_host(std::size_t ports, std::optional<HostId> identity) {
  const auto id = static_cast<NodeId>(nodes_.size());
  Node node;
  node.nic = std::make_unique<Nic>(events_, pool_, identity.value_or(id), ports, meter_bin_,
                                   domain(id));
  node.nic->meter().limit(meter_bins_);
  node.egress.resize(ports);
  node.halves.resize(ports);
  nodes_.push_back(std::move(node));
  return id;
}

NodeId Network::add_switch(std::size_t ports, std::unique_ptr<SwitchProgram> program,
                           const SwitchOptions& options) {
  const auto id = static_cast<NodeId>(nodes_.size());
  Node node;
  node.kernel = program == nullptr;
  node.program = std::move(program);
  node.egress.resize(ports);
  node.halves.resize(ports);
  if (options.buffer_bytes || options.pfc) {
    node.buffer = std::make_unique<SharedBuffer>(
        options.buffer_bytes ? options.buffer_bytes : kUnlimited, options.buffer_alpha);
  }
  if (options.pfc) {
    if (node.kernel) throw std::invalid_argument("network: a switch in the kernel has no PFC");
    node.buffer->use_pauses(events_, pool_, ports, domain(id));
    node.watch = std::make_unique<PauseWatch>(*this, id);
    node.buffer->pauses()->observe(node.watch.get());
  }
  if (node.kernel) {
    node.receiver = std::make_unique<KernelNode>(*this, id);
  } else {
    node.receiver = std::make_unique<SwitchNode>(*this, id, *node.program, node.egress);
  }
  nodes_.push_back(std::move(node));
  return id;
}

NodeId Network::add_panel(std::vector<std::int32_t> circuits) {
  const auto id = static_cast<NodeId>(nodes_.size());
  Node node;
  node.egress.resize(circuits.size());
  node.halves.resize(circuits.size());
  node.receiver = std::make_unique<PanelNode>(*this, id, std::vector<std::int32_t>(circuits.size(), -1));
  nodes_.push_back(std::move(node));
  set_circuits(id, std::move(circuits));
  return id;
}

void Network::set_circuits(NodeId panel, std::vector<std::int32_t> circuits) {
  auto* node = dynamic_cast<PanelNode*>(nodes_.at(panel).receiver.get());
  if (!node) throw std::invalid_argument("network: node " + std::to_string(panel) + " is no panel");
  const auto n = static_cast<std::int32_t>(nodes_[panel].egress.size());
  if (static_cast<std::int32_t>(circuits.size()) != n) {
    throw std::invalid_argument("network: circuits must name every port of the panel");
  }
  for (const std::int32_t out : circuits) {
    if (out < -1 || out >= n) throw std::invalid_argument("network: circuit to a port that is not there");
  }
  node->circuits = std::move(circuits);
}

LinkReceiver& Network::receiver(NodeId node) {
  Node& n = nodes_.at(node);
  return n.nic ? static_cast<LinkReceiver&>(*n.nic) : *n.receiver;
}

LinkId Network::connect(Endpoint a, Endpoint b, const LinkConfig& forward, const LinkConfig& backward,
                        std::uint64_t stream) {
  for (const Endpoint& end : {a, b}) {
    if (nodes_.at(end.node).egress.at(end.port)) {
      throw std::invalid_argument("network: port " + std::to_string(end.port) + " of node " +
                                  std::to_string(end.node) + " is already connected");
    }
  }
  const auto id = static_cast<LinkId>(ends_.size());
  const auto half = [&](Endpoint from, Endpoint to, const LinkConfig& config, std::uint64_t stream) {
    links_.push_back(
        std::make_unique<HalfLink>(events_, pool_, config, receiver(to.node), to.port, seed_, stream,
                                   domain(from.node), domain(to.node)));
    HalfLink* link = links_.back().get();
    Node& node = nodes_[from.node];
    node.egress[from.port] = link;
    node.halves[from.port] = static_cast<std::uint32_t>(links_.size() - 1);
    if (node.nic) node.nic->attach(static_cast<PlanePort>(from.port), *link);
    if (node.buffer) link->share(*node.buffer);
  };
  half(a, b, forward, stream);
  half(b, a, backward, stream ? stream + 1 : 0);
  ends_.emplace_back(a, b);
  shorten_lookahead(std::min(forward.delay, backward.delay));
  guard(b, forward, backward);
  guard(a, backward, forward);
  if (watch_all_) watch(id);
  return id;
}

void Network::guard(Endpoint to, const LinkConfig& forward, const LinkConfig& backward) {
  const PfcConfig& pfc = forward.pfc;
  if (pfc.xoff == 0) return;
  const std::string where = "network: PFC at port " + std::to_string(to.port) + " of node " +
                            std::to_string(to.node) + ": ";
  PauseControl* control = pauses(to.node);
  if (!control) throw std::invalid_argument(where + "the node is no switch with PFC");
  if (forward.rate.count == 0 || backward.rate.count == 0) {
    throw std::invalid_argument(where + "the link must have a rate both ways (no panel between)");
  }
  if (const std::uint64_t needed = pfc_headroom(forward, backward); pfc.headroom < needed) {
    throw std::invalid_argument(where + "headroom " + std::to_string(pfc.headroom) +
                                " B is less than the " + std::to_string(needed) +
                                " B that may arrive until a pause holds");
  }
  SharedBuffer& buffer = *nodes_[to.node].buffer;
  const std::uint64_t reserved = std::uint64_t{pfc.xoff} + pfc.headroom;
  if (!buffer.reserve(reserved)) {
    throw std::invalid_argument(where + "xoff and headroom are " + std::to_string(reserved) +
                                " B, the switch's buffer has " +
                                std::to_string(buffer.unreserved()) + " B left");
  }
  control->guard(to.port, pfc, forward.rate, *nodes_[to.node].egress[to.port]);
}

// A circle is counted when it is first seen; its links stay noted until one of them moves again.
void Network::on_stuck(NodeId node, std::uint16_t port) {
  const HalfId half = egress_half(node, port) ^ 1;  // what came in by this port
  std::erase_if(in_deadlock_, [&](HalfId h) { return pause_cycle(*this, h).empty(); });
  if (std::find(in_deadlock_.begin(), in_deadlock_.end(), half) != in_deadlock_.end()) return;
  const std::vector<HalfId> circle = pause_cycle(*this, half);
  if (circle.empty()) return;
  ++pfc_deadlocks_;
  in_deadlock_.insert(in_deadlock_.end(), circle.begin(), circle.end());
}

void Network::set_gate(KernelGate* gate) {
  gate_ = gate;
  for (Node& node : nodes_) {
    if (node.nic) node.nic->set_kernel(gate);
  }
}

void Network::set_tap(Tap* tap, bool all_links) {
  tap_ = tap;
  watch_all_ = tap && all_links;
  for (Node& node : nodes_) {
    if (node.nic) node.nic->watch(tap);
  }
  events_.set_lookahead(events_.lookahead(), tap == nullptr);
  if (tap && !all_links) return;
  for (LinkId link = 0; link < links(); ++link) watch(link);
}

void Network::notify(Endpoint end, bool up, Picoseconds now) {
  if (Nic* nic = nodes_[end.node].nic.get()) nic->set_port(static_cast<PlanePort>(end.port), up, now);
  if (PauseControl* control = up ? pauses(end.node) : nullptr) control->on_carrier(end.port, now);
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
}

void Network::schedule(Picoseconds at, const LinkChange& change) {
  if (change.link >= ends_.size()) throw std::out_of_range("network: no such link");
  timetable_->add(at, change);
}

void Network::schedule(Picoseconds at, NodeId node, std::shared_ptr<const TableBatch> tables) {
  if (!nodes_.at(node).program) throw std::invalid_argument("network: the node runs no program here");
  timetable_->add(at, node, std::move(tables));
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

void Network::use_lookahead() {
  Picoseconds shortest = links_.empty() ? Picoseconds{} : kNever;
  for (const auto& link : links_) shortest = std::min(shortest, link->config().delay);
  events_.set_lookahead(shortest, tap_ == nullptr);
}

void Network::shorten_lookahead(Picoseconds delay) {
  if (delay < events_.lookahead()) events_.set_lookahead(delay, tap_ == nullptr);
}

Nic& Network::nic(NodeId host) {
  Node& node = nodes_.at(host);
  if (!node.nic) throw std::invalid_argument("network: node " + std::to_string(host) + " is no host");
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
