// Protobuf wire format and the field numbers of Perfetto's trace protocol; see perfetto.hpp.
#include "trace/perfetto.hpp"

#include <bit>
#include <utility>

namespace loomnet {
namespace {

// Wire format: key = field << 3 | type; 0 varint, 1 eight bytes, 2 length and bytes.
void varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}
void number(std::string& out, std::uint32_t field, std::uint64_t value) {
  varint(out, std::uint64_t{field} << 3);
  varint(out, value);
}
void fixed(std::string& out, std::uint32_t field, std::uint64_t value) {
  varint(out, std::uint64_t{field} << 3 | 1);
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>(value >> 8 * i));
}
void bytes(std::string& out, std::uint32_t field, std::string_view value) {
  varint(out, std::uint64_t{field} << 3 | 2);
  varint(out, value.size());
  out += value;
}

namespace trace {
constexpr std::uint32_t kPacket = 1;
}
namespace trace_packet {
constexpr std::uint32_t kChromeEvents = 5, kTimestamp = 8, kSequence = 10, kEvent = 11, kSequenceFlags = 13,
                        kTrackDescriptor = 60, kAttributes = 126;
constexpr std::uint64_t kStateCleared = 1;
}  // namespace trace_packet
namespace track_event {
constexpr std::uint32_t kArgument = 4, kType = 9, kTrack = 11, kCategory = 22, kName = 23, kCounterValue = 30,
                        kRealCounterValue = 44, kFlow = 47, kEndingFlow = 48;
constexpr int kBegin = 1, kEnd = 2, kInstant = 3, kCounter = 4;
}  // namespace track_event
namespace argument {
constexpr std::uint32_t kInteger = 4, kString = 6, kName = 10;
}
namespace descriptor {
constexpr std::uint32_t kUuid = 1, kName = 2, kProcess = 3, kThread = 4, kParent = 5, kCounter = 8, kChildOrdering = 11,
                        kRank = 12;
constexpr std::uint64_t kExplicit = 3;
constexpr std::uint32_t kPid = 1, kSortIndex = 3, kProcessName = 6, kTid = 2, kThreadName = 5, kUnit = 3;
constexpr std::uint64_t kUnitBytes = 3;
}  // namespace descriptor

constexpr std::uint64_t kSequenceId = 1;
constexpr TrackId kProcessTracks = 1ull << 48;  // one id per process, however often described

}  // namespace

PerfettoWriter::PerfettoWriter(Picoseconds zero) : zero_(zero) {
  std::string body;
  number(body, trace_packet::kSequenceFlags, trace_packet::kStateCleared);
  packet(body);
}

std::uint64_t PerfettoWriter::nanosecond(Picoseconds at) const {
  return at <= zero_ ? 0 : static_cast<std::uint64_t>((at - zero_).count) / 1000;
}

void PerfettoWriter::packet(std::string_view body) {
  packet_.assign(body);
  number(packet_, trace_packet::kSequence, kSequenceId);
  bytes(out_, trace::kPacket, packet_);
}

// Twice: as trace_attributes, which the trace processor of 2025 and later lists as metadata, and as
// Chrome's metadata, which older ones list.
void PerfettoWriter::attribute(std::string_view key, std::string_view value) {
  std::string one, body;
  bytes(one, 1, key);
  bytes(one, 3, value);
  bytes(body, 1, one);
  std::string out;
  bytes(out, trace_packet::kAttributes, body);
  packet(out);
  one.clear();
  body.clear();
  out.clear();
  bytes(one, 1, key);
  bytes(one, 2, value);
  bytes(body, 2, one);
  bytes(out, trace_packet::kChromeEvents, body);
  packet(out);
}

void PerfettoWriter::attribute(std::string_view key, std::int64_t value) {
  attribute(key, std::string_view(std::to_string(value)));
}

TrackId PerfettoWriter::describe(std::string_view body) { return describe(next_++, body); }

TrackId PerfettoWriter::describe(TrackId id, std::string_view body) {
  std::string track(body);
  number(track, descriptor::kUuid, id);
  std::string out;
  bytes(out, trace_packet::kTrackDescriptor, track);
  packet(out);
  return id;
}

TrackId PerfettoWriter::process(std::int32_t pid, std::string_view name) {
  std::string inner, body;
  number(inner, descriptor::kPid, static_cast<std::uint64_t>(pid));
  number(inner, descriptor::kSortIndex, static_cast<std::uint64_t>(pid));
  bytes(inner, descriptor::kProcessName, name);
  bytes(body, descriptor::kProcess, inner);
  number(body, descriptor::kChildOrdering, descriptor::kExplicit);
  return describe(kProcessTracks | static_cast<std::uint32_t>(pid), body);
}

