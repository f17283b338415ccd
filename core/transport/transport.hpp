// The contract every transport of an emulated NIC fulfils: a sans-I/O state machine. Time and
// packets come in as arguments; packets come out of pull(), results go to the sink. A transport
// never sees a socket, a wall clock or a thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "clock/time.hpp"
#include "packet/frame_protocol.hpp"
#include "packet/missing.hpp"
#include "packet/packet.hpp"
#include "transport/limits_set.hpp"
#include "transport/observer.hpp"
#include "transport/pupil.hpp"

namespace loomnet {

using HostId = std::uint32_t;
using QpNumber = std::uint32_t;  // 24 bits, 0 and 1 reserved, 2 is MRC's endpoint
using PlanePort = std::uint8_t;  // a port of a NIC
using Plane = std::uint8_t;      // of the fabric; an attribute of a port, see PlanePaths
inline constexpr std::size_t kMaxPlanes = 8;

enum class Opcode : std::uint8_t { write, write_with_immediate };

// What a rank asks of its NIC. `local` must stay valid and unchanged until the completion; a null
// `local` moves lengths only, timed the same.
//
// A transport may give up bytes of a request where Attributes::loss_tolerance is above 0: at most that share
// of the bytes behind the framing, and only bytes of packets whose own loss_tolerance is above 0. It reports
// them in the completion and in the arrival. A transport that loses nothing reports nothing.
struct WorkRequest {
  std::uint64_t id = 0;            // given back in the completion
  const std::uint8_t* local = nullptr;
  std::uint64_t remote_address = 0;
  std::uint32_t remote_key = 0;
  std::uint32_t length = 0;        // bytes; 0 is allowed (a bare immediate)
  std::uint32_t immediate = 0;     // of a member of a group (QpConfig::group): SumRequest
  Opcode opcode = Opcode::write;
  // Leading bytes that must arrive whatever Attributes::loss_tolerance says, as must the immediate: what
  // tells the receiver how to read the rest.
  std::uint32_t framing = 0;
  Attributes attributes;
  Picoseconds posted{};
  std::uint32_t message = 0;  // unique in a run, given by the NIC; copied into Packet::message
};

// Of a request whose bytes are to be summed over the members of a group.
enum SumRequest : std::uint32_t {
  kSumContinues = 1,  // the tensor of the request before: all members are at work on it
  kSumFloats = 2,     // float32, summed by the group's server alone
};

enum class Status : std::uint8_t {
  ok,
  retry_exceeded,         // retries used up: the peer or every path to it is gone
  remote_access_error,    // the far side refused key, range or rights
  remote_invalid_request, // the far side's protocol check refused it
  remote_operational,     // the far side could not carry on (NACK UNEXP_EVENT)
  flushed,                // an earlier request of this queue pair failed
};
std::string_view to_string(Status status);

struct Completion {
  QpNumber qp = 0;
  Status status = Status::ok;
  std::uint64_t id = 0;      // WorkRequest::id
  std::uint32_t length = 0;  // bytes of the request
  Missing missing{};         // of them, those that were lost within the tolerance; where the status is ok
  std::uint32_t delivered() const { return length - missing.bytes; }
};

// A write-with-immediate executed at the receiver: in the order the sender posted them.
struct Arrival {
  QpNumber qp = 0;
  std::uint32_t immediate = 0;
  std::uint32_t length = 0;  // bytes of the request
  std::uint64_t address = 0;
  Missing missing{};         // of them, those that were lost within the tolerance and are not written
  std::uint32_t delivered() const { return length - missing.bytes; }
};

// The shortest ways between two leaves of a fabric whose uSIDs follow no arithmetic: a row for each way, with the
// uSIDs of the switches between the two leaves. All rows have the same length.
struct ListedWays {
  static constexpr std::size_t kMost =
      4;  // uSIDs of a row: an address holds six, the destination's and its leaf's among them
  std::uint8_t length = 0;
  std::vector<std::array<std::uint16_t, kMost>> rows;
};

// One path choice inside the fabric, as uSIDs behind the plane's 32-bit block
// (RFC 9800). The EV's uplink number is added to usids[uplink_slot].
struct PathTemplate {
  bool operator==(const PathTemplate&) const = default;
  std::array<std::uint16_t, 6> usids{};
  std::uint8_t count = 0;
  std::int8_t uplink_slot = -1;  // -1: one path only (T0-local)
  // Three tiers: the uplink number is the core's, agg * cores_per_agg + core, and the uSIDs of this
  // mask (the aggregation switches up and down, bit = slot) get its first part.
  std::uint8_t agg_slots = 0;
  std::uint16_t cores_per_agg = 1;
  // If not null, the uplink number is that of a row here, which stands in the slots from uplink_slot on. Many
  // queue pairs share it.
  std::shared_ptr<const ListedWays> ways{};

