// Limits, marks and classes as PriorityQueue has them; see laggard_queue.hpp.
#include "link/laggard_queue.hpp"

#include <algorithm>

namespace loomnet {

LaggardQueue::LaggardQueue(SendingPort& port, const LinkConfig& config, std::uint32_t parts)
    : PortQueue(port),
      control_share_(config.control_share),
      data_limit_(config.data_limit),
      control_limit_(config.control_limit),
      marks_(config),
      data_(parts) {}

std::span<const std::string_view> LaggardQueue::drop_names() const {
  static constexpr std::array<std::string_view, 3> kNames{"queue_full", "control_full", "pfc_headroom"};
  return kNames;
}

Offer LaggardQueue::enqueue(PacketPtr packet, Picoseconds now) {
  if (packet->queue == kControlClass) {
    if (control_limit_ && classes_[kControlClass].bytes + packet->wire_length > control_limit_) {
      port_.drop(kControlFull, *packet, now);
      return Offer::dropped;
    }
  } else {
    const bool lossless = buffer_ && buffer_->lossless(*packet);
    if ((data_limit_ && data_bytes_ + packet->wire_length > data_limit_ && !lossless) ||
        !buffer_admits(*packet, data_bytes_, now)) {
      port_.drop(lossless ? kPfcHeadroom : kQueueFull, *packet, now);
      return Offer::dropped;
    }
    data_bytes_ += packet->wire_length;
    if (buffer_) buffer_->take(*packet);
    port_.counters.max_queue = std::max(port_.counters.max_queue, data_bytes_);
  }
  count_in(*packet);
  if (packet->queue == kDataClass) {
    data_.push(std::move(packet));
  } else {
    others_[packet->queue].push(std::move(packet));
  }
  return Offer::accepted;
}

PacketPtr LaggardQueue::take(std::size_t q) {
  PacketPtr packet = q == kDataClass ? data_.pop() : others_[q].pop();
  count_out(*packet);
  if (q == kControlClass) return packet;
  data_bytes_ -= packet->wire_length;
  if (buffer_) buffer_->give(*packet);
  return packet;
}

PacketPtr LaggardQueue::dequeue(Picoseconds) {
  std::size_t q = kDataClass;
  while (q < kQueueClasses && (empty(q) || (held_ && q == kDataClass))) ++q;
  const bool data_waits = q < kQueueClasses;
  if (!empty(kControlClass) && (!data_waits || control_share_.due())) q = kControlClass;
  const std::uint64_t before = data_bytes_;
  PacketPtr packet = take(q);
  if (q == kControlClass) {
    control_share_.sent_control(packet->wire_length, data_waits);
    return packet;
  }
  control_share_.sent_data(packet->wire_length, data_bytes_ > 0);
  if (packet->ect && marks_.red(*packet).marks(before, port_.random)) port_.mark(*packet);
  return packet;
}

PacketPtr LaggardQueue::remove() {
  for (std::size_t q = 0; q < kQueueClasses; ++q) {
    if (empty(q)) continue;
    control_share_.forget();
    return take(q);
  }
  return nullptr;
}

bool LaggardQueue::may_send() const {
  for (std::size_t q = 0; q < kQueueClasses; ++q) {
    if (q != kDataClass && !others_[q].empty()) return true;
  }
  return false;
}

void LaggardQueue::set_share(double share, const LinkConfig& whole) {
  data_limit_ = share_of(whole.data_limit, share);
  control_limit_ = share_of(whole.control_limit, share);
  marks_.set_share(share, whole);
}

}  // namespace loomnet
