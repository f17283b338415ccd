// Counts what a test program allocates. Include it once per program: it replaces operator new.
#pragma once

#include <cstdlib>
#include <new>

namespace loomnet::testbed {
inline std::size_t allocations = 0, allocated_bytes = 0;
}

// Not inlined: the compiler would pair malloc with delete and warn.
[[gnu::noinline]] void* operator new(std::size_t size) {
  ++loomnet::testbed::allocations;
  loomnet::testbed::allocated_bytes += size;
  if (void* p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }
