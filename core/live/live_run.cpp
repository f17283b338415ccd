// Bring-up, orderly end and pauses of a live run.
#include "live/live_run.hpp"

#include <fcntl.h>

#include <stdexcept>
#include <utility>

namespace loomnet {
namespace {

Netns netns_of(int fd, const std::string& label) {
  const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
  if (copy < 0) throw LiveError("copy the descriptor of network namespace " + label, errno);
  return Netns::from_fd(Fd(copy), label);
}

}  // namespace

LiveRun::LiveRun(Network& network, const std::vector<Port>& ports, const std::vector<Switch>& switches, double dilation,
                 Picoseconds lateness_bound, const std::vector<Panel>& panels)
    : network_(network), poller_(dilation), dilation_(dilation) {
  std::vector<LivePort> live_ports;
  std::vector<LiveSwitch> live_switches;
  // Ports and switches point at namespaces: their addresses must stay.
  std::size_t fibres = 0;
  for (const Panel& p : panels) fibres += p.fibres.size();
  namespaces_.reserve(ports.size() + switches.size() + panels.size() + fibres);
  std::vector<LivePanel> live_panels;
  for (const Panel& p : panels) {
    namespaces_.push_back(netns_of(p.netns, p.name));
    live_panels.push_back({p.node, &namespaces_.back(), network.ports(p.node), p.hook, {}});
    for (const Fibre& f : p.fibres) {
      namespaces_.push_back(netns_of(f.netns, f.interface));
      live_panels.back().fibres.push_back({f.host, f.port, &namespaces_.back(), f.interface, f.mac});
    }
  }
  for (const Switch& s : switches) {
    namespaces_.push_back(netns_of(s.netns, s.name));
    live_switches.push_back({s.node, &namespaces_.back(), s.program, s.seed, s.options, s.tables});
    if (s.tables && network_.hooks(s.node)) network_.set_tables(s.node, s.tables);
  }
  for (const Port& p : ports) {
    namespaces_.push_back(netns_of(p.netns, p.interface));
    const Netns* netns = &namespaces_.back();
    for (const LiveSwitch& s : live_switches) {
      if (s.node == p.node) netns = s.netns;
    }
    for (const LivePanel& panel : live_panels) {
      if (panel.node == p.node) netns = panel.netns;
    }
    live_ports.push_back({p.node, p.port, p.kind, netns, p.interface, p.mac});
  }
  fabric_ = std::make_unique<LiveFabric>(std::move(live_ports), live_switches, LiveFabricConfig{}, live_panels);
  loop_ = std::make_unique<LiveLoop>(network_, *fabric_,
                                     LiveLoopConfig{.dilation = dilation, .lateness_bound = lateness_bound});
  network_.set_gate(loop_.get());
  network.forbid_lookahead();  // the kernel and other threads act on any host at any time
  loop_->add_poller(poller_);
}

LiveRun::~LiveRun() { close(); }

void LiveRun::start() {
  loop_->start();
  watch_.watch_engine(loop_->call([this] { return loop_->thread_id(); }));
}

void LiveRun::stop() {
  {
    const std::lock_guard lock(pausing_);
    if (loop_) loop_->holders().clear();  // an interrupt may have come between pause() and resume()
    go_on();
  }
  if (loop_) loop_->stop();
}

void LiveRun::close() {
  if (!loop_) return;
  stop();
  fidelity_ = loop_->fidelity();
  fidelity_.waits = watch_.waits();
  fidelity_.waits_missing = watch_.missing();
  watch_.close();
  network_.set_gate(nullptr);
  network_.clear();  // frames go back to the arena before it goes
  loop_.reset();
  fabric_->close();
  fabric_.reset();
  namespaces_.clear();  // a descriptor would keep a dead node's interfaces alive
}

bool LiveRun::pause(std::chrono::nanoseconds most) {
  if (!loop_ || !loop_->running()) return true;
  std::shared_future<void> stands;
  {
    const std::lock_guard lock(pausing_);
    if (!stands_.valid()) {
      priority_.take();
      resumed_ = std::promise<void>();
      auto paused = std::make_shared<std::promise<void>>();
      if (!loop_->post([paused, loop = loop_.get(), go = std::make_shared<std::future<void>>(resumed_.get_future())] {
            loop->stand([&] { paused->set_value(); }, std::move(*go));
          })) {
        priority_.give_back();
        return true;
      }
      stands_ = paused->get_future().share();
    }
    stands = stands_;
    ++awaiting_;
  }
  const bool ready = stands.wait_for(most) == std::future_status::ready;
  const std::lock_guard lock(pausing_);
  --awaiting_;
  if (ready) loop_->holders().add();
  return ready;
}

void LiveRun::resume() {
  const std::lock_guard lock(pausing_);
  if (loop_ && loop_->holders().remove() && awaiting_ == 0) go_on();
}

void LiveRun::go_on() {
  if (!stands_.valid()) return;
  stands_ = {};
  resumed_.set_value();
  priority_.give_back();
}

std::vector<LiveRun::RankSeen> LiveRun::look(const std::vector<RankBridge*>& bridges) {
  return call([&] {
    std::vector<RankSeen> all;
    for (RankBridge* b : bridges) {
      all.push_back(
          {b->take_marks(), b->finished_works(), b->failed_works(), b->unfinished_works(), b->under_way(), b->fault()});
    }
    return all;
  });
}

std::size_t LiveRun::port_index(NodeId node, std::uint16_t port) const {
  const auto& ports = fabric_->ports();
  for (std::size_t i = 0; i < ports.size(); ++i) {
    if (ports[i].node == node && ports[i].port == port) return i;
  }
  throw std::invalid_argument("live: no such kernel port");
}

}  // namespace loomnet