  // The uSIDs of one path.
  std::array<std::uint16_t, 6> with(unsigned uplink) const {
    std::array<std::uint16_t, 6> out = usids;
    if (ways) [[unlikely]] {
      if (uplink < ways->rows.size()) {
        std::copy_n(ways->rows[uplink].begin(), ways->length, out.begin() + uplink_slot);
      }
      return out;
    }
    if (uplink_slot >= 0) {
      auto& usid = out[static_cast<std::size_t>(uplink_slot)];
      usid = static_cast<std::uint16_t>(usid + uplink);
    }
    if (agg_slots) {
      const unsigned agg = uplink / cores_per_agg;
      for (std::size_t i = 0; i < count; ++i) {
        if (agg_slots >> i & 1) out[i] = static_cast<std::uint16_t>(out[i] + agg);
      }
    }
    return out;
  }
};

struct PlanePaths {
  bool operator==(const PlanePaths&) const = default;
  PathTemplate row;
  std::vector<std::uint16_t> uplinks;  // eligible uplink numbers; {0} where uplink_slot is -1
  // What all these paths carry together, of what the hosts below their leaf can send: above 1 there
  // are more than needed.
  double capacity = 1;
  // The plane that the NIC's port is attached to; kPlaneOfPort: the one of its own number. Both ends of
  // a queue pair have ports on the same planes, not necessarily of the same numbers.
  static constexpr Plane kPlaneOfPort = 0xff;
  Plane plane = kPlaneOfPort;
};

// One of a group of hosts whose requests become one on their way, as in a switch that sums: request n of
// every member is part of the same sum.
struct GroupMember {
  static constexpr std::uint32_t kServer = ~0u;
  std::uint16_t group = 0;     // unique in a run, never reused
  std::uint32_t members = 0;   // that add; 1 to 64
  std::uint32_t member = 0;    // 0 to members - 1; kServer: it finishes what the switches do not
  std::uint32_t window = 0;    // requests' parts under way at once, the same for all; 0: the transport's
  // Numbers of the switches between members and server, of each tree that joins them.
  std::vector<std::vector<std::uint16_t>> trees{};
};

struct QpConfig {
  QpNumber local = 0, remote = 0;
  HostId source = 0, destination = 0;
  std::uint32_t flow = 0;          // for statistics: copied into Packet::flow
  // Index = NIC port, towards the destination. A port whose entry has no uplinks has no path; where
  // none has, requests wait until on_paths brings one.
  std::vector<PlanePaths> planes;
  std::vector<PlanePaths> reverse; // the destination's paths back to us (control packets of the peer)
  std::optional<GroupMember> group;  // for a transport that sums; others ignore it
};

// What a transport wants counted; names are stable and appear in reports.
struct TransportCounter {
  std::string_view name;
  std::uint64_t value;
};

// The few sums that figures and progress lines of a run need, cheap enough to take often; 0 where a
// transport has no such thing.
struct TransportFigures {
  std::uint64_t retransmitted = 0;  // packets
  std::uint64_t readmitted = 0;     // paths that came back
  std::uint64_t paths_good = 0, paths_total = 0;
};

enum class EventKind : std::uint8_t {
  ev_assumed_bad,   // value = entropy value
  ev_good,          // value = entropy value: re-admitted
  ev_swapped,       // value = entropy value taken in from the backups
  port_excluded,    // value = plane: own or peer's port
  port_restored,    // value = plane
  rto,              // value = PSN
  qp_error,         // value = Status
};
std::string_view to_string(EventKind kind);
struct TransportEvent {
  EventKind kind;
  QpNumber qp;
  std::uint32_t value;
  Picoseconds at;
  Picoseconds waited{};  // of rto: for how long the sender had waited for an acknowledgement
};

// Where a transport's results go; the NIC implements it. Calls are plain and cheap: the NIC
// batches towards its rank.
class TransportSink {
 public:
  virtual ~TransportSink() = default;
  virtual PacketPtr allocate() = 0;  // a fresh packet from the run's pool
  // Writes payload at `address` of the region `key`; false = access error (nothing written).
  // Payload without data checks the range only. length 0 checks nothing.
  virtual bool place(QpNumber qp, std::uint32_t key, std::uint64_t address, const Payload& payload) = 0;
  virtual void complete(const Completion& completion) = 0;
  virtual void arrived(const Arrival& arrival) = 0;
  virtual void event(const TransportEvent& event) = 0;
  // The transport has (or may have) something for `port`; the NIC will pull when the link is free.
  virtual void port_ready(PlanePort port) = 0;
  // Transport::ahead() has said yes of this queue pair, and would say no now.
  virtual void caught_up(QpNumber) {}
};

struct Pulled {
  enum class Kind : std::uint8_t { packet, not_before, idle };
  Kind kind = Kind::idle;
  PacketPtr packet;
  Picoseconds not_before{};
  static Pulled idle() { return {}; }
  static Pulled wait(Picoseconds t) { return {Kind::not_before, nullptr, t}; }
  static Pulled of(PacketPtr p) { return {Kind::packet, std::move(p), {}}; }
};

// One object per NIC; it holds that NIC's queue pairs of this transport.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view name() const = 0;
  // The frames that are this transport's where a NIC has several; {0, 0}: it takes part in no such NIC.
  virtual FrameProtocol protocol() const { return {}; }
  // Throws std::invalid_argument naming the field for a configuration it cannot serve.
  virtual void connect(const QpConfig& config, Picoseconds now) = 0;
  virtual void on_post(QpNumber qp, const WorkRequest& request, Picoseconds now) = 0;
  // A packet that this NIC received on `port`. `packet` may be read and kept, or dropped (counted).
  virtual void on_packet(PlanePort port, PacketPtr packet, Picoseconds now) = 0;
  // Carrier of the own port.
  virtual void on_port(PlanePort port, bool up, Picoseconds now) = 0;
  // A queue pair has other paths: a circuit was patched, a route changed. `planes` takes the place of
  // QpConfig::planes and has as many entries. Packets leave by the new
  // paths from now on, and what the old ones lose is sent again as after any loss. Throws
  // std::invalid_argument naming the field; the old paths stay then. A transport that chooses no path
  // has nothing to do.
  virtual void on_paths(QpNumber, std::vector<PlanePaths>, Picoseconds) {}
  // The trees that join a queue pair's group are others, as QpConfig::group::trees has them. Throws
  // std::invalid_argument.
  virtual void on_trees(QpNumber, std::vector<std::vector<std::uint16_t>>, Picoseconds) {}
  // Another queue pair takes the place of one that has nothing to do: it has another number and another first
  // PSN, its packets draw another entropy for ECMP, and neither end's congestion control knows anything.
  // Requests go on naming it by its first number. Throws std::invalid_argument where the transport has no
  // such thing.
  virtual void on_renew(QpNumber, Picoseconds) {
    throw std::invalid_argument("transport " + std::string(name()) + ": a queue pair does not begin anew");
  }
  // What a learner sees of a sender, and answers to; null: the sender decides alone. `part`: as state() has
  // it. Until the next call of this transport.
  virtual Pupil* pupil(QpNumber, std::size_t /*part*/) { return nullptr; }
  // Sets limits of a sender; its congestion control goes on from them. `part`:
  // as state() has it. Throws std::invalid_argument where the sender obeys no such limit.
  virtual void on_limits(QpNumber, std::size_t /*part*/, const LimitsSet&, Picoseconds) {
    throw std::invalid_argument("transport " + std::string(name()) + ": nobody sets its senders' limits");
  }
  virtual void on_deadline(Picoseconds now) = 0;
  // The port's link is free for a packet of this class: control is asked before data.
  virtual Pulled pull(PlanePort port, QueueClass queue, Picoseconds now) = 0;
  // When on_deadline wants to be called; kNever if not. Re-read after every call into the transport.
  virtual Picoseconds next_deadline() const = 0;
  // Whether 16 KiB of a queue pair were posted and never sent: a client that wants to stop soon posts no more until
  // TransportSink::caught_up. False where the transport does not say.
  virtual bool ahead(QpNumber) { return false; }
  // True while any request is neither completed nor failed (deadlock checks, goodput intervals).
  virtual bool outstanding() const = 0;
  // Packets it keeps (a conservation sum counts them); release() lets go of them at the run's end.
  virtual std::size_t held() const { return 0; }
  virtual void release() {}
  virtual void counters(std::vector<TransportCounter>& out) const = 0;
  virtual TransportFigures figures() const { return {}; }
  // What the sender of a queue pair holds now: window, rate, round trips, and its congestion control's
  // own values. The names are the same at every call, so that samples make series. A queue pair of
  // several senders (RoCE: one per plane) has as many parts. Throw std::out_of_range for an unknown
  // queue pair or part.
  virtual std::size_t state_parts(QpNumber) const { return 1; }
  virtual void state(QpNumber, std::size_t /*part*/, Observer&) const {}
  // Bytes acknowledged to a part since it was connected, as state() shows them; 0 where the transport does not say.
  virtual std::uint64_t acked(QpNumber, std::size_t /*part*/) const { return 0; }

  // A call of this kind comes soon: fetch what it will likely touch, change nothing. The object's
  // first kHotBytes are at hand.
  static constexpr std::size_t kHotBytes = 256;
  enum class Upcoming : std::uint8_t { pull, data, control };
  virtual void prepare(Upcoming, PlanePort) const {}
};

}  // namespace loomnet
