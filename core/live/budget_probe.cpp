// Constant streams through chains of XDP switches, a step faster at a time.
#include "live/budget_probe.hpp"

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "engine/network.hpp"
#include "live/chain_source.hpp"
#include "live/live_fabric.hpp"
#include "live/live_loop.hpp"

namespace loomnet {
namespace {

constexpr int kChains = 2, kHops = 4, kLanes = 2;  // a lane is a way through a chain's switches
constexpr std::uint16_t kPorts = 2 * kLanes;
constexpr std::size_t kPayload = 2048;
constexpr double kFirst = 50'000, kFaster = 1.3;
constexpr int kTries = 4;  // a burst of the machine's other work spoils one, not all
constexpr auto kSettle = std::chrono::milliseconds(20), kStep = std::chrono::milliseconds(120);

// Chains of kHops switches, each with kLanes lanes from a host of its own to another.
class Bed {
 public:
  Bed() : payload_(kPayload, 0x5a) {
    // The rate is never what limits a step.
    const LinkConfig link{.rate = gigabits(10), .delay = microseconds(100)};
    const ForwardBatch tables = chain_tables(kLanes);
    std::vector<LivePort> ports;
    std::vector<LiveSwitch> switches;
    namespaces_.reserve(kChains * kHops);  // ports point at them
    for (int chain = 0; chain < kChains; ++chain) {
      std::array<NodeId, kHops> nodes;
      for (NodeId& node : nodes) {
        node = network_.add_switch(kPorts, nullptr);
        namespaces_.push_back(Netns::create("loomnet budget"));
        for (std::uint16_t p = 0; p < kPorts; ++p) {
          ports.push_back(
              {.node = node, .port = p, .netns = &namespaces_.back(), .interface = "p" + std::to_string(p)});
        }
        switches.push_back({.node = node, .netns = &namespaces_.back(), .tables = tables.pack()});
      }
      for (int lane = 0; lane < kLanes; ++lane) {
        const NodeId from = network_.add_host(1), to = network_.add_host(1);
        Endpoint end{from, 0};
        for (const NodeId node : nodes) {
          network_.connect(end, {node, static_cast<std::uint16_t>(2 * lane)}, link, link);
          end = {node, static_cast<std::uint16_t>(2 * lane + 1)};
        }
        network_.connect(end, {to, 0}, link, link);
        sources_.push_back(std::make_unique<ChainSource>(network_, from, lane, kHops, payload_));
      }
    }
    fabric_ = std::make_unique<LiveFabric>(ports, switches, LiveFabricConfig{});
    loop_ = std::make_unique<LiveLoop>(network_, *fabric_, LiveLoopConfig{.lateness_bound = seconds(1)});
    set_rate(kFirst);
    for (std::size_t i = 0; i < sources_.size(); ++i) sources_[i]->start(milliseconds(1 + static_cast<int>(i)));
    loop_->start();
  }
  ~Bed() {
    loop_.reset();
    network_.clear();
    fabric_.reset();
  }
  Bed(const Bed&) = delete;

  BudgetStep step(double rate) {
    loop_->call([&] { set_rate(rate); });
    std::this_thread::sleep_for(kSettle);
    loop_->take_window();
    const auto began = std::chrono::steady_clock::now();
    std::this_thread::sleep_for(kStep);
    const StageLateness window = loop_->take_window();
    const double lasted = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    const LatenessHistogram& packets = window[Stage::packet];
    return {rate, static_cast<double>(packets.count()) / lasted, packets.percentile(0.5), packets.percentile(0.99)};
  }

 private:
  void set_rate(double rate) {
    const auto gap = seconds(1).scaled(static_cast<double>(sources_.size()) * kHops / rate);
    for (auto& source : sources_) source->set_gap(gap);
  }

  std::vector<std::uint8_t> payload_;
  Network network_{1};
  std::vector<Netns> namespaces_;
  std::vector<std::unique_ptr<ChainSource>> sources_;
  std::unique_ptr<LiveFabric> fabric_;
  std::unique_ptr<LiveLoop> loop_;
};

}  // namespace

std::vector<BudgetStep> probe_budget(Picoseconds bound, double most) {
  Bed bed;
  bed.step(kFirst);  // not counted: its frames find the processor's caches cold
  std::vector<BudgetStep> steps;
  int late = 0;
  for (double rate = kFirst; rate <= most && late < kTries;) {
    steps.push_back(bed.step(rate));
    late = steps.back().p99 > bound ? late + 1 : 0;
    if (!late) rate *= kFaster;
  }
  return steps;
}

}  // namespace loomnet
