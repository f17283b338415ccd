// Emulated time and rates as types: int64 picoseconds everywhere, so that a byte at 400 Gb/s
// (20 ps) is exact and 106 days fit.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>

namespace loomnet {

struct Picoseconds {
  std::int64_t count = 0;

  constexpr auto operator<=>(const Picoseconds&) const = default;
  constexpr Picoseconds operator+(Picoseconds o) const { return {count + o.count}; }
  constexpr Picoseconds operator-(Picoseconds o) const { return {count - o.count}; }
  constexpr Picoseconds operator-() const { return {-count}; }
  constexpr Picoseconds& operator+=(Picoseconds o) {
    count += o.count;
    return *this;
  }
  constexpr Picoseconds& operator-=(Picoseconds o) {
    count -= o.count;
    return *this;
  }
  constexpr Picoseconds operator*(std::int64_t k) const { return {count * k}; }
  constexpr Picoseconds operator/(std::int64_t k) const { return {count / k}; }
  constexpr std::int64_t operator/(Picoseconds o) const { return count / o.count; }
  constexpr double seconds() const { return static_cast<double>(count) * 1e-12; }
  constexpr double microseconds() const { return static_cast<double>(count) * 1e-6; }
  // Scales by a real factor (for example 0.75 * RTT), rounded toward zero.
  constexpr Picoseconds scaled(double k) const { return {static_cast<std::int64_t>(static_cast<double>(count) * k)}; }
};

inline constexpr Picoseconds kNever{std::numeric_limits<std::int64_t>::max()};

constexpr Picoseconds nanoseconds(std::int64_t n) { return {n * 1'000}; }
constexpr Picoseconds microseconds(std::int64_t n) { return {n * 1'000'000}; }
constexpr Picoseconds milliseconds(std::int64_t n) { return {n * 1'000'000'000}; }
constexpr Picoseconds seconds(std::int64_t n) { return {n * 1'000'000'000'000}; }

struct BitsPerSecond {
  std::uint64_t count = 0;
  constexpr auto operator<=>(const BitsPerSecond&) const = default;
};

constexpr BitsPerSecond gigabits(std::uint64_t n) { return {n * 1'000'000'000}; }
constexpr BitsPerSecond megabits(std::uint64_t n) { return {n * 1'000'000}; }

// Time to clock `bytes` out at `rate`, rounded to the nearest picosecond.
constexpr Picoseconds serialization_time(std::uint64_t bytes, BitsPerSecond rate) {
  const auto bits = static_cast<unsigned __int128>(bytes) * 8u * 1'000'000'000'000u;
  return {static_cast<std::int64_t>((bits + rate.count / 2) / rate.count)};
}

// Bytes that `rate` carries in `t`, rounded down (a bandwidth-delay product when t is an RTT).
constexpr std::uint64_t bytes_in(Picoseconds t, BitsPerSecond rate) {
  const auto bits = static_cast<unsigned __int128>(t.count) * rate.count / 1'000'000'000'000u;
  return static_cast<std::uint64_t>(bits / 8);
}

}  // namespace loomnet
