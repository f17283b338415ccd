// The contract of a congestion control: it sees every ACK with what the sender measured, and sets
// window and pacing rate. Algorithms register by name; a learned one fits in the same way.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "clock/time.hpp"

namespace loomnet::tcp {

inline constexpr std::uint64_t kNoThreshold = ~0ull;

// What the sender obeys. Bytes are stream bytes.
struct Window {
  std::uint32_t mss = 0;
  std::uint64_t cwnd = 0;
  std::uint64_t ssthresh = kNoThreshold;
  std::uint64_t pacing_rate = 0;  // bits of stream per second; 0: not paced
  bool in_slow_start() const { return cwnd < ssthresh; }
};

// Everything measured up to and by one ACK.
struct AckSample {
  Picoseconds now{};
  std::uint64_t acked = 0;         // bytes newly acknowledged in order
  std::uint64_t delivered = 0;     // bytes newly acknowledged or SACKed
  std::uint64_t lost = 0;          // bytes newly taken for lost
  std::uint64_t ce_delivered = 0;  // of `delivered`, those whose ACK carried ECE
  Picoseconds rtt = kNever;        // of the newest segment delivered; kNever: no sample
  Picoseconds srtt{}, min_rtt = kNever;
  // Delivery rate over the flight of the segment delivered last (draft-cheng-iccrg-delivery-rate-
  // estimation): rate_bytes in rate_interval; interval 0: no sample.
  std::uint64_t rate_bytes = 0;
  Picoseconds rate_interval{};
  std::uint64_t prior_delivered = 0;  // delivered_total when that segment was sent
  bool app_limited = false;           // the sender had nothing to send then
  std::uint64_t delivered_total = 0, lost_total = 0,
                retransmitted_total = 0;             // bytes since the start
  std::uint64_t prior_in_flight = 0, in_flight = 0;  // bytes before and after this ACK
  std::uint32_t packets_out = 0;                     // segments not acknowledged in order
  std::uint32_t retransmissions_out = 0;             // retransmitted segments in flight
  std::uint64_t sent_end = 0,
                acked_end = 0;  // stream offsets: next new byte, oldest unacknowledged
  bool cwnd_limited = false;    // the window kept the sender from sending
  bool in_recovery = false;     // repairing losses, timeouts included
  bool reducing = false;        // the sender's PRR is taking the window down to ssthresh

  // Bits per second, headers not counted; 0: no sample.
  double rate() const {
    return rate_interval.count > 0 ? 8.0 * static_cast<double>(rate_bytes) / rate_interval.seconds()
                                   : 0;
  }
};

enum class Congestion : std::uint8_t { loss, ecn, timeout };

class CongestionControl {
 public:
  explicit CongestionControl(Window& window) : window_(window) {}
  virtual ~CongestionControl() = default;
  virtual std::string_view name() const = 0;
  // Every ACK that delivered or acknowledged something, before losses and marks are acted upon.
  virtual void on_delivered(const AckSample&) {}
  // The same ACK, after they have been.
  virtual void on_ack(const AckSample& sample) = 0;
  // A reduction begins: the new ssthresh. `flight`: bytes not acknowledged in order.
  virtual std::uint64_t on_congestion(Congestion kind, std::uint64_t flight, Picoseconds now) = 0;
  // The repair of losses is over.
  virtual void on_recovered(Picoseconds) {}
  // The last reduction was a mistake (RFC 3522, RFC 3708); the sender restores window and ssthresh.
  virtual void on_undo(Picoseconds) {}
  // The handshake has measured a first round trip; nothing has been sent yet.
  virtual void on_established(Picoseconds, Picoseconds) {}
  // Sending resumes after a pause without anything in flight.
  virtual void on_restart(Picoseconds) {}
  // True: on_ack alone sets the window, in recovery too (no PRR, no reaction to ECE).
  virtual bool owns_window() const { return false; }
  // ECN per packet: ECE mirrors CE, every packet is ECT (RFC 8257).
  virtual bool needs_accurate_ecn() const { return false; }
  // A control that acts by time: when on_tick wants to be called.
  virtual Picoseconds next_tick() const { return kNever; }
  virtual void on_tick(Picoseconds) {}
  // State for reports and tests: a short word and a number, or empty.
  virtual std::string_view state() const { return {}; }

 protected:
  Window& window_;
};

struct TcpOptions;

struct CongestionFactory {
  std::string name;
  // `stream`: number of the connection, for its own random numbers.
  std::function<std::unique_ptr<CongestionControl>(Window&, const TcpOptions&,
                                                   std::uint64_t stream)>
      make;
};

// Adds or replaces; call before the run begins. Throws std::invalid_argument for an empty name.
void register_congestion_control(CongestionFactory factory);
// Throws std::invalid_argument listing the names there are.
std::unique_ptr<CongestionControl> make_congestion_control(std::string_view name, Window& window,
                                                           const TcpOptions& options,
                                                           std::uint64_t stream);
std::vector<std::string> congestion_controls();

}  // namespace loomnet::tcp
