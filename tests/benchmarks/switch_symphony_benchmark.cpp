// Cost of one departure under the symphony program's egress hook, native: a packet of a ring that is not
// marked, one of a row that marks, one without a step header, against the hook that is switched off. The
// kernel's build is measured by tests/differential/symphony_cost_test.cpp.
#include <benchmark/benchmark.h>

#include <array>
#include <cstdio>
#include <memory>
#include <vector>

#include "switch/registry/registry.hpp"
#include "switch_symphony/ring_packets.hpp"

namespace {

using namespace loomnet;
using namespace loomnet::test;

constexpr std::size_t kPackets = 4096;
constexpr std::array<QueuedClass, kQueueClasses> kQueue{{{}, {9000, 3}}};

// Frames of 8 rings; `tunnel`: behind a second IPv6 header, as MRC's.
std::vector<std::vector<std::uint8_t>> frames(bool header, bool tunnel) {
  std::vector<RingPackets> rings;
  for (std::uint16_t i = 0; i < 8; ++i) {
    RingShape shape;
    shape.ring = i, shape.rewinds = false, shape.pauses = false;
    rings.emplace_back(shape, i);
  }
  std::vector<std::vector<std::uint8_t>> all;
  for (std::size_t i = 0; i < kPackets; ++i) {
    std::vector<std::uint8_t> bytes = step_frame(rings[i % 8].next().step);
    if (!header) bytes[57] ^= 1;  // another UDP port
    if (tunnel) {
      FrameSpec outer;
      outer.traffic_class = 2;
      outer.payload.assign(bytes.begin() + 14, bytes.end());
      bytes = frame(outer);
    }
    all.push_back(bytes);
  }
  return all;
}

void depart(benchmark::State& state, const ProgramOptions& options, bool header, bool tunnel) {
  const auto program = make_program("symphony", 4, 1, options);
  const auto hook = program->make_egress({1, 1}, 1);
  auto all = frames(header, tunnel);
  std::int64_t now = 0;
  std::uint64_t marks = 0;
  std::size_t i = 0;
  for (auto _ : state) {
    if (i == kPackets) i = 0;
    now += 300'000;  // ps, of a full packet at 100 Gb/s
    marks += hook->dequeue(all[i++], {{now}, 4096, kDataClass, false, kQueue}) == EgressVerdict::mark;
  }
  state.counters["marks"] = benchmark::Counter(static_cast<double>(marks), benchmark::Counter::kAvgIterations);
}

void off(benchmark::State& state) { depart(state, {{"enable", false}}, true, false); }
void bypass(benchmark::State& state) { depart(state, {}, false, false); }
void spaced(benchmark::State& state) { depart(state, {}, true, false); }
void prob(benchmark::State& state) {
  depart(state, {{"mode", std::string("prob")}, {"credit", std::int64_t{0}}, {"shift", std::int64_t{12}}}, true, false);
}
void spaced_in_tunnel(benchmark::State& state) { depart(state, {}, true, true); }
BENCHMARK(off);
BENCHMARK(bypass);
BENCHMARK(spaced);
BENCHMARK(prob);
BENCHMARK(spaced_in_tunnel);

}  // namespace

BENCHMARK_MAIN();
