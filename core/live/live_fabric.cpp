// Bring-up and tear-down. What costs time is grace periods of RCU, so everything is either one
// batch under one lock or spread over threads.
#include "live/live_fabric.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "live/offloads.hpp"
#include "switch/registry/registry.hpp"

namespace loomnet {
namespace {

constexpr std::uint32_t kLinkGroup = 0x6c6e;  // of the engine's ends; the namespace is ours alone
constexpr std::uint32_t kFibreMtu = 9000;     // tc takes frames of any size
constexpr std::size_t kThreads = 8;           // they wait for the kernel, not for a core

// Runs work(0) … work(count - 1) on a few threads; rethrows the first failure after all have ended.
void in_parallel(std::size_t count, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < std::min(count, kThreads); ++t) {
    threads.emplace_back([&] {
      for (std::size_t i = next++; i < count; i = next++) {
        try {
          work(i);
        } catch (...) {
          const std::lock_guard lock(mutex);
          if (!failure) failure = std::current_exception();
        }
      }
    });
  }
  for (std::thread& t : threads) t.join();
  if (failure) std::rethrow_exception(failure);
}

// Of the end of a veth that is not the node's: no node has as many interfaces. Two ends with one number, which
// namespaces of their own allow, look to the kernel like a device of its own, without a peer: it then announces
// changes of carrier only once a second.
int far_index(std::size_t port) { return 100'000 + static_cast<int>(port); }

std::string fibre_name(std::size_t port) { return "s" + std::to_string(port); }

}  // namespace

LiveFabric::LiveFabric(std::vector<LivePort> ports, const std::vector<LiveSwitch>& switches,
                       const LiveFabricConfig& config, const std::vector<LivePanel>& panels)
    : ports_(std::move(ports)), netns_(Netns::create("loomnet engine")) {
  if (config.sockets_per_umem == 0) {
    throw std::invalid_argument("LiveFabricConfig.sockets_per_umem must be at least 1");
  }
  if (config.mtu > 3500) {
    throw std::invalid_argument(
        "LiveFabricConfig.mtu must be at most 3500: native XDP on a veth "
        "takes no larger frame");
  }
  for (const LivePanel& p : panels) {
    if (p.hook == PanelHook::tc) tc_panels_.push_back(p);
  }
  try {
    create_links(config);
    create_fibres();
    open_sockets(config);
    attach_switches(switches);
    attach_panels(panels);
  } catch (...) {
    close();
    throw;
  }
}

LiveFabric::~LiveFabric() {
  try {
    close();
  } catch (const LiveError&) {
    // The descriptors close all the same, and with the namespace every veth goes.
  }
}

void LiveFabric::create_links(const LiveFabricConfig& config) {
  Rtnetlink rt(netns_);
  for (std::size_t i = 0; i < ports_.size(); ++i) {
    const LivePort& p = ports_[i];
    rt.create_veth({.a = {.name = engine_name(i), .group = kLinkGroup, .index = far_index(i)},
                    .b = {.name = p.interface, .netns = p.netns, .mac = p.mac},
                    .mtu = config.mtu});
  }
  links_made_ = !ports_.empty();
  rt.commit();
  std::map<const Netns*, std::vector<std::string>> hosts;
  for (const LivePort& p : ports_) {
    if (p.kind != PortKind::xdp_switch && p.kind != PortKind::xdp_panel) hosts[p.netns].push_back(p.interface);
  }
  for (const auto& [netns, names] : hosts) disable_offloads(*netns, names);
}

void LiveFabric::create_fibres() {
  for (const LivePanel& p : tc_panels_) {
    // What the panel's namespace would say by itself is no light.
    p.netns->sysctl("net/ipv6/conf/default/disable_ipv6", "1");
    Rtnetlink rt(*p.netns);
    for (std::size_t i = 0; i < p.fibres.size(); ++i) {
      const LiveFibre& f = p.fibres[i];
      rt.create_veth({.a = {.name = fibre_name(i), .group = kLinkGroup, .index = far_index(i)},
                      .b = {.name = f.interface, .netns = f.netns, .mac = f.mac},
                      .mtu = kFibreMtu});
    }
    fibres_made_ = rt.pending() > 0;
    rt.commit();
  }
}

void LiveFabric::open_sockets(const LiveFabricConfig& config) {
  const std::size_t per_group = config.sockets_per_umem;
  groups_.resize((ports_.size() + per_group - 1) / per_group);
  sockets_.resize(ports_.size());
  in_parallel(groups_.size(), [&](std::size_t g) {
    netns_.run([&] {
      Group& group = groups_[g];
      group.umem = std::make_unique<Umem>(static_cast<std::uint8_t>(g), config.frames_per_umem, config.xsk.fill,
                                          config.xsk.completion);
      for (std::size_t i = g * per_group; i < std::min(ports_.size(), (g + 1) * per_group); ++i) {
        group.sockets.push_back(std::make_unique<XskSocket>(*group.umem, engine_name(i), config.xsk));
        sockets_[i] = group.sockets.back().get();
      }
    });
  });
  for (const Group& g : groups_) arena_.add(*g.umem);
  endpoint_ = std::make_unique<EngineEndpoint>();
  netns_.run([&] {
    for (XskSocket* s : sockets_) endpoint_->add(*s);
  });
}

// Of an XDP node in the order of its ports, which are numbered from 0 without gaps.
std::vector<std::string> LiveFabric::interfaces_of(NodeId node, const std::string& name) const {
  std::vector<std::string> names;
  for (const LivePort& p : ports_) {
    if (p.node != node || (p.kind != PortKind::xdp_switch && p.kind != PortKind::xdp_panel)) continue;
    if (names.size() <= p.port) names.resize(std::size_t{p.port} + 1);
    names[p.port] = p.interface;
  }
  const auto gap = std::find(names.begin(), names.end(), std::string());
  if (names.empty() || gap != names.end()) {
    throw std::invalid_argument("switch " + name + " has no port " + std::to_string(gap - names.begin()) +
                                " among the LivePorts");
  }
  return names;
}

void LiveFabric::attach_panels(const std::vector<LivePanel>& panels) {
  for (const LivePanel& p : panels) {
    panels_.emplace_back(p.node, std::make_unique<KernelPanel>(p.ports));
    std::vector<std::string> names;
    for (std::size_t i = 0; i < p.fibres.size(); ++i) names.push_back(fibre_name(i));
    if (p.hook == PanelHook::xdp) names = interfaces_of(p.node, p.netns->label());
    panels_.back().second->attach(*p.netns, names, p.hook);
  }
}

void LiveFabric::attach_switches(const std::vector<LiveSwitch>& switches) {
  for (const LiveSwitch& s : switches) switches_.push_back({s.node, nullptr});
  in_parallel(switches.size(), [&](std::size_t i) {
    const LiveSwitch& s = switches[i];
    const std::vector<std::string> names = interfaces_of(s.node, s.netns->label());
    switches_[i].program =
        std::make_unique<XdpSwitch>(*s.netns, names, program_kind(s.program), s.seed, s.options, reports_);
    if (s.tables) switches_[i].program->program().set_tables(*s.tables);
  });
}

void LiveFabric::close() {
  std::exception_ptr failure;
  carriers_.reset();
  fibre_carriers_.clear();
  for (const LivePanel& p : tc_panels_) {
    if (!fibres_made_) break;
    try {
      Rtnetlink rt(*p.netns);
      rt.delete_group(kLinkGroup);
      rt.commit();
    } catch (const LiveError&) {
      failure = std::current_exception();
    }
  }
  tc_panels_.clear();
  if (links_made_) {
    // First the interfaces, all at once: that unbinds sockets and programs under one grace period,
    // and what closes afterwards has nothing left to wait for.
    links_made_ = false;
    try {
      Rtnetlink rt(netns_);
      rt.delete_group(kLinkGroup);
      rt.commit();
    } catch (const LiveError&) {
      failure = std::current_exception();
    }
  }
  in_parallel(switches_.size(), [&](std::size_t i) { switches_[i].program.reset(); });
  switches_.clear();
  panels_.clear();
  endpoint_.reset();
  sockets_.clear();
  in_parallel(groups_.size(), [&](std::size_t g) { groups_[g].sockets.clear(); });
  in_parallel(groups_.size(), [&](std::size_t g) { groups_[g].umem.reset(); });
  groups_.clear();
  if (failure) std::rethrow_exception(failure);
}

XdpSwitch* LiveFabric::switch_of(NodeId node) {
  for (Switch& s : switches_) {
    if (s.node == node) return s.program.get();
  }
  return nullptr;
}

KernelPanel* LiveFabric::panel_of(NodeId node) {
  for (auto& [number, panel] : panels_) {
    if (number == node) return panel.get();
  }
  return nullptr;
}

XdpProgram& LiveFabric::program_of(NodeId node) {
  XdpSwitch* s = switch_of(node);
  if (!s) throw std::invalid_argument("node " + std::to_string(node) + " is not an XDP switch");
  return s->program();
}

void LiveFabric::set_tables(NodeId node, const TableBatch& batch) { program_of(node).set_tables(batch); }
void LiveFabric::reset(NodeId node) { program_of(node).reset(); }
StateSnapshot LiveFabric::snapshot(NodeId node) { return program_of(node).snapshot(); }

void LiveFabric::set_clock(std::int64_t wall, Picoseconds emulated, double dilation) {
  for (Switch& s : switches_) s.program->program().set_clock(wall, emulated, dilation);
}

bool LiveFabric::has_fibre(NodeId host, std::uint16_t port) const {
  for (const LivePanel& p : tc_panels_) {
    for (const LiveFibre& f : p.fibres) {
      if (f.host == host && f.port == port) return true;
    }
  }
  return false;
}

void LiveFabric::set_carriers(std::span<const CarrierChange> changes) {
  const std::lock_guard lock(carriers_guard_);
  for (const CarrierChange& change : changes) {
    const auto mine = [&](const auto& each) { return each.node == change.node && each.port == change.port; };
    if (const auto at = std::ranges::find_if(ports_, mine); at != ports_.end()) {
      if (!carriers_) carriers_ = std::make_unique<Rtnetlink>(netns_);
      carriers_->set_up(engine_name(static_cast<std::size_t>(at - ports_.begin())), change.up);
    }
    for (const LivePanel& p : tc_panels_) {
      for (std::size_t i = 0; i < p.fibres.size(); ++i) {
        if (p.fibres[i].host != change.node || p.fibres[i].port != change.port) continue;
        std::unique_ptr<Rtnetlink>& rt = fibre_carriers_[p.node];
        if (!rt) rt = std::make_unique<Rtnetlink>(*p.netns);
        rt->set_up(fibre_name(i), change.up);
      }
    }
  }
  if (carriers_) carriers_->commit();
  for (auto& [panel, rt] : fibre_carriers_) rt->commit();
}

void LiveFabric::check_panels() {
  std::map<NodeId, std::string> xdp;  // panels, by node
  for (const auto& entry : panels_) {
    const NodeId node = entry.first;
    const bool tc =
        std::any_of(tc_panels_.begin(), tc_panels_.end(), [&](const LivePanel& p) { return p.node == node; });
    if (!tc) xdp[node] = "";
  }
  if (xdp.empty()) return;
  for (std::size_t i = 0; i < ports_.size(); ++i) {
    const LivePort& p = ports_[i];
    if (xdp.contains(p.node) && !takes_xdp_frames(netns_, engine_name(i))) {
      throw std::runtime_error("panel " + p.netns->label() + ": the far end of its port " + std::to_string(p.port) +
                               " has neither an XDP program nor GRO, so all light to it is lost; attach the program "
                               "again or switch GRO on: ethtool -K " +
                               engine_name(i) + " gro on");
    }
    if (p.kind != PortKind::host) continue;
    if (const std::string on = offload_in_use(*p.netns, p.interface); !on.empty()) {
      throw std::runtime_error(
          "host " + p.netns->label() + ": " + on + " is on at " + p.interface +
          ", and what it leaves unfinished is lost beside a panel by XDP; switch it off: ethtool -K " + p.interface +
          " tx off tso off gso off");
    }
  }
}

std::vector<LiveFabric::PortLosses> LiveFabric::losses() {
  std::vector<PortLosses> out(ports_.size());
  std::map<std::string, std::uint64_t> here;
  for (const LinkInfo& l : Rtnetlink(netns_).links()) here[l.name] = l.rx_dropped;
  std::map<const Netns*, std::map<std::string, std::uint64_t>> there;
  for (const LivePort& p : ports_) {
    if (there.contains(p.netns)) continue;
    auto& names = there[p.netns];
    for (const LinkInfo& l : Rtnetlink(*p.netns).links()) names[l.name] = l.rx_dropped;
  }
  for (std::size_t i = 0; i < ports_.size(); ++i) {
    out[i].xsk = sockets_[i]->statistics();
    out[i].engine_end_dropped = here[engine_name(i)];
    out[i].node_end_dropped = there[ports_[i].netns][ports_[i].interface];
  }
  return out;
}

}  // namespace loomnet
