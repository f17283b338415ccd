// Rounds of deficits over new and old flows (RFC 8290, section 4); see fair_queue.hpp.
#include "link/fair_queue.hpp"

#include <algorithm>
#include <array>

#include "link/flow_hash.hpp"

namespace loomnet {

FairQueue::FairQueue(SendingPort& port, const LinkConfig& config, const FairSettings& settings)
    : PortQueue(port), settings_(settings), key_(port.random()), limit_(config.data_limit), flows_(settings.flows) {}

std::span<const std::string_view> FairQueue::drop_names() const {
  static constexpr std::array<std::string_view, 2> kNames{"queue_full", "codel"};
  return std::span(kNames).first(settings_.codel ? 2 : 1);
}

void FairQueue::append(Turn& turn, FlowIndex flow) {
  flows_[flow].next = kNone;
  (turn.tail == kNone ? turn.head : flows_[turn.tail].next) = flow;
  turn.tail = flow;
}

FairQueue::FlowIndex FairQueue::take_first(Turn& turn) {
  const FlowIndex flow = turn.head;
  turn.head = flows_[flow].next;
  if (turn.head == kNone) turn.tail = kNone;
  return flow;
}

PacketPtr FairQueue::pop(Flow& flow) {
  if (flow.packets.empty()) return nullptr;
  PacketPtr packet = flow.packets.pop();
  count_out(*packet);
  flow.bytes -= packet->wire_length;
  bytes_ -= packet->wire_length;
  if (buffer_) buffer_->give(*packet);
  return packet;
}

Offer FairQueue::enqueue(PacketPtr packet, Picoseconds now) {
  while (!buffer_admits(*packet, bytes_, now)) {
    if (drop_from_longest(now)) continue;
    port_.drop(kQueueFull, *packet, now);
    return Offer::dropped;
  }
  const auto index = static_cast<FlowIndex>(flow_hash(*packet, key_) % flows_.size());
  Flow& flow = flows_[index];
  packet->arrival = now;
  flow.bytes += packet->wire_length;
  bytes_ += packet->wire_length;
  if (buffer_) buffer_->take(*packet);
  count_in(*packet);
  flow.packets.push(std::move(packet));
  if (!flow.listed) {
    flow.listed = true;
    flow.deficit = settings_.quantum;
    append(new_, index);
  }
  while (limit_ && bytes_ > limit_) drop_from_longest(now);
  port_.counters.max_queue = std::max(port_.counters.max_queue, bytes_);
  return Offer::accepted;
}

FairQueue::FlowIndex FairQueue::longest() const {
  FlowIndex found = kNone;
  for (const Turn* turn : {&new_, &old_}) {
    for (FlowIndex i = turn->head; i != kNone; i = flows_[i].next) {
      if (flows_[i].bytes > (found == kNone ? 0 : flows_[found].bytes)) found = i;
    }
  }
  return found;
}

bool FairQueue::drop_from_longest(Picoseconds now) {
  const FlowIndex flow = longest();
  if (flow == kNone) return false;
  port_.drop(kQueueFull, *pop(flows_[flow]), now);
  return true;
}

PacketPtr FairQueue::next_of(Flow& flow, Picoseconds now) {
  if (!settings_.codel) return pop(flow);
  struct {
    FairQueue& owner;
    Flow& flow;
    PacketPtr pop() { return owner.pop(flow); }
    std::uint64_t bytes() const { return flow.bytes; }
    void drop(PacketPtr packet, Picoseconds at) { owner.port_.drop(kCodel, *packet, at); }
    void mark(Packet& packet) { owner.port_.mark(packet); }
  } queue{*this, flow};
  return flow.codel.dequeue(queue, *settings_.codel, now);
}

PacketPtr FairQueue::dequeue(Picoseconds now) {
  for (;;) {
    Turn& turn = new_.head != kNone ? new_ : old_;
    if (turn.head == kNone) return nullptr;
    Flow& flow = flows_[turn.head];
    if (flow.deficit <= 0) {
      flow.deficit += settings_.quantum;
      append(old_, take_first(turn));
      continue;
    }
    if (PacketPtr packet = next_of(flow, now)) {
      flow.deficit -= packet->wire_length;
      return packet;
    }
    // An empty new flow waits one round among the old ones, so that it cannot come back as new at once.
    const FlowIndex emptied = take_first(turn);
    if (&turn == &new_ && old_.head != kNone) {
      append(old_, emptied);
    } else {
      flow.listed = false;
    }
  }
}

PacketPtr FairQueue::remove() {
  const FlowIndex flow = longest();
  return flow == kNone ? nullptr : pop(flows_[flow]);
}

}  // namespace loomnet
