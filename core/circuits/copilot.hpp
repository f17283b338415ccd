// Predicts a layer's expert loads from those of the layer before it (MixNet's Copilot, SIGCOMM 2025): a
// column-stochastic matrix P with loads(layer) = P loads(layer - 1), fitted to the last records of both.
#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <vector>

namespace loomnet::circuits {

struct CopilotOptions {
  std::size_t records = 16;  // number of records that are kept; the publication gives neither this nor the weights
  double fading = 0.8;       // weight of a record against that of the next newer one
  std::size_t most_steps = 3000;
  double tolerance = 1e-8;  // the fit ends when no entry of P changes by more
};

class Copilot {
 public:
  // Throws std::invalid_argument.
  explicit Copilot(std::size_t experts, const CopilotOptions& options = {});
  // Tokens of each expert in one iteration, of the layer before and of this layer. Throws
  // std::invalid_argument.
  void record(std::span<const double> before, std::span<const double> loads);
  // Fits P to the records by accelerated projected gradient, from the last P on; returns the steps taken.
  std::size_t fit();
  std::size_t records() const { return records_.size(); }
  // By rows: P[to * experts + from]; columns sum to 1.
  std::span<const double> matrix() const { return matrix_; }
  // Shares of the experts, which sum to 1. Throws std::invalid_argument.
  std::vector<double> predict(std::span<const double> before) const;
  // The weighted sum of squared differences, half of which the fit minimises.
  double objective(std::span<const double> matrix) const;

 private:
  struct Record {
    std::vector<double> before, loads;
  };
  std::vector<double> shares(std::span<const double> loads) const;

  std::size_t experts_;
  CopilotOptions options_;
  std::deque<Record> records_;  // the newest first
  std::vector<double> matrix_;
};

// The nearest point of the unit simplex: entries of 0 and more that sum to 1.
void project_on_simplex(std::span<double> values);

}  // namespace loomnet::circuits
