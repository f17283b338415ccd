// Reads pcapng blocks back, field by field, for tests.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace loomnet::testing {

struct Block {
  std::uint32_t type = 0;
  std::string body;  // between the two lengths
};

inline std::uint64_t number(std::string_view bytes, std::size_t at, std::size_t size) {
  if (at + size > bytes.size()) throw std::out_of_range("short block");
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < size; ++i) {
    value |= std::uint64_t{static_cast<std::uint8_t>(bytes[at + i])} << 8 * i;
  }
  return value;
}

inline std::vector<Block> blocks(std::string_view file) {
  std::vector<Block> found;
  while (!file.empty()) {
    const auto length = number(file, 4, 4);
    if (length % 4 || length < 12 || number(file, length - 4, 4) != length) {
      throw std::runtime_error("block lengths disagree");
    }
    found.push_back({static_cast<std::uint32_t>(number(file, 0, 4)), std::string(file.substr(8, length - 12))});
    file.remove_prefix(length);
  }
  return found;
}

struct CapturedPacket {
  std::uint64_t nanoseconds = 0;
  std::uint32_t original = 0;
  std::string bytes;
  std::map<std::uint16_t, std::string> options;
};

inline std::map<std::uint16_t, std::string> options(std::string_view body, std::size_t at) {
  std::map<std::uint16_t, std::string> found;
  while (at < body.size()) {
    const auto code = static_cast<std::uint16_t>(number(body, at, 2));
    const auto length = number(body, at + 2, 2);
    if (code == 0) break;
    found[code] = std::string(body.substr(at + 4, length));
    at += 4 + (length + 3) / 4 * 4;
  }
  return found;
}

inline std::vector<CapturedPacket> packets(std::string_view file) {
  std::vector<CapturedPacket> found;
  for (const Block& b : blocks(file)) {
    if (b.type != 6) continue;
    const auto captured = number(b.body, 12, 4);
    found.push_back({number(b.body, 4, 4) << 32 | number(b.body, 8, 4),
                     static_cast<std::uint32_t>(number(b.body, 16, 4)), b.body.substr(20, captured),
                     options(b.body, 20 + (captured + 3) / 4 * 4)});
  }
  return found;
}

}  // namespace loomnet::testing
