// A recorder's view of a run: packets on links, requests at NICs, operations of ranks. Models hold
// a null pointer where there is no recorder, so that such a run pays one predictable branch.
#pragma once

#include <cstdint>
#include <string_view>

#include "clock/time.hpp"

namespace loomnet {

struct EgressNote;  // link/egress_hook.hpp
struct Packet;
struct WorkRequest;
struct Completion;

// An operation of one rank as the outside sees it.
struct WorkLabel {
  std::string_view name;         // of static storage
  std::uint64_t number = 0;      // unique at its host within its job
  std::uint32_t communicator = 0;  // this, sequence and job are as in Attributes
  std::uint32_t sequence = 0;    // of its first operation there …
  std::uint32_t operations = 0;  // … and how many follow; 0: no request names it
  std::uint32_t job = 0;
};

// `half` is 2 * link for the direction from the link's first end, 2 * link + 1 for the other. Times
// are the models' own: of a queue that is looked at late, `start` lies before now.
class Tap {
 public:
  virtual ~Tap() = default;

  // The packet is clocked out from `start` to `done`; Packet::ideal is when it was offered and
  // Packet::arrival when it will be at the far end, unless it is lost or corrupt.
  virtual void sent(std::uint32_t half, const Packet& packet, Picoseconds start, Picoseconds done) = 0;
  // The egress hook of the switch in front of this half-link marks the packet, which `sent` shows next.
  virtual void marked(std::uint32_t half, const Packet& packet, const EgressNote& note, Picoseconds now) {
    (void)half, (void)packet, (void)note, (void)now;
  }
  virtual void delivered(std::uint32_t half, const Packet& packet, Picoseconds now) = 0;
  // `reason` is the drop counter's name, of static storage; `was_sent`: lost behind the serialiser.
  virtual void dropped(std::uint32_t half, const Packet& packet, std::string_view reason, bool was_sent,
                       Picoseconds now) = 0;
  // Bytes that wait in the sending port's queues, after each change.
  virtual void queued(std::uint32_t half, std::uint64_t bytes, Picoseconds now) = 0;
  // The program of the switch `node` drops a packet that `delivered` has shown.
  virtual void refused(std::uint32_t node, const Packet& packet, std::string_view reason, Picoseconds now) = 0;
  // The packet ends in the switch `node` without loss; `how` says in words of static storage what became
  // of it.
  virtual void ended(std::uint32_t node, const Packet& packet, std::string_view how, Picoseconds now) = 0;

  virtual void posted(std::uint32_t host, std::uint32_t qp, const WorkRequest& request, Picoseconds now) = 0;
  virtual void completed(std::uint32_t host, const Completion& completion, Picoseconds now) = 0;

  virtual void work_begins(std::uint32_t host, const WorkLabel& label, Picoseconds now) = 0;
  virtual void work_ends(std::uint32_t host, std::uint32_t job, std::uint64_t number, std::uint64_t bytes, bool ok,
                         Picoseconds now) = 0;
  // A rank's monotonic clock read `wall_ns` when emulated time was `now`.
  virtual void rank_clock(std::uint32_t host, std::int64_t wall_ns, Picoseconds now) = 0;
};

}  // namespace loomnet
