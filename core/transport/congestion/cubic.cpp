// CUBIC's curve, and when slow start ends; see cubic.hpp.
#include "transport/congestion/cubic.hpp"

#include <algorithm>
#include <cmath>

namespace loomnet::congestion {
namespace {
// RFC 9438 4.3: the Reno-friendly window's increase that gives Reno's throughput at CUBIC's beta.
constexpr double kAlpha = 3 * (1 - Cubic::kBeta) / (1 + Cubic::kBeta);
// Linux: hystart_low_window, hystart_ack_delta_us, HYSTART_MIN_SAMPLES, HYSTART_DELAY_MIN and _MAX.
constexpr std::uint64_t kLowWindow = 16;
constexpr Picoseconds kAckGap = milliseconds(2);
constexpr std::uint32_t kMinSamples = 8;
constexpr Picoseconds kDelayMin = milliseconds(4), kDelayMax = milliseconds(16);
// Linux: until the first loss is seen a window grows by a twentieth per round trip at least, for
// HyStart may have left slow start far below the path's capacity.
constexpr double kUnknownPathGrowth = 1.0 / 20;

// Linux (hystart_ack_delay): what segmentation offload may add to a train of ACKs, four of the
// largest segments at the rate of slow start, twice the window per round trip; at most 1 ms.
Picoseconds offload_allowance(const FlowLimits& limits, Picoseconds srtt) {
  constexpr double kLargest = 65'536;
  const double seconds =
      4 * kLargest * srtt.seconds() / (2 * static_cast<double>(std::max<std::uint64_t>(limits.cwnd, 1)));
  return std::min(milliseconds(1), Picoseconds{static_cast<std::int64_t>(seconds * 1e12)});
}
}  // namespace

const OptionTable<CubicOptions>& CubicOptions::table() {
  static const OptionTable<CubicOptions> rows = [] {
    OptionTable<CubicOptions> t("TcpOptions");
    t.add("hystart", &CubicOptions::hystart,
          {.doc = "slow start ends where the RTT rises or a train of ACKs is half an RTT long"});
    return t;
  }();
  return rows;
}

bool HyStart::exit(const AckSample& s, const FlowLimits& limits) {
  if (s.acked_end > round_end_ || round_end_ == 0) {
    round_end_ = s.sent_end;
    round_start_ = last_ack_ = s.now;
    round_min_ = kNever;
    samples_ = 0;
  }
  if (s.rtt == kNever) return false;
  delay_min_ = std::min(delay_min_, s.rtt);
  if (limits.cwnd < kLowWindow * limits.mss) return false;
  if (s.now - last_ack_ <= kAckGap) {
    last_ack_ = s.now;
    if (s.now - round_start_ > (delay_min_ + offload_allowance(limits, s.srtt)) / 2) return true;
  }
  round_min_ = std::min(round_min_, s.rtt);
  if (samples_ < kMinSamples) {
    ++samples_;
    return false;
  }
  return round_min_ > delay_min_ + std::clamp(delay_min_ / 8, kDelayMin, kDelayMax);
}

double Cubic::k_of(double w_max, double cwnd) { return w_max > cwnd ? std::cbrt((w_max - cwnd) / kC) : 0; }

void Cubic::begin_epoch(Picoseconds now) {
  epoch_ = now;
  const double cwnd = static_cast<double>(limits_.cwnd) / limits_.mss;
  if (w_max_ < cwnd) w_max_ = cwnd;
  k_ = k_of(w_max_, cwnd);
  w_est_ = cwnd;
}

void Cubic::on_ack(const AckSample& s) {
  last_ack_ = s.now;
  if (s.reducing || !s.cwnd_limited) return;
  if (limits_.in_slow_start()) {
    if (hystart_on_ && hystart_.exit(s, limits_)) limits_.ssthresh = limits_.cwnd;
  }
  const std::uint64_t left = slow_start(s.delivered);
  if (left == 0) return;
  if (epoch_ == kNever) begin_epoch(s.now);
  const double mss = limits_.mss, cwnd = static_cast<double>(limits_.cwnd) / mss;
  const double acked = static_cast<double>(left) / mss;
  const double t = (s.now - epoch_).seconds();
  // 4.3, without its growth by whole segments above the window before the last reduction, which
  // Linux does not have either.
  w_est_ += kAlpha * acked / cwnd;
  double more = 0;
  if (window_at(t, k_, w_max_) < w_est_) {
    more = std::max(w_est_ - cwnd, 0.0);
  } else {
    // 4.4 and 4.5: towards where the curve is one RTT from now, in Linux the smallest seen, at most
    // half a window ahead.
    const double ahead = (s.min_rtt == kNever ? s.srtt : s.min_rtt).seconds();
    const double target = std::clamp(window_at(t + ahead, k_, w_max_), cwnd, 1.5 * cwnd);
    more = (target - cwnd) / cwnd * acked;
  }
  if (!limit_seen_) more = std::max(more, kUnknownPathGrowth * acked);
  grow(more * mss);
}

void Cubic::on_congestion(const CongestionEvent& e) {
  const double cwnd = static_cast<double>(limits_.cwnd) / limits_.mss;
  prior_w_max_ = w_max_;
  cwnd_prior_ = cwnd;
  w_max_ = cwnd < w_max_ ? cwnd * (1 + kBeta) / 2 : cwnd;  // 4.7: fast convergence
  epoch_ = kNever;
  limit_seen_ = e.kind != Congestion::timeout;
  if (!limit_seen_) {
    w_max_ = 0;  // 4.8: the next stage begins with K = 0 at its own window
    hystart_.reset();
  }
  // 4.6, with cwnd in place of the flight as Linux has it: growth stops when not cwnd-limited.
  limits_.ssthresh = std::max<std::uint64_t>(static_cast<std::uint64_t>(cwnd * kBeta * limits_.mss), 2 * limits_.mss);
}

void Cubic::on_undo(Picoseconds) {
  w_max_ = std::max(prior_w_max_, cwnd_prior_);
  epoch_ = kNever;
}

// The curve stands still while nothing is sent (4.2 counts only the time of congestion avoidance).
void Cubic::on_restart(Picoseconds now) {
  if (epoch_ != kNever && last_ack_ > epoch_) epoch_ += now - last_ack_;
}

void Cubic::observe(Observer& out) const {
  Reno::observe(out);
  out.value("w_max", w_max_ * limits_.mss);
  out.value("k_s", k_);
}

}  // namespace loomnet::congestion
