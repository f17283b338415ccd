// The one packet buffer of a switch: its egress queues draw from it under a dynamic threshold
// (Choudhury and Hahne: a queue may hold alpha times what is still free).
#pragma once

#include <cstdint>
#include <vector>

#include "clock/time.hpp"

namespace loomnet {

class HalfLink;

class SharedBuffer {
 public:
  SharedBuffer(std::uint64_t bytes, double alpha) : bytes_(bytes), alpha_(alpha) {}
  SharedBuffer(const SharedBuffer&) = delete;

  void add(HalfLink& link) { links_.push_back(&link); }
  bool admits(std::uint64_t queued, std::uint32_t length) const {
    return used_ + length <= bytes_ &&
           static_cast<double>(queued + length) <= alpha_ * static_cast<double>(bytes_ - used_);
  }
  void take(std::uint64_t bytes) { used_ += bytes; }
  void give(std::uint64_t bytes) { used_ -= bytes; }
  std::uint64_t used() const { return used_; }
  // Brings every queue that draws from here up to `now`; `used` is exact afterwards.
  void refresh(Picoseconds now);

 private:
  std::uint64_t bytes_;
  double alpha_;
  std::uint64_t used_ = 0;
  std::vector<HalfLink*> links_;
};

}  // namespace loomnet
