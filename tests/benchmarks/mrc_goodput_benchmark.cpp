// MRC's goodput as a share of the framed line rate on the virtual clock: 32 KB writes, 4 queue pairs,
// 4 planes of 100 Gb/s (Araujo et al., arXiv 2605.04333). Goal 0.96 with 4,096 B of payload,
// where headers and framing alone leave `framing` of the line.
#include <benchmark/benchmark.h>

#include "transport_mrc/mrc_stream.hpp"

namespace loomnet::mrc {
namespace {

void Goodput(benchmark::State& state) {
  MrcOptions options = line_options();
  options.mtu = static_cast<std::uint32_t>(state.range(0));
  double share = 0;
  for ([[maybe_unused]] auto _ : state) {
    Mrc m({.hosts = 2, .planes = 4}, options);
    Stream stream(m, 32'768, 4, 32);
    stream.goodput(microseconds(300), 4);  // windows open, paths measured
    share = stream.goodput(milliseconds(2), 4);
    if (m.count(0, Count::data_retransmitted)) state.SkipWithError("a clean path lost packets");
  }
  constexpr double kHeaders = 142 + 24;  // Ethernet to TSETH, then FCS, preamble and gap
  state.counters["ratio"] = share;
  state.counters["framing"] = options.mtu / (options.mtu + kHeaders);
}
BENCHMARK(Goodput)->ArgName("payload")->Arg(2'048)->Arg(4'096)->Iterations(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace loomnet::mrc

BENCHMARK_MAIN();
