// See codel_queue.hpp.
#include "link/codel_queue.hpp"

#include <array>

namespace loomnet {

std::span<const std::string_view> CodelQueue::drop_names() const {
  static constexpr std::array<std::string_view, 2> kNames{"queue_full", "codel"};
  return kNames;
}

PacketPtr CodelQueue::dequeue(Picoseconds now) {
  struct {
    CodelQueue& owner;
    PacketPtr pop() { return owner.remove(); }
    std::uint64_t bytes() const { return owner.queued(); }
    void drop(PacketPtr packet, Picoseconds at) { owner.port_.drop(kCodel, *packet, at); }
    void mark(Packet& packet) { owner.port_.mark(packet); }
  } queue{*this};
  return codel_.dequeue(queue, settings_, now);
}

}  // namespace loomnet
