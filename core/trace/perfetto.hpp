// Writes Perfetto's protobuf trace format: the few messages that tracks, slices, flow arrows and
// counters need ("Perfetto: TrackEvent", "TracePacket" and their .proto files). Times are emulated;
// Perfetto counts whole nanoseconds, none below zero: what lies before `zero` is moved to it, and an instant
// left out.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "clock/time.hpp"

namespace loomnet {

// A named value shown with a slice.
struct TraceArgument {
  std::string_view name;
  std::int64_t number = 0;
  std::string_view text{};  // shown instead of the number unless empty
};

enum class CounterUnit { none, bytes };

using TrackId = std::uint64_t;  // Perfetto's uuid; 0: no track

class PerfettoWriter {
 public:
  // `zero`: the time that the file counts from.
  explicit PerfettoWriter(Picoseconds zero = {});

  Picoseconds zero() const { return zero_; }

  // Facts about the whole trace.
  void attribute(std::string_view key, std::string_view value);
  void attribute(std::string_view key, std::int64_t value);

  // The same track for the same pid. Processes are shown in order of their pids.
  TrackId process(std::int32_t pid, std::string_view name);
  TrackId thread(std::int32_t pid, std::int32_t tid, std::string_view name);
  // Tracks of one parent are shown in order of their ranks.
  TrackId track(TrackId parent, std::string_view name, std::int32_t rank = 0);
  TrackId counter(TrackId parent, std::string_view name, CounterUnit unit = CounterUnit::bytes);

  // Slices of one track nest or follow each other; equal times keep the order of the calls. Slices
  // with a common flow id are joined by arrows in order of time; `ending` ids have their last
  // slice.
  void begin(TrackId track, Picoseconds at, std::string_view name, std::string_view category,
             std::span<const TraceArgument> arguments = {}, std::span<const std::uint64_t> flows = {},
             std::span<const std::uint64_t> ending = {});
  void end(TrackId track, Picoseconds at);
  void instant(TrackId track, Picoseconds at, std::string_view name, std::string_view category,
               std::span<const TraceArgument> arguments = {}, std::span<const std::uint64_t> ending = {});
  // Values of a counter track.
  void count(TrackId track, Picoseconds at, std::int64_t value);
  void measure(TrackId track, Picoseconds at, double value);

  std::size_t pending_bytes() const { return out_.size(); }
  // What has been written since the last call: a piece of the file.
  std::string take();

 private:
  void begin_count(TrackId track);
  void end_count(Picoseconds at);
  TrackId describe(std::string_view body);
  TrackId describe(TrackId id, std::string_view body);
  void event(int type, TrackId track, Picoseconds at, std::string_view name, std::string_view category,
             std::span<const TraceArgument> arguments, std::span<const std::uint64_t> flows,
             std::span<const std::uint64_t> ending);
  void packet(std::string_view body);

  std::uint64_t nanosecond(Picoseconds at) const;

  Picoseconds zero_;
  std::string out_;
  std::string event_, inner_, packet_;  // scratch, to allocate nothing per event
  TrackId next_ = 1;
};

}  // namespace loomnet
