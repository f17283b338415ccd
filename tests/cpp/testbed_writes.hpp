// A test bed whose host 0 writes to the same place of host 1's memory, over one connection.
#pragma once

#include <cstring>
#include <span>
#include <vector>

#include "testbed.hpp"

namespace loomnet::testbed {

inline constexpr std::uint32_t kKey = 0x77;
inline constexpr std::uint64_t kBase = 0x7f0000010000;
inline constexpr QpNumber kQpA = 100, kQpB = 200;

struct WriteBed : Testbed {
  WriteBed(const BedOptions& bed, const Factory& factory, std::size_t memory)
      : Testbed(bed, factory), source(memory), target(nic(1).add_region(kKey, kBase, memory)) {
    RandomStream random(bed.seed, 0, 99);
    for (auto& b : source) b = static_cast<std::uint8_t>(random());
    connect(0, kQpA, 1, kQpB);
  }
  // Writes source[offset, offset + length) to the same place of the target.
  std::uint64_t write(std::size_t offset, std::size_t length, std::optional<std::uint32_t> immediate = std::nullopt) {
    return post_write(0, kQpA, std::span(source).subspan(offset, length), kBase + offset, kKey, immediate);
  }
  bool same(std::size_t offset, std::size_t length) const {
    return std::memcmp(source.data() + offset, target.bytes.data() + offset, length) == 0;
  }

  std::vector<std::uint8_t> source;
  Region& target;
};

}  // namespace loomnet::testbed
