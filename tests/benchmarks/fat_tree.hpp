// A three-tier fat tree of k-port switches for benchmarks, one NIC port per host: plain IPv6 by
// ECMP, and uSIDs where a core (or, inside a pod, an aggregation switch) is the one waypoint of a
// path.
#pragma once

#include <memory>
#include <vector>

#include "../cpp/engine/clos.hpp"

namespace loomnet::testing {

// Hosts are nodes 0 … k³/4 - 1, k/2 behind each edge switch, k²/4 in each pod.
class FatTree {
 public:
  FatTree(Network& network, unsigned k, const LinkConfig& up, const LinkConfig& fabric, const LinkConfig& down)
      : network_(network), half_(k / 2), pods_(k) {
    for (unsigned h = 0; h < hosts(); ++h) network.add_host(1);
    // Ports: down first, then up. Edge e and aggregation a of a pod: 0 … k/2 - 1; core a·k/2 + i is
    // reached by port i of every pod's aggregation switch a.
    for (unsigned pod = 0; pod < pods_; ++pod) {
      for (unsigned e = 0; e < half_; ++e) add_switch(2 * half_, edge_tables(pod, e));
      for (unsigned a = 0; a < half_; ++a) add_switch(2 * half_, aggregation_tables(pod, a));
    }
    for (unsigned c = 0; c < half_ * half_; ++c) add_switch(pods_, core_tables(c));
    for (unsigned h = 0; h < hosts(); ++h) {
      network.connect({h, 0}, {edge(pod_of(h), edge_of(h)), port(h % half_)}, up, down);
    }
    for (unsigned pod = 0; pod < pods_; ++pod) {
      for (unsigned e = 0; e < half_; ++e) {
        for (unsigned a = 0; a < half_; ++a) {
          network.connect({edge(pod, e), port(half_ + a)}, {aggregation(pod, a), port(e)}, fabric, fabric);
        }
      }
      for (unsigned a = 0; a < half_; ++a) {
        for (unsigned i = 0; i < half_; ++i) {
          network.connect({aggregation(pod, a), port(half_ + i)}, {core(a * half_ + i), port(pod)}, fabric, fabric);
        }
      }
    }
  }

  unsigned hosts() const { return half_ * half_ * pods_; }

  void connect(unsigned a, QpNumber qa, unsigned b, QpNumber qb, std::uint32_t flow) {
    network_.nic(a).connect({qa, qb, a, b, flow, paths(a, b), paths(b, a)}, network_.now());
    network_.nic(b).connect({qb, qa, b, a, flow, paths(b, a), paths(a, b)}, network_.now());
  }

 private:
  static constexpr unsigned kCore = 0x1000, kEdge = 0x2000, kAggregation = 0x3000, kHost = 0x4000;
  static SwitchPort port(unsigned n) { return static_cast<SwitchPort>(n); }
  static UsidKey usid(unsigned n) { return {usid_block(0), static_cast<std::uint16_t>(n)}; }
  unsigned pod_of(unsigned host) const { return host / (half_ * half_); }
  unsigned edge_of(unsigned host) const { return host / half_ % half_; }
  NodeId edge(unsigned pod, unsigned e) const { return hosts() + pod * 2 * half_ + e; }
  NodeId aggregation(unsigned pod, unsigned a) const { return edge(pod, half_ + a); }
  NodeId core(unsigned c) const { return edge(pods_, c); }

  std::vector<PlanePaths> paths(unsigned from, unsigned to) const {
    PlanePaths path;
    const auto first = static_cast<std::uint16_t>(kEdge + from / half_);
    const auto last = static_cast<std::uint16_t>(kEdge + to / half_);
    const auto out = static_cast<std::uint16_t>(kHost + to % half_);
    if (first == last) {
      path.row = {{first, out}, 2, -1};
      path.uplinks = {0};
    } else {
      const bool inside = pod_of(from) == pod_of(to);
      path.row = {{first, static_cast<std::uint16_t>(inside ? kAggregation : kCore), last, out}, 4, 1};
      for (unsigned u = 0; u < (inside ? half_ : half_ * half_); ++u) {
        path.uplinks.push_back(static_cast<std::uint16_t>(u));
      }
    }
    return {path};
  }

  void add_switch(std::size_t ports, std::shared_ptr<const TableBatch> tables) {
    auto program = std::make_unique<ForwardProgram>(
        ports, ForwardSettings{.hash_seed = hash_key(network_.seed(), network_.nodes(), 0x65636d70)});
    program->set_tables(std::move(tables));
    network_.add_switch(ports, std::move(program));
  }
  // Group 0: all ports up; group 1 + p: port p alone.
  ForwardBatch tables(unsigned down, unsigned up) const {
    ForwardBatch t;
    t.generation = 1;
    t.groups.resize(1 + down);
    for (unsigned i = 0; i < up; ++i) t.groups[0].push_back(port(down + i));
    for (unsigned p = 0; p < down; ++p) t.groups[1 + p] = {port(p)};
    return t;
  }
  template <typename PortOf>
  void add_hosts(ForwardBatch& t, PortOf&& port_of) const {
    for (unsigned h = 0; h < hosts(); ++h) {
      t.hosts.push_back({host_address(h), static_cast<std::uint16_t>(1 + port_of(h))});
    }
  }
  std::shared_ptr<const TableBatch> edge_tables(unsigned pod, unsigned e) const {
    auto t = tables(half_, half_);
    t.own_un = {usid(kEdge + pod * half_ + e)};
    for (unsigned c = 0; c < half_ * half_; ++c) t.fib.push_back({usid(kCore + c), port(half_ + c / half_)});
    for (unsigned a = 0; a < half_; ++a) t.fib.push_back({usid(kAggregation + a), port(half_ + a)});
    for (unsigned p = 0; p < half_; ++p) t.fib.push_back({usid(kHost + p), port(p)});
    add_hosts(t, [&](unsigned h) { return pod_of(h) == pod && edge_of(h) == e ? static_cast<int>(h % half_) : -1; });
    return t.pack();
  }
  std::shared_ptr<const TableBatch> aggregation_tables(unsigned pod, unsigned a) const {
    auto t = tables(half_, half_);
    t.own_un = {usid(kAggregation + a)};
    for (unsigned i = 0; i < half_; ++i) t.fib.push_back({usid(kCore + a * half_ + i), port(half_ + i)});
    for (unsigned e = 0; e < half_; ++e) t.fib.push_back({usid(kEdge + pod * half_ + e), port(e)});
    add_hosts(t, [&](unsigned h) { return pod_of(h) == pod ? static_cast<int>(edge_of(h)) : -1; });
    return t.pack();
  }
  std::shared_ptr<const TableBatch> core_tables(unsigned c) const {
    auto t = tables(pods_, 0);
    t.own_un = {usid(kCore + c)};
    for (unsigned e = 0; e < pods_ * half_; ++e) t.fib.push_back({usid(kEdge + e), port(e / half_)});
    add_hosts(t, [&](unsigned h) { return static_cast<int>(pod_of(h)); });
    return t.pack();
  }

  Network& network_;
  unsigned half_, pods_;
};

}  // namespace loomnet::testing
