// Sending half of a connection: messages laid end to end on a byte stream, cut into segments that
// never span two messages, sent within the windows, repaired by RACK-TLP, PRR and RTO
// (RFC 8985, RFC 6937, RFC 6298). Offsets count 64 bits from the start of the stream.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "packet/tcp.hpp"
#include "transport/congestion.hpp"
#include "transport/tcp/counters.hpp"
#include "transport/tcp/options.hpp"
#include "transport/tcp/prr.hpp"
#include "transport/tcp/rack.hpp"
#include "transport/tcp/rtt.hpp"
#include "transport/tcp/scoreboard.hpp"
#include "transport/transport.hpp"

namespace loomnet::tcp {

// A work request on the stream: framing bytes, then its payload.
struct Message {
  std::uint64_t begin = 0, end = 0;
  std::uint64_t number = 0;  // from 0
  WorkRequest request;
};

// A segment to put on the wire now.
struct Transmission {
  const Message* message = nullptr;
  std::uint64_t begin = 0;
  std::uint32_t length = 0;
  bool retransmission = false;
  bool cwr = false;   // the window was reduced for an ECE (RFC 3168 6.1.2)
  bool push = false;  // ends its message
};

struct SackRange {
  std::uint64_t begin = 0, end = 0;
  bool operator==(const SackRange&) const = default;
};

// An acknowledgement with its numbers taken back to stream offsets.
struct Acknowledgement {
  std::uint64_t end = 0;     // everything before has arrived
  std::uint64_t window = 0;  // bytes from `end` that may be sent
  std::array<SackRange, TcpOptionFields::kMaxSackBlocks> sack{};
  std::uint8_t sack_count = 0;
  bool ece = false;
  bool timestamps = false;
  std::uint32_t ts_echo = 0;
  bool with_data = false;
};

// The timestamp option's clock: microseconds, 32 bits, never 0.
constexpr std::uint32_t timestamp(Picoseconds now) { return static_cast<std::uint32_t>(now.count / 1'000'000 + 1); }

class Sender {
 public:
  enum class State : std::uint8_t { open, cwr, recovery, loss };
  enum class Ready : std::uint8_t { nothing, paced, now };

  // `control`: makes the congestion control. `stream`: number of the connection in its run, for
  // random streams.
  Sender(const TcpOptions& options, const CongestionMake& control, Counters& counters, std::uint64_t stream);
  ~Sender();

  // The handshake took this long. Ignored once anything has been sent.
  void established(Picoseconds rtt, Picoseconds now);
  void post(const WorkRequest& request, Picoseconds now);
  // Posted and neither taken as completed nor flushed.
  bool outstanding() const { return !messages_.empty(); }
  // Takes the oldest message if all of it is acknowledged (`any`: whether it is or not).
  bool take_completed(Message& out, bool any = false);

  // Whether send() may be called; Ready::paced: not before paced_until().
  Ready ready(Picoseconds now);
  Picoseconds paced_until() const { return paced_until_; }
  Transmission send(Picoseconds now);

  void on_ack(const Acknowledgement& ack, Picoseconds now);
  // When on_deadline wants to be called.
  Picoseconds deadline() const { return std::min(timer_, tick_at(window_, *control_)); }
  // False: the peer has not acknowledged anything for as long as all retries take.
  bool on_deadline(Picoseconds now);

  std::uint64_t acked() const { return una_; }
  std::uint64_t next() const { return nxt_; }
  State state() const { return state_; }
  bool ahead() const {
    // More is posted behind each packet that is sent, so that a packet of the longest MTU is enough.
    static constexpr std::uint64_t kAhead = 1 << 14;
    return posted_ - nxt_ >= kAhead;
  }
  const FlowLimits& window() const { return window_; }
  void set_limits(const LimitsSet& set, Picoseconds now) {
    const double before = window_.pacing_rate;
    loomnet::set_limits(window_, set);
    paced_until_ = repaced(paced_until_, now, before, window_.pacing_rate);
  }
  const RttEstimator& rtt() const { return rtt_; }
  Picoseconds rto() const { return rtt_.rto(backoff_); }
  const Scoreboard& board() const { return board_; }
  const Rack& rack() const { return rack_; }
  CongestionControl& control() { return *control_; }
  const CongestionControl& control() const { return *control_; }
  bool accurate_ecn() const { return control_->traits.accurate_ecn; }
  std::uint64_t delivered() const { return delivered_; }

 private:
  enum class Timer : std::uint8_t { none, rto, reorder, tlp, persist };
  struct Delivery;  // what one ACK delivered

