// NSCC, the network-signal congestion control of Ultra Ethernet as MRC uses it: one window per QP,
// RTT for the queue, ECN for imbalance. "MRC + SRv6 multi-plane fabrics" 2.8.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "transport/mrc/options.hpp"

namespace loomnet::mrc {

// Derived once from rate and RTT; units are bytes and microseconds, as the reference's table.
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

  static NsccConstants derive(BitsPerSecond rate, Picoseconds net_rtt, std::uint32_t mss,
                              bool trimming);
};

class Nscc {
 public:
  Nscc() = default;
  // `base_rtt`: of a whole packet.
  Nscc(const MrcOptions& options, std::size_t planes, Picoseconds base_rtt);

  // Feeds one valid RTT sample, of a packet of a whole MTU or of one that is sooner serialised by
  // `shorter`; returns its queueing delay.
  Picoseconds sample(Picoseconds rtt, bool marked, Picoseconds shorter = {});
  // `acked`: bytes newly received at the far end; `delay`: from sample(), or average_delay().
  void on_sack(std::uint64_t acked, bool marked, Picoseconds delay, std::uint64_t inflight,
               Picoseconds now);
  // `sent`: when the refused copy was.
  void on_nack(std::uint64_t bytes, std::uint64_t inflight, Picoseconds sent, Picoseconds now);
  void on_rto(std::uint64_t bytes);
  // A receiver's back-pressure: 0 none, 64 halves, 127 about one packet per RTT (2.6).
  void on_penalty(std::uint8_t penalty, bool restore);
  void on_ports(std::size_t live, std::size_t total);

  std::uint64_t window() const { return static_cast<std::uint64_t>(cwnd_); }
  // From one packet to the next where the window is below one packet, else 0.
  Picoseconds pace() const {
    return cwnd_ >= packet_ ? Picoseconds{} : us((base_us_ + std::max(avg_us_, 0.0)) * packet_ / cwnd_);
  }
  std::uint64_t max_window() const { return static_cast<std::uint64_t>(max_window_); }
  Picoseconds average_delay() const { return us(avg_us_); }
  Picoseconds base_rtt() const { return us(base_us_); }
  Picoseconds target() const { return us(c_.target_us); }
  const NsccConstants& constants() const { return c_; }

 private:
  static Picoseconds us(double t) { return {static_cast<std::int64_t>(t * 1e6)}; }
  bool quick_adapt(bool loss, bool marked, double delay_us, std::uint64_t inflight, double now_us);
  bool fast(double acked, double delay_us);
  double small_share() const;
  double median(double delay_us);
  void clamp();
  void rescale();

  NsccConstants c_;
  bool fixed_ = false, quick_ = true, use_median_ = false, scale_ports_ = true;
  double rate_ = 0;  // bytes per microsecond
  double packet_ = 0;  // bytes
  double min_window_ = 0, max_window_ = 0, cwnd_ = 0, saved_ = 0, port_share_ = 1;
  double net_us_ = 0, base_us_ = 0, whole_us_ = 0, avg_us_ = 0, chunk_ = 0;
  double last_halved_us_ = -1;
  double inc_ = 0, since_fulfil_ = 0, last_adjust_us_ = 0, last_decrease_us_ = 0;
  double achieved_ = 0, seen_ = 0, inflight_at_qa_ = 0, qa_end_us_ = 0;
  bool trim_pending_ = false, fast_ = false;
  double fast_bytes_ = 0;
  std::array<float, 8> recent_{};
  std::uint8_t recent_count_ = 0;
};

}  // namespace loomnet::mrc
