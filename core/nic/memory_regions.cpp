#include "nic/memory_regions.hpp"

#include <stdexcept>

namespace loomnet {

std::uint32_t MemoryRegions::add(std::uint8_t* base, std::uint64_t address, std::uint64_t length, NicJob& job) {
  if (address + length < address) throw std::invalid_argument("nic: region wraps the address space");
  if (free_.empty()) {
    if (regions_.size() + 1 >= 1u << kNumberBits) throw std::length_error("nic: 2^24 regions");
    regions_.emplace_back();
    free_.push_back(static_cast<std::uint32_t>(regions_.size()));
  }
  const std::uint32_t number = free_.back();
  free_.pop_back();
  Region& r = regions_[number - 1];
  const std::uint8_t use = r.use;
  r = {base, address, length, &job};
  r.use = static_cast<std::uint8_t>(use + 1);
  r.key = static_cast<std::uint32_t>(use) << kNumberBits | number;
  return r.key;
}

void MemoryRegions::remove(std::uint32_t key) {
  at(key).key = 0;
  free_.push_back(key & ((1u << kNumberBits) - 1));
}

MemoryRegions::Region& MemoryRegions::at(std::uint32_t key) {
  Region* r = find(key);
  if (!r) throw std::invalid_argument("nic: unknown key");
  return *r;
}

}  // namespace loomnet
