// What ranks sum where a job has real bytes and switches add them: floats whose sum is known, though every rank's
// were rounded to integers on the way (quantise.hpp).
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "collective/types.hpp"

namespace loomnet {

// Multiples of 1/64, far more than rounding changes, and small enough that 64 ranks' sum times 10^6 is an int32.
class SummedValues {
 public:
  explicit SummedValues(std::size_t ranks) : sums_(kPeriod) {
    for (std::uint32_t j = 0; j < kPeriod; ++j) {
      for (std::size_t r = 0; r < ranks; ++r) sums_[j] += units(j + r, r);
    }
  }

  // Of this rank's tensor in this repeat. Neither a block of 64 elements nor a rank's exponents repeat.
  void fill(std::vector<std::int32_t>& tensor, JobRank rank, std::uint64_t repeat) const {
    for (std::uint64_t i = 0; i < tensor.size(); ++i) {
      const float value = static_cast<float>(units(i + rank + repeat, rank)) / kUnits;
      std::memcpy(&tensor[i], &value, sizeof value);
    }
  }
  // Elements that are not the sum over all ranks.
  std::uint64_t wrong(const std::vector<std::int32_t>& tensor, std::uint64_t repeat) const {
    std::uint64_t found = 0;
    for (std::uint64_t i = 0; i < tensor.size(); ++i) {
      float value;
      std::memcpy(&value, &tensor[i], sizeof value);
      const double off = static_cast<double>(value) * kUnits - static_cast<double>(sums_[(i + repeat) % kPeriod]);
      found += !(std::abs(off) < kNear);  // of NaN, too
    }
    return found;
  }

 private:
  static constexpr std::uint32_t kPeriod = 251;
  static constexpr float kUnits = 64;
  static constexpr double kNear = 0.1;
  static std::uint64_t units(std::uint64_t i, std::uint64_t rank) { return i % kPeriod << rank % 3; }
  std::vector<std::uint64_t> sums_;
};

}  // namespace loomnet
