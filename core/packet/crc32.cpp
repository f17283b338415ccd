// CRC-32 by a table of bytes.
#include "packet/crc32.hpp"

#include <array>

namespace loomnet {
namespace {

constexpr std::array<std::uint32_t, 256> kTable = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = c & 1 ? 0xedb88320u ^ c >> 1 : c >> 1;
    table[i] = c;
  }
  return table;
}();

}  // namespace

std::uint32_t crc32(std::span<const std::uint8_t> bytes) {
  std::uint32_t c = 0xffffffffu;
  for (const std::uint8_t byte : bytes) c = kTable[(c ^ byte) & 0xff] ^ c >> 8;
  return ~c;
}

}  // namespace loomnet
