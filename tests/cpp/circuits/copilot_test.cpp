// The prediction of expert loads: a known matrix is found again, whatever is predicted is a distribution.
#include "circuits/copilot.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <stdexcept>

namespace loomnet::circuits {
namespace {

std::vector<double> distribution(std::mt19937_64& random, std::size_t n, double sharpness) {
  std::gamma_distribution<double> gamma(sharpness);
  std::vector<double> found(n);
  for (double& one : found) one = gamma(random) + 1e-12;
  const double sum = std::accumulate(found.begin(), found.end(), 0.0);
  for (double& one : found) one /= sum;
  return found;
}

std::vector<double> times(std::span<const double> matrix, std::span<const double> x) {
  std::vector<double> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    y[i] = std::inner_product(x.begin(), x.end(), matrix.begin() + static_cast<std::ptrdiff_t>(i * x.size()), 0.0);
  }
  return y;
}

std::vector<double> stochastic(std::mt19937_64& random, std::size_t n) {
  std::vector<double> matrix(n * n);
  for (std::size_t j = 0; j < n; ++j) {
    const std::vector<double> column = distribution(random, n, 1);
    for (std::size_t i = 0; i < n; ++i) matrix[i * n + j] = column[i];
  }
  return matrix;
}

TEST(Copilot, RecordsWithoutNoiseGiveTheMatrixBack) {
  for (unsigned seed = 0; seed < 10; ++seed) {
    std::mt19937_64 random(seed);
    const std::vector<double> truth = stochastic(random, 8);
    Copilot copilot(8, {.most_steps = 200'000, .tolerance = 1e-13});
    for (int i = 0; i < 16; ++i) {
      const std::vector<double> x = distribution(random, 8, 0.3);
      copilot.record(x, times(truth, x));
    }
    copilot.fit();
    for (std::size_t i = 0; i < truth.size(); ++i) ASSERT_NEAR(copilot.matrix()[i], truth[i], 1e-6) << seed;
  }
}

TEST(Copilot, TheFitIsTheLeastThereIs) {
  std::mt19937_64 random(3);
  Copilot copilot(6);
  for (int i = 0; i < 20; ++i) copilot.record(distribution(random, 6, 0.5), distribution(random, 6, 0.5));
  EXPECT_EQ(copilot.records(), 16u);
  const std::size_t steps = copilot.fit();
  const double least = copilot.objective(copilot.matrix());
  // Of a convex function, no other point on the way to any other matrix is lower.
  for (int i = 0; i < 1000; ++i) {
    const std::vector<double> other = stochastic(random, 6);
    for (const double part : {1e-3, 1e-1, 1.0}) {
      std::vector<double> mixed(36);
      for (std::size_t k = 0; k < 36; ++k) mixed[k] = copilot.matrix()[k] + part * (other[k] - copilot.matrix()[k]);
      ASSERT_GE(copilot.objective(mixed), least - 1e-9);
    }
  }
  EXPECT_LT(copilot.fit(), steps) << "from the last P on";
}

TEST(Copilot, WhatIsPredictedIsADistribution) {
  std::mt19937_64 random(5);
  Copilot copilot(5);
  const std::vector<double> tokens{10, 0, 30, 20, 40};
  for (const double one : copilot.predict(tokens)) EXPECT_DOUBLE_EQ(one, 0.2) << "nothing is known yet";
  for (int i = 0; i < 3; ++i) copilot.record(tokens, distribution(random, 5, 0.2));
  copilot.fit();
  const std::vector<double> found = copilot.predict(tokens);
  EXPECT_NEAR(std::accumulate(found.begin(), found.end(), 0.0), 1, 1e-9);
  for (const double one : found) EXPECT_GE(one, 0);
}

TEST(Copilot, ProjectionIsTheNearestPoint) {
  std::vector<double> values{0.5, 0.5, 3.0};
  project_on_simplex(values);
  EXPECT_EQ(values, (std::vector<double>{0, 0, 1}));
  values = {0.2, 0.3, 0.5};
  project_on_simplex(values);
  EXPECT_NEAR(values[0], 0.2, 1e-15);
  values = {-1, 0.7, 0.5};
  project_on_simplex(values);
  EXPECT_EQ(values[0], 0);
  EXPECT_NEAR(values[1], 0.6, 1e-15);
}

TEST(Copilot, RefusesWhatIsNoLoad) {
  Copilot copilot(3);
  const std::vector<double> good{1, 2, 3};
  for (const std::vector<double>& bad :
       {std::vector<double>{1, 2}, {0, 0, 0}, {1, -1, 3}, {1, NAN, 1}, {1, INFINITY, 1}}) {
    EXPECT_THROW(copilot.record(good, bad), std::invalid_argument);
    EXPECT_THROW(copilot.record(bad, good), std::invalid_argument);
    EXPECT_THROW(copilot.predict(bad), std::invalid_argument);
  }
  EXPECT_EQ(copilot.records(), 0u);
  EXPECT_EQ(copilot.fit(), 0u);
  EXPECT_THROW(Copilot(0), std::invalid_argument);
  EXPECT_THROW(Copilot(3, {.records = 0}), std::invalid_argument);
  EXPECT_THROW(Copilot(3, {.fading = 1.5}), std::invalid_argument);
}

}  // namespace
}  // namespace loomnet::circuits
