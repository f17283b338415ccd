// Tail drop; see fifo_queue.hpp.
#include "link/fifo_queue.hpp"

#include <algorithm>
#include <array>

namespace loomnet {

FifoQueue::FifoQueue(SendingPort& port, const LinkConfig& config)
    : PortQueue(port), limit_(config.data_limit), marks_(config) {}

std::span<const std::string_view> FifoQueue::drop_names() const {
  static constexpr std::array<std::string_view, 1> kNames{"queue_full"};
  return kNames;
}

Offer FifoQueue::enqueue(PacketPtr packet, Picoseconds now) {
  if ((limit_ && bytes_ + packet->wire_length > limit_) || !buffer_admits(*packet, bytes_, now)) {
    port_.drop(kQueueFull, *packet, now);
    return Offer::dropped;
  }
  bytes_ += packet->wire_length;
  if (buffer_) buffer_->take(*packet);
  port_.counters.max_queue = std::max(port_.counters.max_queue, bytes_);
  count_in(*packet);
  packets_.push(std::move(packet));
  return Offer::accepted;
}

PacketPtr FifoQueue::dequeue(Picoseconds) {
  const std::uint64_t before = bytes_;
  PacketPtr packet = pop();
  if (packet->ect && marks_.red(*packet).marks(before, port_.random)) port_.mark(*packet);
  return packet;
}

PacketPtr FifoQueue::remove() { return packets_.empty() ? nullptr : pop(); }

PacketPtr FifoQueue::pop() {
  PacketPtr packet = packets_.pop();
  count_out(*packet);
  bytes_ -= packet->wire_length;
  if (buffer_) buffer_->give(*packet);
  return packet;
}

void FifoQueue::set_share(double share, const LinkConfig& whole) {
  limit_ = share_of(whole.data_limit, share);
  marks_.set_share(share, whole);
}

}  // namespace loomnet
