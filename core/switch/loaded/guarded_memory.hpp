// Memory between pages without access, so that code which writes beyond its memory is stopped at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace loomnet {

// All zeros at first, and aligned as a cache line. Its last byte but for the filling up to whole cache lines lies right
// before a page that cannot be touched, and its first byte less than a page behind one: so much of a mistake before the
// first byte changes memory that nothing uses.
class GuardedMemory {
 public:
  // On each side: as much as a switch's rows may be. It costs addresses, not memory.
  static constexpr std::size_t kGuard = std::size_t{64} << 20;

  GuardedMemory() = default;
  // Without guards where the process may have few addresses or has many such memories already.
  explicit GuardedMemory(std::size_t bytes);
  GuardedMemory(GuardedMemory&& other) noexcept { *this = std::move(other); }
  GuardedMemory& operator=(GuardedMemory&& other) noexcept;
  ~GuardedMemory();

  std::uint8_t* data() const { return data_; }
  static std::size_t page();

 private:
  bool map(std::size_t room);

  std::uint8_t* data_ = nullptr;
  void* mapped_ = nullptr;  // with the guards; null: data_ is of the heap
  std::size_t mapped_bytes_ = 0;
};

}  // namespace loomnet
