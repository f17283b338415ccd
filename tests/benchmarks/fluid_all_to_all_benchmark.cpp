// Flows of a fluid network: all-to-alls of many regions of eight servers, over a switch fabric of two tiers
// with hashed routes (regions straddle its leaves), and over circuits beside it. Items are flows.
#include <benchmark/benchmark.h>

#include <vector>

#include "clock/random.hpp"
#include "fluid/fluid_network.hpp"

namespace loomnet::fluid {
namespace {

constexpr std::uint32_t kServers = 8, kPerLeaf = 13;

// Each region's all-to-all, `rounds` times one after the other.
class AllToAll : public FluidNetwork::Sink {
 public:
  AllToAll(std::uint32_t regions, std::uint32_t rounds, bool circuits)
      : regions_(regions), rounds_(rounds), circuits_(circuits), left_(regions), round_(regions) {
    const std::uint32_t servers = regions * kServers;
    const std::uint32_t leaves = (servers + kPerLeaf - 1) / kPerLeaf;
    for (std::uint32_t i = 0; i < 2 * servers + 2 * leaves * kPerLeaf; ++i) {
      net_.add_link(gigabits(3200));
    }
    up_ = 2 * servers;
    first_circuit_ = up_ + 2 * leaves * kPerLeaf;
    for (std::uint32_t i = 0; i < regions * kServers * kServers; ++i) net_.add_link(gigabits(400));
    for (std::uint32_t region = 0; region < regions; ++region) begin(region);
  }
  void run() { events_.run_until(seconds(1000)); }
  const FluidNetwork& net() const { return net_; }

  void finished(FlowId, std::uint64_t region, Picoseconds) override {
    if (--left_[region] == 0 && ++round_[region] < rounds_) {
      begin(static_cast<std::uint32_t>(region));
    }
  }

 private:
  void begin(std::uint32_t region) {
    for (std::uint32_t a = 0; a < kServers; ++a) {
      for (std::uint32_t b = 0; b < kServers; ++b) {
        if (a != b) flow(region, a, b);
      }
    }
  }
  void flow(std::uint32_t region, std::uint32_t a, std::uint32_t b) {
    const std::uint64_t bytes = 1'000'000 + random_() % 100'000'000;
    ++left_[region];
    const std::uint32_t from = region * kServers + a, to = region * kServers + b;
    const std::uint32_t pair = (a * kServers + b) % 7;
    if (circuits_ && pair != 0) {
      const LinkIndex route[] = {first_circuit_ + (region * kServers + a) * kServers + b};
      net_.start(route, bytes, 1, *this, region);
      return;
    }
    const std::uint32_t leaf = from / kPerLeaf, other = to / kPerLeaf;
    std::vector<LinkIndex> route{2 * from};
    if (leaf != other) {
      const std::uint32_t spine = random_.below(kPerLeaf);
      route.push_back(up_ + 2 * (leaf * kPerLeaf + spine));
      route.push_back(up_ + 2 * (other * kPerLeaf + spine) + 1);
    }
    route.push_back(2 * to + 1);
    net_.start(route, bytes, 1, *this, region);
  }

  EventQueue events_;
  FluidNetwork net_{events_};
  std::uint32_t regions_, rounds_;
  bool circuits_;
  LinkIndex up_ = 0, first_circuit_ = 0;
  std::vector<std::uint32_t> left_, round_;
  RandomStream random_{1, 2, 3};
};

void all_to_all(benchmark::State& state, bool circuits) {
  const auto regions = static_cast<std::uint32_t>(state.range(0));
  const auto rounds = static_cast<std::uint32_t>(state.range(1));
  double solved = 0, visited = 0;
  for (auto _ : state) {
    AllToAll job(regions, rounds, circuits);
    job.run();
    solved = static_cast<double>(job.net().work().solved);
    visited = static_cast<double>(job.net().work().visited);
  }
  const double flows = 56.0 * regions * rounds;
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(flows));
  state.counters["solved_per_flow"] = solved / flows;
  state.counters["visited_per_flow"] = visited / flows;
}
BENCHMARK_CAPTURE(all_to_all, switches, false)->Args({16, 32})->Args({512, 4})->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(all_to_all, circuits, true)->Args({16, 32})->Args({512, 4})->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace loomnet::fluid

BENCHMARK_MAIN();
