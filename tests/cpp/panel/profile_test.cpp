// Dark times of the profiles against the publication's means and percentiles.
#include "panel/profile.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "panel/light.hpp"

namespace loomnet::panel {
namespace {

struct Statistics {
  double mean_ms, p99_ms, least_ms, most_ms;
};

Statistics measure(const Duration& duration, std::size_t pairs) {
  RandomStream random(7, 0, 0);
  std::vector<double> ms(100'000);
  for (double& one : ms) one = duration.sample(random, pairs).seconds() * 1e3;
  std::ranges::sort(ms);
  return {std::accumulate(ms.begin(), ms.end(), 0.0) / static_cast<double>(ms.size()), ms[ms.size() * 99 / 100],
          ms.front(), ms.back()};
}

TEST(Profile, PolatisHasThePublishedMeansAndPercentiles) {
  const double published[][3] = {{1, 41.44, 60}, {4, 42.44, 62}, {16, 46.75, 68}};
  for (const auto& [pairs, mean, p99] : published) {
    const Statistics seen = measure(profile("polatis").dark, static_cast<std::size_t>(pairs));
    EXPECT_NEAR(seen.mean_ms, mean, 0.2) << pairs;
    EXPECT_NEAR(seen.p99_ms, p99, 0.05 * p99) << pairs;
  }
}

TEST(Profile, TransceiversAreUsableAfterThePublishedTime) {
  const Statistics seen = measure(profile("polatis+nic").nic_up, 1);
  EXPECT_NEAR(seen.mean_ms, 5670, 0.02 * 5670);
  EXPECT_NEAR(seen.p99_ms, 6330, 0.05 * 6330);
}

TEST(Profile, OthersKeepTheirBounds) {
  const double bounds[][2] = {{0, 0}, {25, 25}, {10, 15}, {120e3, 120e3}, {0.01, 0.01}, {0.01, 0.01}, {0.007, 0.007}};
  const char* names[] = {"ideal", "sim25", "calient", "telescent", "infocus128", "rotor10us", "lightmatter32"};
  for (std::size_t i = 0; i < std::size(names); ++i) {
    const Statistics seen = measure(profile(names[i]).dark, 4);
    const double unit = 1e-9;  // picoseconds are whole
    EXPECT_GE(seen.least_ms, bounds[i][0] - unit) << names[i];
    EXPECT_LE(seen.most_ms, bounds[i][1] + unit) << names[i];
    EXPECT_NEAR(seen.mean_ms, (bounds[i][0] + bounds[i][1]) / 2, 0.02) << names[i];
  }
  EXPECT_EQ(profiles().size(), 9u);
  EXPECT_THROW(profile("polaris"), std::invalid_argument);
}

TEST(Light, InsertionLossIsInThePublishedRangeAndTheSameAgain) {
  std::vector<int> seen;
  for (std::uint32_t a = 0; a < 48; ++a) {
    for (std::uint32_t b = 0; b < 48; ++b) seen.push_back(insertion_loss(3, a, b));
  }
  EXPECT_EQ(std::ranges::min(seen), kLeastLoss);
  EXPECT_EQ(std::ranges::max(seen), kMostLoss);
  EXPECT_EQ(insertion_loss(3, 47, 46), seen[47 * 48 + 46]);
  EXPECT_NE(seen, [] {
    std::vector<int> other;
    for (std::uint32_t a = 0; a < 48; ++a) {
      for (std::uint32_t b = 0; b < 48; ++b) other.push_back(insertion_loss(4, a, b));
    }
    return other;
  }());
}

TEST(Light, LossFallsTenfoldForEachNinthOfTheWayToTheSensitivity) {
  EXPECT_EQ(drop_probability(-5.9), 0u);
  EXPECT_EQ(drop_probability(kSensitivityDbm), 0u);
  EXPECT_NEAR(drop_probability(-10 + 4.0 / 9), 0x1p32 / 10, 2);
  EXPECT_NEAR(drop_probability(-10 + 4.0 / 3), 0x1p32 / 1000, 2);
  EXPECT_EQ(drop_probability(-10), 0xffffffffu);
  EXPECT_EQ(drop_probability(-1000), 0xffffffffu);
}

}  // namespace
}  // namespace loomnet::panel
