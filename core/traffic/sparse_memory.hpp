// Zeroed memory of the process whose pages are paid for when they are first written. Staging areas
// hold a slot for every chunk that may ever be under way between every two ranks; a run writes few.
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <system_error>
#include <utility>

namespace loomnet {

class SparseMemory {
 public:
  SparseMemory() = default;
  // Throws std::system_error where the address space has no room.
  explicit SparseMemory(std::size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    // MAP_NORESERVE: Linux then counts pages that are written, not the mapping, against the memory
    // that it may commit.
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "map staging");
    base_ = static_cast<std::uint8_t*>(at);
  }
  SparseMemory(SparseMemory&& o) noexcept
      : base_(std::exchange(o.base_, nullptr)), bytes_(std::exchange(o.bytes_, 0)) {}
  SparseMemory& operator=(SparseMemory&& o) noexcept {
    std::swap(base_, o.base_);
    std::swap(bytes_, o.bytes_);
    return *this;
  }
  ~SparseMemory() {
    if (base_) munmap(base_, bytes_);
  }

  std::uint8_t* data() const { return base_; }
  std::size_t size() const { return bytes_; }

 private:
  std::uint8_t* base_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace loomnet
