// Asking the caches for memory that will be needed soon. Never faults, changes nothing.
#pragma once

#include <cstddef>
#include <cstdint>

namespace loomnet {

inline constexpr std::size_t kCacheLine = 64;

// The lines of `bytes` from `from` on, to be written.
[[gnu::always_inline]] inline void fetch(const void* from, std::size_t bytes = kCacheLine) {
  const auto at = reinterpret_cast<std::uintptr_t>(from);  // may be null or gone: plain arithmetic
#pragma GCC unroll 16
  for (std::size_t i = 0; i < bytes; i += kCacheLine) {
    __builtin_prefetch(reinterpret_cast<const void*>(at + i), 1);
  }
}

}  // namespace loomnet
