// How long an exchange takes by circuits and wires: against bisection, the closed forms of one matrix, and limits.
#include "circuits/split.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "clock/random.hpp"

namespace loomnet::circuits {
namespace {

using Bytes = std::vector<std::uint64_t>;
using Circuits = std::vector<std::uint32_t>;

// The least time at which what circuits leave over fits the wires of all servers, by halving.
double by_bisection(std::uint32_t servers, const Bytes& bytes, const Circuits& circuits, const ExchangeRates& rates) {
  const auto fits = [&](double seconds) {
    std::vector<double> out(servers), in(servers);
    for (std::uint32_t i = 0; i < servers; ++i) {
      for (std::uint32_t j = 0; j < servers; ++j) {
        const std::size_t pair = std::size_t{i} * servers + j;
        const double rest =
            std::max(0.0, 8.0 * static_cast<double>(bytes[pair]) - circuits[pair] * rates.circuit * seconds);
        out[i] += rest;
        in[j] += rest;
      }
    }
    return std::max(std::ranges::max(out), std::ranges::max(in)) <= rates.electrical * seconds;
  };
  double low = 0, high = 1;
  while (!fits(high)) high *= 2;
  for (int n = 0; n < 200; ++n) {
    const double middle = (low + high) / 2;
    (fits(middle) ? high : low) = middle;
  }
  return high;
}

TEST(Split, WeightedIsWhatBisectionFinds) {
  RandomStream random(7, 0, 0);
  for (int trial = 0; trial < 500; ++trial) {
    const std::uint32_t servers = 2 + random.below(9);
    Bytes bytes(servers * servers);
    Circuits circuits(servers * servers);
    for (std::uint32_t i = 0; i < servers; ++i) {
      for (std::uint32_t j = 0; j < servers; ++j) {
        if (i == j) continue;
        bytes[i * servers + j] = random.below(3) == 0 ? random.below(1'000'000) : random.below(1000);
        if (i < j) circuits[i * servers + j] = circuits[j * servers + i] = random.below(4);
      }
    }
    const ExchangeRates rates{1.0 + random.below(1000), 1.0 + random.below(1000)};
    const double expected = by_bisection(servers, bytes, circuits, rates);
    EXPECT_NEAR(weighted_seconds(servers, bytes, circuits, rates), expected, 1e-12 * expected) << trial;
  }
}

TEST(Split, WhereNothingCanCarryItIsEndless) {
  const Bytes bytes{0, 10, 0, 0};
  const Circuits none(4), one{0, 1, 1, 0};
  EXPECT_EQ(weighted_seconds(2, bytes, none, {1e9, 0}), HUGE_VAL);
  EXPECT_EQ(exchange_seconds(Split::all_or_nothing, 2, bytes, none, {1e9, 0}), HUGE_VAL);
  EXPECT_NEAR(weighted_seconds(2, bytes, none, {1e9, 80}), 1, 1e-9);
  EXPECT_NEAR(weighted_seconds(2, bytes, one, {80, 0}), 1, 1e-9);
  EXPECT_EQ(weighted_seconds(2, Bytes(4), none, {1e9, 0}), 0);
}

// Three servers: 0 and 1 have one circuit and 80 bytes each way, 2 sends 20 to each by its wires.
TEST(Split, AllOrNothingIsTheSlowestOfCircuitsAndWires) {
  const Bytes bytes{0, 80, 0, 80, 0, 0, 20, 20, 0};
  const Circuits circuits{0, 1, 0, 1, 0, 0, 0, 0, 0};
  const auto seconds = [&](ExchangeRates rates) {
    return exchange_seconds(Split::all_or_nothing, 3, bytes, circuits, rates);
  };
  EXPECT_DOUBLE_EQ(seconds({80, 80}), 8);
  EXPECT_DOUBLE_EQ(seconds({800, 80}), 4);
  EXPECT_DOUBLE_EQ(exchange_seconds(Split::weighted, 3, bytes, circuits, {80, 80}),
                   weighted_seconds(3, bytes, circuits, {80, 80}));
}

}  // namespace
}  // namespace loomnet::circuits
