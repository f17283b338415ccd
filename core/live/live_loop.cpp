// One pass: receive, orders, ranks, due events, flush; then sleep if none of it was work.
#include "live/live_loop.hpp"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "ebpf/metadata.h"
#include "live/priority.hpp"
#include "switch/loaded/guarded_call.hpp"

namespace loomnet {
namespace {

constexpr std::int64_t kHousekeepingNs = 1'000'000;
constexpr std::size_t kSweepShare = 256;        // of the table, each housekeeping
constexpr std::int64_t kDrainNs = 100'000'000;  // what stop() waits for the kernel

// Packets that the program absorbed or passed and could not report, because the ring was full.
std::uint64_t unreported(const XdpProgram& program) {
  std::vector<SwitchCounter> all;
  program.counters(all);
  return all[all.size() - LN_HOST_COUNTER_COUNT + LN_HOST_UNREPORTED].value;
}

}  // namespace

LiveLoop::LiveLoop(Network& network, LiveFabric& fabric, const LiveLoopConfig& config)
    : network_(network), fabric_(fabric), config_(config), clock_(config.dilation), carriers_(fabric, config.realtime) {
  by_node_.resize(network.nodes());
  std::vector<std::uint32_t> of_node(network.nodes(), kNoPort);
  for (std::size_t i = 0; i < fabric.ports().size(); ++i) {
    const LivePort& p = fabric.ports()[i];
    if (p.node >= network.nodes()) {
      throw std::invalid_argument("live port " + p.interface + " belongs to node " + std::to_string(p.node) +
                                  ", which the network does not have");
    }
    auto& row = by_node_[p.node];
    if (row.size() <= p.port) row.resize(std::size_t{p.port} + 1, kNoPort);
    row[p.port] = static_cast<std::uint32_t>(i);
    const bool kept = p.kind == PortKind::xdp_switch || p.kind == PortKind::xdp_panel;
    if (kept && of_node[p.node] == kNoPort) {
      of_node[p.node] = static_cast<std::uint32_t>(reckonings_.size());
      reckonings_.push_back({.node = p.node});
      const XdpSwitch* s = fabric.switch_of(p.node);
      switch_drops_before_.push_back(drops_of(p.node));
      unreported_before_.push_back(s ? unreported(s->program()) : 0);
    }
    XdpSwitch* s = p.kind == PortKind::xdp_switch ? fabric.switch_of(p.node) : nullptr;
    ports_.push_back({&fabric.socket(i), p.kind, p.node, p.port, p.mac, kept ? of_node[p.node] : 0, false,
                      s ? &s->program() : nullptr});
  }
  losses_before_ = fabric.losses();
  dirty_.reserve(ports_.size());
  network_.pool().set_frame_owner(&fabric.frames());
  network_.set_gate(this);
}

LiveLoop::~LiveLoop() {
  stop();
  in_kernel_.sweep(in_kernel_.slots() * 2, INT64_MAX, [](UidTable::Entry&&) {});
  // Packets may outlive the fabric whose frames they point into: let them keep nothing alive.
  network_.pool().set_frame_owner(nullptr);
  network_.set_gate(nullptr);
}

void LiveLoop::start() {
  if (thread_.joinable()) throw std::logic_error("the live loop runs already");
  darken_hosts();
  clock_.start(network_.now());
  const std::int64_t wall = wall_nanoseconds();
  fabric_.set_clock(wall, clock_.at(wall), clock_.dilation());
  network_.publish_panels();
  thread_ = std::thread([this] { run(); });
}

// Hosts' ports that have no light when time begins.
void LiveLoop::darken_hosts() {
  std::vector<CarrierChange> dark;
  const auto see = [&](NodeId host, std::uint16_t port) {
    if (!network_.nic(host).port_up(static_cast<PlanePort>(port))) dark.push_back({host, port, false});
  };
  for (const Port& p : ports_) {
    if (p.kind == PortKind::host) see(p.node, p.port);
  }
  for (const LivePanel& panel : fabric_.tc_panels()) {
    for (const LiveFibre& f : panel.fibres) see(f.host, f.port);
  }
  fabric_.set_carriers(dark);
}

void LiveLoop::stop() {
  if (!thread_.joinable()) return;
  commands_.post([this] { stopping_ = true; });
  thread_.join();
  carriers_.stop();
  if (tables_) tables_->stop();
}

StageLateness LiveLoop::take_window() {
  const auto take = [this] {
    const StageLateness window = window_;
    whole_.merge(window_);
    window_.clear();
    return window;
  };
  return running() ? call(take) : take();
}

LiveLoop::Pace LiveLoop::pace(Picoseconds bound) {
  return call([this, bound] {
    LatenessHistogram packets = whole_[Stage::packet];
    packets.merge(window_[Stage::packet]);
    return Pace{counters_.received, packets.beyond(bound), packets.summary()};
  });
}

void LiveLoop::take_priority() {
  if (!config_.realtime) {
    scheduling_ = "normal: as configured";
    return;
  }
  ThreadPriority taken = take_realtime_priority();
  fifo_ = taken.fifo;
  scheduling_ = std::move(taken.text);
}

void LiveLoop::run() {
  ::prctl(PR_SET_NAME, "loomnet-live");
  thread_id_ = ::gettid();
  ::prctl(PR_SET_TIMERSLACK, 1ul);  // the default of 50 us would be most of the lateness
  take_priority();
  pass_wall_ = wall_nanoseconds();
  awake_since_ = pass_wall_;
  while (!stopping_) {
    bool worked = false;
    try {
      worked = still_ ? commands_.run() : pass();
    } catch (const ProgramFault& fault) {
      stand_still(fault.what());
    }
    const std::int64_t ended = wall_nanoseconds();
    window_[Stage::pass].record(emulated(ended - pass_wall_));
    if (fifo_ && ended - awake_since_ > config_.awake_limit_ns) {
      sleep(ended, config_.rest_ns);
    } else if (!worked) {
      sleep(ended, config_.idle_sleep_ns);
    }
  }
  // Packets in the kernel come back within microseconds; the rest is for the reckoning.
  const std::int64_t until = wall_nanoseconds() + kDrainNs;
  while ((in_kernel_.size() || !dirty_.empty()) && wall_nanoseconds() < until) {
    flush();
    if (!receive_all(clock_.now()) && !take_reports()) ::usleep(20);
    returned_.clear();
    from_hosts_.clear();
  }
  commands_.close();
}

// Its packet is gone, and its code may have written anywhere: commands are all that the loop still serves.
void LiveLoop::stand_still(const std::string& fault) {
  still_ = true;
  returned_.clear();
  from_hosts_.clear();
  const std::lock_guard lock(fault_guard_);
  fault_ = fault;
}

bool LiveLoop::pass() {
  ++passes_;
  const std::int64_t wall = wall_nanoseconds();
  longest_pass_ns_ = std::max(longest_pass_ns_, wall - pass_wall_);
  looked_ = pass_wall_;
  pass_wall_ = wall;
  // One instant per pass. Packets that switches returned go first, in the order of their ideal times,
  // whichever socket they came by: a link must see them as its peers sent them. Then what the models
  // owe up to the instant; only then posts and frames of hosts, which begin at it.
  const Picoseconds now = instant_ = clock_.now();
  bool worked = receive_all(now);
  worked |= take_reports();
  offer_returned();
  const Picoseconds due = network_.events().next();
  if (due <= now) {
    window_[Stage::engine].record(now - due);
    worked = true;
  }
  catch_up(now);
  for (auto& [packet, node, port] : from_hosts_) {
    network_.from_host(node, static_cast<PlanePort>(port), std::move(packet), now);
  }
  from_hosts_.clear();
  worked |= commands_.run();
  for (LivePoller* p : pollers_) worked |= p->poll(now, window_[Stage::post]);
  catch_up(now);
  worked |= flush();
  if (wall >= next_housekeeping_) housekeeping(wall);
  return worked;
}

// A model may stop the queue to be looked at; here the next pass looks.
void LiveLoop::catch_up(Picoseconds now) {
  while (!network_.run_until(now)) {
  }
}

std::uint64_t LiveLoop::drops_of(NodeId node) const {
  if (const XdpSwitch* s = fabric_.switch_of(node)) return s->program().drops();
  std::uint64_t sum = 0;
  if (const KernelPanel* panel = fabric_.panel_of(node)) {
    const panel_counters all = panel->totals();
    for (int i = PANEL_DROP_UNMAPPED; i < PANEL_VERDICTS; ++i) sum += all.packets[i];
  }
  return sum;
}

// Dark times become those of the wall clock. Another thread publishes while the loop runs: the table is in
// force at once, but the kernel returns when no packet has the one before.
void LiveLoop::publish_panel(NodeId node, std::span<const panel_entry> entries) {
  KernelPanel* const panel = fabric_.panel_of(node);
  if (!panel) return;
  std::vector<panel_entry> table(entries.begin(), entries.end());
  for (panel_entry& entry : table) {
    if (entry.dark_until) {
      const Picoseconds lit{static_cast<std::int64_t>(entry.dark_until) * 1000};
      entry.dark_until = static_cast<std::uint64_t>(std::max(clock_.wall_of(lit), std::int64_t{0}));
    }
    // A cross-connect may lead to a port that has no fibre.
    if (entry.peer != PANEL_NO_PEER && entry.peer >= panel->interfaces()) entry.peer = PANEL_NO_PEER;
  }
  if (!thread_.joinable()) {
    panel->publish(table);
    return;
  }
  if (!tables_) tables_ = std::make_unique<Worker>("loomnet-panel", config_.realtime);
  tables_->post([this, panel, table = std::move(table), due = clock_.wall_of(network_.now())] {
    const Picoseconds late = emulated(panel->publish(table) - due);
    commands_.post([this, late] { window_[Stage::table].record(late); });
  });
}

void LiveLoop::set_carrier(NodeId host, std::uint16_t port, bool up, Picoseconds at) {
  if (find(host, port) != kNoPort || fabric_.has_fibre(host, port)) {
    carriers_.set({host, port, up}, clock_.wall_of(at));
  }
}

void LiveLoop::housekeeping(std::int64_t wall) {
  next_housekeeping_ = wall + kHousekeepingNs;
  in_kernel_.sweep(in_kernel_.slots() / kSweepShare, wall - config_.uid_timeout_ns,
                   [this](UidTable::Entry&&) { ++counters_.swept; });
}

// Never until the next event exactly: arming a timer for a few microseconds costs more than that in
// a virtual machine (30 % of the core at 150,000 passes/s), and leaves the core idle.
void LiveLoop::sleep(std::int64_t now, std::int64_t lasts) {
  const std::int64_t until = now + lasts;
  const timespec t{until / 1'000'000'000, until % 1'000'000'000};
  ::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, nullptr);
  awake_since_ = wall_nanoseconds();
  window_[Stage::sleep].record(emulated(awake_since_ - until));
}

