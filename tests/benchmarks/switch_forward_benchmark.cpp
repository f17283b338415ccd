// Cost of one decision of the engine's forward program on a T0 of radix 512, against the least any
// program must do with a packet: read its destination and write its hop limit. Reads as a ratio.
#include <benchmark/benchmark.h>

#include <array>
#include <cstdio>
#include <memory>
#include <vector>

#include "clock/random.hpp"
#include "ebpf/forward_abi.h"
#include "switch/forward/forward_program.hpp"

namespace {

using namespace loomnet;

constexpr std::size_t kFrames = 4096;  // 768 KiB of headers: they do not stay in the L1 cache
using Header = std::array<std::uint8_t, kMaxHeaderBytes>;

std::shared_ptr<const TableBatch> leaf_tables() {
  ForwardBatch batch;
  batch.generation = 1;
  batch.own_un = {{usid_block(3), 0x2005}};
  std::vector<SwitchPort> uplinks;
  for (SwitchPort i = 0; i < 256; ++i) {
    batch.fib.push_back({{usid_block(3), static_cast<std::uint16_t>(0x1000 + i)}, i});
    batch.fib.push_back({{usid_block(3), static_cast<std::uint16_t>(0x4000 + i)}, static_cast<SwitchPort>(256 + i)});
    uplinks.push_back(i);
  }
  batch.groups = {uplinks};
  for (std::uint16_t i = 1; i < 1024; ++i) {
    Ipv6Address a{0xfd};
    ln_store_be16(a.data() + 14, i);
    batch.hosts.push_back({a, 0});
  }
  return batch.pack();
}

// Kind 0: uN to an uplink; 1: T0-local, transit; 2: plain IPv6 by ECMP.
std::vector<Header> headers(int kind) {
  RandomStream random(1, static_cast<std::uint64_t>(kind), 0x62);
  std::vector<Header> all(kFrames);
  for (Header& h : all) {
    h = {};
    h[12] = 0x86, h[13] = 0xdd, h[14] = 0x60;
    ln_store_be16(h.data() + 18, 2000);
    h[20] = kind == 2 ? 17 : 41;
    h[22] = 0xfd, h[37] = 1;
    ln_store_be16(h.data() + 54, static_cast<std::uint16_t>(random()));
    std::uint8_t* da = h.data() + 38;
    if (kind == 2) {
      da[0] = 0xfd;
      ln_store_be16(da + 14, static_cast<std::uint16_t>(1 + random.below(1023)));
      continue;
    }
    da[0] = 0xfc, da[3] = 3;
    std::size_t at = 4;
    if (kind == 0) ln_store_be16(da + at, 0x2005), at += 2;
    ln_store_be16(da + at, static_cast<std::uint16_t>(0x1000 + random.below(256)));
    ln_store_be16(da + at + 2, 0x2009);
    ln_store_be16(da + at + 4, 0x4002);
  }
  return all;
}

template <typename Decide>
void run(benchmark::State& state, int kind, Decide decide) {
  const std::vector<Header> fresh = headers(kind);
  std::vector<Header> work = fresh;
  std::size_t i = 0;
  for (auto _ : state) {
    Header& h = work[i];
    // Restore what the last round edited: both contestants pay for it.
    ln_store_be64(h.data() + 38, ln_load_be64(fresh[i].data() + 38));
    ln_store_be64(h.data() + 46, ln_load_be64(fresh[i].data() + 46));
    h[21] = 64;
    benchmark::DoNotOptimize(decide(h, i));
    i = (i + 1) % kFrames;
  }
  state.SetItemsProcessed(state.iterations());
}

void BM_Bare(benchmark::State& state) {
  run(state, 0, [](Header& h, std::size_t) {
    h[21] = static_cast<std::uint8_t>(h[21] - 1);
    return ln_load_be64(h.data() + 38);
  });
}

void BM_Forward(benchmark::State& state) {
  ForwardProgram program(512, {7, FORWARD_DEFAULT_OPTIONS});
  program.set_tables(leaf_tables());
  SwitchProgram& as_the_engine_sees_it = program;
  run(state, static_cast<int>(state.range(0)), [&](Header& h, std::size_t i) {
    return as_the_engine_sees_it.ingress(h, 2054, {Picoseconds{}, static_cast<SwitchPort>(i & 511)});
  });
  std::vector<SwitchCounter> counters;
  program.counters(counters);
  if (counters[FORWARD_FORWARD_FIB].value + counters[FORWARD_FORWARD_HOST].value != counters[FORWARD_RECEIVED].value) {
    state.SkipWithError("not every packet was forwarded");
  }
}

BENCHMARK(BM_Bare);
BENCHMARK(BM_Forward)->Arg(0)->Arg(1)->Arg(2)->ArgName("kind");

// Keeps the times so that the last line can be a ratio within this run.
class Ratio : public benchmark::ConsoleReporter {
 public:
  void ReportRuns(const std::vector<Run>& runs) override {
    ConsoleReporter::ReportRuns(runs);
    for (const Run& run : runs) {
      const double ns = run.GetAdjustedCPUTime();
      if (run.benchmark_name() == "BM_Bare") {
        bare_ = ns;
      } else if (bare_ > 0) {
        std::printf("%s: %.1f ns, %.1f x bare\n", run.benchmark_name().c_str(), ns, ns / bare_);
      }
    }
  }

 private:
  double bare_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  Ratio ratio;
  benchmark::RunSpecifiedBenchmarks(&ratio);
}
