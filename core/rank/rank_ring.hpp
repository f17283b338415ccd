// One side of a single-producer single-consumer ring in shared memory. Each side keeps its own
// index privately and only checks the other's, so that a corrupted word is found, not followed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "rank/rank_abi.hpp"

namespace loomnet::rank {

// Reads shared words exactly once each: the compiler may not fetch a checked value again.
template <class T>
T copy_once(const void* from) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 8 == 0);
  std::uint64_t words[sizeof(T) / 8];
  const auto* source = static_cast<const std::uint64_t*>(from);
  for (std::size_t i = 0; i < sizeof(T) / 8; ++i) {
    words[i] = __atomic_load_n(source + i, __ATOMIC_RELAXED);
  }
  T value;
  std::memcpy(&value, words, sizeof(T));
  return value;
}

template <class T>
void store_once(void* to, const T& value) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 8 == 0);
  std::uint64_t words[sizeof(T) / 8];
  std::memcpy(words, &value, sizeof(T));
  auto* target = static_cast<std::uint64_t*>(to);
  for (std::size_t i = 0; i < sizeof(T) / 8; ++i) {
    __atomic_store_n(target + i, words[i], __ATOMIC_RELAXED);
  }
}

template <class T>
class RingProducer {
 public:
  RingProducer() = default;
  RingProducer(RingWords* words, std::byte* entries, std::uint32_t capacity)
      : words_(words), entries_(entries), capacity_(capacity) {}

  // Writes an entry that publish() will show. False when full, or corrupt().
  bool push(const T& entry) {
    if (next_ - consumed_ >= capacity_ && !refresh()) return false;
    store_once(entries_ + (next_ & (capacity_ - 1)) * sizeof(T), entry);
    ++next_;
    return true;
  }
  // True if new entries became visible.
  bool publish() {
    if (published_ == next_) return false;
    published_ = next_;
    words_->produced.value.store(next_, std::memory_order_release);
    return true;
  }
  // Entries that can be pushed now.
  std::uint64_t room() {
    refresh();
    return corrupt_ ? 0 : capacity_ - (next_ - consumed_);
  }
  // Everything published has been taken.
  bool drained() {
    refresh();
    return !corrupt_ && consumed_ == next_;
  }
  bool corrupt() const { return corrupt_; }
  std::uint64_t produced() const { return next_; }

 private:
  bool refresh() {
    const std::uint64_t seen = words_->consumed.value.load(std::memory_order_acquire);
    // The consumer can only move forward, and never past what was published.
    if (seen - consumed_ > published_ - consumed_) {
      corrupt_ = true;
      return false;
    }
    consumed_ = seen;
    return next_ - consumed_ < capacity_;
  }

  RingWords* words_ = nullptr;
  std::byte* entries_ = nullptr;
  std::uint64_t capacity_ = 0;
  std::uint64_t next_ = 0, published_ = 0, consumed_ = 0;
  bool corrupt_ = false;
};

template <class T>
class RingConsumer {
 public:
  RingConsumer() = default;
  RingConsumer(RingWords* words, const std::byte* entries, std::uint32_t capacity)
      : words_(words), entries_(entries), capacity_(capacity) {}

  // Copies out up to out.size() entries and gives their slots back.
  std::size_t pop(std::span<T> out) {
    const std::uint64_t ready = available();
    const std::size_t n = ready < out.size() ? static_cast<std::size_t>(ready) : out.size();
    for (std::size_t i = 0; i < n; ++i) {
      out[i] = copy_once<T>(entries_ + ((next_ + i) & (capacity_ - 1)) * sizeof(T));
    }
    if (n != 0) {
      next_ += n;
      words_->consumed.value.store(next_, std::memory_order_release);
    }
    return n;
  }
  bool empty() { return available() == 0; }
  bool corrupt() const { return corrupt_; }
  std::uint64_t consumed() const { return next_; }

 private:
  std::uint64_t available() {
    const std::uint64_t ready = words_->produced.value.load(std::memory_order_acquire) - next_;
    if (ready > capacity_) {
      corrupt_ = true;
      return 0;
    }
    return ready;
  }

  RingWords* words_ = nullptr;
  const std::byte* entries_ = nullptr;
  std::uint64_t capacity_ = 0;
  std::uint64_t next_ = 0;
  bool corrupt_ = false;
};

}  // namespace loomnet::rank
