// The contract of congestion control, one for all transports. The transport measures and sends; the
// control sees each acknowledgement and each sign of congestion and writes the limits that the
// sender reads as plain values. A packet sent costs no virtual call, an acknowledgement one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "clock/time.hpp"
#include "transport/kernel_agent.hpp"
#include "transport/limits_set.hpp"
#include "transport/observer.hpp"
#include "transport/options.hpp"
#include "transport/pupil.hpp"

namespace loomnet {

inline constexpr std::uint64_t kNoLimit = ~0ull;

// What a sender obeys: the transport owns the object, the control writes it. The window counts bytes as the
// transport charges them: of the stream, in which 32 bytes precede each message (TCP), of payload and headers
// (MRC), of payload, each packet as a full one (RoCE). Traits::counts_payload says otherwise.
struct FlowLimits {
  std::uint32_t mss = 0;               // bytes of a full packet's payload
  std::uint64_t cwnd = 0;              // bytes that may be in flight
  std::uint64_t cwnd_most = kNoLimit;  // cwnd never grows above it
  std::uint64_t ssthresh = kNoLimit;
  double pacing_rate = 0;         // bits per second; 0: not paced
  Picoseconds next_tick = kNever;  // on_tick is due then,
  std::uint64_t next_sent = kNoLimit;  // or when `sent` has grown to this
  std::uint64_t sent = 0;              // bytes since the flow began, retransmissions too
  bool in_slow_start() const { return cwnd < ssthresh; }
};

// Pacing rates that a sender may have beside 0, in bits per second: from the first, below the second.
inline constexpr double kLeastPacing = 1, kPacingBound = 0x1p63;

// Writes the given limits over those of the control.
inline void set_limits(FlowLimits& limits, const LimitsSet& set) {
  if (set.cwnd) {
    limits.cwnd = std::max<std::uint64_t>(*set.cwnd, limits.mss);
    limits.cwnd_most = std::max(limits.cwnd_most, limits.cwnd);
  }
  if (set.pacing_rate) limits.pacing_rate = std::max(*set.pacing_rate, 0.0);
}

// When the next packet may leave after a change of the pacing rate. The sender waits for as long as the bytes already
// sent take at the rate, so the rest of the wait is scaled with the rate. A wait that began without pacing stays.
inline Picoseconds repaced(Picoseconds until, Picoseconds now, double before, double after) {
  if (until <= now || before <= 0 || after == before) return until;
  if (after <= 0) return now;
  const double left = static_cast<double>((until - now).count) * before / after;
  return now + Picoseconds{static_cast<std::int64_t>(std::min(left, 9e18 - static_cast<double>(now.count)))};
}

// Everything measured up to and by one acknowledgement. A transport fills what it gives (Signals).
struct AckSample {
  Picoseconds now{};
  std::uint64_t acked = 0;         // bytes newly acknowledged in order
  std::uint64_t delivered = 0;     // bytes newly acknowledged in order or not
  std::uint64_t lost = 0;          // bytes newly taken for lost
  std::uint64_t ce_delivered = 0;  // of `delivered`, those that this acknowledgement reports marked
  bool marked = false;             // the packet that caused this acknowledgement had CE
  Picoseconds rtt = kNever;        // of the newest packet delivered; kNever: no sample
  Picoseconds shorter{};           // a full packet would have taken that much longer
  Picoseconds delay = kNever;      // of it, in queues, where the transport judges that; else kNever
  Picoseconds srtt{}, min_rtt = kNever;
  // Delivery rate over the flight of the packet delivered last (draft-cheng-iccrg-delivery-rate-
  // estimation): rate_bytes in rate_interval; interval 0: no sample.
  std::uint64_t rate_bytes = 0;
  Picoseconds rate_interval{};
  std::uint64_t prior_delivered = 0;  // delivered_total when that packet was sent
  bool app_limited = false;           // the sender had nothing to send then
  // When that packet was sent: bytes in flight, it included, and `lost_total`.
  std::uint64_t sent_in_flight = 0, prior_lost = 0;
  std::uint64_t delivered_total = 0, lost_total = 0,
                retransmitted_total = 0;             // bytes since the start
  std::uint64_t prior_in_flight = 0, in_flight = 0;  // bytes before and after this acknowledgement
  std::uint32_t packets_out = 0;                     // packets not acknowledged in order
  std::uint32_t retransmissions_out = 0;             // retransmitted packets in flight
  std::uint64_t sent_end = 0,
                acked_end = 0;  // offsets in the flow: next new byte, oldest unacknowledged
  bool cwnd_limited = false;    // the window kept the sender from sending
  bool in_recovery = false;     // repairing losses, timeouts included
  bool reducing = false;        // the sender's PRR is taking the window down to ssthresh
  std::uint8_t penalty = 0;     // the receiver's back-pressure: 0 none, 64 halves, 127 the most
  bool restore = false;         // back-pressure is over and the window before it holds again

