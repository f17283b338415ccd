// Servers of a region, each with NICs at a panel and one electrical port at a switch, over fluid transfers.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "engine/nic_bed.hpp"
#include "fluid/fluid_fabric.hpp"
#include "moe/moe_traffic.hpp"

namespace loomnet::testing {

constexpr std::uint64_t kNic = 100;  // Gb/s

struct MoeBed {
  Network network;
  std::uint32_t servers, alpha;
  NodeId panel = 0, hub = 0;
  std::unique_ptr<fluid::FluidFabric> fluid;
  std::unique_ptr<moe::MoeTraffic> traffic;

  // Fluid transfers have no headers here, so times are those of the bytes.
  MoeBed(std::uint32_t servers, std::uint32_t alpha, const panel::DeviceOptions& options, bool packets = false,
         std::uint64_t seed = 5, Picoseconds fibre = {})
      : network(seed), servers(servers), alpha(alpha) {
    for (std::uint32_t s = 0; s < servers; ++s) network.add_host(1 + alpha);
    auto program = make_star(servers);
    hub = network.add_switch(servers, std::move(program));
    const LinkConfig wires{.rate = gigabits((8 - alpha) * kNic)};
    for (std::uint32_t s = 0; s < servers; ++s) {
      network.connect({s, 0}, {hub, static_cast<std::uint16_t>(s)}, wires, wires);
    }
    if (alpha > 0) panel = network.add_panel(std::vector<std::int32_t>(servers * alpha, -1), options);
    for (std::uint32_t p = 0; p < servers * alpha; ++p) {
      network.connect({p / alpha, static_cast<std::uint16_t>(1 + p % alpha)}, {panel, static_cast<std::uint16_t>(p)},
                      {.rate = gigabits(kNic), .delay = fibre}, {.delay = fibre});
    }
    if (packets) {
      equip(network, servers, gigabits(kNic), {"roce"});
      return;
    }
    fluid = std::make_unique<fluid::FluidFabric>(network);
    for (NodeId s = 0; s < servers; ++s) fluid->add_transport(s, "roce", {.payload = 4096, .overhead = 0, .ack = 0});
  }

  static std::unique_ptr<SwitchProgram> make_star(std::uint32_t servers) {
    ForwardBatch t;
    t.generation = 1;
    for (std::uint32_t s = 0; s < servers; ++s) {
      t.hosts.push_back({host_address(s), static_cast<std::uint16_t>(s)});
      t.groups.push_back({static_cast<SwitchPort>(s)});
    }
    auto program = std::make_unique<ForwardProgram>(servers, ForwardSettings{});
    program->set_tables(t.pack());
    return program;
  }

  // Paths by one port of a server: 0, the electrical one, or 1 + k, optical NIC k.
  std::vector<PlanePaths> by(PlanePort port) const {
    std::vector<PlanePaths> planes(1 + alpha);
    for (PlanePort p = 0; p < planes.size(); ++p) planes[p].plane = p;
    planes[port].uplinks = {0};
    return planes;
  }
  std::vector<PlanePaths> wires() const { return by(0); }

  moe::Way connect(NodeId a, NodeId b, QpNumber qp, PlanePort port) {
    const std::vector<PlanePaths> planes = by(port);
    network.nic(a).connect({qp, qp, a, b, 0, planes, planes}, network.now(), {}, "roce");
    return {a, b, qp};
  }

  // One region with all queue pairs connected, parallel circuits as ways of their own or, lumped, as one.
  // `rotor`: its circuits rotate, whatever the region's options say.
  void train(moe::MoeConfig config, bool lumped = false, circuits::RegionOptions region = {},
             std::optional<moe::RotorOptions> rotor = {}) {
    config.exchange.alpha = alpha;
    config.exchange.rates = {kNic * 1e9, static_cast<double>((8 - alpha) * kNic) * 1e9};
    config.message = fluid ? 1u << 30 : 1u << 18;
    traffic = std::make_unique<moe::MoeTraffic>(network, std::move(config));
    moe::Exchange& exchange = traffic->region(0).exchange();
    std::vector<std::vector<moe::Way>> light(servers * servers), wire(servers * servers);
    QpNumber qp = 0x200;
    for (std::uint32_t i = 0; i < servers; ++i) {
      for (std::uint32_t j = i + 1; j < servers; ++j) {
        for (const auto& [a, b] : {std::pair{i, j}, std::pair{j, i}}) wire[a * servers + b] = {connect(a, b, qp, 0)};
        ++qp;
        for (std::uint32_t k = 0; k < (lumped ? std::min(alpha, 1u) : alpha); ++k, ++qp) {
          for (const auto& [a, b] : {std::pair{i, j}, std::pair{j, i}}) {
            light[a * servers + b].push_back(connect(a, b, qp, static_cast<PlanePort>(1 + k)));
          }
        }
      }
    }
    const std::vector<PlanePaths> fallback = wires();
    for (std::uint32_t i = 0; i < servers; ++i) {
      for (std::uint32_t j = 0; j < servers; ++j) {
        if (i == j) continue;
        exchange.set_electrical(i, j, wire[i * servers + j]);
        if (alpha > 0) exchange.set_optical(i, j, light[i * servers + j], fallback);
      }
    }
    if (alpha > 0) {
      region.servers = servers;
      region.alpha = alpha;
      std::vector<moe::NicPort> nics;
      for (std::uint32_t p = 0; p < servers * alpha; ++p) {
        nics.push_back({p / alpha, static_cast<PlanePort>(1 + p % alpha)});
      }
      if (rotor) {
        rotor->servers = servers;
        rotor->alpha = alpha;
        traffic->region(0).use_rotor(panel, *rotor, std::move(nics));
      } else {
        traffic->region(0).use_circuits(panel, region, std::move(nics));
      }
    }
    traffic->region(0).keep_spans(10'000);
    traffic->start();
  }
  void run(Picoseconds until = seconds(100)) {
    while (!traffic->done() && network.now() < until && !network.run_until(until)) continue;
  }
  // How long the first exchange of this kind took.
  double exchange_s(moe::RegionWork::Span::Kind kind = moe::RegionWork::Span::Kind::dispatch) const {
    for (const auto& span : traffic->region(0).spans()) {
      if (span.kind == kind) return (span.end - span.begin).seconds();
    }
    return 0;
  }
};

}  // namespace loomnet::testing
