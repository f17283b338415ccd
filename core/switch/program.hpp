// The contract of a switch program in the engine: ingress decides where a packet goes, egress edits
// it with the queue in sight. Pure decisions on bytes: a program never queues, waits or sends.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "clock/time.hpp"
#include "packet/packet.hpp"

namespace loomnet {

using SwitchPort = std::uint16_t;  // numbered from 0 in every switch

// All tables of one switch, packed as its program reads them. A batch replaces the one before it; its
// generation says which tables decided about a packet.
struct TableBatch {
  std::uint32_t generation = 0;  // from 1, rises with every batch of a switch
  std::vector<std::uint8_t> bytes;
};

struct SwitchMeta {
  Picoseconds now{};
  SwitchPort ingress = 0;
};

struct Verdict {
  // Values as ebpf/platform.h.
  enum class Action : std::uint16_t { forward = 1, drop = 2, replicate = 3, reply = 4, pass = 5 };
  Action action = Action::drop;
  std::uint16_t value = 0;  // forward, reply: port; replicate: group; drop: reason

  constexpr bool operator==(const Verdict&) const = default;
  static constexpr Verdict forward(SwitchPort port) { return {Action::forward, port}; }
  static constexpr Verdict drop(std::uint16_t reason) { return {Action::drop, reason}; }
};

// The queue that a packet enters or leaves, as egress sees it.
struct EgressMeta {
  Picoseconds now{};
  SwitchPort port = 0;
  QueueClass queue = kDataClass;
  std::uint64_t queued_bytes = 0;
  bool dequeue = false;  // false: at enqueue
};

struct SwitchCounter {
  std::string_view name;  // stable; appears in reports
  std::uint64_t value = 0;
};

class SwitchProgram {
 public:
  virtual ~SwitchProgram() = default;
  virtual std::string_view name() const = 0;
  // `header`: the first bytes of the frame, at most kMaxHeaderBytes of them, edited in place where
  // the packet leaves; `frame_length` its whole length.
  virtual Verdict ingress(std::span<std::uint8_t> header, std::uint32_t frame_length,
                          const SwitchMeta& meta) = 0;
  // What ingress would likely decide now, fetching what it would touch; changes nothing and may be
  // wrong: a hint, never a decision.
  virtual Verdict foresee(std::span<const std::uint8_t> header, std::uint32_t frame_length,
                          SwitchPort ingress) const {
    (void)header, (void)frame_length, (void)ingress;
    return {};
  }
  // Called by the queue's owner. Marking and trimming are the link's, so most programs do nothing.
  virtual void egress(Packet&, const EgressMeta&) {}
  // Ports of a replicate verdict's group, in the order of the copies.
  virtual std::span<const SwitchPort> members(std::uint16_t) const { return {}; }
  // Replaces all tables. Throws std::invalid_argument for a batch that does not fit or whose
  // generation does not rise; the old tables then stay.
  virtual void set_tables(std::shared_ptr<const TableBatch> batch) = 0;
  virtual std::uint32_t generation() const = 0;
  virtual std::size_t ports() const = 0;
  // Sums over all ingress ports; a drop reason is the index of its counter.
  virtual void counters(std::vector<SwitchCounter>& out) const = 0;
  // Of one ingress port. Throws std::out_of_range for a port the switch does not have.
  virtual void counters(SwitchPort ingress, std::vector<SwitchCounter>& out) const = 0;
  // Name of a drop verdict's reason, "" if the program has none of that number.
  virtual std::string_view reason(std::uint16_t value) const = 0;
};

}  // namespace loomnet
