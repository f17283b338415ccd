// Whatever is lost, doubled, overtaken or late, and however slots are shared: every worker gets every sum,
// exactly. Workers and servers of core/transport/ina against the engine's build of the switch program.
//   LOOMNET_SEEDS=10000 build/cpp/ina_property_test    that many seeds of each policy
//   LOOMNET_SEED=17 build/cpp/ina_property_test        one seed
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "transport_ina/ina_network_run.hpp"
#include "under_asan.hpp"

namespace loomnet::ina::test {
namespace {

// Three times the events of the slowest of 8,000 seeds of each policy; the mean is 4,000.
constexpr std::uint64_t kMostEvents = 750'000;

struct Seeds {
  explicit Seeds(std::uint64_t count) {
    const char* one = std::getenv("LOOMNET_SEED");
    const char* many = std::getenv("LOOMNET_SEEDS");
    first = one ? std::strtoull(one, nullptr, 0) : 1;
#if defined(LOOMNET_SANITIZES_ADDRESS)
    count = std::min<std::uint64_t>(count, 100);  // each takes several times as long
#endif
    end = first + (one ? 1 : many ? std::strtoull(many, nullptr, 0) : count);
  }
  std::uint64_t first, end;
  bool enough() const { return end - first >= 500; }
};

std::string name_of(aggregate_scheme scheme) {
  return scheme == AGGREGATE_ESA ? "esa" : scheme == AGGREGATE_ATP ? "atp" : "switchml";
}

void report(const Case& c, const std::string& wrong) {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  ADD_FAILURE() << name_of(c.options.scheme) << ": " << c.text() << ": " << wrong << "\nreplay: LOOMNET_SEED=" << c.seed
                << " build/cpp/ina_property_test --gtest_filter='" << test->test_suite_name() << '.' << test->name()
                << "'";
}

class InaProperty : public ::testing::TestWithParam<aggregate_scheme> {};

TEST_P(InaProperty, EveryRunEndsWithExactSums) {
  const Seeds seeds(700);
  int failures = 0;
  ServerCounters servers;
  WorkerCounters workers;
  std::uint64_t preempted = 0, collided = 0, whole = 0, taken_over = 0, most = 0;
  for (std::uint64_t seed = seeds.first; seed < seeds.end && failures < 5; ++seed) {
    const Case c = draw(GetParam(), seed);
    Network network(c);
    const std::string wrong = network.run(kMostEvents);
    if (!wrong.empty()) ++failures, report(c, wrong);
    most = std::max(most, network.events());
    const ServerCounters s = network.servers();
    const WorkerCounters w = network.workers();
#define INA_ADD(name) servers.name += s.name;
    INA_SERVER_COUNTS(INA_ADD)
    INA_DROPS(INA_ADD)
#undef INA_ADD
#define INA_ADD(name) workers.name += w.name;
    INA_WORKER_COUNTS(INA_ADD)
    INA_DROPS(INA_ADD)
#undef INA_ADD
    preempted += network.counter("preempt");
    collided += network.counter("collide");
    whole += network.counter("complete");
    taken_over += network.counter("takeover");
  }
  RecordProperty("most_events", std::to_string(most));
  // Nothing that a host of the job sends is disbelieved.
  std::uint64_t dropped = 0;
#define INA_SUM(name) dropped += servers.name + workers.name;
  INA_DROPS(INA_SUM)
#undef INA_SUM
  EXPECT_EQ(dropped, 0u);
  if (!seeds.enough()) return;
  // The runs have met what they are about.
  EXPECT_GT(whole, 1000u);
  EXPECT_GT(workers.timeout, 1000u);
  EXPECT_GT(workers.dup_result, 100u);
  if (GetParam() == AGGREGATE_SWITCHML) return;
  EXPECT_GT(collided, 1000u);
  EXPECT_GT(taken_over, 20u);
  EXPECT_GT(servers.full, 1000u);
  EXPECT_GT(servers.from_parts, 1000u);
  EXPECT_GT(servers.superset, 10u);
  EXPECT_GT(servers.overlap, 100u);
  EXPECT_GT(servers.re_result, 100u);
  EXPECT_GT(servers.rehash, 100u);
  EXPECT_GT(servers.as_floats, 300u);
  EXPECT_GT(workers.ecn_result, 100u);
  EXPECT_GT(workers.gap_resend, 100u);
  if (GetParam() == AGGREGATE_ATP) {
    EXPECT_EQ(servers.remind + servers.nak + preempted, 0u);
    return;
  }
  EXPECT_GT(preempted, 1000u);
  EXPECT_GT(servers.remind, 1000u);
  EXPECT_GT(servers.early, 100u);
  EXPECT_GT(servers.nak, 100u);
  EXPECT_GT(workers.nak_resend, 50u);
}

TEST_P(InaProperty, ASeedIsOneRun) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Network a(draw(GetParam(), seed)), b(draw(GetParam(), seed));
    EXPECT_EQ(a.run(kMostEvents), b.run(kMostEvents));
    EXPECT_EQ(a.events(), b.events()) << "seed " << seed;
  }
}

