// Cost of one fragment in the engine's aggregation program, by number of values: an addition under each
// policy (every 63rd is a claim), and ESA's swap of two jobs by priority; in one slot that stays in the
// caches, and over all slots of a 5 MB pool in random order. Beside it what any program must do with as many bytes:
// copy them. The packet's payload is the sender's memory, as in a run, so the program copies it before it writes.
#include <benchmark/benchmark.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "clock/random.hpp"
#include "ebpf/aggregate_abi.h"
#include "switch/aggregate/aggregate_batch.hpp"
#include "switch/aggregate/aggregate_program.hpp"
#include "switch/packet_view.hpp"

namespace {

using namespace loomnet;

constexpr std::size_t kPorts = 66;
enum Visit : int { kAdd, kSwap };

class Bench {
 public:
  Bench(int values, Visit visit, aggregate_scheme policy, bool hot)
      : values_(static_cast<std::uint32_t>(values)), visit_(visit), in_turn_(policy == AGGREGATE_SWITCHML && !hot) {
    static const ProgramKind kind = aggregate_kind();
    program_ = kind.make(
        checked_settings(kind, kPorts, 1,
                         {{"values", std::int64_t{values}},
                          {"policy", std::string(aggregate_policies[policy].name)},
                          {"pool", hot ? std::int64_t{AGGREGATE_SLOT_BYTES(values_)} : std::int64_t{5'000'000}},
                          {"downgrade", std::int64_t{7}}}));
    slots_ = program_->snapshot().layout.rows;
    AggregateBatch batch;
    batch.forward.generation = 1;
    for (std::uint16_t n = 1; n <= 2; ++n) {
      AggregateBatch::Job job;
      job.job = n;
      job.scheme = policy;
      job.root = AGGREGATE_ROOT;
      job.window = in_turn_ ? slots_ / 2 : 1u << 20;  // SwitchML: all slots are one window's two sets
      job.up = 0;
      for (unsigned w = 0; w < 64; ++w) job.children.push_back({static_cast<SwitchPort>(w + 1), 1ull << w});
      batch.jobs.push_back(job);
    }
    program_->set_tables(batch.pack());
    RandomStream random(1, 2, 3);
    slots_ -= slots_ > 1 && slots_ % 2;
    stride_ = in_turn_ ? slots_ : 1u << 20;
    needs_ = program_->needs();
    version_scheme_ = static_cast<std::uint8_t>(AGGREGATE_VERSION << 4 | policy);
    for (std::uint32_t i = 0; i < slots_; ++i) {
      order_.push_back(i);
      std::swap(order_[i], order_[random.below(i + 1)]);
    }
    memory_.fill(1);
    packet_ = pool_.allocate();
    packet_->header_length = AGGREGATE_PAYLOAD_AT;
    std::uint8_t* h = packet_->header.data();
    std::memset(h, 0, AGGREGATE_PAYLOAD_AT);
    h[12] = 0x86, h[13] = 0xdd, h[14] = 0x60, h[20] = 17, h[21] = 64, h[22] = 0xfd, h[38] = 0xfd;
    ln_store_be16(h + 56, AGGREGATE_UDP_PORT);
    packet_->wire_length = AGGREGATE_PAYLOAD_AT + 4 * values_;
  }
  // The next slot's packet: worker by worker, or each job in turn with a higher priority.
  void fill() {
    aggregate_header header{};
    header.version_scheme = version_scheme_;
    header.values = static_cast<std::uint16_t>(values_);
    // Counters and not remainders of a number of visits: a division would take as long as a tenth of a visit.
    if (++place_ == order_.size()) {  // a pass over all slots
      place_ = 0, ++pass_;
      if (++worker_ == 63) worker_ = 0, sequence_ += stride_;
      priority_ = static_cast<std::uint8_t>(priority_ == 255 ? 1 : priority_ + 1);
    }
    header.index = static_cast<std::uint16_t>(order_[place_]);
    unsigned worker = 0;
    if (visit_ == kAdd) {  // 63 of them follow each claim
      header.job = 1;
      worker = worker_;
      header.sequence = sequence_ + (in_turn_ ? order_[place_] : 0);
      header.priority = 1;
    } else {
      header.job = static_cast<std::uint16_t>(1 + pass_ % 2);
      header.sequence = pass_;
      header.priority = priority_;
    }
    header.workers = 1ull << worker;
    ingress_ = static_cast<SwitchPort>(worker + 1);
    packet_->payload = {memory_.data(), 4 * values_, 0, PayloadKind::region};
    std::memcpy(packet_->header.data() + AGGREGATE_AT, &header, sizeof header);
  }
  void step() {
    fill();
    PacketView view(*packet_, pool_, needs_, scratch_);
    const Verdict verdict = program_->ingress_view(view, {{static_cast<std::int64_t>(pass_)}, ingress_});
    if (verdict.leaves()) {
      benchmark::DoNotOptimize(view.apply());
      pool_.release_payload(*packet_);
    }
    benchmark::DoNotOptimize(verdict);
  }
  double count(std::string_view name) const {
    std::vector<SwitchCounter> all;
    program_->counters(all);
    for (const auto& c : all) {
      if (c.name == name) return static_cast<double>(c.value);
    }
    return -1;
  }

