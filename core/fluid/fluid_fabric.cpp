// Routes through the network's nodes, and what its changes do to flows.
#include "fluid/fluid_fabric.hpp"

#include <algorithm>
#include <stdexcept>

#include "fluid/fluid_transport.hpp"

namespace loomnet::fluid {

FluidFabric::FluidFabric(Network& network) : network_(network), links_(network.events()) {
  by_node_.resize(network.nodes());
  for (std::uint32_t half = 0; half < 2 * network.links(); ++half) {
    links_.add_link({});
    take_rate(half);
  }
  for (NodeId node = 0; node < network.nodes(); ++node) {
    if (network.in_kernel(node)) {
      throw std::invalid_argument("fluid: a switch is placed in the kernel, which has packets alone");
    }
    if (network.is_host(node)) hosts_[network.nic(node).host()] = node;
  }
  network.add_watcher(*this);
  network.forbid_lookahead();  // hosts share links at every moment, without packets between them
}

FluidFabric::~FluidFabric() { network_.remove_watcher(*this); }

void FluidFabric::add_transport(NodeId host, const std::string& name, const Frames& frames) {
  Nic& nic = network_.nic(host);
  auto made = std::make_unique<FluidTransport>(*this, host, nic.sink(), name, frames);
  transports_.push_back(made.get());
  by_node_[host].push_back(made.get());
  nic.set_transport(std::move(made));
}

FluidTransport* FluidFabric::transport_of(HostId host, const std::string& name) {
  const auto found = hosts_.find(host);
  if (found == hosts_.end()) return nullptr;
  for (FluidTransport* each : by_node_[found->second]) {
    if (each->name() == name) return each;
  }
  return nullptr;
}

void FluidFabric::take_rate(std::uint32_t half) {
  const HalfLink& link = network_.half(half / 2, half % 2 == 0);
  links_.set_rate(half, link.up() ? link.config().rate : BitsPerSecond{});
}

// Before the narrowest link the first packet takes its time on each link; then the bytes flow at the narrowest link's
// rate. Behind it the last packet takes its time on each link, and may have to wait for the full packet before it.
Picoseconds Route::latency(std::uint64_t bytes, std::uint64_t last, const Frames& frames) const {
  const auto narrowest = std::ranges::min_element(rates, {}, &BitsPerSecond::count);
  const std::uint64_t first = std::min(bytes, frames.full());
  Picoseconds found = delay;
  for (auto at = rates.begin(); at != narrowest; ++at) found += serialization_time(first, *at);
  if (narrowest == rates.end()) return found;
  for (auto at = std::next(narrowest); at != rates.end(); ++at) {
    // The last packet leaves the narrowest link one of its own serialization times after the full packet before it.
    Picoseconds wait{};
    if (at == std::next(narrowest) && bytes > last) {
      wait = std::max(wait, serialization_time(first, *at) - serialization_time(last, *narrowest));
    }
    found += wait + serialization_time(last, *at);
  }
  return found;
}

Picoseconds Route::answer(std::uint64_t bytes) const {
  Picoseconds found = delay;
  for (const BitsPerSecond rate : rates) found += serialization_time(bytes, rate);
  return found;
}

Route FluidFabric::route(NodeId host, PlanePort port, HostId destination, const FlowFront& front) {
  Route found;
  Endpoint at{host, port};
  for (std::size_t nodes = 0; nodes < kMostNodes; ++nodes) {
    const HalfLink* link = network_.egress(at.node, at.port);
    if (!link) return found;
    const BitsPerSecond rate = link->config().rate;
    if (rate.count > 0) {  // a panel's egress is glass: nothing is clocked there
      found.rates.push_back(rate);
      found.links.push_back(network_.egress_half(at.node, at.port));
    }
    found.delay += link->config().delay;
    const Endpoint next = network_.far_end(at);
    if (network_.is_host(next.node)) {
      found.whole = network_.nic(next.node).host() == destination;
      return found;
    }
    if (const PanelNode* panel = network_.panel(next.node)) {
      const std::int32_t out = panel->passes_to(next.port, network_.now());
      if (out < 0 || !link->up()) return found;
      at = {next.node, static_cast<std::uint16_t>(out)};
      if (const HalfLink* light = network_.egress(at.node, at.port); !light || !light->up()) return found;
      continue;
    }
    const Verdict verdict = network_.program(next.node)->peek(front, next.port);
    if (verdict.action != Verdict::Action::forward || verdict.value >= network_.ports(next.node)) {
      return found;
    }
    at = {next.node, verdict.value};
  }
  return found;
}

void FluidFabric::link_changed(LinkId link) {
  for (const std::uint32_t half : {2 * link, 2 * link + 1}) take_rate(half);
  for (FluidTransport* each : transports_) each->forget_routes();  // its delay may be another
  const auto [a, b] = network_.ends(link);
  // A link at a panel is part of whole routes or of none.
  if (network_.panel(a.node)) circuits_changed(a.node);
  if (network_.panel(b.node)) circuits_changed(b.node);
}

// Hosts at the panel have other routes by their ports there.
void FluidFabric::circuits_changed(NodeId panel) {
  for (std::uint16_t port = 0; port < network_.ports(panel); ++port) {
    if (!network_.egress(panel, port)) continue;
    const Endpoint end = network_.far_end({panel, port});
    if (end.node >= by_node_.size()) continue;
    for (FluidTransport* each : by_node_[end.node]) {
      each->find_routes(static_cast<PlanePort>(end.port));
    }
  }
}

void FluidFabric::tables_changed(NodeId) {
  for (FluidTransport* each : transports_) each->find_routes();
}

}  // namespace loomnet::fluid
