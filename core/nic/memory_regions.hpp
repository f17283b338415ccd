// Memory that remote queue pairs may write: its keys, its bounds, and the job that each region
// belongs to.
#pragma once

#include <cstdint>
#include <vector>

#include "clock/time.hpp"
#include "nic/nic_clients.hpp"

namespace loomnet {

class MemoryRegions {
 public:
  struct Region {
    std::uint8_t* base = nullptr;
    std::uint64_t address = 0;
    std::uint64_t length = 0;
    NicJob* job = nullptr;
    Picoseconds placed{-1};  // last; -1: never
    std::uint32_t key = 0;   // 0: not in use
    std::uint8_t use = 0;    // how often its number has been given
    bool holds(std::uint64_t from, std::uint64_t bytes) const {
      return from >= address && from - address <= length && bytes <= length - (from - address);
    }
  };

  // The key is never 0. A key that is no longer in use is given again with another number in its
  // upper 8 bits, so that a late packet of the old one finds nothing.
  std::uint32_t add(std::uint8_t* base, std::uint64_t address, std::uint64_t length, NicJob& job);
  void remove(std::uint32_t key);
  // Null for a key that is not in use.
  Region* find(std::uint32_t key) {
    const std::uint32_t number = key & ((1u << kNumberBits) - 1);
    if (number == 0 || number > regions_.size() || regions_[number - 1].key != key) return nullptr;
    return &regions_[number - 1];
  }
  Region& at(std::uint32_t key);  // throws std::invalid_argument instead
  const void* memory() const { return regions_.data(); }

 private:
  static constexpr std::uint32_t kNumberBits = 24;
  std::vector<Region> regions_;  // by the lower bits of their keys, less 1
  std::vector<std::uint32_t> free_;
};

}  // namespace loomnet
