// Big-endian reading and writing of header bytes. Both ends are bounds-checked and never throw: an
// access past the end fails the whole reader or writer, and ok() says so afterwards.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace loomnet {

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

  bool ok() const { return ok_; }
  std::size_t position() const { return at_; }
  std::size_t remaining() const { return bytes_.size() - at_; }

 private:
  template <std::size_t N>
  std::uint64_t big_endian() {
    if (!take(N)) return 0;
    std::uint64_t value = 0;
    for (std::size_t i = at_ - N; i < at_; ++i) value = value << 8 | bytes_[i];
    return value;
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

  bool ok() const { return ok_; }
  std::size_t position() const { return at_; }

 private:
  template <std::size_t N>
  void big_endian(std::uint64_t value) {
    if (!take(N)) return;
    for (std::size_t i = at_; i-- > at_ - N; value >>= 8) {
      bytes_[i] = static_cast<std::uint8_t>(value);
    }
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
