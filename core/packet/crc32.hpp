// IEEE CRC-32, as zlib's crc32.
#pragma once

#include <cstdint>
#include <span>

namespace loomnet {

std::uint32_t crc32(std::span<const std::uint8_t> bytes);

}  // namespace loomnet
