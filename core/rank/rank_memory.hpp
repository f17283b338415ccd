// Makes, seals and maps the memory a rank shares with its NIC, and wakes either side.
// The only file of this folder, with rank_memory.cpp, that makes system calls for it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "collective/staging.hpp"
#include "rank/rank_abi.hpp"

namespace loomnet::rank {

// The executor's view of a geometry.
inline StagingConfig staging_of(const Geometry& g) {
  return {.ranks = g.world,
          .slots = g.slots,
          .slot_payload = g.slot_payload,
          .channels = g.slot_channels,
          .sum_slots = g.sum_slots,
          .sum_values = g.sum_values,
          .sum_window = g.sum_window,
          .sum_servers = g.sum_servers,
          .sum_reach = g.sum_reach,
          .sum_scale = g.sum_scale,
          .sum_floats = g.sum_floats != 0};
}

// A file descriptor that closes itself.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& o) noexcept {
    std::swap(fd_, o.fd_);
    return *this;
  }
  ~Descriptor();
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// A sleeper that can be woken. raise() never blocks.
class Waker {
 public:
  virtual ~Waker() = default;
  virtual void raise() = 0;
};

// Wakes a rank: a futex word in the memory that both sides share. The engine may not raise an
// eventfd that a rank has inherited: the flag O_NONBLOCK belongs to the open file that both share, so
// a rank could clear it, fill the counter, and the engine's write would block for ever.
class WakeWord final : public Waker {
 public:
  explicit WakeWord(std::atomic<std::uint32_t>& word) : word_(word) {}
  void raise() override;
  void clear() { word_.exchange(0, std::memory_order_seq_cst); }
  // Sleeps until raised, a signal, or `timeout_ms` (-1: for ever) passed; true if raised.
  bool wait(int timeout_ms);

 private:
  std::atomic<std::uint32_t>& word_;  // 1: raised
};

// Wakes the engine, which can poll the descriptors of many ranks at once. A rank raises it; the
// engine only waits for it and clears it, and clearing never blocks, whatever the rank did to it.
class EventFd final : public Waker {
 public:
  EventFd();                               // a new one, non-blocking; throws std::system_error
  explicit EventFd(int fd) : fd_(fd) {}    // takes over an inherited one
  void raise() override;
  void clear();                            // reads it back to zero
  // Sleeps until raised or `timeout_ms` (-1: for ever) passed; true if raised.
  bool wait(int timeout_ms);
  int get() const { return fd_.get(); }
  // Sleeps until one of `any` is raised or `timeout_ms` passed; clears those that were.
  static void wait_any(std::span<EventFd* const> any, int timeout_ms);

 private:
  Descriptor fd_;
};

// The mapping and typed pointers into it.
class Memory {
 public:
  // Engine side: a fresh memfd, sealed against resizing. Throws std::system_error or
  // std::invalid_argument naming the geometry field.
  static Memory create(const Geometry& geometry);
  // Rank side: maps an inherited memfd after checking seals, size, magic, version and geometry.
  // Throws std::runtime_error saying which check failed.
  static Memory attach(int fd);
  Memory(Memory&& o) noexcept;
  Memory& operator=(Memory&&) = delete;
  ~Memory();

  int fd() const { return fd_.get(); }
  const Geometry& geometry() const { return geometry_; }
  RankWords& rank_words() const { return *at<RankWords>(layout_.rank_words); }
  EngineWords& engine_words() const { return *at<EngineWords>(layout_.engine_words); }
  RingWords* ring_words(RingId id) const { return at<RingWords>(layout_.ring_words) + id; }
  std::byte* ring_entries(RingId id) const { return base_ + layout_.entries[id]; }
  std::span<std::byte> staging() const {
    return {base_ + layout_.staging, static_cast<std::size_t>(geometry_.staging_bytes)};
  }

 private:
  Memory(Descriptor fd, std::byte* base, const Geometry& geometry, const Layout& layout)
      : fd_(std::move(fd)), base_(base), geometry_(geometry), layout_(layout) {}
  template <class T>
  T* at(std::size_t offset) const {
    return reinterpret_cast<T*>(base_ + offset);
  }

  Descriptor fd_;
  std::byte* base_ = nullptr;
  Geometry geometry_;  // private copies: the mapped ones can change under us
  Layout layout_;
};

std::int64_t monotonic_ns();

}  // namespace loomnet::rank
