// First-in first-out ring that grows by doubling and keeps what it has: empty costs no memory,
// steady state allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace loomnet {

// `kFirst`: for how many it makes room at first, a power of two.
template <typename T, std::uint32_t kFirst = 8>
class Ring {
 public:
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  T& operator[](std::size_t i) { return slots_[(head_ + i) & (capacity_ - 1)]; }
  const T& operator[](std::size_t i) const { return slots_[(head_ + i) & (capacity_ - 1)]; }
  T& front() { return (*this)[0]; }
  const T& front() const { return (*this)[0]; }
  void push(T value) {
    if (size_ == capacity_) grow();
    (*this)[size_] = std::move(value);
    ++size_;
  }
  T pop() {
    T value = std::move(front());
    head_ = static_cast<std::uint32_t>((head_ + 1) & (capacity_ - 1));
    --size_;
    return value;
  }
  void clear() { head_ = size_ = 0; }

 private:
  void grow() {
    const std::uint32_t capacity = capacity_ ? 2 * capacity_ : kFirst;
    auto slots = std::make_unique<T[]>(capacity);
    for (std::uint32_t i = 0; i < size_; ++i) slots[i] = std::move((*this)[i]);
    slots_ = std::move(slots);
    capacity_ = capacity;
    head_ = 0;
  }

  std::unique_ptr<T[]> slots_;
  std::uint32_t capacity_ = 0, head_ = 0, size_ = 0;
};

}  // namespace loomnet