  // Bits per second, headers not counted; 0: no sample.
  double rate() const {
    return rate_interval.count > 0 ? 8.0 * static_cast<double>(rate_bytes) / rate_interval.seconds() : 0;
  }
};

enum class Congestion : std::uint8_t {
  loss,
  ecn,
  timeout,
  refused,   // a switch or the receiver dropped the payload and said so (MRC's NACK)
  notified,  // the receiver saw marks and sent a message of its own (RoCE's CNP)
};
std::string_view to_string(Congestion kind);

struct CongestionEvent {
  Congestion kind = Congestion::loss;
  Picoseconds now{};
  std::uint64_t bytes = 0;         // of the packet that was refused or timed out
  std::uint64_t flight = 0;        // bytes in flight; TCP: not acknowledged in order
  Picoseconds sent{-1};            // when that packet was sent; -1: unknown
  const AckSample* ack = nullptr;  // the acknowledgement that shows it, whose on_ack is to come
};

// A packet that the sender has just taken for lost.
struct LostPacket {
  Picoseconds now{};
  std::uint64_t bytes = 0;
  std::uint64_t in_flight = 0;  // when it was sent, it included
  std::uint64_t lost = 0;       // since it was sent, it included
  std::uint64_t delivered_total = 0;
  bool app_limited = false;  // the sender had nothing to send then
};

// What a transport knows of a flow when its control is made.
struct FlowContext {
  std::uint32_t mss = 0;
  std::uint64_t initial_window = 0;  // bytes
  std::uint64_t line_rate = 0;       // bits per second of all ports that the flow uses; 0: unknown
  Picoseconds base_rtt = kNever;     // of a full packet on an idle path; kNever: unknown
  Picoseconds network_rtt = kNever;  // the fabric's longest; kNever: unknown
  Picoseconds rtt_step{};            // AckSample::rtt may be less than the round trip by up to this
  Picoseconds ack_wait{};            // of an acknowledgement behind a full packet on each link; 0: unknown
  std::uint32_t overhead = 0;        // bytes that a full packet is charged beside its payload
  std::uint32_t header = 0;          // bytes of its headers above the link's, charged or not; 0: unknown
  bool trimming = false;             // switches trim what does not fit
  std::uint64_t seed = 0, stream = 0;  // of the run, and the flow's own
};

// Signals that a transport gives and a control needs.
using Signals = std::uint32_t;
namespace signal {
inline constexpr Signals rtt = 1;             // AckSample::rtt
inline constexpr Signals delivery_rate = 2;   // rate_*, delivered_total, app_limited, state at sending
inline constexpr Signals marks = 4;           // ECN marks of each acknowledgement
inline constexpr Signals recovery = 8;  // the sender repairs losses, takes the window to ssthresh, names losses
inline constexpr Signals refusals = 16;  // Congestion::refused
inline constexpr Signals notifications = 32;  // Congestion::notified
inline constexpr Signals line_rate = 64;  // FlowContext::line_rate and network_rtt
}  // namespace signal
// "rtt, marks"
std::string names_of(Signals signals);
// Throws std::invalid_argument for a name that is not a signal's.
Signals signal_named(std::string_view name);

// What a control has done to its flow, for the counters that show that it is at work.
struct Reactions {
  std::uint64_t cuts = 0;  // times that it lowered the rate or the window
  std::uint64_t floors = 0;  // times that a cut took the rate or the window down to its minimum
  Picoseconds at_floor{};  // time at the minimum, up to its last call
};

class CongestionControl {
 public:
  // Fixed for a control's life, so that the sender asks by reading a field.
  struct Traits {
    bool owns_window = false;  // on_ack alone sets the window, in recovery too (TCP: no PRR, no reaction to ECE)
    bool accurate_ecn = false;  // ECN per packet: ECE mirrors CE, every packet is ECT (RFC 8257)
    bool sees_acks = true;  // false: on_ack is never called
    bool sees_losses = false;  // on_lost is called, where the transport repairs losses
    bool shows_rtt = false;  // without on_ack, too, round trips are measured: for those that set its limits
    bool lazy = false;  // on_tick is called by the first packet sent after next_tick, by no timer
    bool smooth = false;  // paced packets leave one by one, where the transport sends bursts
    bool notified = true;  // false: the receiver sends it no notifications (RoCE's CNPs)
    // Samples and events count bytes of messages alone, and so does the window where the transport counts
    // headers: plug-ins, which shall work alike over all transports. The built-in controls have the
    // arithmetic of their publications, each over its own transport.
    bool counts_payload = false;
  };

  CongestionControl(FlowLimits& limits, Traits traits) : traits(traits), limits_(limits) {}
  virtual ~CongestionControl() = default;
  CongestionControl(const CongestionControl&) = delete;
  CongestionControl& operator=(const CongestionControl&) = delete;

