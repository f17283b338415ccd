// The one packet buffer of a switch: its egress queues draw from it under a dynamic threshold
// (Choudhury and Hahne: a queue may hold alpha times the bytes still free). Ingress ports under PFC
// have a part of it reserved, and what came in by them is admitted by that alone.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "clock/time.hpp"
#include "link/pause_control.hpp"

namespace loomnet {

class HalfLink;

class SharedBuffer {
 public:
  SharedBuffer(std::uint64_t bytes, double alpha) : bytes_(bytes), alpha_(alpha) {}
  SharedBuffer(const SharedBuffer&) = delete;

  void add(HalfLink& link) { links_.push_back(&link); }
  // From now on packets of ports that pauses() guards are lossless.
  void use_pauses(EventQueue& events, PacketPool& pool, std::size_t ports, Domain domain = kAnybody) {
    pauses_ = std::make_unique<PauseControl>(*this, events, pool, ports, domain);
  }
  PauseControl* pauses() { return pauses_.get(); }
  // Sets bytes aside; false if there are not that many.
  bool reserve(std::uint64_t bytes) {
    if (bytes > bytes_) return false;
    bytes_ -= bytes;
    return true;
  }
  std::uint64_t unreserved() const { return bytes_; }

  bool lossless(const Packet& packet) const {
    return pauses_ && packet.queue == kDataClass && pauses_->guards(packet.ingress);
  }
  // `queued`: bytes of the queue that the packet would join.
  bool admits(const Packet& packet, std::uint64_t queued) const {
    if (lossless(packet)) return pauses_->admits(packet.ingress, packet.wire_length);
    const std::uint32_t length = packet.wire_length;
    return used_ + length <= bytes_ &&
           static_cast<double>(queued + length) <= alpha_ * static_cast<double>(bytes_ - used_);
  }
  void take(const Packet& packet) {
    if (lossless(packet)) return pauses_->take(packet.ingress, packet.wire_length);
    used_ += packet.wire_length;
  }
  void give(const Packet& packet) {
    if (lossless(packet)) return pauses_->give(packet.ingress, packet.wire_length);
    used_ -= packet.wire_length;
  }
  std::uint64_t used() const { return used_; }  // of the bytes not reserved
  // Brings every queue that draws from here up to `now`; `used` is exact afterwards.
  void refresh(Picoseconds now);
  void expect_departures(Picoseconds now);

 private:
  std::uint64_t bytes_;
  double alpha_;
  std::uint64_t used_ = 0;
  std::unique_ptr<PauseControl> pauses_;
  std::vector<HalfLink*> links_;
};

}  // namespace loomnet
