// Lateness by the stage at which it arose, so that a run that fell behind can say what was late.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "live/lateness.hpp"

namespace loomnet {

enum class Stage : std::uint8_t {
  packet,  // a packet's whole way so far, where it comes out of the kernel
  engine,  // the oldest event due, each time the loop looks at its models
  timer,   // transports' deadlines: retransmission timers, pacing of controls
  kernel,  // a frame in the kernel, in whole passes of the loop
  pass,    // one pass of the loop, from its first look to its last
  sleep,   // what a sleep of the loop lasted beyond what was asked
  post,    // a rank's request, from the rank's clock to the loop's look
  table,   // a panel's table, from the change of light until it is in force in the kernel
};
inline constexpr std::size_t kStages = 8;

constexpr std::string_view to_string(Stage stage) {
  constexpr std::string_view names[kStages] = {"packet", "engine", "timer", "kernel", "pass", "sleep", "post", "table"};
  return names[static_cast<std::size_t>(stage)];
}

// A histogram for each stage.
class StageLateness {
 public:
  LatenessHistogram& operator[](Stage stage) { return all_[static_cast<std::size_t>(stage)]; }
  const LatenessHistogram& operator[](Stage stage) const { return all_[static_cast<std::size_t>(stage)]; }
  void merge(const StageLateness& other) {
    for (std::size_t i = 0; i < kStages; ++i) all_[i].merge(other.all_[i]);
  }
  void clear() {
    for (LatenessHistogram& each : all_) each.clear();
  }

 private:
  std::array<LatenessHistogram, kStages> all_;
};

}  // namespace loomnet
