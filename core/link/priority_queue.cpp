// Strict priority with the control queue's share, RED, trimming and PFC; see priority_queue.hpp.
#include "link/priority_queue.hpp"

namespace loomnet {

PriorityQueue::PriorityQueue(SendingPort& port, const LinkConfig& config)
    : PortQueue(port),
      trims_(config.trim),
      trim_coin_(config.trim_coin),
      control_share_(config.control_share),
      data_limit_(config.data_limit),
      control_limit_(config.control_limit),
      marks_(config) {}

std::span<const std::string_view> PriorityQueue::drop_names() const {
  static constexpr std::array<std::string_view, 3> kNames{"queue_full", "control_full", "pfc_headroom"};
  return kNames;
}

Offer PriorityQueue::cut_or_drop(PacketPtr packet, Picoseconds now) {
  Offer result = Offer::accepted;
  if (packet->queue != kControlClass) {
    if (!trims_ || !packet->trimmable) {
      port_.drop(lossless(*packet) ? kPfcHeadroom : kQueueFull, *packet, now);
      return Offer::dropped;
    }
    if (trim_coin_) cut_instead(packet);
    // A packet that is no longer than a trimmed one goes whole, as SONiC sends it.
    if (const TrimOptions& as = marks_.trim(*packet); can_trim(*packet, as)) {
      if (!trim(*packet, as)) {
        port_.drop(kQueueFull, *packet, now);
        return Offer::dropped;
      }
      ++port_.counters.trimmed;
      result = Offer::trimmed;
    }
    packet->queue = kControlClass;
  }
  if (!admits_control(*packet)) {
    port_.drop(kControlFull, *packet, now);
    return Offer::dropped;
  }
  keep(std::move(packet));
  return result;
}

// Exchanges an arriving packet that has no room with the last one waiting, by a toss.
void PriorityQueue::cut_instead(PacketPtr& packet) {
  PacketFifo& queue = queues_[packet->queue];
  if (queue.empty() || !queue.back().trimmable || queue.back().wire_length < packet->wire_length ||
      port_.random.uniform() < 0.5) {
    return;
  }
  if (buffer_) buffer_->give(queue.back());
  count_out(queue.back());
  data_bytes_ -= queue.back().wire_length - packet->wire_length;
  if (buffer_) buffer_->take(*packet);
  count_in(*packet);
  packet = queue.replace_back(std::move(packet));
}

PacketPtr PriorityQueue::remove() {
  for (PacketFifo& queue : queues_) {
    if (queue.empty()) continue;
    PacketPtr packet = queue.pop();
    count_out(*packet);
    if (packet->queue != kControlClass) {
      data_bytes_ -= packet->wire_length;
      if (buffer_) buffer_->give(*packet);
    }
    control_share_.forget();
    return packet;
  }
  return nullptr;
}

bool PriorityQueue::may_send() const {
  for (std::size_t q = 0; q < kQueueClasses; ++q) {
    if (q != kDataClass && !queues_[q].empty()) return true;
  }
  return false;
}

bool PriorityQueue::holds_from(std::uint16_t ingress) const {
  const PacketFifo& data = queues_[kDataClass];
  if (data.empty()) return false;
  for (const Packet* p = &data.front(); p; p = p->next) {
    if (p->ingress == ingress) return true;
  }
  return false;
}

void PriorityQueue::set_share(double share, const LinkConfig& whole) {
  data_limit_ = share_of(whole.data_limit, share);
  control_limit_ = share_of(whole.control_limit, share);
  marks_.set_share(share, whole);
}

}  // namespace loomnet
