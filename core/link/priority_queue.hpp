// The default discipline: eight strict-priority queues of which control is first, RED marking,
// trimming, data that PFC holds (OCP MRC 1.0).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "clock/fetch.hpp"
#include "link/control_share.hpp"
#include "link/link_config.hpp"
#include "link/port_marks.hpp"
#include "link/port_queue.hpp"

namespace loomnet {

class PriorityQueue final : public PortQueue {
 public:
  // kPfcHeadroom: a packet under PFC that no reserved byte was left for; faults can lead to that.
  static constexpr QueueDrop kQueueFull = 0, kControlFull = 1, kPfcHeadroom = 2;

  PriorityQueue(SendingPort& port, const LinkConfig& config);

  std::span<const std::string_view> drop_names() const override;
  Offer enqueue(PacketPtr packet, Picoseconds now) override;
  PacketPtr dequeue(Picoseconds now) override;
  PacketPtr remove() override;
  void set_share(double share, const LinkConfig& whole) override;

  bool pausable() const override { return true; }
  void hold_data(bool held) override { held_ = held; }
  bool may_send() const override;
  bool holds_from(std::uint16_t ingress) const override;
  // Asks for the packet that likely leaves next.
  void prepare() const { fetch(&queues_[queues_[kDataClass].empty() ? kControlClass : kDataClass].front(), 128); }

 private:
  bool admits(const Packet& packet, Picoseconds now) {
    if (data_limit_ && data_bytes_ + packet.wire_length > data_limit_ && !lossless(packet)) {
      return false;
    }
    return buffer_admits(packet, data_bytes_, now);
  }
  bool admits_control(const Packet& packet) const {
    return control_limit_ == 0 || classes_[kControlClass].bytes + packet.wire_length <= control_limit_;
  }
  bool lossless(const Packet& packet) const { return buffer_ && buffer_->lossless(packet); }
  void keep(PacketPtr packet);
  Offer cut_or_drop(PacketPtr packet, Picoseconds now);
  void cut_instead(PacketPtr& packet);

  bool held_ = false;  // by PFC
  bool trims_, trim_coin_;
  std::uint64_t data_bytes_ = 0;  // of all classes but control
  ControlShare control_share_;
  std::uint64_t data_limit_, control_limit_;
  PortMarks marks_;
  std::array<PacketFifo, kQueueClasses> queues_;
};

// The three below run for every packet that waits: inline, so that the default port pays no call.
[[gnu::always_inline]] inline void PriorityQueue::keep(PacketPtr packet) {
  if (packet->queue != kControlClass) {
    data_bytes_ += packet->wire_length;
    if (buffer_) buffer_->take(*packet);
    port_.counters.max_queue = std::max(port_.counters.max_queue, data_bytes_);
  }
  count_in(*packet);
  queues_[packet->queue].push(std::move(packet));
}

[[gnu::always_inline]] inline Offer PriorityQueue::enqueue(PacketPtr packet, Picoseconds now) {
  if (packet->queue == kControlClass ? !admits_control(*packet) : !admits(*packet, now)) {
    return cut_or_drop(std::move(packet), now);
  }
  keep(std::move(packet));
  return Offer::accepted;
}

[[gnu::always_inline]] inline PacketPtr PriorityQueue::dequeue(Picoseconds) {
  std::size_t q = data_bytes_ > 0 ? kDataClass : kQueueClasses;
  while (q < kQueueClasses && (queues_[q].empty() || (held_ && q == kDataClass))) ++q;
  const bool data_waits = q < kQueueClasses;
  if (!queues_[kControlClass].empty() && (!data_waits || control_share_.due())) q = kControlClass;
  const std::uint64_t data_before = data_bytes_;
  PacketPtr packet = queues_[q].pop();
  count_out(*packet);
  if (q == kControlClass) {
    control_share_.sent_control(packet->wire_length, data_waits);
  } else {
    data_bytes_ -= packet->wire_length;
    if (buffer_) buffer_->give(*packet);
    control_share_.sent_data(packet->wire_length, data_bytes_ > 0);
    if (packet->ect && marks_.red(*packet).marks(data_before, port_.random)) port_.mark(*packet);
  }
  return packet;
}

}  // namespace loomnet
