// When each rank had received each ring step: what a step gap is computed from.
#pragma once

#include <cstdint>
#include <vector>

#include "clock/time.hpp"
#include "collective/types.hpp"

namespace loomnet {

struct StepRow {
  JobRank rank = 0;
  std::uint32_t channel = 0;
  std::uint32_t step = 0;  // of the channel's ring, cumulative
  Picoseconds at{};
};

class StepLog {
 public:
  static constexpr std::size_t kMost = 1 << 20;  // rows, 24 MiB

  void add(const StepRow& row) {
    if (rows_.size() < kMost) {
      rows_.push_back(row);
    } else {
      ++unlogged_;
    }
  }
  const std::vector<StepRow>& rows() const { return rows_; }  // in the order of time
  std::uint64_t unlogged() const { return unlogged_; }        // rows beyond kMost

 private:
  std::vector<StepRow> rows_;
  std::uint64_t unlogged_ = 0;
};

}  // namespace loomnet
