// The egress hook of a sending port: a switch program marks or edits packets as they leave, with the
// queue in sight.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "clock/time.hpp"
#include "link/port_queue.hpp"

namespace loomnet {

struct Departure {
  Picoseconds now{};               // the packet's first bit leaves
  std::uint32_t frame_length = 0;  // Ethernet frame without FCS
  QueueClass queue = kDataClass;   // that the packet waited in
  bool marked = false;             // it carries CE: it came marked, or the port's own discipline marked it
  std::span<const QueuedClass, kQueueClasses> waiting;  // behind it, by class
  bool own_mark = false;  // the port's own discipline marked it, and it came without CE
};

// `unmark` takes the mark of the port's own discipline away. A mark that the packet came with stays.
enum class EgressVerdict : std::uint8_t { leave, mark, unmark };

// Where a hook belongs.
struct EgressPlace {
  std::uint32_t half = 0;  // the half-link's number in the run
  std::uint16_t port = 0;  // of the switch
  bool to_host = false;    // the link ends at a host
};

// Why a hook marked a packet: numbers and their names, of static storage.
struct EgressNote {
  std::string_view by;  // the switch program
  std::span<const std::string_view> names;
  std::span<const std::uint32_t> values;  // valid until the hook's next packet
};

// The hook of one half-link. The port calls the hook for every packet at the moment the packet leaves
// the queue, also for a packet that finds the port idle, in order of departure; never for a MAC control
// frame. Links advance lazily and, with lookahead, in the receiving node's domain: two half-links of
// one switch may call out of time order. So each hook has its own state and its own random stream
// (HalfLink::egress_seed). A hook may edit header bytes, never lengths, classes or order.
class EgressHook {
 public:
  virtual ~EgressHook() = default;
  // `header`: the first bytes of the frame. On `mark` the port sets CE, if the packet is ECN-capable; on
  // `unmark` of its own mark the packet has the ECN bits again that it came with.
  virtual EgressVerdict dequeue(std::span<std::uint8_t> header, const Departure& departure) = 0;
  // Of the packet that the hook has just marked.
  virtual EgressNote note() const { return {}; }
};

}  // namespace loomnet
