// Counts the deadlocks of Priority-based Flow Control in a network: ports that stay paused are looked
// at when their switch reports them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "clock/event_queue.hpp"
#include "engine/pause_cycle.hpp"
#include "link/pause_control.hpp"

namespace loomnet {

class PauseWatch {
 public:
  explicit PauseWatch(Network& network);
  ~PauseWatch();

  // Observes the pauses of the switch `node` from now on.
  void add(std::uint32_t node, PauseControl& pauses);
  // Circles of links that paused one another found so far; each counts once while it lasts.
  std::uint64_t deadlocks() const { return deadlocks_; }

 private:
  class SwitchWatch;
  void on_stuck(std::uint32_t node, std::uint16_t port);

  Network& network_;
  std::vector<std::unique_ptr<SwitchWatch>> switches_;
  std::vector<HalfId> in_deadlock_;  // half-links of circles that have been counted
  std::uint64_t deadlocks_ = 0;
};

}  // namespace loomnet
