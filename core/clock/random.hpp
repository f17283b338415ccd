// Counter-based random streams keyed by (seed, object id, purpose): a draw depends on the key and
// its number alone, so adding an object or reordering calls elsewhere never changes it.
#pragma once

#include <cstdint>

namespace loomnet {

// SplitMix64 finaliser (Steele, Lea, Flood, "Fast splittable pseudorandom number generators").
constexpr std::uint64_t mix64(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ull;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

constexpr std::uint64_t hash_key(std::uint64_t seed, std::uint64_t object, std::uint64_t purpose) {
  return mix64(mix64(mix64(seed + 0x9e3779b97f4a7c15ull) ^ object) + purpose * 0x9e3779b97f4a7c15ull);
}

class RandomStream {
 public:
  using result_type = std::uint64_t;
  constexpr RandomStream() = default;
  constexpr RandomStream(std::uint64_t seed, std::uint64_t object, std::uint64_t purpose)
      : key_(hash_key(seed, object, purpose)) {}

  constexpr std::uint64_t operator()() { return mix64(key_ + ++counter_ * 0x9e3779b97f4a7c15ull); }
  // Uniform in [0, 1).
  constexpr double uniform() { return static_cast<double>((*this)() >> 11) * 0x1.0p-53; }
  // Uniform in [0, bound), bound > 0 (multiply-shift; bias below 2^-32 for 32-bit bounds).
  constexpr std::uint32_t below(std::uint32_t bound) {
    return static_cast<std::uint32_t>((static_cast<unsigned __int128>((*this)()) * bound) >> 64);
  }
  static constexpr std::uint64_t min() { return 0; }
  static constexpr std::uint64_t max() { return ~0ull; }

 private:
  std::uint64_t key_ = 0;
  std::uint64_t counter_ = 0;
};

}  // namespace loomnet
