// Packet memory that AF_XDP sockets share: frames of one page, a free list, and the handles by
// which packets own frames. Single-threaded: everything here belongs to the live loop's thread.
#pragma once

#include <xdp/xsk.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "packet/packet.hpp"

namespace loomnet {

inline constexpr std::uint32_t kFrameBytes = 4096;  // one AF_XDP chunk
// The kernel puts received bytes behind this much headroom (XDP_PACKET_HEADROOM); XDP metadata
// ends where the bytes begin.
inline constexpr std::uint32_t kFrameHeadroom = 256;
// Above this a UMEM takes seconds to register and to let go.
inline constexpr std::uint32_t kMaxUmemFrames = 16384;
inline constexpr std::uint32_t kMaxFrameLength = kFrameBytes - kFrameHeadroom;

class Umem {
 public:
  // `id` tells the groups of a FrameArena apart. Must be made inside the namespace of the first
  // socket's interface: that socket uses the UMEM's own descriptor. Throws LiveError.
  Umem(std::uint8_t id, std::uint32_t frames, std::uint32_t fill_size, std::uint32_t comp_size);
  ~Umem();
  Umem(const Umem&) = delete;
  Umem& operator=(const Umem&) = delete;

  std::uint8_t id() const { return id_; }
  std::uint32_t frames() const { return frames_; }
  std::size_t free_frames() const { return free_.size(); }

  // Handles name a frame across all groups: id in the top byte, index below.
  static constexpr std::uint8_t id_of(std::uint32_t handle) { return static_cast<std::uint8_t>(handle >> 24); }
  bool take(std::uint32_t& handle) {
    if (free_.empty()) return false;
    handle = free_.back();
    free_.pop_back();
    return true;
  }
  void put(std::uint32_t handle) noexcept { free_.push_back(handle); }  // reserved: never allocates
  std::uint8_t* base(std::uint32_t handle) { return area_ + address(handle); }
  static std::uint64_t address(std::uint32_t handle) { return std::uint64_t{handle & 0xffffff} * kFrameBytes; }
  std::uint32_t handle_at(std::uint64_t address) const {
    return std::uint32_t{id_} << 24 | static_cast<std::uint32_t>(address / kFrameBytes);
  }
  std::uint8_t* area() { return area_; }
  xsk_umem* raw() { return umem_; }

 private:
  std::uint8_t id_;
  std::uint32_t frames_;
  std::uint8_t* area_ = nullptr;
  std::size_t bytes_ = 0;
  xsk_umem* umem_ = nullptr;
  xsk_ring_prod first_fill_{};  // libxdp keeps the first socket's rings here
  xsk_ring_cons first_comp_{};
  std::vector<std::uint32_t> free_;
};

// All UMEM groups of a run; takes back the frames that packets owned.
class FrameArena final : public FrameOwner {
 public:
  void add(Umem& umem);
  void release_frame(std::uint32_t handle) noexcept override { umems_[Umem::id_of(handle)]->put(handle); }

 private:
  std::vector<Umem*> umems_;  // index = id
};

}  // namespace loomnet
