// Packets of rings and other packets, in the order of an oracle. Each packet that arrives brings a place
// at the end of the line. A place belongs to the packet's ring, or to all packets without a ring, and a
// ring's place is given to the packet of its rearmost sender. So a ring gains no place from other rings or
// from other traffic, whatever its packets say, and loses none. The oracle reads how far a sender is from
// Packet::attributes, which no switch sees.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "packet/packet.hpp"

namespace loomnet {

class RingOrder {
 public:
  // Progress is compared in `parts` of a ring step: 1, by whole steps.
  explicit RingOrder(std::uint32_t parts) : parts_(parts), rings_(1) {}

  bool empty() const { return places_ == 0; }
  void push(PacketPtr packet);
  PacketPtr pop();
  bool holds_from(std::uint16_t ingress) const;

 private:
  // Rings that wait here at once, at most; packets of further rings count as packets without one.
  static constexpr std::size_t kMostRings = 256;
  static constexpr std::uint32_t kNone = 0;  // index of packets without a ring
  struct Entry {
    std::uint64_t progress, arrival;
    PacketPtr packet;
    // Of two, the one that leaves later; a heap has the other on top.
    bool operator<(const Entry& other) const {
      return progress != other.progress ? progress > other.progress : arrival > other.arrival;
    }
  };
  struct Ring {
    std::uint32_t job = 0, communicator = 0;
    std::vector<Entry> packets;  // a heap
  };
  std::uint32_t ring_of(const Attributes& attributes);
  std::uint64_t progress(const Attributes& attributes) const;

  std::uint32_t parts_;
  std::vector<Ring> rings_;
  std::uint64_t arrivals_ = 0;
  // Indices of rings: a circle whose length is a power of two.
  std::vector<std::uint32_t> line_;
  std::size_t first_ = 0, places_ = 0;
};

}  // namespace loomnet
