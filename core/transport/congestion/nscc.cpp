// Written from the pseudo-code of Ultra Ethernet 1.0.
#include "transport/congestion/nscc.hpp"

#include <algorithm>
#include <cmath>

namespace loomnet::congestion {
namespace {

constexpr double kGamma = 0.8, kMaxDecrease = 0.5, kFastGain = 0.25;
// Fair increases of a round trip that a window must hold to have them in full (ours).
constexpr double kSmallIncreases = 4;
constexpr double kHeaders = 80;  // of a packet, charged to the window
constexpr int kQaGate = 3;
constexpr double kQaThreshold = 4;  // targets

}  // namespace

const OptionTable<NsccOptions>& NsccOptions::table() {
  static const OptionTable<NsccOptions> rows = [] {
    OptionTable<NsccOptions> t("MrcOptions");
    t.add("min_window", &NsccOptions::min_window,
          {.unit = "packets",
           .doc = "floor of the window; below one packet the window is kept by time",
           .least = 0,
           .most = 1,
           .above = true,
           .range = "above 0 and at most 1 packet"});
    t.add("nscc_port_scale", &NsccOptions::port_scale,
          {.doc = "the largest window falls with the share of the ports that are live"});
    t.add("nscc_quick_adapt", &NsccOptions::quick_adapt,
          {.doc = "the window falls at once to what a round trip of heavy loss achieved"});
    return t;
  }();
  return rows;
}

NsccConstants NsccConstants::derive(BitsPerSecond rate, Picoseconds net_rtt, std::uint32_t mss, bool trimming) {
  NsccConstants c;
  c.bdp = static_cast<double>(rate.count) / 8e6 * net_rtt.microseconds();
  c.scale_a = c.bdp / 150'000.0;
  c.target_us = QueueDelay::target_us(net_rtt, trimming);
  c.scale_b = c.target_us / 12.0;
  c.alpha = 4.0 * mss * c.scale_a * c.scale_b / c.target_us;
  c.fi = 5.0 * mss * c.scale_a;
  c.eta = 0.15 * mss * c.scale_a;
  c.max_window = 1.5 * c.bdp;
  c.quick_adapt_below = c.max_window / (1 << kQaGate);
  return c;
}

Nscc::Nscc(FlowLimits& limits, const NsccOptions& o, const FlowContext& flow)
    : CongestionControl(limits, {.owns_window = true}),
      c_(NsccConstants::derive({flow.line_rate}, flow.network_rtt, flow.mss, flow.trimming)),
      delay_(flow.base_rtt == kNever ? flow.network_rtt : flow.base_rtt, flow.network_rtt, flow.trimming),
      quick_(o.quick_adapt),
      scale_ports_(o.port_scale),
      rate_(static_cast<double>(flow.line_rate) / 8e6),
      packet_(flow.mss),
      ack_wait_us_(flow.ack_wait.microseconds()),
      min_window_(o.min_window * packet_),
      whole_us_(flow.network_rtt.microseconds()),
      rtt_step_us_(flow.rtt_step.microseconds()),
      chunk_(8.0 * flow.mss) {
  rescale();
  cwnd_ = max_window_;
  publish();
}

void Nscc::publish() {
  const std::uint64_t before = limits_.cwnd;
  limits_.cwnd = static_cast<std::uint64_t>(cwnd_);
  reactions_.cuts += limits_.cwnd < before && limits_.sent > 0;
  limits_.cwnd_most = static_cast<std::uint64_t>(max_window_);
  // From one packet to the next where the window is below one packet: a whole count of picoseconds,
  // which the rate gives back when it is rounded to the nearest.
  limits_.pacing_rate = 0;
  if (cwnd_ >= packet_) return;
  const double gap_us = (delay_.base_us() + std::max(delay_.average_us(), 0.0)) * packet_ / cwnd_;
  const auto gap = static_cast<std::int64_t>(gap_us * 1e6);
  if (gap > 0) limits_.pacing_rate = packet_ * 8e12 / static_cast<double>(gap);
}

void Nscc::clamp() { cwnd_ = std::clamp(cwnd_, min_window_, max_window_); }

void Nscc::rescale() {
  // A path that holds few packets is kept busy by more than it holds: by two, which are acknowledged together,
  // and by what leaves while the acknowledgement waits on its way back. It goes ahead of data, but not of the
  // packet that a link is sending (ours).
  const double packet = packet_ + kHeaders;
  const double least = c_.bdp + 2 * packet + std::max(packet, rate_ * ack_wait_us_);
  max_window_ = std::max(least, c_.max_window * (scale_ports_ ? port_share_ : 1.0));
  clamp();
}

void Nscc::on_ack(const AckSample& s) {
  Picoseconds delay = delay_.average();
  if (s.rtt != kNever) {
    delay = sample(s.rtt, s.marked, s.shorter);
    if (s.delay != kNever) delay = s.delay;
  }
  on_sack(s.delivered, s.marked, delay, s.in_flight, s.now);
  on_penalty(s.penalty, s.restore);
}

void Nscc::on_congestion(const CongestionEvent& e) {
  if (e.kind == Congestion::refused) on_nack(e.bytes, e.flight, e.sent, e.now);
  if (e.kind == Congestion::timeout) on_rto(e.bytes);
}

Picoseconds Nscc::sample(Picoseconds rtt, bool marked, Picoseconds shorter) {
  // A path shorter than the configured RTT holds less; a longer one does not lift the maximum. Time
  // stamps count steps, and the least of many samples is up to a step below the round trip: over a
  // path of two steps a window by that sample held half of what the path does (ours).
  const double rtt_us = rtt.microseconds() + rtt_step_us_;
  if (shorter.count == 0 && rtt_us < whole_us_ && rtt.count > 0) {
    whole_us_ = rtt_us;
    c_.bdp = rate_ * whole_us_;
    c_.max_window = 1.5 * c_.bdp;
    c_.quick_adapt_below = c_.max_window / (1 << kQaGate);
    rescale();
    publish();
  }
  return delay_.sample(rtt, marked, shorter);
}

// Many senders of one receiver have small windows, and the whole increase of each would refill the
// queue in a round trip: it falls with the root of the window, so that smaller ones still gain on
// larger ones, which lose a packet with each refusal.
double Nscc::small_share() const {
  if (min_window_ == packet_) return 1;
  return std::min(1.0, std::sqrt(cwnd_ / (kSmallIncreases * c_.fi)));
}

bool Nscc::fast(double acked, double delay_us) {
  if (delay_us >= delay_.base_us() / 12.0) {  // fast_delay
    fast_bytes_ = 0;
    return fast_ = false;
  }
  fast_bytes_ += acked;
  if (fast_bytes_ >= cwnd_) fast_ = true;
  return fast_;
}

bool Nscc::quick_adapt(bool loss, bool marked, double delay_us, std::uint64_t inflight, Picoseconds now) {
  if (!quick_ || cwnd_ < packet_) return false;
  bool done = false;
  if (seen_ < inflight_at_qa_ && marked) {
    done = true;  // stale feedback from before the cut
  } else if (qa_begin_ == kNever || (now - qa_begin_).microseconds() > qa_length_us_) {
    if (qa_begin_ != kNever && (trim_pending_ || loss || delay_us > kQaThreshold * c_.target_us) &&
        achieved_ < max_window_ / (1 << kQaGate) && (min_window_ == packet_ || achieved_ < cwnd_ / 2)) {
      cwnd_ = std::max(achieved_, packet_);
      inflight_at_qa_ = static_cast<double>(inflight);
      seen_ = 0;
      trim_pending_ = false;
      done = true;
    }
    achieved_ = 0;
    qa_begin_ = now;
    qa_length_us_ = delay_.base_us() + c_.target_us;
  }
  if (done) inc_ = since_fulfil_ = 0;
  return done;
}

void Nscc::on_sack(std::uint64_t acked_bytes, bool marked, Picoseconds delay, std::uint64_t inflight, Picoseconds now) {
  const double acked = static_cast<double>(acked_bytes), d = delay.microseconds();
  achieved_ += acked;
  seen_ += acked;
  if (quick_adapt(false, marked, d, inflight, now)) return publish();
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
    const double average = delay_.average_us();
    if (d >= c_.target_us && average > c_.target_us && (now - last_decrease_).microseconds() > delay_.base_us()) {
      cwnd_ *= std::max(1.0 - kGamma * (average - c_.target_us) / average, kMaxDecrease);
      last_decrease_ = now;
    }
  }
  clamp();
  since_fulfil_ += acked;
  const bool period_over = (now - last_adjust_).microseconds() >= delay_.network_us();
  if (since_fulfil_ > chunk_ || period_over) {
    const double whole = std::max(cwnd_, packet_);
    cwnd_ += inc_ / whole;
    if (period_over) {
      cwnd_ += c_.eta * cwnd_ / whole;
      last_adjust_ = now;
    }
    inc_ = since_fulfil_ = 0;
    clamp();
  }
  publish();
}

