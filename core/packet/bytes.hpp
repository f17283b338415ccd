// Big-endian reading and writing of header bytes. Both ends are bounds-checked and never throw: an
// access past the end fails the whole reader or writer, and ok() says so afterwards.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace loomnet {

// One load or store and one byte swap where the width is a machine word's.
template <std::size_t N>
inline std::uint64_t load_big_endian(const std::uint8_t* from) {
  const auto word = [from]<typename T>(T value) {
    std::memcpy(&value, from, sizeof value);
    return value;
  };
  if constexpr (std::endian::native == std::endian::little) {
    if constexpr (N == 2) return __builtin_bswap16(word(std::uint16_t{}));
    if constexpr (N == 4) return __builtin_bswap32(word(std::uint32_t{}));
    if constexpr (N == 8) return __builtin_bswap64(word(std::uint64_t{}));
  }
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < N; ++i) value = value << 8 | from[i];
  return value;
}
template <std::size_t N>
inline void store_big_endian(std::uint8_t* to, std::uint64_t value) {
  const auto word = [to](auto v) { std::memcpy(to, &v, sizeof v); };
  if constexpr (std::endian::native == std::endian::little) {
    if constexpr (N == 2) return word(__builtin_bswap16(static_cast<std::uint16_t>(value)));
    if constexpr (N == 4) return word(__builtin_bswap32(static_cast<std::uint32_t>(value)));
    if constexpr (N == 8) return word(__builtin_bswap64(value));
  }
  for (std::size_t i = N; i-- > 0; value >>= 8) to[i] = static_cast<std::uint8_t>(value);
}

// A header's bytes: fields at constant offsets. The maker of the reader has checked their number.
template <std::size_t N>
class FixedReader {
 public:
  explicit FixedReader(const std::uint8_t* from) : from_(from) {}
  std::uint8_t u8() { return *next(1); }
  std::uint16_t u16() { return static_cast<std::uint16_t>(load_big_endian<2>(next(2))); }
  std::uint32_t u24() { return static_cast<std::uint32_t>(load_big_endian<3>(next(3))); }
  std::uint32_t u32() { return static_cast<std::uint32_t>(load_big_endian<4>(next(4))); }
  std::uint64_t u64() { return load_big_endian<8>(next(8)); }
  template <std::size_t M>
  void copy(std::array<std::uint8_t, M>& out) {
    std::memcpy(out.data(), next(M), M);
  }
  void skip(std::size_t n) { next(n); }

 private:
  const std::uint8_t* next(std::size_t n) {
    at_ += n;
    assert(at_ <= N);
    return from_ + at_ - n;
  }
  const std::uint8_t* from_;
  std::size_t at_ = 0;
};

template <std::size_t N>
class FixedWriter {
 public:
  explicit FixedWriter(std::uint8_t* to) : to_(to) {}
  void u8(std::uint8_t v) { *next(1) = v; }
  void u16(std::uint16_t v) { store_big_endian<2>(next(2), v); }
  void u24(std::uint32_t v) { store_big_endian<3>(next(3), v); }
  void u32(std::uint32_t v) { store_big_endian<4>(next(4), v); }
  void u64(std::uint64_t v) { store_big_endian<8>(next(8), v); }
  template <std::size_t M>
  void copy(const std::array<std::uint8_t, M>& in) {
    std::memcpy(next(M), in.data(), M);
  }
  void zero(std::size_t n) { std::memset(next(n), 0, n); }

 private:
  std::uint8_t* next(std::size_t n) {
    at_ += n;
    assert(at_ <= N);
    return to_ + at_ - n;
  }
  std::uint8_t* to_;
  std::size_t at_ = 0;
};

inline constexpr std::size_t kMostFixedBytes = 40;  // the IPv6 header

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  std::uint8_t u8() { return static_cast<std::uint8_t>(big_endian<1>()); }
  std::uint16_t u16() { return static_cast<std::uint16_t>(big_endian<2>()); }
  std::uint32_t u24() { return static_cast<std::uint32_t>(big_endian<3>()); }
  std::uint32_t u32() { return static_cast<std::uint32_t>(big_endian<4>()); }
  std::uint64_t u64() { return big_endian<8>(); }
  void copy(std::span<std::uint8_t> out) {
    if (!take(out.size())) return;
    std::copy_n(bytes_.data() + at_ - out.size(), out.size(), out.data());
  }
  void skip(std::size_t n) { take(n); }
  // The next N bytes; zeros where there are fewer, which fails the reader.
  template <std::size_t N>
  FixedReader<N> fixed() {
    static constexpr std::array<std::uint8_t, kMostFixedBytes> kZeros{};
    static_assert(N <= kMostFixedBytes);
    return FixedReader<N>(take(N) ? bytes_.data() + at_ - N : kZeros.data());
  }

  bool ok() const { return ok_; }
  std::size_t position() const { return at_; }
  std::size_t remaining() const { return bytes_.size() - at_; }

 private:
  template <std::size_t N>
  std::uint64_t big_endian() {
    if (!take(N)) return 0;
    return load_big_endian<N>(bytes_.data() + at_ - N);
  }
  bool take(std::size_t n) {
    if (!ok_ || remaining() < n) return ok_ = false;
    at_ += n;
    return true;
  }

  std::span<const std::uint8_t> bytes_;
  std::size_t at_ = 0;
  bool ok_ = true;
};

class ByteWriter {
 public:
  explicit ByteWriter(std::span<std::uint8_t> bytes) : bytes_(bytes) {}

  void u8(std::uint8_t v) { big_endian<1>(v); }
  void u16(std::uint16_t v) { big_endian<2>(v); }
  void u24(std::uint32_t v) { big_endian<3>(v); }
  void u32(std::uint32_t v) { big_endian<4>(v); }
  void u64(std::uint64_t v) { big_endian<8>(v); }
  void copy(std::span<const std::uint8_t> in) {
    if (take(in.size())) std::copy_n(in.data(), in.size(), bytes_.data() + at_ - in.size());
  }
  void zero(std::size_t n) {
    if (take(n)) std::fill_n(bytes_.data() + at_ - n, n, std::uint8_t{0});
  }

  // Leaves the next n bytes as they are.
  void skip(std::size_t n) { take(n); }
  // Room for N bytes; where there is less, the writer fails and the bytes written are lost.
  template <std::size_t N>
  FixedWriter<N> fixed() {
    static thread_local std::array<std::uint8_t, kMostFixedBytes> lost;
    static_assert(N <= kMostFixedBytes);
    return FixedWriter<N>(take(N) ? bytes_.data() + at_ - N : lost.data());
  }

  bool ok() const { return ok_; }
  std::size_t position() const { return at_; }

 private:
  template <std::size_t N>
  void big_endian(std::uint64_t value) {
    if (take(N)) store_big_endian<N>(bytes_.data() + at_ - N, value);
  }
  bool take(std::size_t n) {
    if (!ok_ || bytes_.size() - at_ < n) return ok_ = false;
    at_ += n;
    return true;
  }

  std::span<std::uint8_t> bytes_;
  std::size_t at_ = 0;
  bool ok_ = true;
};

}  // namespace loomnet