 private:
  PacketPool pool_;
  ViewScratch scratch_;
  std::uint32_t values_;
  Visit visit_;
  bool in_turn_;  // the slot follows from the sequence
  std::uint8_t version_scheme_ = 0;
  std::uint32_t slots_ = 0;
  std::unique_ptr<SwitchProgram> program_;
  std::vector<std::uint32_t> order_;
  // On a cache line: elsewhere 256 values take 6 ns more.
  alignas(64) std::array<std::uint8_t, 4 * AGGREGATE_MAX_VALUES> memory_;
  PacketPtr packet_;
  ProgramNeeds needs_;
  std::size_t place_ = 0;  // in order_
  std::uint32_t pass_ = 0, sequence_ = 0, stride_ = 0;
  unsigned worker_ = 0;
  std::uint8_t priority_ = 0;
  SwitchPort ingress_ = 0;
};

void run(benchmark::State& state, Visit visit, aggregate_scheme policy, bool hot) {
  Bench bench(static_cast<int>(state.range(0)), visit, policy, hot);
  for (int i = 0; i < 100'000; ++i) bench.step();
  for (auto _ : state) bench.step();
  state.counters["merged"] = bench.count("merge");
  state.counters["swapped"] = bench.count("preempt");
  state.counters["elements/s"] =
      benchmark::Counter(static_cast<double>(state.iterations() * state.range(0)), benchmark::Counter::kIsRate);
}
void add(benchmark::State& state) {
  run(state, kAdd, static_cast<aggregate_scheme>(state.range(1)), state.range(2) != 0);
}
void swap(benchmark::State& state) { run(state, kSwap, AGGREGATE_ESA, state.range(1) != 0); }
BENCHMARK(add)
    ->ArgNames({"values", "policy", "hot"})
    ->ArgsProduct({{64, 128, 256}, {AGGREGATE_SWITCHML, AGGREGATE_ATP, AGGREGATE_ESA}, {1, 0}});
BENCHMARK(swap)->ArgNames({"values", "hot"})->ArgsProduct({{64, 128, 256}, {1, 0}});

// What of a visit above is the benchmark's own.
void fill(benchmark::State& state) {
  Bench bench(256, static_cast<Visit>(state.range(0)), AGGREGATE_ESA, state.range(1) != 0);
  for (auto _ : state) {
    bench.fill();
    benchmark::ClobberMemory();
  }
}
BENCHMARK(fill)->ArgNames({"swap", "hot"})->ArgsProduct({{0, 1}, {1, 0}});

void copy(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(4 * state.range(0));
  std::vector<std::uint8_t> from(bytes, 1), to(bytes);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::DoNotOptimize(to.data());
    benchmark::ClobberMemory();
  }
}
BENCHMARK(copy)->ArgName("values")->Arg(64)->Arg(128)->Arg(256);

}  // namespace

BENCHMARK_MAIN();
