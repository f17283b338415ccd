// NSCC, the network-signal congestion control of Ultra Ethernet as MRC uses it: one window per QP,
// RTT for the queue, ECN for imbalance. Ultra Ethernet 1.0.
#pragma once

#include <cstdint>

#include "transport/congestion.hpp"
#include "transport/congestion/queue_delay.hpp"

namespace loomnet::congestion {

struct NsccOptions {
  bool quick_adapt = true;  // leave on
  bool port_scale = true;   // maxwnd follows live/total ports (ours)
  // Floor of the window in packets. Below one packet the window is kept by time, one packet every
  // RTT x packet / window, as Swift does (SIGCOMM 2020), a refusal halves a window of less than two
  // packets, and the fair increase falls with the root of a small window (ours). 1: the published
  // floor, increase and decrease, which an incast of more senders than the path holds packets
  // overruns. A lower floor serves more senders and leaves the last of them idle for longer.
  double min_window = 3.0 / 16;
  static const OptionTable<NsccOptions>& table();
};

// Derived once from rate and RTT; units are bytes and microseconds.
struct NsccConstants {
  double bdp = 0;      // bytes
  double scale_a = 1;  // BDP / 150,000 B
  double target_us = 0;
  double scale_b = 1;  // target / 12 us
  double alpha = 0;    // B/us
  double fi = 0;       // bytes
  double eta = 0;      // bytes
  double max_window = 0;
  double quick_adapt_below = 0;  // bytes achieved

  static NsccConstants derive(BitsPerSecond rate, Picoseconds net_rtt, std::uint32_t mss, bool trimming);
};

class Nscc : public CongestionControl {
 public:
  Nscc(FlowLimits& limits, const NsccOptions& options, const FlowContext& flow);

  std::string_view name() const override { return "nscc"; }
  void on_ack(const AckSample& sample) override;
  void on_congestion(const CongestionEvent& event) override;
  void on_ports(std::size_t live, std::size_t total, Picoseconds now) override;
  void observe(Observer& out) const override;

  // The steps of on_ack and on_congestion.
  // Feeds one valid RTT sample, of a packet of a whole MTU or of one that is sooner serialised by
  // `shorter`; returns its queueing delay.
  Picoseconds sample(Picoseconds rtt, bool marked, Picoseconds shorter = {});
  // `acked`: bytes newly received at the far end; `delay`: from sample(), or average_delay().
  void on_sack(std::uint64_t acked, bool marked, Picoseconds delay, std::uint64_t inflight, Picoseconds now);
  // `sent`: when the refused copy was.
  void on_nack(std::uint64_t bytes, std::uint64_t inflight, Picoseconds sent, Picoseconds now);
  void on_rto(std::uint64_t bytes);
  // A receiver's back-pressure: 0 none, 64 halves, 127 about one packet per RTT.
  void on_penalty(std::uint8_t penalty, bool restore);

  const QueueDelay& delay() const { return delay_; }
  const NsccConstants& constants() const { return c_; }

 private:
  bool quick_adapt(bool loss, bool marked, double delay_us, std::uint64_t inflight, Picoseconds now);
  bool fast(double acked, double delay_us);
  double small_share() const;
  void clamp();
  void rescale();
  void publish();  // into the limits

  NsccConstants c_;
  QueueDelay delay_;
  bool quick_, scale_ports_;
  double rate_ = 0;    // bytes per microsecond
  double packet_ = 0;  // bytes
  double ack_wait_us_ = 0;  // of an acknowledgement behind packets that links are sending; 0: unknown
  double min_window_ = 0, max_window_ = 0, cwnd_ = 0, saved_ = 0, port_share_ = 1;
  double whole_us_ = 0, rtt_step_us_ = 0, chunk_ = 0;
  // Times are whole picoseconds, and only their differences become microseconds: a rounded time would make
  // decisions depend on how long the run has been going on.
  Picoseconds last_halved_{-1}, last_adjust_{}, last_decrease_{}, qa_begin_ = kNever;
  double qa_length_us_ = 0;
  double inc_ = 0, since_fulfil_ = 0;
  double achieved_ = 0, seen_ = 0, inflight_at_qa_ = 0;
  bool trim_pending_ = false, fast_ = false;
  double fast_bytes_ = 0;
};

}  // namespace loomnet::congestion
