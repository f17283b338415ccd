// Guards are pages without any right, which the kernel gives addresses alone.
#include "switch/loaded/guarded_memory.hpp"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <new>
#include <utility>

namespace loomnet {
namespace {

constexpr std::align_val_t kLine{64};
// A process has 65,530 mappings unless its machine says otherwise, and each guarded memory is up to three.
constexpr int kMostGuarded = 4096;
std::atomic<int> guarded{0};

constexpr std::size_t up_to(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

std::size_t GuardedMemory::page() {
  static const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

GuardedMemory::GuardedMemory(std::size_t bytes) {
  if (bytes == 0) return;
  const std::size_t lines = up_to(bytes, static_cast<std::size_t>(kLine));
  const std::size_t room = up_to(lines, page());
  if (map(room)) {
    data_ = static_cast<std::uint8_t*>(mapped_) + kGuard + room - lines;
  } else {
    data_ = static_cast<std::uint8_t*>(::operator new(lines, kLine));
    std::memset(data_, 0, lines);
  }
}

bool GuardedMemory::map(std::size_t room) {
  rlimit addresses{};
  if (::getrlimit(RLIMIT_AS, &addresses) != 0 || addresses.rlim_cur != RLIM_INFINITY) return false;
  if (guarded.fetch_add(1, std::memory_order_relaxed) < kMostGuarded) {
    const std::size_t all = room + 2 * kGuard;
    void* const found = ::mmap(nullptr, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found != MAP_FAILED) {
      if (::mprotect(static_cast<std::uint8_t*>(found) + kGuard, room, PROT_READ | PROT_WRITE) == 0) {
        mapped_ = found;
        mapped_bytes_ = all;
        return true;
      }
      ::munmap(found, all);
    }
  }
  guarded.fetch_sub(1, std::memory_order_relaxed);
  return false;
}

GuardedMemory& GuardedMemory::operator=(GuardedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(mapped_, other.mapped_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  return *this;
}

GuardedMemory::~GuardedMemory() {
  if (mapped_) {
    ::munmap(mapped_, mapped_bytes_);
    guarded.fetch_sub(1, std::memory_order_relaxed);
  } else if (data_) {
    ::operator delete(data_, kLine);
  }
}

}  // namespace loomnet
