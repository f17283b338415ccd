// Packet sequence numbers: 24 bits on the wire, 64 bits inside, so that only this file knows of
// the wrap.
#pragma once

#include <cstdint>

namespace loomnet::mrc {

// Absolute number of a packet of one queue pair; never wraps.
using PsnCount = std::uint64_t;

// Keeps the numbers of both ends far from zero, so that late ones never underflow.
inline constexpr PsnCount kPsnOrigin = 1ull << 24;

class Psn {
 public:
  constexpr Psn() = default;
  constexpr explicit Psn(std::uint32_t raw) : raw_(raw & 0xffffff) {}
  static constexpr Psn wrap(PsnCount n) { return Psn(static_cast<std::uint32_t>(n & 0xffffff)); }

  constexpr std::uint32_t raw() const { return raw_; }
  constexpr bool operator==(const Psn&) const = default;
  constexpr Psn operator+(std::int32_t n) const { return Psn(raw_ + static_cast<std::uint32_t>(n)); }
  // Signed distance from `o` to this, in [-2^23, 2^23).
  constexpr std::int32_t operator-(Psn o) const { return static_cast<std::int32_t>((raw_ - o.raw_) << 8) >> 8; }
  // The absolute number closest to `near` that this stands for; one below zero comes out as zero
  // minus something, that is as a huge number, which no window contains.
  constexpr PsnCount unwrap(PsnCount near) const {
    return near + static_cast<PsnCount>(static_cast<std::int64_t>(*this - wrap(near)));
  }

 private:
  std::uint32_t raw_ = 0;
};

// Bits of consecutive PSNs in a ring of words; PSN n lives at bit n mod capacity.
// `Words` is any contiguous container of std::uint64_t whose size is a power of two.
template <typename Words>
constexpr std::uint64_t ring_window(const Words& words, PsnCount from) {
  const std::size_t mask = words.size() - 1;
  const std::size_t word = from / 64;
  const unsigned shift = from % 64;
  const std::uint64_t low = words[word & mask] >> shift;
  return shift == 0 ? low : low | words[(word + 1) & mask] << (64 - shift);
}
template <typename Words>
constexpr bool ring_test(const Words& words, PsnCount n) {
  return words[n / 64 & (words.size() - 1)] >> n % 64 & 1;
}
template <typename Words>
constexpr void ring_set(Words& words, PsnCount n) {
  words[n / 64 & (words.size() - 1)] |= 1ull << n % 64;
}
template <typename Words>
constexpr void ring_clear(Words& words, PsnCount n) {
  words[n / 64 & (words.size() - 1)] &= ~(1ull << n % 64);
}

}  // namespace loomnet::mrc
