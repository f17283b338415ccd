// Bring-up and tear-down of 32 hosts x 4 planes with 24 XDP switches (320 veths, sockets and
// programs), as seconds and as a share of the goal of 5 s each.
//
//   ratio_up, ratio_down: time / 5 s; below 1 holds.
#include <benchmark/benchmark.h>

#include <chrono>
#include <memory>
#include <vector>

#include "live/live_fabric.hpp"
#include "switch/forward/forward_batch.hpp"

namespace loomnet {
namespace {

constexpr int kPlanes = 4, kLeaves = 4, kSpines = 2, kHosts = 32;
constexpr double kGoalSeconds = 5.0;

double seconds_since(std::chrono::steady_clock::time_point t) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - t).count();
}

void BringUp(benchmark::State& state) {
  // The nodes' namespaces are Mininet's in a run; their creation is not what is measured.
  std::vector<Netns> hosts, switches;
  for (int h = 0; h < kHosts; ++h) hosts.push_back(Netns::create("lnlv h" + std::to_string(h)));
  std::vector<LivePort> ports;
  std::vector<LiveSwitch> plans;
  switches.reserve(kPlanes * (kLeaves + kSpines));
  ForwardBatch tables;
  tables.generation = 1;
  for (std::uint16_t u = 0; u < 64; ++u) tables.fib.push_back({{usid_block(0), u}, 0});
  for (int p = 0; p < kPlanes; ++p) {
    for (int s = 0; s < kLeaves + kSpines; ++s) {
      const auto node = static_cast<NodeId>(kHosts + p * (kLeaves + kSpines) + s);
      switches.push_back(Netns::create("lnlv s" + std::to_string(node)));
      const int count = s < kLeaves ? kHosts / kLeaves + kSpines : kLeaves;
      for (int port = 0; port < count; ++port) {
        ports.push_back({.node = node,
                         .port = static_cast<std::uint16_t>(port),
                         .netns = &switches.back(),
                         .interface = "lnlv" + std::to_string(node) + "-" + std::to_string(port)});
      }
      plans.push_back({.node = node, .netns = &switches.back(), .tables = tables.pack()});
    }
    for (int h = 0; h < kHosts; ++h) {
      ports.push_back({.node = static_cast<NodeId>(h),
                       .port = static_cast<std::uint16_t>(p),
                       .kind = PortKind::host,
                       .netns = &hosts[static_cast<std::size_t>(h)],
                       .interface = "lnlv-p" + std::to_string(p)});
    }
  }
  double up = 0, down = 0;
  for (auto _ : state) {
    const auto t0 = std::chrono::steady_clock::now();
    auto fabric = std::make_unique<LiveFabric>(ports, plans);
    up += seconds_since(t0);
    const auto t1 = std::chrono::steady_clock::now();
    fabric.reset();
    down += seconds_since(t1);
  }
  const auto n = static_cast<double>(state.iterations());
  state.counters["veths"] = static_cast<double>(ports.size());
  state.counters["switches"] = static_cast<double>(plans.size());
  state.counters["up_s"] = up / n;
  state.counters["down_s"] = down / n;
  state.counters["ratio_up"] = up / n / kGoalSeconds;
  state.counters["ratio_down"] = down / n / kGoalSeconds;
}
BENCHMARK(BringUp)->Iterations(3)->Unit(benchmark::kSecond);

}  // namespace
}  // namespace loomnet

BENCHMARK_MAIN();
