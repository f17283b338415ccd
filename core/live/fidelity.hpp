// What a live run says about itself: how late the engine was, what went missing outside its models,
// and what follows for a figure. Never wrong in silence.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "clock/time.hpp"
#include "live/sched_watch.hpp"
#include "live/stages.hpp"

namespace loomnet {

enum class LiveVerdict : std::uint8_t { kept_up, fell_behind, lost_packets };
constexpr std::string_view to_string(LiveVerdict v) {
  switch (v) {
    case LiveVerdict::kept_up:
      return "kept up";
    case LiveVerdict::fell_behind:
      return "fell behind";
    case LiveVerdict::lost_packets:
      return "lost packets of its own";
  }
  return "";
}

struct NamedCount {
  std::string name;
  std::uint64_t value = 0;
};

// Conservation at one kernel-placed switch.
struct SwitchReckoning {
  std::uint32_t node = 0;
  std::uint64_t given = 0;        // uids handed to it
  std::uint64_t returned = 0;     // uids that came back
  std::uint64_t absorbed = 0;     // uids taken into its program's state, reported one by one …
  std::uint64_t passed = 0;       // … and those handed to its own network stack, likewise
  std::uint64_t unreported = 0;   // absorbed or passed while the ring of reports was full
  std::uint64_t switch_drops = 0;  // the program's own named reasons: part of the model
  std::uint64_t own_losses = 0;   // sockets and veths: the engine's fault
  std::uint64_t missing() const {
    const std::uint64_t accounted = returned + absorbed + passed;
    return given > accounted ? given - accounted : 0;
  }
  std::uint64_t unexplained() const {
    const std::uint64_t explained = switch_drops + own_losses + unreported;
    return missing() > explained ? missing() - explained : 0;
  }
};

struct Fidelity {
  LiveVerdict verdict = LiveVerdict::kept_up;
  std::string reason;           // one sentence when the verdict is not "kept up"
  StageLateness stages;         // of the whole run
  std::vector<SchedWatch::Wait> waits;  // for a processor …
  std::string waits_missing;    // … or why none are known
  // Of each change of light at hosts, wall time until the kernel has changed all their carriers: of changes that
  // take a carrier away, and of those that only bring carriers.
  LatenessSummary carriers_down, carriers_up;
  Picoseconds longest_pass{};   // emulated; the longest gap between two looks at the sockets
  std::uint64_t passes = 0;
  std::uint64_t given = 0, returned = 0, absorbed = 0, passed = 0, switch_drops = 0, own_losses = 0, unexplained = 0;
  std::vector<SwitchReckoning> switches;
  std::vector<NamedCount> counters;  // everything the loop counted, by name
  std::string scheduling;       // "SCHED_FIFO 1", "nice -20", "normal: …"
  double dilation = 1;
};

}  // namespace loomnet