TrackId PerfettoWriter::thread(std::int32_t pid, std::int32_t tid, std::string_view name) {
  std::string inner, body;
  number(inner, descriptor::kPid, static_cast<std::uint64_t>(pid));
  number(inner, descriptor::kTid, static_cast<std::uint64_t>(tid));
  bytes(inner, descriptor::kThreadName, name);
  bytes(body, descriptor::kThread, inner);
  return describe(body);
}

TrackId PerfettoWriter::track(TrackId parent, std::string_view name, std::int32_t rank) {
  std::string body;
  bytes(body, descriptor::kName, name);
  if (parent) number(body, descriptor::kParent, parent);
  if (rank) number(body, descriptor::kRank, static_cast<std::uint64_t>(rank));
  number(body, descriptor::kChildOrdering, descriptor::kExplicit);
  return describe(body);
}

TrackId PerfettoWriter::counter(TrackId parent, std::string_view name, CounterUnit unit) {
  std::string inner, body;
  if (unit == CounterUnit::bytes) number(inner, descriptor::kUnit, descriptor::kUnitBytes);
  bytes(body, descriptor::kName, name);
  if (parent) number(body, descriptor::kParent, parent);
  bytes(body, descriptor::kCounter, inner);
  return describe(body);
}

void PerfettoWriter::event(int type, TrackId track, Picoseconds at, std::string_view name, std::string_view category,
                           std::span<const TraceArgument> arguments, std::span<const std::uint64_t> flows,
                           std::span<const std::uint64_t> ending) {
  event_.clear();
  number(event_, track_event::kType, static_cast<std::uint64_t>(type));
  number(event_, track_event::kTrack, track);
  if (!category.empty()) bytes(event_, track_event::kCategory, category);
  if (!name.empty()) bytes(event_, track_event::kName, name);
  for (const TraceArgument& a : arguments) {
    inner_.clear();
    bytes(inner_, argument::kName, a.name);
    if (a.text.empty()) {
      number(inner_, argument::kInteger, static_cast<std::uint64_t>(a.number));
    } else {
      bytes(inner_, argument::kString, a.text);
    }
    bytes(event_, track_event::kArgument, inner_);
  }
  for (const std::uint64_t id : flows) fixed(event_, track_event::kFlow, id);
  for (const std::uint64_t id : ending) fixed(event_, track_event::kEndingFlow, id);
  inner_.clear();
  number(inner_, trace_packet::kTimestamp, nanosecond(at));
  bytes(inner_, trace_packet::kEvent, event_);
  packet(inner_);
}

void PerfettoWriter::begin(TrackId track, Picoseconds at, std::string_view name, std::string_view category,
                           std::span<const TraceArgument> arguments, std::span<const std::uint64_t> flows,
                           std::span<const std::uint64_t> ending) {
  event(track_event::kBegin, track, at, name, category, arguments, flows, ending);
}

void PerfettoWriter::end(TrackId track, Picoseconds at) { event(track_event::kEnd, track, at, {}, {}, {}, {}, {}); }

void PerfettoWriter::instant(TrackId track, Picoseconds at, std::string_view name, std::string_view category,
                             std::span<const TraceArgument> arguments, std::span<const std::uint64_t> ending) {
  if (at < zero_) return;
  event(track_event::kInstant, track, at, name, category, arguments, {}, ending);
}

void PerfettoWriter::count(TrackId track, Picoseconds at, std::int64_t value) {
  begin_count(track);
  number(event_, track_event::kCounterValue, static_cast<std::uint64_t>(value));
  end_count(at);
}

void PerfettoWriter::measure(TrackId track, Picoseconds at, double value) {
  begin_count(track);
  fixed(event_, track_event::kRealCounterValue, std::bit_cast<std::uint64_t>(value));
  end_count(at);
}

void PerfettoWriter::begin_count(TrackId track) {
  event_.clear();
  number(event_, track_event::kType, track_event::kCounter);
  number(event_, track_event::kTrack, track);
}

void PerfettoWriter::end_count(Picoseconds at) {
  inner_.clear();
  number(inner_, trace_packet::kTimestamp, nanosecond(at));
  bytes(inner_, trace_packet::kEvent, event_);
  packet(inner_);
}

std::string PerfettoWriter::take() { return std::exchange(out_, {}); }

}  // namespace loomnet
