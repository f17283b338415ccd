// Asking the caches for memory that will be needed soon. Never faults, changes nothing.
#pragma once

#include <cstddef>

namespace loomnet {

inline constexpr std::size_t kCacheLine = 64;

// The lines of `bytes` from `from` on, to be written.
inline void fetch(const void* from, std::size_t bytes = kCacheLine) {
  const char* at = static_cast<const char*>(from);
  for (std::size_t i = 0; i < bytes; i += kCacheLine) __builtin_prefetch(at + i, 1);
}

}  // namespace loomnet
