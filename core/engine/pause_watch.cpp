// When a paused port is looked at, and which circles are new.
#include "engine/pause_watch.hpp"

#include <algorithm>

#include "engine/network.hpp"

namespace loomnet {

// Takes one switch's reports of ports that stay paused.
class PauseWatch::SwitchWatch final : public PauseControl::StuckObserver, public EventHandler {
 public:
  SwitchWatch(PauseWatch& watch, NodeId node) : watch_(watch), node_(node) {}
  void on_stuck(std::uint16_t port) override {
    // With windows, other switches may not have reached this time yet: look one window later.
    EventQueue& events = watch_.network_.events();
    if (events.lookahead().count == 0) return watch_.on_stuck(node_, port);
    if (id_ == 0) id_ = events.add(*this);
    events.schedule(events.now() + events.lookahead(), id_, port);
  }
  void on_event(std::uint64_t port, Picoseconds) override { watch_.on_stuck(node_, static_cast<std::uint16_t>(port)); }

 private:
  PauseWatch& watch_;
  NodeId node_;
  ObjectId id_ = 0;
};

PauseWatch::PauseWatch(Network& network) : network_(network) {}
PauseWatch::~PauseWatch() = default;

void PauseWatch::add(std::uint32_t node, PauseControl& pauses) {
  switches_.push_back(std::make_unique<SwitchWatch>(*this, node));
  pauses.observe(switches_.back().get());
}

// A circle is counted when it is first seen; its links stay noted until one of them moves again.
void PauseWatch::on_stuck(NodeId node, std::uint16_t port) {
  const HalfId half = network_.egress_half(node, port) ^ 1;  // the direction into this port
  std::erase_if(in_deadlock_, [&](HalfId h) { return pause_cycle(network_, h).empty(); });
  if (std::find(in_deadlock_.begin(), in_deadlock_.end(), half) != in_deadlock_.end()) return;
  const std::vector<HalfId> circle = pause_cycle(network_, half);
  if (circle.empty()) return;
  ++deadlocks_;
  in_deadlock_.insert(in_deadlock_.end(), circle.begin(), circle.end());
}

}  // namespace loomnet
