// Cost of one fragment in the engine's aggregation program, by number of values: a claim (the slot is
// overwritten), an addition, and a swap of two jobs by priority; in one slot that stays in the caches, and
// over the slots of a 5 MB pool in random order. Beside it what any program must do with as many bytes:
// copy them. The packet's payload is the sender's memory, as in a run, so the program copies it before it writes.
#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>
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
  Bench(int values, Visit visit, bool hot) : values_(static_cast<std::uint32_t>(values)), visit_(visit) {
    static const ProgramKind kind = aggregate_kind();
    program_ = kind.make(checked_settings(
        kind, kPorts, 1,
        {{"values", std::int64_t{values}},
         {"pool", hot ? std::int64_t{AGGREGATE_SLOT_BYTES(values_)} : std::int64_t{5'000'000}},
         {"downgrade", std::int64_t{7}}}));
    slots_ = program_->snapshot().layout.rows;
    needs_ = program_->needs();
    AggregateBatch batch;
    batch.forward.generation = 1;
    for (std::uint16_t n = 1; n <= 2; ++n) {
      AggregateBatch::Job job;
      job.job = n;
      job.root = AGGREGATE_ROOT;
      job.window = 1u << 20;
      job.up = 0;
      for (unsigned w = 0; w < 64; ++w) job.children.push_back({static_cast<SwitchPort>(w + 1), 1ull << w});
      batch.jobs.push_back(job);
    }
    program_->set_tables(batch.pack());
    RandomStream random(1, 2, 3);
    for (int i = 0; i < 4096; ++i) order_.push_back(random.below(slots_));
    memory_.assign(values_ * 4, 1);
    packet_ = pool_.allocate();
    packet_->header_length = AGGREGATE_PAYLOAD_AT;
    std::uint8_t* h = packet_->header.data();
    std::memset(h, 0, AGGREGATE_PAYLOAD_AT);
    h[12] = 0x86, h[13] = 0xdd, h[14] = 0x60, h[20] = 17, h[21] = 64, h[22] = 0xfd, h[38] = 0xfd;
    ln_store_be16(h + 56, AGGREGATE_UDP_PORT);
    packet_->wire_length = AGGREGATE_PAYLOAD_AT + 4 * values_;
  }
  // The next packet: worker by worker into a slot, or each job in turn with a higher priority.
  void fill() {
    aggregate_header header{};
    header.version_scheme = AGGREGATE_VERSION << 4 | AGGREGATE_ESA;
    header.values = static_cast<std::uint16_t>(values_);
    // Counters and not remainders of at_: a division would take as long as a tenth of the visit.
    const bool passed = slots_ == 1 || ++place_ == order_.size();
    if (place_ == order_.size()) place_ = 0;
    header.index = static_cast<std::uint16_t>(order_[place_]);
    ++at_;
    if (visit_ == kAdd) {
      header.job = 1;
      // In one slot 63 additions follow each claim, in many slots the passes over all of them do.
      if (passed && ++worker_ == 63) worker_ = 0, sequence_ += 1u << 20;
      header.sequence = sequence_;
      header.priority = 1;
    } else {
      header.job = static_cast<std::uint16_t>(1 + at_ % 2);
      header.sequence = static_cast<std::uint32_t>(at_);
      header.priority = priority_ = static_cast<std::uint8_t>(priority_ == 255 ? 1 : priority_ + 1);
    }
    header.workers = 1ull << worker_;
    packet_->payload = {memory_.data(), 4 * values_, 0, PayloadKind::region};
    std::memcpy(packet_->header.data() + AGGREGATE_AT, &header, sizeof header);
  }
  void step() {
    fill();
    PacketView view(*packet_, pool_, needs_, scratch_);
    const Verdict verdict =
        program_->ingress_view(view, {{static_cast<std::int64_t>(at_)}, static_cast<SwitchPort>(worker_ + 1)});
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
  std::uint32_t slots_ = 0;
  std::unique_ptr<SwitchProgram> program_;
  std::vector<std::uint32_t> order_;
  std::vector<std::uint8_t> memory_;
  PacketPtr packet_;
  std::uint64_t at_ = 0;
  std::size_t place_ = 0;       // in order_
  unsigned worker_ = 0;
  std::uint32_t sequence_ = 0;
  std::uint8_t priority_ = 0;
  ProgramNeeds needs_;
};

void visit(benchmark::State& state) {
  Bench bench(static_cast<int>(state.range(0)), static_cast<Visit>(state.range(1)), state.range(2) != 0);
  for (int i = 0; i < 10'000; ++i) bench.step();
  for (auto _ : state) bench.step();
  state.counters["merged"] = bench.count("merge");
  state.counters["swapped"] = bench.count("preempt");
  state.counters["elements/s"] = benchmark::Counter(
      static_cast<double>(state.iterations() * state.range(0)), benchmark::Counter::kIsRate);
}
BENCHMARK(visit)->ArgNames({"values", "swap", "hot"})->ArgsProduct({{64, 128, 256}, {0, 1}, {1, 0}});

// What of a visit above is the benchmark's own.
void fill(benchmark::State& state) {
  Bench bench(256, static_cast<Visit>(state.range(0)), state.range(1) != 0);
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
