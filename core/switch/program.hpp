// The contract of a switch program in the engine: ingress decides where a packet goes, egress edits
// it with the queue in sight. Pure decisions on bytes: a program never queues, waits or sends.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "clock/time.hpp"
#include "ebpf/platform.h"
#include "link/egress_hook.hpp"
#include "packet/packet.hpp"

namespace loomnet {

using SwitchPort = std::uint16_t;  // numbered from 0 in every switch

// All tables of one switch. A batch replaces the one before it; its generation says which tables
// decided about a packet.
struct TableBatch {
  std::uint32_t generation = 0;  // from 1, rises with every batch of a switch
  std::vector<std::uint8_t> bytes;  // as the switch's program packs them
  // What a replicate verdict names by index: the ports that each get a copy.
  std::vector<std::vector<SwitchPort>> groups;
};
// Throws std::invalid_argument for a group without members, a port that a switch of `ports` ports
// lacks, or one that stands in a group twice.
void validate_groups(const TableBatch& batch, std::size_t ports);

struct SwitchMeta {
  Picoseconds now{};
  SwitchPort ingress = 0;
};

struct Verdict {
  // Values as ebpf/platform.h, which says what each means.
  enum class Action : std::uint16_t {
    forward = LN_FORWARD,
    drop = LN_DROP,
    replicate = LN_REPLICATE,
    reply = LN_REPLY,
    pass = LN_PASS,
    absorb = LN_ABSORB
  };
  Action action = Action::drop;
  std::uint16_t value = 0;  // forward: port; replicate: group; drop: reason

  constexpr bool operator==(const Verdict&) const = default;
  static constexpr Verdict forward(SwitchPort port) { return {Action::forward, port}; }
  static constexpr Verdict drop(std::uint16_t reason) { return {Action::drop, reason}; }
  static constexpr Verdict of(ln_verdict verdict) { return {static_cast<Action>(verdict.action), verdict.value}; }
  // The packet, or copies of it, leave the switch by its ports.
  constexpr bool leaves() const {
    return action == Action::forward || action == Action::replicate || action == Action::reply;
  }
};

// How a packet's way ends that is neither sent nor dropped, in words for recorders.
constexpr std::string_view ending(Verdict::Action action) {
  return action == Verdict::Action::absorb ? "absorbed by the switch program"
                                           : "passed to the switch's own network stack";
}

struct SwitchCounter {
  std::string_view name;  // stable; appears in reports
  std::uint64_t value = 0;
};
// What a hook answers, enum ln_egress_action. An answer that is none leaves the packet as it is.
constexpr EgressVerdict egress_verdict(std::uint64_t action) {
  return action == LN_EGRESS_MARK     ? EgressVerdict::mark
         : action == LN_EGRESS_UNMARK ? EgressVerdict::unmark
                                      : EgressVerdict::leave;
}

// A counter of an egress hook. Over the half-links of a switch it is added up or, where it is the
// largest value of its kind, compared.
struct EgressCounter {
  std::string_view name;
  bool largest = false;
};

// What a program reads of a packet; constants of the program, the same in both builds.
struct ProgramNeeds {
  bool view = false;                // the host calls ingress_view() instead of ingress()
  std::uint32_t header_bytes = 0;   // that the program looks at; payload begins behind them
  std::uint32_t payload_bytes = 0;  // that the program looks at; 0: none
};

// A program's state as rows of one struct, its fields described by the program's own code.
struct StateField {
  std::string_view name;
  std::uint32_t offset = 0, bytes = 0;
  bool number = true;  // else raw bytes
};
struct StateLayout {
  std::string_view name;  // of the rows, for example "slots"; empty: the program keeps no state
  std::uint32_t rows = 0, row_bytes = 0;
  std::vector<StateField> fields;
};
struct StateSnapshot {
  StateLayout layout;
  std::vector<std::uint8_t> bytes;  // rows * row_bytes
};
// The state where it lies, valid until the program's next packet or reset.
struct StateView {
  const StateLayout* layout = nullptr;  // null: the program keeps no state
  std::span<const std::uint8_t> bytes;
};

class SwitchProgram {
 public:
  virtual ~SwitchProgram() = default;
  virtual std::string_view name() const = 0;
  virtual ProgramNeeds needs() const { return {}; }

  // `header`: the first bytes of the frame, at most kMaxHeaderBytes of them, edited in place where
  // the packet leaves; `frame_length` its whole length.
  virtual Verdict ingress(std::span<std::uint8_t> header, std::uint32_t frame_length, const SwitchMeta& meta) = 0;
  // The same for a program whose needs() ask for a view: payload bytes, labels and length too.
  virtual Verdict ingress_view(ln_packet& packet, const SwitchMeta& meta) {
    return ingress({packet.frame, packet.end}, packet.length, meta);
  }
  // What ingress would likely decide now, fetching what it would touch; changes nothing and may be
  // wrong: a hint, never a decision.
  virtual Verdict foresee(std::span<const std::uint8_t> header, std::uint32_t frame_length, SwitchPort ingress) const {
    (void)header, (void)frame_length, (void)ingress;
    return {};
  }
  // What ingress would decide now about a frame that it forwards, without an edit or a count; drop where
  // that depends on more than header and tables, or the program cannot say.
  virtual Verdict peek(std::span<const std::uint8_t> header, SwitchPort ingress) {
    (void)header, (void)ingress;
    return {};
  }
  // The egress hook of one of the switch's half-links; null: none. `seed` is the half-link's own. The
  // program outlives the hook.
  virtual std::unique_ptr<EgressHook> make_egress(const EgressPlace& place, std::uint64_t seed) {
    (void)place, (void)seed;
    return nullptr;
  }
  // What the hooks have counted, over all half-links, and what they hold, half-link by half-link. Links
  // advance lazily: let each advance first (Network::settle).
  virtual void egress_counters(std::vector<SwitchCounter>& out) const { (void)out; }
  virtual std::vector<StateSnapshot> egress_snapshot() const { return {}; }

  // Ports of a replicate verdict's group, in the order of the copies; empty: the batch has none such.
  virtual std::span<const SwitchPort> members(std::uint16_t) const { return {}; }
  // Replaces all tables. Throws std::invalid_argument for a batch that does not fit or whose
  // generation does not rise; the old tables then stay.
  virtual void set_tables(std::shared_ptr<const TableBatch> batch) = 0;
  virtual std::uint32_t generation() const = 0;  // 0: no tables
  virtual std::size_t ports() const = 0;
  // The switch reboots: its state is zeros and its tables are gone. Counters stay: they are the run's.
  virtual void reset() = 0;
  virtual StateSnapshot snapshot() const { return {}; }
  virtual StateView state() const { return {}; }

  // Sums over all ingress ports; a drop reason is the index of its counter.
  virtual void counters(std::vector<SwitchCounter>& out) const = 0;
  // Of one ingress port. Throws std::out_of_range for a port the switch does not have.
  virtual void counters(SwitchPort ingress, std::vector<SwitchCounter>& out) const = 0;
  // Name of a drop verdict's reason, "" if the program has none of that number.
  virtual std::string_view reason(std::uint16_t value) const = 0;
  // Adds to one of the host's counters, for example of frames that the host refuses. Returns the
  // counter's number.
  virtual std::uint16_t count(ln_host_counter which, SwitchPort ingress, std::uint64_t n) = 0;
};

}  // namespace loomnet
