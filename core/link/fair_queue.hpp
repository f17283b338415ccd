// Fair queueing: flows by a hash of their addresses and ports, served by deficit round robin (Shreedhar
// and Varghese, 1996), flows that have just come before those that stay; with CoDel in each flow it is
// FQ-CoDel (RFC 8290). Packets beyond the limit are dropped from the head of the longest flow.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "link/codel.hpp"
#include "link/link_config.hpp"
#include "link/port_queue.hpp"

namespace loomnet {

struct FairSettings {
  std::uint32_t flows = 1024;    // queues that flows are hashed to
  std::uint32_t quantum = 1514;  // bytes that a flow may send in a round
  std::optional<CodelSettings> codel;
};

class FairQueue final : public PortQueue {
 public:
  static constexpr QueueDrop kQueueFull = 0, kCodel = 1;

  FairQueue(SendingPort& port, const LinkConfig& config, const FairSettings& settings);

  std::span<const std::string_view> drop_names() const override;
  Offer enqueue(PacketPtr packet, Picoseconds now) override;
  PacketPtr dequeue(Picoseconds now) override;
  PacketPtr remove() override;
  void set_share(double share, const LinkConfig& whole) override { limit_ = share_of(whole.data_limit, share); }

 private:
  using FlowIndex = std::uint32_t;
  static constexpr FlowIndex kNone = ~0u;
  struct Flow {
    PacketFifo packets;
    std::uint64_t bytes = 0;
    std::int64_t deficit = 0;
    FlowIndex next = kNone;  // in the list that the flow is in
    bool listed = false;
    Codel codel;
  };
  // Flows in turn, linked through Flow::next.
  struct Turn {
    FlowIndex head = kNone, tail = kNone;
  };

  void append(Turn& turn, FlowIndex flow);
  FlowIndex take_first(Turn& turn);
  PacketPtr pop(Flow& flow);
  PacketPtr next_of(Flow& flow, Picoseconds now);
  FlowIndex longest() const;
  bool drop_from_longest(Picoseconds now);

  FairSettings settings_;
  std::uint64_t key_;  // of the hash: the port's own
  std::uint64_t bytes_ = 0, limit_;
  Turn new_, old_;
  std::vector<Flow> flows_;
};

}  // namespace loomnet
