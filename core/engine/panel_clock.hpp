// Wakes a network's panels at the times when the status of a port changes without a request: when a dark time ends
// and when a transceiver has found the light.
#pragma once

#include "clock/event_queue.hpp"
#include "packet/packet.hpp"

namespace loomnet {

class Network;

class PanelClock final : public EventHandler {
 public:
  PanelClock(Network& network, EventQueue& events) : network_(network), events_(events), id_(events.add(*this)) {}
  void wake(NodeId panel, Picoseconds at) { events_.schedule(at, id_, panel); }
  void on_event(std::uint64_t panel, Picoseconds now) override;

 private:
  Network& network_;
  EventQueue& events_;
  ObjectId id_;
};

}  // namespace loomnet
