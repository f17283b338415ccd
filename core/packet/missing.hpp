// Which bytes of a request have not arrived, where its sender lets some be lost. A fixed size whatever is
// missing, so that reporting allocates nothing.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace loomnet {

// The request's bytes as extents of equal length, in order. The usual extent is what one packet carries. A
// request of more than kExtents packets has extents of 2, 4, 8 … packets.
struct Missing {
  static constexpr std::uint32_t kExtents = 128;
  std::uint32_t bytes = 0;   // that have not arrived, exactly
  std::uint32_t extent = 0;  // bytes of an extent, the last one may be shorter; 0: all bytes have arrived
  // Bit k: bytes of extent k are missing, those of the framing excepted.
  std::array<std::uint64_t, 2> extents{};

  bool operator==(const Missing&) const = default;
  bool any() const { return bytes > 0; }
  bool has(std::uint32_t k) const { return (extents[k / 64] >> k % 64 & 1) != 0; }

  // To add to, for a request of `length` bytes in packets of `packet` bytes.
  static Missing of(std::uint32_t length, std::uint32_t packet) {
    Missing none;
    std::uint64_t extent = std::max<std::uint32_t>(packet, 1);
    while (extent * kExtents < length) extent *= 2;
    none.extent = static_cast<std::uint32_t>(std::min<std::uint64_t>(extent, ~0u));
    return none;
  }
  // The bytes [offset, offset + count) of the request have not arrived; each byte is added once.
  void add(std::uint32_t offset, std::uint32_t count) {
    if (count == 0) return;
    bytes += count;
    for (std::uint32_t k = offset / extent; k <= (offset + count - 1) / extent; ++k) {
      extents[k / 64] |= 1ull << k % 64;
    }
  }
  // Whether it can be true of a request of `length` bytes.
  bool sound(std::uint32_t length) const {
    if (extent == 0) return *this == Missing{};
    if ((std::uint64_t{length} + extent - 1) / extent > kExtents) return false;
    std::uint64_t most = 0, marked = 0;
    for (std::uint32_t k = 0; k < kExtents; ++k) {
      if (!has(k)) continue;
      const std::uint64_t begin = std::uint64_t{k} * extent;
      if (begin >= length) return false;
      ++marked;
      most += std::min<std::uint64_t>(extent, length - begin);
    }
    return marked <= bytes && bytes <= most;
  }
  // Calls call(begin, end) for each run of extents with missing bytes, in bytes of the request.
  template <typename Call>
  void each_run(std::uint32_t length, Call&& call) const {
    if (!any()) return;
    for (std::uint32_t k = 0; k < kExtents;) {
      if (!has(k)) {
        ++k;
        continue;
      }
      const std::uint32_t first = k;
      while (k < kExtents && has(k)) ++k;
      call(first * extent, static_cast<std::uint32_t>(std::min<std::uint64_t>(std::uint64_t{k} * extent, length)));
    }
  }
};
static_assert(sizeof(Missing) == 24);

}  // namespace loomnet
