// One queue for all classes under CoDel (RFC 8289), with tail drop at its limit.
#pragma once

#include <span>
#include <string_view>

#include "link/codel.hpp"
#include "link/fifo_queue.hpp"

namespace loomnet {

class CodelQueue final : public FifoQueue {
 public:
  static constexpr QueueDrop kCodel = 1;

  CodelQueue(SendingPort& port, const LinkConfig& config, const CodelSettings& settings)
      : FifoQueue(port, config), settings_(settings) {}

  std::span<const std::string_view> drop_names() const override;
  Offer enqueue(PacketPtr packet, Picoseconds now) override {
    packet->arrival = now;
    return FifoQueue::enqueue(std::move(packet), now);
  }
  PacketPtr dequeue(Picoseconds now) override;

 private:
  CodelSettings settings_;
  Codel codel_;
};

}  // namespace loomnet