  bool owns_window() const { return control_->traits.owns_window; }
  bool window_allows(std::uint64_t length) const {
    return board_.in_flight() == 0 || board_.in_flight() + length <= window_.cwnd;
  }
  bool peer_allows(std::uint64_t end) const { return end <= window_end_ && end - una_ <= options_.send_buffer; }
  std::uint32_t next_length() const;
  Transmission describe(const Segment& s, bool retransmission);
  std::uint64_t paced_burst() const;
  void restart_after_idle(Picoseconds now);
  void stamp(Segment& s, std::uint64_t in_flight, Picoseconds now);

  void take_sack(const Acknowledgement& ack, Delivery& d, Picoseconds now);
  void take_range(SackRange range, Delivery& d, Picoseconds now);
  void take_cumulative(std::uint64_t end, Delivery& d, Picoseconds now);
  void segment_delivered(const Segment& s, Delivery& d, bool in_order, Picoseconds now);
  void take_rtt(const Acknowledgement& ack, const Delivery& d, Picoseconds now);
  void fill_sample(AckSample& sample, const Delivery& d, Picoseconds now) const;
  void fill_payload(AckSample& sample, const Delivery& d) const;
  std::uint64_t payload_before(std::uint64_t offset, std::uint64_t message) const;
  std::uint64_t payload_not_acked() const;
  std::uint64_t lost_bytes() const;
  void judge_tail_probe(const Acknowledgement& ack, const Delivery& d, const AckSample& sample);
  bool detect_losses(Picoseconds now);
  void count_lost(const Segment& s, Picoseconds now);
  void advance_state(const Acknowledgement& ack, const Delivery& d, const AckSample* sample, Picoseconds now);
  // `sample`: the acknowledgement that shows the congestion, or null.
  void reduce(Congestion kind, State state, bool again, const AckSample* sample, Picoseconds now);
  void recovered(Picoseconds now);
  bool mistaken(const Acknowledgement& ack) const;
  void undo(Picoseconds now);
  void timeout(Picoseconds now);
  void arm(Picoseconds now);
  Picoseconds tail_probe_at(Picoseconds now) const;
  Picoseconds give_up_after() const;

  const TcpOptions& options_;
  Counters& count_;
  FlowLimits window_;
  RttEstimator rtt_;
  Rack rack_;
  Prr prr_;
  Scoreboard board_;
  Ring<Message> messages_;
  std::uint64_t first_message_ = 0;  // number of messages_.front()
  std::uint64_t sending_ = 0;        // number of the message that nxt_ lies in
  std::uint64_t una_ = 0, nxt_ = 0, posted_ = 0;
  std::uint64_t window_end_ = 0;  // the peer accepts bytes before it
  std::unique_ptr<CongestionControl> control_;

  State state_ = State::open;
  bool probe_due_ = false;    // one segment may go out whatever the windows say
  bool persist_due_ = false;  // and it is a window probe
  bool cwr_due_ = false;
  std::uint64_t high_ = 0;         // a reduction ends when una_ is here
  std::uint64_t limited_end_ = 0;  // the congestion window held back what follows this offset
  // Undo of a mistaken reduction (Eifel by timestamps, RFC 3522; DSACK, RFC 3708).
  bool undo_possible_ = false;
  std::uint64_t undo_begin_ = 0, prior_cwnd_ = 0, prior_ssthresh_ = kNoLimit;
  std::int64_t undo_retransmissions_ = 0;
  std::uint32_t retransmit_stamp_ = 0;  // timestamp of the first retransmission; 0: none yet
  // Tail loss probe.
  std::uint64_t tlp_end_ = 0;  // 0: none outstanding
  bool tlp_retransmission_ = false;
  // SACK blocks of the last ACK: what lies in them has been taken.
  std::array<SackRange, TcpOptionFields::kMaxSackBlocks> seen_{};
  // Delivery rate.
  std::uint64_t delivered_ = 0, lost_total_ = 0, retransmitted_ = 0, app_limited_until_ = 0;
  std::uint64_t lost_reported_ = 0;
  struct Framing {  // of the same totals, bytes that are not payload
    std::uint64_t delivered = 0, lost = 0, retransmitted = 0;
  } framing_;
  Picoseconds delivered_at_{}, rate_start_{};
  // Timers.
  Timer timer_kind_ = Timer::none;
  Picoseconds timer_ = kNever;
  Picoseconds rto_at_ = kNever, reorder_at_ = kNever;
  Picoseconds progress_at_{}, last_sent_{}, paced_until_{};
  std::uint64_t burst_ = 0;  // bytes that may still go out before the pacing pauses
  std::uint32_t backoff_ = 0;
};

}  // namespace loomnet::tcp
