// A two-tier multi-plane Clos for engine tests, with the uSIDs of plans/usid_plan.py: hosts are nodes
// 0 … H-1 (host h on leaf h mod leaves), then plane by plane leaves and spines.
#pragma once

#include <memory>
#include <vector>

#include "engine/network.hpp"
#include "packet/host_address.hpp"
#include "switch/forward/forward_program.hpp"
#include "transport/mrc/dscp.hpp"

namespace loomnet::testing {

struct ClosShape {
  unsigned planes = 2, leaves = 2, spines = 2, hosts_per_leaf = 1;
  LinkConfig host_link{.rate = gigabits(100), .delay = microseconds(1)};
  LinkConfig fabric_link{.rate = gigabits(100), .delay = microseconds(1)};
  std::uint32_t pfc_xoff = 0;   // PFC at every switch port: pause above, go on two frames below
  std::uint64_t buffer = 0;     // of each switch, shared; 0: no limit
  bool crossed = false;     // host 0's port k is attached to plane `planes` - 1 - k
  bool host_routes = true;  // plain IPv6 beside uSIDs: a row per host in every switch
  unsigned hosts() const { return leaves * hosts_per_leaf; }
};

class Clos {
 public:
  Clos(Network& network, const ClosShape& shape) : network_(network), shape_(shape) {
    const unsigned hosts = shape.hosts();
    for (unsigned h = 0; h < hosts; ++h) network.add_host(shape.planes);
    // Leaf ports: hosts first, then spines; spine ports: leaves.
    for (unsigned p = 0; p < shape.planes; ++p) {
      for (unsigned l = 0; l < shape.leaves; ++l) add_switch(shape.hosts_per_leaf + shape.spines, leaf_tables(p, l));
      for (unsigned s = 0; s < shape.spines; ++s) add_switch(shape.leaves, spine_tables(p, s));
    }
    LinkConfig down = shape.host_link;
    down.last_hop = true;
    down.trim_dscp = mrc::dscp::kTrimmedLastHop;
    down.ecn_low = down.ecn_high = 0;
    LinkConfig up = shape.host_link;
    up.trim = false;
    up.data_limit = up.control_limit = 0;
    LinkConfig across = shape.fabric_link;
    if (shape.pfc_xoff > 0) {
      up.pfc = pfc(up, down);
      across.pfc = pfc(across, across);
    }
    for (unsigned p = 0; p < shape.planes; ++p) {
      for (unsigned h = 0; h < hosts; ++h) {
        host_links_.push_back(network.connect(
            {h, port(h, p)}, {leaf(p, h % shape.leaves), static_cast<std::uint16_t>(h / shape.leaves)}, up, down));
      }
      for (unsigned l = 0; l < shape.leaves; ++l) {
        for (unsigned s = 0; s < shape.spines; ++s) {
          fabric_links_.push_back(network.connect({leaf(p, l), static_cast<std::uint16_t>(shape.hosts_per_leaf + s)},
                                                  {spine(p, s), static_cast<std::uint16_t>(l)}, across, across));
        }
      }
    }
  }

  NodeId leaf(unsigned p, unsigned l) const { return shape_.hosts() + p * (shape_.leaves + shape_.spines) + l; }
  NodeId spine(unsigned p, unsigned s) const { return leaf(p, 0) + shape_.leaves + s; }
  LinkId host_link(unsigned p, unsigned h) const { return host_links_[p * shape_.hosts() + h]; }
  LinkId fabric_link(unsigned p, unsigned l, unsigned s) const {
    return fabric_links_[(p * shape_.leaves + l) * shape_.spines + s];
  }
  // A host's port on a plane, and the reverse.
  std::uint16_t port(unsigned host, unsigned plane) const {
    return static_cast<std::uint16_t>(shape_.crossed && host == 0 ? shape_.planes - 1 - plane : plane);
  }
  unsigned leaf_of(unsigned host) const { return host % shape_.leaves; }

