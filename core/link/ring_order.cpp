// Places in the line, and a heap for each ring; see ring_order.hpp.
#include "link/ring_order.hpp"

#include <algorithm>

namespace loomnet {

// A ring whose packets have all left gives its entry to the next one.
std::uint32_t RingOrder::ring_of(const Attributes& attributes) {
  if (attributes.step_bytes == 0) return kNone;
  std::uint32_t spare = kNone;
  for (std::uint32_t i = 1; i < rings_.size(); ++i) {
    if (rings_[i].packets.empty()) {
      spare = i;
    } else if (rings_[i].job == attributes.job && rings_[i].communicator == attributes.communicator) {
      return i;
    }
  }
  if (spare == kNone) {
    if (rings_.size() > kMostRings) return kNone;
    spare = static_cast<std::uint32_t>(rings_.size());
    rings_.emplace_back();
  }
  rings_[spare].job = attributes.job;
  rings_[spare].communicator = attributes.communicator;
  return spare;
}

// The offset comes from a rank: beyond the step's end it counts as the end.
std::uint64_t RingOrder::progress(const Attributes& attributes) const {
  const std::uint64_t offset = std::min(attributes.step_offset, attributes.step_bytes - 1);
  const auto part = static_cast<std::uint64_t>(static_cast<unsigned __int128>(offset) * parts_ / attributes.step_bytes);
  return std::uint64_t{attributes.ring_step} * parts_ + part;
}

void RingOrder::push(PacketPtr packet) {
  const std::uint32_t ring = ring_of(packet->attributes);
  const std::uint64_t order = ring == kNone ? 0 : progress(packet->attributes);
  std::vector<Entry>& packets = rings_[ring].packets;
  packets.push_back({order, arrivals_++, std::move(packet)});
  std::push_heap(packets.begin(), packets.end());
  if (places_ == line_.size()) {
    std::rotate(line_.begin(), line_.begin() + static_cast<std::ptrdiff_t>(first_), line_.end());
    first_ = 0;
    line_.resize(std::max<std::size_t>(2 * line_.size(), 64));
  }
  line_[(first_ + places_++) & (line_.size() - 1)] = ring;
}

PacketPtr RingOrder::pop() {
  std::vector<Entry>& packets = rings_[line_[first_]].packets;
  first_ = (first_ + 1) & (line_.size() - 1);
  --places_;
  std::pop_heap(packets.begin(), packets.end());
  PacketPtr packet = std::move(packets.back().packet);
  packets.pop_back();
  return packet;
}

bool RingOrder::holds_from(std::uint16_t ingress) const {
  return std::any_of(rings_.begin(), rings_.end(), [ingress](const Ring& ring) {
    return std::any_of(ring.packets.begin(), ring.packets.end(),
                       [ingress](const Entry& entry) { return entry.packet->ingress == ingress; });
  });
}

}  // namespace loomnet
