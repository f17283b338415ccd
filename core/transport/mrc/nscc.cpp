// Written from the pseudo-code of "MRC + SRv6 multi-plane fabrics" 2.8.
#include "transport/mrc/nscc.hpp"

#include <algorithm>
#include <cmath>

namespace loomnet::mrc {
namespace {

constexpr double kGamma = 0.8, kEwma = 0.0125, kMaxDecrease = 0.5, kFastGain = 0.25;
// Fair increases of a round trip that a window must hold to have them in full [choice].
constexpr double kSmallIncreases = 4;
constexpr double kHeaders = 80;  // of a packet, charged to the window
constexpr int kQaGate = 3;
constexpr double kQaThreshold = 4;  // targets

}  // namespace

NsccConstants NsccConstants::derive(BitsPerSecond rate, Picoseconds net_rtt, std::uint32_t mss,
                                    bool trimming) {
  NsccConstants c;
  c.bdp = static_cast<double>(rate.count) / 8e6 * net_rtt.microseconds();
  c.scale_a = c.bdp / 150'000.0;
  c.target_us = (trimming ? 0.75 : 1.0) * net_rtt.microseconds();
  c.scale_b = c.target_us / 12.0;
  c.alpha = 4.0 * mss * c.scale_a * c.scale_b / c.target_us;
  c.fi = 5.0 * mss * c.scale_a;
  c.eta = 0.15 * mss * c.scale_a;
  c.max_window = 1.5 * c.bdp;
  c.quick_adapt_below = c.max_window / (1 << kQaGate);
  return c;
}

Nscc::Nscc(const MrcOptions& o, std::size_t planes, Picoseconds base_rtt) {
  const BitsPerSecond rate{o.port_rate.count * planes};
  c_ = NsccConstants::derive(rate, o.network_rtt, o.mtu, o.trim_nack);
  fixed_ = o.congestion == CongestionControl::fixed_window;
  quick_ = o.nscc_quick_adapt;
  use_median_ = o.nscc_delay == NsccDelay::median;
  scale_ports_ = o.nscc_port_scale;
  if (fixed_ && o.fixed_window > 0) c_.max_window = static_cast<double>(o.fixed_window);
  rate_ = static_cast<double>(rate.count) / 8e6;
  packet_ = o.mtu;
  min_window_ = o.min_window * packet_;
  chunk_ = 8.0 * o.mtu;
  net_us_ = o.network_rtt.microseconds();
  base_us_ = base_rtt.microseconds();
  whole_us_ = net_us_;
  rescale();
  cwnd_ = max_window_;
}

void Nscc::clamp() { cwnd_ = std::clamp(cwnd_, min_window_, max_window_); }

void Nscc::rescale() {
  // A path that holds few packets is kept busy by three more than it holds: one on its way back as an
  // acknowledgement of two, and one behind which that waits [choice].
  const double least = fixed_ ? packet_ : c_.bdp + 3 * (packet_ + kHeaders);
  max_window_ = std::max(least, c_.max_window * (scale_ports_ ? port_share_ : 1.0));
  clamp();
}

double Nscc::median(double delay_us) {
  recent_[recent_count_++ % recent_.size()] = static_cast<float>(delay_us);
  if (recent_count_ < recent_.size()) return delay_us;
  auto sorted = recent_;
  std::sort(sorted.begin(), sorted.end());
  // Keeps the counter from wrapping to "too few" while staying on the same ring position.
  if (recent_count_ >= 2 * recent_.size()) recent_count_ -= recent_.size();
  return sorted[sorted.size() / 2];
}

Picoseconds Nscc::sample(Picoseconds rtt, bool marked, Picoseconds shorter) {
  const double rtt_us = rtt.microseconds() + shorter.microseconds();
  if (rtt_us < base_us_ && rtt.count > 0) base_us_ = rtt_us;
  // A path shorter than the configured RTT holds less; a longer one does not lift the maximum.
  if (shorter.count == 0 && rtt_us < whole_us_ && rtt_us > 0) {
    whole_us_ = rtt_us;
    if (!fixed_) {
      c_.bdp = rate_ * whole_us_;
      c_.max_window = 1.5 * c_.bdp;
      c_.quick_adapt_below = c_.max_window / (1 << kQaGate);
      rescale();
    }
  }
  const double d = rtt_us - base_us_;
  avg_us_ += kEwma * ((!marked && d > c_.target_us ? 0.25 * base_us_ : d) - avg_us_);
  return us(use_median_ ? median(d) : d);
}

// Many senders of one receiver have small windows, and the whole increase of each would refill the
// queue in a round trip: it falls with the root of the window, so that smaller ones still gain on
// larger ones, which lose a packet with each refusal.
double Nscc::small_share() const {
  if (min_window_ == packet_) return 1;
  return std::min(1.0, std::sqrt(cwnd_ / (kSmallIncreases * c_.fi)));
}

bool Nscc::fast(double acked, double delay_us) {
  if (delay_us >= base_us_ / 12.0) {  // fast_delay
    fast_bytes_ = 0;
    return fast_ = false;
  }
  fast_bytes_ += acked;
  if (fast_bytes_ >= cwnd_) fast_ = true;
  return fast_;
}

bool Nscc::quick_adapt(bool loss, bool marked, double delay_us, std::uint64_t inflight,
                       double now_us) {
  if (!quick_ || cwnd_ < packet_) return false;
  bool done = false;
  if (seen_ < inflight_at_qa_ && marked) {
    done = true;  // stale feedback from before the cut
  } else if (now_us > qa_end_us_) {
    if (qa_end_us_ != 0 && (trim_pending_ || loss || delay_us > kQaThreshold * c_.target_us) &&
        achieved_ < max_window_ / (1 << kQaGate) && (min_window_ == packet_ || achieved_ < cwnd_ / 2)) {
      cwnd_ = std::max(achieved_, packet_);
      inflight_at_qa_ = static_cast<double>(inflight);
      seen_ = 0;
      trim_pending_ = false;
      done = true;
    }
    achieved_ = 0;
    qa_end_us_ = now_us + base_us_ + c_.target_us;
  }
  if (done) inc_ = since_fulfil_ = 0;
  return done;
}

void Nscc::on_sack(std::uint64_t acked_bytes, bool marked, Picoseconds delay,
                   std::uint64_t inflight, Picoseconds now) {
  if (fixed_) return;
  const double acked = static_cast<double>(acked_bytes), d = delay.microseconds();
  const double now_us = now.microseconds();
  achieved_ += acked;
  seen_ += acked;
  if (quick_adapt(false, marked, d, inflight, now_us)) return;
  if (!marked) {
    const bool is_fast = fast(acked, d);
    if (d >= c_.target_us) {
      inc_ += c_.fi * small_share() * acked;
    } else if (is_fast) {
      cwnd_ += kFastGain * c_.scale_a * acked;
    } else {
      inc_ += c_.alpha * acked * (c_.target_us - d);
    }
  } else {
    fast_bytes_ = 0;
    fast_ = false;
    if (d >= c_.target_us && avg_us_ > c_.target_us && now_us - last_decrease_us_ > base_us_) {
      cwnd_ *= std::max(1.0 - kGamma * (avg_us_ - c_.target_us) / avg_us_, kMaxDecrease);
      last_decrease_us_ = now_us;
    }
  }
  clamp();
  since_fulfil_ += acked;
  const bool period_over = now_us - last_adjust_us_ >= net_us_;
  if (since_fulfil_ > chunk_ || period_over) {
    const double whole = std::max(cwnd_, packet_);
    cwnd_ += inc_ / whole;
    if (period_over) {
      cwnd_ += c_.eta * cwnd_ / whole;
      last_adjust_us_ = now_us;
    }
    inc_ = since_fulfil_ = 0;
    clamp();
  }
}

void Nscc::on_nack(std::uint64_t bytes, std::uint64_t inflight, Picoseconds sent, Picoseconds now) {
  if (fixed_) return;
  seen_ += static_cast<double>(bytes);
  avg_us_ += kEwma * (net_us_ - avg_us_);
  trim_pending_ = true;
  if (!quick_adapt(true, true, 0, inflight, now.microseconds())) {
    if (min_window_ == packet_ || cwnd_ >= 2 * packet_) {
      cwnd_ -= static_cast<double>(bytes);
    } else if (sent.microseconds() >= last_halved_us_) {
      cwnd_ /= 2;
      last_halved_us_ = now.microseconds();
    }
    clamp();
  }
}

void Nscc::on_rto(std::uint64_t bytes) {
  if (fixed_) return;
  cwnd_ -= static_cast<double>(bytes);
  clamp();
}

void Nscc::on_penalty(std::uint8_t penalty, bool restore) {
  if (fixed_) return;
  if (penalty > 0) {
    if (saved_ == 0) saved_ = cwnd_;
    cwnd_ = std::min(cwnd_, saved_ * (128 - penalty) / 128.0);
    clamp();
  } else if (saved_ > 0) {
    if (restore) cwnd_ = std::max(cwnd_, saved_);
    saved_ = 0;
    clamp();
  }
}

void Nscc::on_ports(std::size_t live, std::size_t total) {
  port_share_ = total == 0 ? 1.0 : static_cast<double>(live) / static_cast<double>(total);
  if (!fixed_) rescale();
}

}  // namespace loomnet::mrc
