// First in, first out, tail drop: one queue for all classes. ECN-capable packets are marked by RED
// where the link says so; no packet is trimmed.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "link/link_config.hpp"
#include "link/port_marks.hpp"
#include "link/port_queue.hpp"

namespace loomnet {

class FifoQueue : public PortQueue {
 public:
  static constexpr QueueDrop kQueueFull = 0;

  FifoQueue(SendingPort& port, const LinkConfig& config);

  std::span<const std::string_view> drop_names() const override;
  Offer enqueue(PacketPtr packet, Picoseconds now) override;
  PacketPtr dequeue(Picoseconds now) override;
  PacketPtr remove() override;
  void set_share(double share, const LinkConfig& whole) override;

 protected:
  PacketPtr pop();
  std::uint64_t queued() const { return bytes_; }

 private:
  PacketFifo packets_;
  std::uint64_t bytes_ = 0, limit_;
  PortMarks marks_;
};

}  // namespace loomnet
