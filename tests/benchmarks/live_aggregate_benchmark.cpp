// Cost of one fragment in the kernel's aggregation program, by BPF_PROG_TEST_RUN: a claim, an addition, a
// swap (ESA's) and a collision (not SwitchML's) in one slot, by policy and number of values, each the median
// of many runs as the kernel times them. Beside them a fragment of another job, which goes by its address: what
// every packet pays, the kernel's timer included. Root; the caches are warm, so a switch under load is slower.
#include <sched.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "live/xdp_program.hpp"
#include "switch/aggregate/aggregate_program.hpp"
#include "switch_aggregate/fragments.hpp"

namespace loomnet::test {
namespace {

constexpr SwitchPort kPorts = 66;

class Kernel {
 public:
  Kernel(aggregate_scheme policy, std::int64_t values)
      : policy_(policy),
        kind_(aggregate_kind()),
        program_(kind_,
                 checked_settings(kind_, kPorts, 1,
                                  {{"values", values},
                                   {"policy", std::string(aggregate_policies[policy].name)},
                                   {"downgrade", std::int64_t{7}},
                                   {"pool", std::int64_t{AGGREGATE_SLOT_BYTES(static_cast<std::uint32_t>(values))}}}),
                 reports_),
        values_(static_cast<std::size_t>(values)) {
    std::vector<AggregateBatch::Job> jobs = {job_of(1, 64, policy)};
    if (policy != AGGREGATE_SWITCHML) jobs.push_back(job_of(2, 64, policy));  // whose slots are one job's alone
    for (auto& job : jobs) {
      job.window = 1u << 20;
      job.children = {{1, ~0ull}};  // the kernel's test run has one port for all of them
    }
    program_.set_tables(*aggregate_tables(jobs, kPorts));
    for (SwitchPort port = 0; port < kPorts; ++port) program_.set_port(port, 1);
    program_.set_port(1, 1);  // the loopback interface is this port
  }
  // Median nanoseconds of the runs that `next` makes.
  template <typename Next>
  std::uint32_t median(int runs, Next next) {
    std::vector<std::uint32_t> took;
    XdpProgram::TestRun run;
    for (int i = 0; i < runs; ++i) {
      Fragment f = data(policy_, 1, 0, 0, 1, 1, values_);
      f.uid = 0;  // no report
      if (!next(i, f)) continue;
      program_.test_run(frame_of(f), run);
      if (counted_) took.push_back(run.nanoseconds);
    }
    std::nth_element(took.begin(), took.begin() + static_cast<long>(took.size() / 2), took.end());
    return took.at(took.size() / 2);
  }
  // Nanoseconds; 0: the policy has none.
  std::array<std::uint32_t, 5> all(int runs) {
    const std::uint32_t forwarded = median(runs, [](int, Fragment& f) { return f.header.job = 9, true; });
    sequence_ += 1u << 20;
    const std::uint32_t claim = median(runs, [&](int, Fragment& f) {
      f.header.sequence = sequence_ += 1u << 20;
      return true;
    });
    const std::uint32_t add = median(runs, [&](int i, Fragment& f) {
      const int worker = i % 62;
      if (worker == 0) sequence_ += 1u << 20;
      counted_ = worker != 0;
      f.header.sequence = sequence_;
      f.header.workers = 1ull << worker;
      return true;
    });
    counted_ = true;
    if (policy_ == AGGREGATE_SWITCHML) return {forwarded, claim, add, 0, 0};
    const std::uint32_t swap = median(runs, [&](int i, Fragment& f) {
      f.header.job = static_cast<std::uint16_t>(1 + i % 2);
      f.header.sequence = sequence_ + static_cast<std::uint32_t>(i);
      f.header.priority = static_cast<std::uint8_t>(i % 250 + 2);
      return true;
    });
    const std::uint32_t collide = median(runs, [&](int, Fragment& f) {
      f.header.job = 1;
      f.header.sequence = sequence_ + 100'000u;
      f.header.priority = 0;
      return true;
    });
    return {forwarded, claim, add, policy_ == AGGREGATE_ESA ? swap : 0, collide};
  }

 private:
  XdpReports reports_{1u << 16};
  aggregate_scheme policy_;
  ProgramKind kind_;
  XdpProgram program_;
  std::size_t values_;
  std::uint32_t sequence_ = 0;
  bool counted_ = true;
};

}  // namespace
}  // namespace loomnet::test

int main(int argc, char** argv) {
  using namespace loomnet::test;
  const int runs = argc > 1 ? std::atoi(argv[1]) : 20'000;
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(static_cast<std::size_t>(sched_getcpu()), &cpus);
  sched_setaffinity(0, sizeof cpus, &cpus);
  std::printf("%9s %7s %12s %10s %10s %10s %10s   swap / add\n", "policy", "values", "forwarded", "claim", "add",
              "swap", "collide");
  for (const auto policy : {AGGREGATE_SWITCHML, AGGREGATE_ATP, AGGREGATE_ESA}) {
    for (const std::int64_t values : {64, 128, 256}) {
      const auto [forwarded, claim, add, swap, collide] = Kernel(policy, values).all(runs);
      std::printf("%9s %7lld %9u ns %7u ns %7u ns %7u ns %7u ns   %.2f\n", aggregate_policies[policy].name,
                  static_cast<long long>(values), forwarded, claim, add, swap, collide,
                  static_cast<double>(swap) / add);
    }
  }
}