  std::vector<PlanePaths> paths(unsigned from, unsigned to) const {
    PlanePaths path;
    const auto first = static_cast<std::uint16_t>(0x2000 + leaf_of(from));
    const auto last = static_cast<std::uint16_t>(0x2000 + leaf_of(to));
    const auto dst = static_cast<std::uint16_t>(0x4000 + to / shape_.leaves);
    if (first == last) {
      path.row = {{first, dst}, 2, -1};
      path.uplinks = {0};
    } else {
      path.row = {{first, 0x1000, last, dst}, 4, 1};
      for (unsigned s = 0; s < shape_.spines; ++s) path.uplinks.push_back(static_cast<std::uint16_t>(s));
    }
    std::vector<PlanePaths> all(shape_.planes, path);
    for (unsigned p = 0; shape_.crossed && p < shape_.planes; ++p) all[p].plane = static_cast<Plane>(port(from, p));
    return all;
  }

  // Connects a queue pair both ways.
  void connect(unsigned a, QpNumber qa, unsigned b, QpNumber qb, std::uint32_t flow = 0, JobId job = {},
               std::string_view transport = {}) {
    network_.nic(a).connect({qa, qb, a, b, flow, paths(a, b), paths(b, a)}, network_.now(), {job}, transport);
    network_.nic(b).connect({qb, qa, b, a, flow, paths(b, a), paths(a, b)}, network_.now(), {job}, transport);
  }

 private:
  PfcConfig pfc(const LinkConfig& forward, const LinkConfig& backward) const {
    return {shape_.pfc_xoff, shape_.pfc_xoff - 2 * kMaxFrameBytes, pfc_headroom(forward, backward)};
  }
  void add_switch(std::size_t ports, std::shared_ptr<const TableBatch> tables) {
    auto program = std::make_unique<ForwardProgram>(
        ports, ForwardSettings{.hash_seed = hash_key(network_.seed(), network_.nodes(), 0x65636d70)});
    program->set_tables(std::move(tables));
    network_.add_switch(ports, std::move(program), {.buffer_bytes = shape_.buffer, .pfc = shape_.pfc_xoff > 0});
  }
  std::shared_ptr<const TableBatch> leaf_tables(unsigned p, unsigned l) const {
    ForwardBatch t;
    t.generation = 1;
    t.own_un = {{usid_block(p), static_cast<std::uint16_t>(0x2000 + l)}};
    std::vector<SwitchPort> up;
    for (unsigned s = 0; s < shape_.spines; ++s) {
      const auto port = static_cast<SwitchPort>(shape_.hosts_per_leaf + s);
      up.push_back(port);
      t.fib.push_back({{usid_block(p), static_cast<std::uint16_t>(0x1000 + s)}, port});
    }
    t.groups.push_back(up);
    for (unsigned h = 0; h < shape_.hosts(); ++h) {
      const auto port = static_cast<SwitchPort>(h / shape_.leaves);
      const bool here = leaf_of(h) == l;
      if (here) t.fib.push_back({{usid_block(p), static_cast<std::uint16_t>(0x4000 + port)}, port});
      if (!shape_.host_routes) continue;
      if (here) {
        t.hosts.push_back({host_address(h), static_cast<std::uint16_t>(t.groups.size())});
        t.groups.push_back({port});
      } else {
        t.hosts.push_back({host_address(h), 0});
      }
    }
    return t.pack();
  }
  std::shared_ptr<const TableBatch> spine_tables(unsigned p, unsigned s) const {
    ForwardBatch t;
    t.generation = 1;
    t.own_un = {{usid_block(p), static_cast<std::uint16_t>(0x1000 + s)}};
    for (unsigned l = 0; l < shape_.leaves; ++l) {
      t.fib.push_back({{usid_block(p), static_cast<std::uint16_t>(0x2000 + l)}, static_cast<SwitchPort>(l)});
      t.groups.push_back({static_cast<SwitchPort>(l)});
    }
    for (unsigned h = 0; shape_.host_routes && h < shape_.hosts(); ++h) {
      t.hosts.push_back({host_address(h), static_cast<std::uint16_t>(leaf_of(h))});
    }
    return t.pack();
  }

  Network& network_;
  ClosShape shape_;
  std::vector<LinkId> host_links_, fabric_links_;
};

}  // namespace loomnet::testing
