// A recording as a Perfetto trace: per host its operations and messages, per link direction its
// packets and the depth of its queue, joined by arrows from operation to message to each hop of its
// packets.
#pragma once

#include <functional>
#include <string>

#include "trace/perfetto.hpp"
#include "trace/recorder.hpp"

namespace loomnet {

struct TimelineNames {
  std::function<std::string(std::uint32_t)> host;
  std::function<std::string(std::uint32_t)> half;  // "h0->p0.leaf0"
};

// Process id of a host's group of tracks, to add threads to it.
constexpr std::int32_t timeline_pid(std::uint32_t host) { return static_cast<std::int32_t>(host) + 1; }

// Slices still open end at `end`.
void write_timeline(const Recorder& recorder, const TimelineNames& names, Picoseconds end, PerfettoWriter& out);

}  // namespace loomnet
