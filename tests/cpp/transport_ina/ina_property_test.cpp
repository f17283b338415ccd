// Whatever is lost, doubled, overtaken or late, and however slots are shared: every worker gets every sum,
// exactly. Workers and servers of core/transport/ina against the engine's build of the switch program.
//   LOOMNET_SEEDS=10000 build/cpp/ina_property_test    that many seeds of each policy
//   LOOMNET_SEED=17 build/cpp/ina_property_test        one seed
#include <gtest/gtest.h>

#include <cstdlib>

#include "transport_ina/ina_network_run.hpp"

namespace loomnet::ina::test {
namespace {

// Events of the slowest complete run seen in 30,000 seeds of each policy, times three.
constexpr std::uint64_t kMostEvents = 300'000;

class Seeds {
 public:
  explicit Seeds(std::uint64_t count) {
    const char* one = std::getenv("LOOMNET_SEED");
    const char* many = std::getenv("LOOMNET_SEEDS");
    first = one ? std::strtoull(one, nullptr, 0) : 1;
    end = first + (one ? 1 : many ? std::strtoull(many, nullptr, 0) : count);
  }
  std::uint64_t first, end;
  bool enough() const { return end - first >= 100; }
};

std::string name_of(aggregate_scheme scheme) {
  return scheme == AGGREGATE_ESA ? "esa" : scheme == AGGREGATE_ATP ? "atp" : "switchml";
}

class InaProperty : public ::testing::TestWithParam<aggregate_scheme> {};

TEST_P(InaProperty, EveryRunEndsWithExactSums) {
  const Seeds seeds(500);
  int failures = 0;
  std::uint64_t most = 0, sum = 0;
  for (std::uint64_t seed = seeds.first; seed < seeds.end && failures < 5; ++seed) {
    const Case c = draw(GetParam(), seed);
    Network network(c);
    const std::string wrong = network.run(kMostEvents);
    if (!wrong.empty()) ++failures, ADD_FAILURE() << c.text() << ": " << wrong << "\nreplay: LOOMNET_SEED=" << seed;
    most = std::max(most, network.events());
    sum += network.events();
  }
  std::printf("events: %lu at most, %lu on average\n", most, sum / (seeds.end - seeds.first));
}

INSTANTIATE_TEST_SUITE_P(Policies, InaProperty,
                         ::testing::Values(AGGREGATE_SWITCHML, AGGREGATE_ATP, AGGREGATE_ESA),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace loomnet::ina::test
