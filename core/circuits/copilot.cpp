// Accelerated projected gradient on column-stochastic matrices.
#include "circuits/copilot.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>

namespace loomnet::circuits {

void project_on_simplex(std::span<double> values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::ranges::sort(sorted, std::greater<>());
  double sum = 0, threshold = 0;
  for (std::size_t k = 0; k < sorted.size(); ++k) {
    sum += sorted[k];
    const double here = (sum - 1) / static_cast<double>(k + 1);
    if (sorted[k] > here) threshold = here;
  }
  for (double& value : values) value = std::max(value - threshold, 0.0);
}

Copilot::Copilot(std::size_t experts, const CopilotOptions& options)
    : experts_(experts), options_(options), matrix_(experts * experts, 1.0 / static_cast<double>(experts)) {
  if (experts == 0) throw std::invalid_argument("copilot: experts must be 1 or more");
  if (options.records == 0) throw std::invalid_argument("copilot: records must be 1 or more");
  if (!(options.fading > 0 && options.fading <= 1)) {
    throw std::invalid_argument("copilot: fading must be above 0 and at most 1");
  }
}

std::vector<double> Copilot::shares(std::span<const double> loads) const {
  if (loads.size() != experts_) {
    throw std::invalid_argument("copilot: " + std::to_string(loads.size()) + " loads of " + std::to_string(experts_) +
                                " experts");
  }
  const double sum = std::accumulate(loads.begin(), loads.end(), 0.0);
  if (!std::isfinite(sum) || sum <= 0 || std::ranges::min(loads) < 0) {
    throw std::invalid_argument("copilot: loads must be 0 and more, and not all 0");
  }
  std::vector<double> found(loads.begin(), loads.end());
  for (double& one : found) one /= sum;
  return found;
}

void Copilot::record(std::span<const double> before, std::span<const double> loads) {
  records_.push_front({shares(before), shares(loads)});
  if (records_.size() > options_.records) records_.pop_back();
}

std::size_t Copilot::fit() {
  const std::size_t n = experts_;
  std::vector<double> a(n * n), b(n * n);  // weighted sums of x x^T and y x^T
  double weight = 1;
  for (const Record& one : records_) {
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        a[i * n + j] += weight * one.before[i] * one.before[j];
        b[i * n + j] += weight * one.loads[i] * one.before[j];
      }
    }
    weight *= options_.fading;
  }
  double lipschitz = 0;  // half of the gradient's: its largest row sum bounds A's greatest eigenvalue
  for (std::size_t i = 0; i < n; ++i) {
    lipschitz = std::max(lipschitz, std::accumulate(&a[i * n], &a[i * n] + n, 0.0));
  }
  if (lipschitz == 0) return 0;

  std::vector<double> ahead = matrix_, next(n * n), column(n);
  double t = 1;
  std::size_t steps = 0;
  for (double moved = 1; moved > options_.tolerance && steps < options_.most_steps; ++steps) {
    for (std::size_t i = 0; i < n; ++i) {
      double* const row = &next[i * n];
      std::fill(row, row + n, 0.0);
      for (std::size_t k = 0; k < n; ++k) {
        const double factor = ahead[i * n + k];
        for (std::size_t j = 0; j < n; ++j) row[j] += factor * a[k * n + j];
      }
      for (std::size_t j = 0; j < n; ++j) row[j] = ahead[i * n + j] - (row[j] - b[i * n + j]) / lipschitz;
    }
    for (std::size_t j = 0; j < n; ++j) {
      for (std::size_t i = 0; i < n; ++i) column[i] = next[i * n + j];
      project_on_simplex(column);
      for (std::size_t i = 0; i < n; ++i) next[i * n + j] = column[i];
    }
    const double later = (1 + std::sqrt(1 + 4 * t * t)) / 2, momentum = (t - 1) / later;
    moved = 0;
    for (std::size_t i = 0; i < n * n; ++i) {
      const double step = next[i] - matrix_[i];
      moved = std::max(moved, std::abs(step));
      ahead[i] = next[i] + momentum * step;
    }
    matrix_ = next;
    t = later;
  }
  return steps;
}

std::vector<double> Copilot::predict(std::span<const double> before) const {
  const std::vector<double> x = shares(before);
  std::vector<double> found(experts_);
  for (std::size_t i = 0; i < experts_; ++i) {
    found[i] = std::inner_product(x.begin(), x.end(), &matrix_[i * experts_], 0.0);
  }
  return found;
}

double Copilot::objective(std::span<const double> matrix) const {
  double sum = 0, weight = 1;
  for (const Record& one : records_) {
    for (std::size_t i = 0; i < experts_; ++i) {
      const double predicted = std::inner_product(one.before.begin(), one.before.end(), &matrix[i * experts_], 0.0);
      sum += weight * (one.loads[i] - predicted) * (one.loads[i] - predicted);
    }
    weight *= options_.fading;
  }
  return sum / 2;
}

}  // namespace loomnet::circuits