Picoseconds LiveLoop::emulated(std::int64_t wall_ns) const { return clock_.span(wall_ns); }

namespace {

// " (2 from h0's eth0, 1 to h1's eth0 and at 3 more ports)", or nothing.
std::string among(std::span<const std::string> where) {
  constexpr std::size_t kShown = 3;
  std::string text;
  for (const std::string& each : where.first(std::min(where.size(), kShown)))
    text += (text.empty() ? " (" : ", ") + each;
  if (where.size() > kShown) text += " and at " + std::to_string(where.size() - kShown) + " more";
  return text.empty() ? text : text + ")";
}

}  // namespace

Fidelity LiveLoop::fidelity() {
  if (thread_.joinable()) throw std::logic_error("fidelity() is for after stop()");
  Fidelity f;
  whole_.merge(window_);
  window_.clear();
  f.stages = whole_;
  f.longest_pass = emulated(longest_pass_ns_);
  f.passes = passes_;
  f.scheduling = scheduling_;
  f.dilation = clock_.dilation();
  f.switches = reckonings_;
  const auto losses = fabric_.losses();
  std::vector<std::string> where;  // packets were lost, by port
  for (std::size_t i = 0; i < ports_.size(); ++i) {
    const auto since = [](std::uint64_t now, std::uint64_t before) { return now - std::min(now, before); };
    const std::uint64_t from = since(losses[i].from_node(), losses_before_[i].from_node());
    const std::uint64_t to = since(losses[i].to_node(), losses_before_[i].to_node());
    if (from) where.push_back(std::to_string(from) + " from " + fabric_.port_name(i));
    if (to) where.push_back(std::to_string(to) + " to " + fabric_.port_name(i));
    f.own_losses += from + to;
    if (ports_[i].kind == PortKind::xdp_switch || ports_[i].kind == PortKind::xdp_panel)
      f.switches[ports_[i].reckoning].own_losses += from + to;
  }
  for (std::size_t i = 0; i < f.switches.size(); ++i) {
    SwitchReckoning& s = f.switches[i];
    s.switch_drops = drops_of(s.node) - switch_drops_before_[i];
    if (const XdpSwitch* xdp = fabric_.switch_of(s.node)) {
      s.unreported = unreported(xdp->program()) - unreported_before_[i];
    }
    f.given += s.given;
    f.returned += s.returned;
    f.absorbed += s.absorbed;
    f.passed += s.passed;
    f.switch_drops += s.switch_drops;
    f.unexplained += s.unexplained();
  }
  const Counters& c = counters_;
  f.own_losses += c.umem_dry + c.tx_ring_full + c.too_long + c.no_port + c.malformed;
  f.counters = {{"received", c.received},
                {"sent", c.sent},
                {"foreign", c.foreign},
                {"no_metadata", c.no_metadata},
                {"metadata_mismatch", c.metadata_mismatch},
                {"malformed", c.malformed},
                {"swept", c.swept},
                {"reported", c.reported},
                {"unknown_report", c.unknown_report},
                {"umem_dry", c.umem_dry},
                {"tx_ring_full", c.tx_ring_full},
                {"too_long", c.too_long},
                {"no_port", c.no_port},
                {"host_frames", c.host_frames}};
  f.carriers_down = carriers_.taken_down();
  f.carriers_up = carriers_.taken_up();
  for (const std::string& failure : {carriers_.failure(), tables_ ? tables_->failure() : std::string()}) {
    if (failure.empty()) continue;
    f.verdict = LiveVerdict::fell_behind;
    f.reason = failure;
  }
  const LatenessHistogram& packets = whole_[Stage::packet];
  const Picoseconds p99 = (packets.count() ? packets : whole_[Stage::engine]).percentile(0.99);
  if (p99 > config_.lateness_bound) {
    f.verdict = LiveVerdict::fell_behind;
    if (!f.reason.empty()) f.reason += "; ";
    // The lateness is rounded up and the bound down, so that the text never names two equal numbers.
    const auto us = [](double rounded) { return std::to_string(static_cast<long long>(rounded)) + " us"; };
    f.reason += "p99 lateness " + us(std::ceil(p99.microseconds())) + " is above the bound of " +
                us(std::floor(config_.lateness_bound.microseconds()));
  }
  if (f.own_losses || f.unexplained) {
    f.verdict = LiveVerdict::lost_packets;
    if (!f.reason.empty()) f.reason += "; ";
    f.reason += std::to_string(f.own_losses) + " packets lost in sockets and veths" + among(where) + ", " +
                std::to_string(f.unexplained) + " unexplained";
  }
  return f;
}

}  // namespace loomnet
