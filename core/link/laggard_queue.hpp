// Strict priority as the default has it, but for the data of rings: of each ring the rearmost sender goes
// first (ring_order.hpp). An oracle to compare Symphony (arXiv 2604.16880) with, which slows the senders
// that are ahead by marks: it reads attributes that no switch sees. It may be under PFC; it trims nothing.
//
// It bounds what Symphony may gain only where nothing answers to queues: under DCQCN the senders that it
// holds back fill the queue that draws the port's own marks, and lose by them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "link/control_share.hpp"
#include "link/link_config.hpp"
#include "link/port_marks.hpp"
#include "link/port_queue.hpp"
#include "link/ring_order.hpp"

namespace loomnet {

class LaggardQueue final : public PortQueue {
 public:
  // As PriorityQueue's.
  static constexpr QueueDrop kQueueFull = 0, kControlFull = 1, kPfcHeadroom = 2;

  LaggardQueue(SendingPort& port, const LinkConfig& config, std::uint32_t parts);

  std::span<const std::string_view> drop_names() const override;
  Offer enqueue(PacketPtr packet, Picoseconds now) override;
  PacketPtr dequeue(Picoseconds now) override;
  PacketPtr remove() override;
  void set_share(double share, const LinkConfig& whole) override;

  bool pausable() const override { return true; }
  void hold_data(bool held) override { held_ = held; }
  bool may_send() const override;
  bool holds_from(std::uint16_t ingress) const override { return data_.holds_from(ingress); }

 private:
  // Packets of class kDataClass lie in data_, all others in others_.
  bool empty(std::size_t q) const { return q == kDataClass ? data_.empty() : others_[q].empty(); }
  PacketPtr take(std::size_t q);

  bool held_ = false;  // by PFC
  std::uint64_t data_bytes_ = 0;  // of all classes but control
  ControlShare control_share_;
  std::uint64_t data_limit_, control_limit_;
  PortMarks marks_;
  RingOrder data_;
  std::array<PacketFifo, kQueueClasses> others_;
};

}  // namespace loomnet
