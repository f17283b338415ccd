// Packets on a wire, sorted by arrival: a ring that lies inside its owner while they are few, so
// that neither the packet before nor the one behind is touched when one is put on or taken off.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "packet/packet.hpp"

namespace loomnet {

class FlightRing {
 public:
  FlightRing() = default;
  ~FlightRing() { clear(); }
  FlightRing(const FlightRing&) = delete;
  FlightRing& operator=(const FlightRing&) = delete;

  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  Picoseconds first_arrival() const { return at(0).arrival; }
  Packet& front() const { return *at(0).packet; }
  // Equal times stay in order of insertion.
  void insert(PacketPtr packet, Picoseconds arrival) {
    if (size_ == capacity_) [[unlikely]]
      grow();
    std::uint32_t i = size_++;
    while (i > 0 && at(i - 1).arrival > arrival) [[unlikely]] {
      at(i) = at(i - 1);
      --i;
    }
    Flight& slot = at(i);
    slot.packet = packet.release();
    slot.arrival = arrival;
  }
  PacketPtr pop() {
    Packet* packet = at(0).packet;
    head_ = (head_ + 1) & (capacity_ - 1);
    --size_;
    return PacketPtr(packet);
  }
  void clear() {
    while (!empty()) pop();
  }

 private:
  struct Flight {
    Packet* packet;
    Picoseconds arrival;
  };
  static constexpr std::uint32_t kInside = 4;

  Flight& at(std::uint32_t i) { return slots_[(head_ + i) & (capacity_ - 1)]; }
  const Flight& at(std::uint32_t i) const { return slots_[(head_ + i) & (capacity_ - 1)]; }
  void grow() {
    auto larger = std::make_unique<Flight[]>(capacity_ * 2);
    for (std::uint32_t i = 0; i < size_; ++i) larger[i] = at(i);
    outside_ = std::move(larger);
    slots_ = outside_.get();
    capacity_ *= 2;
    head_ = 0;
  }

  Flight* slots_ = inside_;
  std::unique_ptr<Flight[]> outside_;
  std::uint32_t head_ = 0, size_ = 0, capacity_ = kInside;
  Flight inside_[kInside];
};

}  // namespace loomnet
