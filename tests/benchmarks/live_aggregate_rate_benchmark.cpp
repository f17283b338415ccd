// Fragments per second that one aggregation switch in the kernel takes over veths, with AF_XDP senders and no
// engine: four workers, 256 values, every fourth packet is a sum that comes back for all of them. One thread
// sends and takes in; the kernel runs the program in its system calls, so one core does it all. With reports
// each absorbed packet is told to user space, as a run wants it.
#include <benchmark/benchmark.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <vector>

#include "ebpf/metadata.h"
#include "live/live_fabric.hpp"
#include "switch_aggregate/fragments.hpp"

namespace loomnet {
namespace {

constexpr unsigned kWorkers = 4;
constexpr std::uint32_t kWindow = 128;
constexpr XskConfig kRings{.fill = 1024, .rx = 1024, .tx = 1024, .completion = 1024};

struct Rates {
  double packets = 0, sums = 0;  // per second
};

Rates rate(std::uint32_t values, bool reports) {
  std::vector<Netns> netns;
  netns.push_back(Netns::create("lnag s"));
  constexpr NodeId kSwitch = 1;
  std::vector<LivePort> ports;
  for (std::uint16_t p = 0; p <= kWorkers; ++p) {
    ports.push_back({.node = kSwitch, .port = p, .netns = &netns.back(), .interface = "lnag-p" + std::to_string(p)});
  }
  AggregateBatch::Job job = test::job_of(1, kWorkers, AGGREGATE_SWITCHML, kWindow);
  const LiveSwitch one{.node = kSwitch,
                       .netns = &netns.back(),
                       .program = "aggregate",
                       .options = {{"policy", std::string("switchml")},
                                   {"values", std::int64_t{values}},
                                   {"pool", std::int64_t{2 * kWindow * AGGREGATE_SLOT_BYTES(values)}}},
                       .tables = test::aggregate_tables({job}, kWorkers + 1)};
  LiveFabric fabric(ports, {one}, LiveFabricConfig{.xsk = kRings});
  std::vector<std::vector<std::uint8_t>> frames;
  for (unsigned w = 0; w < kWorkers; ++w) {
    test::Fragment f = test::data(AGGREGATE_SWITCHML, 1, 0, w, 1, 100, values);
    f.uid = reports ? 1 : 0;
    frames.push_back(test::frame_of(f));
  }
  std::uint64_t sent = 0, back = 0, told = 0;
  std::uint32_t sequence = 0;
  std::array<ReceivedFrame, 64> batch;
  const auto drain = [&] {
    for (unsigned p = 0; p <= kWorkers; ++p) {
      XskSocket& in = fabric.socket(p);
      for (std::size_t n; (n = in.receive(batch)) > 0;) {
        back += n;
        for (std::size_t i = 0; i < n; ++i) in.umem().put(batch[i].handle);
      }
    }
    fabric.reports().take([&](const ln_report&) { ++told; });
  };
  const auto round = [&] {  // a quarter of a window from each worker
    for (std::uint32_t k = 0; k < kWindow / 4; ++k, ++sequence) {
      for (unsigned w = 0; w < kWorkers; ++w) {
        XskSocket& out = fabric.socket(w + 1);
        std::uint32_t handle = 0;
        if (!out.umem().take(handle)) continue;
        std::uint8_t* at = out.umem().base(handle) + kFrameHeadroom;
        std::memcpy(at, frames[w].data(), frames[w].size());
        std::memcpy(at + AGGREGATE_AT + offsetof(aggregate_header, sequence), &sequence, sizeof sequence);
        while (!out.transmit(handle, kFrameHeadroom, static_cast<std::uint32_t>(frames[w].size()))) out.flush();
        ++sent;
      }
    }
    for (unsigned w = 0; w < kWorkers; ++w) fabric.socket(w + 1).flush();
    drain();
  };
  for (int i = 0; i < 100; ++i) round();
  sent = back = 0;
  const auto t0 = std::chrono::steady_clock::now();
  double passed = 0;
  while (passed < 1.0) {
    for (int i = 0; i < 20; ++i) round();
    passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - t0).count();
  }
  return {static_cast<double>(sent) / passed, static_cast<double>(back) / passed};
}

void Sums(benchmark::State& state) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<std::size_t>(sched_getcpu()), &one);
  sched_setaffinity(0, sizeof one, &one);
  std::vector<double> packets, sums;
  const auto values = static_cast<std::uint32_t>(state.range(0));
  for (auto _ : state) {
    for (int r = 0; r < 5; ++r) {
      const Rates found = rate(values, state.range(1));
      packets.push_back(found.packets), sums.push_back(found.sums);
    }
  }
  std::sort(packets.begin(), packets.end()), std::sort(sums.begin(), sums.end());
  state.counters["packets_per_s"] = packets[2];
  state.counters["sums_per_s"] = sums[2];
  state.counters["elements_per_s"] = packets[2] * values;
}
BENCHMARK(Sums)
    ->ArgNames({"values", "reports"})
    ->ArgsProduct({{64, 128, 256}, {0, 1}})
    ->Iterations(1)
    ->Unit(benchmark::kSecond);

}  // namespace
}  // namespace loomnet

BENCHMARK_MAIN();
