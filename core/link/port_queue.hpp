// The contract of a queue discipline: what a sending port keeps, marks, trims and drops, and which
// packet leaves next. Time is an argument; the wire behind the queue decides when to ask.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "link/sending_port.hpp"
#include "link/shared_buffer.hpp"
#include "packet/packet.hpp"

namespace loomnet {

enum class Offer : std::uint8_t { accepted, trimmed, dropped };

// Packets of one class (Packet::queue) that wait.
struct QueuedClass {
  std::uint64_t bytes = 0;
  std::uint32_t packets = 0;
};

class PortQueue {
 public:
  explicit PortQueue(SendingPort& port) : port_(port) {}
  virtual ~PortQueue() = default;
  PortQueue(const PortQueue&) = delete;
  PortQueue& operator=(const PortQueue&) = delete;

  // Names of the reasons that the discipline drops packets for, kMostQueueDrops at most, of static
  // storage; they appear in reports. Constant for a discipline.
  virtual std::span<const std::string_view> drop_names() const = 0;
  // Takes a packet that is offered at `now`, whole or trimmed, or drops it. The discipline may drop
  // packets that wait to make room. Every drop goes to SendingPort::drop.
  virtual Offer enqueue(PacketPtr packet, Picoseconds now) = 0;
  // The packet whose first bit leaves at `now`; null where the discipline has dropped all that
  // waited. Called while packets wait, in order of time; before an enqueue of the same time.
  virtual PacketPtr dequeue(Picoseconds now) = 0;
  // Takes out any packet that waits, without sending it; null where none does.
  virtual PacketPtr remove() = 0;
  // From now on limits and thresholds are this share of the configured ones.
  virtual void set_share(double share, const LinkConfig& whole) = 0;

  // Whether the port's switch may have PFC. Others ignore what PFC says, and holds_from() is false.
  virtual bool pausable() const { return false; }
  // While PFC holds data, dequeue gives packets of other classes alone.
  virtual void hold_data(bool held) { (void)held; }
  // Whether dequeue has a packet to give while PFC holds data.
  virtual bool may_send() const { return true; }
  // Whether some packet of data waits here that came in by this port.
  virtual bool holds_from(std::uint16_t ingress) const {
    (void)ingress;
    return false;
  }

  // Data is drawn from this buffer of the port's switch too.
  void draw_from(SharedBuffer& buffer) { buffer_ = &buffer; }
  // By class, packets that wait.
  std::span<const QueuedClass, kQueueClasses> classes() const { return classes_; }
  std::uint64_t bytes() const {
    std::uint64_t sum = 0;
    for (const QueuedClass& each : classes_) sum += each.bytes;
    return sum;
  }
  std::uint32_t packets() const {
    std::uint32_t sum = 0;
    for (const QueuedClass& each : classes_) sum += each.packets;
    return sum;
  }

  // This share of a limit; a limit stays one: 0 is none.
  static std::uint64_t share_of(std::uint64_t limit, double share) {
    const auto bytes = static_cast<std::uint64_t>(static_cast<double>(limit) * share);
    return limit ? std::max<std::uint64_t>(bytes, 1) : 0;
  }

 protected:
  // Whether the switch's buffer, if the port draws from one, has room for a packet beside the port's
  // `queued` bytes.
  bool buffer_admits(const Packet& packet, std::uint64_t queued, Picoseconds now) {
    if (!buffer_ || buffer_->admits(packet, queued)) [[likely]]
      return true;
    // The other ports' queues were last looked at in the past: what they have sent since is free.
    buffer_->refresh(now);
    return buffer_->admits(packet, queued);
  }
  // Every discipline counts each packet in when it begins to wait, and out when it ceases to, with
  // the class and the length that it waits with.
  void count_in(const Packet& packet) {
    QueuedClass& of = classes_[packet.queue];
    of.bytes += packet.wire_length;
    ++of.packets;
  }
  void count_out(const Packet& packet) {
    QueuedClass& of = classes_[packet.queue];
    of.bytes -= packet.wire_length;
    --of.packets;
  }

  SendingPort& port_;
  SharedBuffer* buffer_ = nullptr;
  std::array<QueuedClass, kQueueClasses> classes_;
};

}  // namespace loomnet