// Switches that lose their slots and tables in the middle of a run. ATP and ESA end exactly. SwitchML has
// no second way to a sum: where some workers have a result that others lack, the others wait without end,
// and the count of timeouts of their oldest fragment says so.
TEST_P(InaProperty, SwitchesReboot) {
  const Seeds seeds(300);
  int failures = 0, unable = 0, ended = 0;
  for (std::uint64_t seed = seeds.first; seed < seeds.end && failures < 5; ++seed) {
    Case c = draw(GetParam(), seed);
    c.reboot = true;
    Network network(c);
    const std::string wrong = network.run(GetParam() == AGGREGATE_SWITCHML ? 25'000 : kMostEvents);
    if (wrong.empty()) {
      ++ended;
    } else if (GetParam() == AGGREGATE_SWITCHML && !network.wrong() && network.timeouts() >= 50) {
      ++unable;
    } else {
      ++failures, report(c, wrong);
    }
  }
  if (seeds.end - seeds.first < 300) return;
  EXPECT_GT(ended, GetParam() == AGGREGATE_SWITCHML ? 100 : 299);
  if (GetParam() == AGGREGATE_SWITCHML) {
    EXPECT_GT(unable, 5);
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, InaProperty, ::testing::Values(AGGREGATE_SWITCHML, AGGREGATE_ATP, AGGREGATE_ESA),
                         [](const auto& info) { return name_of(info.param); });

// The published program, without the generation check: exact where no packet overtakes another.
Case without_check(std::uint64_t seed, bool ordered) {
  Case c = draw(AGGREGATE_SWITCHML, seed);
  c.generation_check = false;
  c.ordered = ordered;
  return c;
}

TEST(InaSwitchMl, WithoutTheCheckRunsAreExactInOrder) {
  const Seeds seeds(300);
  int failures = 0;
  for (std::uint64_t seed = seeds.first; seed < seeds.end && failures < 5; ++seed) {
    const Case c = without_check(seed, true);
    Network network(c);
    const std::string wrong = network.run(kMostEvents);
    if (!wrong.empty()) ++failures, report(c, wrong);
  }
}

struct Outcome {
  int exact = 0, wrong = 0, stuck = 0;
};
template <typename Make>
Outcome outcomes(int runs, std::uint64_t most_events, Make make) {
  Outcome out;
  for (int seed = 1; seed <= runs; ++seed) {
    Network network(make(static_cast<std::uint64_t>(seed)));
    const bool ended = network.run(most_events).empty();
    ++(network.wrong() ? out.wrong : ended ? out.exact : out.stuck);
  }
  return out;
}

// Negative controls: what the runs above would say of hosts that lack a rule.
TEST(InaControl, WithoutTheCheckOvertakingIsSeen) {
  const Outcome out = outcomes(100, 20'000, [](std::uint64_t seed) {
    Case c = without_check(seed, false);
    c.overtaking = 0.5;
    return c;
  });
  EXPECT_GT(out.wrong + out.stuck, 20);
  EXPECT_GT(out.wrong, 0);
}

// A run that ends within some 3,000 events, with losses.
Case lossy(aggregate_scheme scheme, std::uint64_t seed) {
  Case c = draw(scheme, seed);
  c.loss = 0.1;
  c.places.resize(1);
  c.places[0].assign(3, 0);
  c.fragments = 20;
  return c;
}
constexpr std::uint64_t kLossyEvents = 30'000;

class InaControls : public ::testing::TestWithParam<aggregate_scheme> {};

TEST_P(InaControls, WithAllRulesRunsEnd) {
  SKIP_UNDER_ASAN();
  EXPECT_EQ(outcomes(60, kLossyEvents, [](std::uint64_t seed) { return lossy(GetParam(), seed); }).exact, 60);
}

TEST_P(InaControls, WithoutWorkersTimersRunsStop) {
  SKIP_UNDER_ASAN();
  const Outcome out = outcomes(60, kLossyEvents, [](std::uint64_t seed) {
    Case c = lossy(GetParam(), seed);
    c.removed.worker_timers = true;
    return c;
  });
  EXPECT_GT(out.stuck, 20);
  EXPECT_EQ(out.wrong, 0);
}

TEST_P(InaControls, WithoutKeptResultsRunsStop) {
  SKIP_UNDER_ASAN();
  const Outcome out = outcomes(60, kLossyEvents, [](std::uint64_t seed) {
    Case c = lossy(GetParam(), seed);
    c.options.result_path = ResultPath::server;
    c.removed.kept_results = true;
    return c;
  });
  EXPECT_GT(out.stuck, 20);
  EXPECT_EQ(out.wrong, 0);
}

TEST_P(InaControls, WhereRetransmissionsUseSlotsRunsStop) {
  SKIP_UNDER_ASAN();
  const Outcome out = outcomes(60, kLossyEvents, [](std::uint64_t seed) {
    Case c = lossy(GetParam(), seed);
    c.options.result_path = ResultPath::server;
    c.removed.resend_bypass = true;
    return c;
  });
  EXPECT_GT(out.stuck, 10);
  EXPECT_EQ(out.wrong, 0);
}

// Numbers that start anew with each tensor: exact in order and without copies, wrong once packets overtake one another.
TEST(InaControl, NumbersUsedAgainAreSeen) {
  const auto make = [](bool ordered, bool again) {
    return [=](std::uint64_t seed) {
      Case c = draw(AGGREGATE_ATP, seed);
      c.loss = c.straggling = c.boot = 0;
      c.fragments = 40;
      c.duplication = ordered ? 0 : 0.3;
      c.overtaking = 0.6;
      c.extra_hops = 100;
      c.ordered = ordered;
      c.options.first_sequence = 0;
      c.options.window = 12;  // beyond a tensor: no number is a window older than another
      c.options.index_policy = IndexPolicy::fixed;
      c.slots = c.options.pool = 40;  // nothing collides, so that in order nothing is sent twice
      c.places.resize(1);
      c.places[0].assign(2 + seed % 4, 0);
      c.options.rto_first = c.options.rto_min = milliseconds(ordered ? 1000 : 1);
      c.removed.lifelong_numbers = again;
      return c;
    };
  };
  EXPECT_EQ(outcomes(60, kMostEvents, make(false, false)).exact, 60);
  EXPECT_EQ(outcomes(60, kMostEvents, make(true, true)).exact, 60);
  const Outcome out = outcomes(60, kLossyEvents, make(false, true));
  EXPECT_GT(out.wrong, 30);
}

INSTANTIATE_TEST_SUITE_P(Policies, InaControls, ::testing::Values(AGGREGATE_ATP, AGGREGATE_ESA),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace loomnet::ina::test