  virtual std::string_view name() const = 0;
  // Every acknowledgement that told of a delivery or a loss, after the transport has acted upon it.
  virtual void on_ack(const AckSample& sample) = 0;
  // Where the transport runs the recovery, the control sets ssthresh; elsewhere the window too.
  virtual void on_congestion(const CongestionEvent& event) = 0;
  // For each packet taken for lost: before the on_ack that tells of it and, but at a timeout, before
  // the on_congestion.
  virtual void on_lost(const LostPacket&) {}
  // next_tick or next_sent has been reached; afterwards both lie ahead.
  virtual void on_tick(Picoseconds) {}
  // The repair of losses is over.
  virtual void on_recovered(Picoseconds) {}
  // The last reduction was a mistake (RFC 3522, RFC 3708); the sender restores window and ssthresh.
  virtual void on_undo(Picoseconds) {}
  // A first round trip has been measured; nothing has been sent yet.
  virtual void on_established(Picoseconds /*rtt*/, Picoseconds /*now*/) {}
  // Sending resumes after a pause without anything in flight.
  virtual void on_restart(Picoseconds) {}
  // So many of the flow's ports carry data now.
  virtual void on_ports(std::size_t /*live*/, std::size_t /*total*/, Picoseconds) {}
  // A control whose decisions somebody outside may make says so; null: nobody.
  virtual Pupil* pupil() { return nullptr; }
  // What this control has of its own, for series and tests.
  virtual void observe(Observer&) const {}
  const Reactions& reactions() const { return reactions_; }

  const Traits traits;

 protected:
  FlowLimits& limits_;
  Reactions reactions_;
};

// A sender calls it for every packet sent: a sum and two comparisons.
inline void count_sent(FlowLimits& limits, CongestionControl& control, std::uint64_t bytes, Picoseconds now) {
  limits.sent += bytes;
  if (now >= limits.next_tick || limits.sent >= limits.next_sent) control.on_tick(now);
}
// When a sender's timer must call on_tick. Most controls have no ticks, and are not looked at.
inline Picoseconds tick_at(const FlowLimits& limits, const CongestionControl& control) {
  return limits.next_tick == kNever || control.traits.lazy ? kNever : limits.next_tick;
}
// Window and rate, then what the control has of its own. A control without a window shows none.
void observe_limits(const FlowLimits& limits, const CongestionControl& control, Observer& out);
// The limits of a flow that has sent nothing: what a control is made on.
FlowLimits fresh_limits(const FlowContext& flow);

// Makes the control of one flow on limits as fresh_limits() gives them. A transport keeps one for all
// its flows, for as long as one of them lives. A flow starts anew with fresh limits and a new control.
using CongestionMake = std::function<std::unique_ptr<CongestionControl>(FlowLimits&, const FlowContext&)>;

struct CongestionKind {
  std::string name;
  Signals needs = 0;
  std::vector<OptionInfo> options;
  // Checks options by name. Throws std::invalid_argument.
  std::function<CongestionMake(const OptionValues&)> choose;
  bool virtual_only = false;  // written in Python: no live run may use it
  // A sentence for a run's report that follows from the options as they were given; empty: none.
  std::function<std::string(const OptionValues&)> note = nullptr;
  // Makes the agent that drives the kernel's TCP by this control, with options as for `choose`; null: the
  // control has none. Throws std::invalid_argument.
  std::function<std::unique_ptr<KernelAgent>(const OptionValues&)> in_kernel = nullptr;
};

// Adds or replaces; call before the run begins. Throws std::invalid_argument for an empty name.
void register_congestion_control(CongestionKind kind);
// All, in the order in which they came.
const std::vector<CongestionKind>& congestion_controls();
// The control `name` for a transport that gives these signals. `field`: the option that chose it, in
// errors. Throws std::invalid_argument for an unknown name (listing those that fit), a signal that is
// missing, an option that is unknown or out of range.
CongestionMake choose_congestion_control(std::string_view field, std::string_view name, const OptionValues& options,
                                         Signals gives);
// Checks that every option is one of `transport`'s (`known`, its own names) or of a control that it
// can run, with a value in its range, and gives back those of the control `name`.
OptionValues options_of_control(std::string_view transport, const std::vector<OptionInfo>& known, std::string_view name,
                                const OptionValues& options, Signals gives);

// The row of a control made of `Control(FlowLimits&, const Options&, const FlowContext&)`; `table` lives
// as long as the program.
template <typename Control, typename Options>
CongestionKind congestion_kind(std::string name, Signals needs, const OptionTable<Options>& table) {
  CongestionKind kind;
  kind.options = table.describe();
  kind.choose = [name, &table](const OptionValues& values) -> CongestionMake {
    auto options = std::make_shared<Options>();
    if (const OptionValues others = table.read(name, *options, values); !others.empty()) {
      refuse_option(name, "no option " + others.front().first);
    }
    table.check(*options);
    if constexpr (requires { options->check(); }) options->check();
    return [options](FlowLimits& limits, const FlowContext& flow) {
      return std::make_unique<Control>(limits, *options, flow);
    };
  };
  kind.name = std::move(name);
  kind.needs = needs;
  return kind;
}

}  // namespace loomnet
