// What ranks sum where a job has real bytes and switches add them: floats whose sum is known, though every rank's
// were rounded to integers on the way (quantise.hpp).
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include "clock/random.hpp"
#include "collective/types.hpp"

namespace loomnet {

// Multiples of 1/64 below 16, so that 64 ranks' sum times 10^6 is an int32. No two elements, tensors or ranks have the
// same sequence, and blocks of one tensor have different exponents on different ranks.
class SummedValues {
 public:
  // `scale`: of the integers, 0: that of each block's exponent.
  SummedValues(std::size_t ranks, std::uint32_t scale)
      : ranks_(ranks), near_(scale % kUnits == 0 && scale ? 0 : kNear) {}

  void fill(std::vector<std::int32_t>& tensor, JobRank rank, std::uint64_t repeat) const {
    for (std::uint64_t i = 0; i < tensor.size(); ++i) {
      const float value = static_cast<float>(units(i, rank, repeat)) / kUnits;
      std::memcpy(&tensor[i], &value, sizeof value);
    }
  }
  // Elements that are not the sum over all ranks. Each rank's tensor of a repeat is looked at once.
  std::uint64_t wrong(const std::vector<std::int32_t>& tensor, std::uint64_t repeat) {
    Sums& sums = sums_[repeat];
    if (sums.seen++ == 0) {
      sums.units.resize(tensor.size());
      for (std::uint64_t i = 0; i < tensor.size(); ++i) {
        for (std::size_t r = 0; r < ranks_; ++r) sums.units[i] += units(i, r, repeat);
      }
    }
    std::uint64_t found = 0;
    for (std::uint64_t i = 0; i < tensor.size(); ++i) {
      float value;
      std::memcpy(&value, &tensor[i], sizeof value);
      const double off = static_cast<double>(value) * kUnits - sums.units[i];
      found += !(std::abs(off) <= near_);  // of NaN, too
    }
    if (sums.seen == ranks_) sums_.erase(repeat);
    return found;
  }

 private:
  struct Sums {
    std::size_t seen = 0;  // by how many ranks
    std::vector<std::uint32_t> units;
  };
  static constexpr std::uint32_t kUnits = 64;
  // With block exponents a sum is off by ranks / (2 * scale) at most: 64 ranks of blocks below 2^4.
  static constexpr double kNear = 0.002;
  static std::uint32_t units(std::uint64_t i, std::uint64_t rank, std::uint64_t repeat) {
    const std::uint64_t block = i / 64;
    const std::uint64_t bits = mix64(mix64(repeat << 8 | rank) + i * 0x9e3779b97f4a7c15u);
    return static_cast<std::uint32_t>(bits & 0xff) << mix64(block << 8 | rank) % 3;
  }
  std::size_t ranks_;
  double near_;
  std::map<std::uint64_t, Sums> sums_;  // by repeat, until all ranks have looked
};

}  // namespace loomnet