void Nscc::on_nack(std::uint64_t bytes, std::uint64_t inflight, Picoseconds sent, Picoseconds now) {
  seen_ += static_cast<double>(bytes);
  delay_.refused();
  trim_pending_ = true;
  if (!quick_adapt(true, true, 0, inflight, now)) {
    if (min_window_ == packet_ || cwnd_ >= 2 * packet_) {
      cwnd_ -= static_cast<double>(bytes);
    } else if (sent >= last_halved_) {
      cwnd_ /= 2;
      last_halved_ = now;
    }
    clamp();
  }
  publish();
}

void Nscc::on_rto(std::uint64_t bytes) {
  cwnd_ -= static_cast<double>(bytes);
  clamp();
  publish();
}

void Nscc::on_penalty(std::uint8_t penalty, bool restore) {
  if (penalty > 0) {
    if (saved_ == 0) saved_ = cwnd_;
    cwnd_ = std::min(cwnd_, saved_ * (128 - penalty) / 128.0);
  } else if (saved_ > 0) {
    if (restore) cwnd_ = std::max(cwnd_, saved_);
    saved_ = 0;
  } else {
    return;
  }
  clamp();
  publish();
}

void Nscc::on_ports(std::size_t live, std::size_t total, Picoseconds) {
  port_share_ = total == 0 ? 1.0 : static_cast<double>(live) / static_cast<double>(total);
  rescale();
  publish();
}

void Nscc::observe(Observer& out) const {
  out.value("queue_delay_ps", static_cast<double>(delay_.average().count));
  out.value("base_rtt_ps", static_cast<double>(delay_.base_rtt().count));
  out.value("cwnd_most", max_window_);
  out.value("port_share", port_share_);
}

}  // namespace loomnet::congestion
