// Rounds, pacing and windows of both versions of BBR; see bbr_base.hpp.
#include "transport/congestion/bbr_base.hpp"

#include <algorithm>

namespace loomnet::congestion {
namespace {
constexpr Picoseconds kProbeRttDuration = milliseconds(200);
constexpr double kPacingMargin = 0.01;  // Linux: bbr_pacing_margin_percent
// Linux: bbr_extra_acked_max_us, bbr_ack_epoch_acked_reset_thresh.
constexpr Picoseconds kAggregationMost = milliseconds(100);
constexpr std::uint64_t kAggregationEpoch = 1u << 20;  // segments
}  // namespace

BbrBase::BbrBase(FlowLimits& limits, Traits traits, const FlowContext& flow, double startup_gain, std::uint64_t purpose,
                 int startup_rounds)
    : CongestionControl(limits, traits),
      initial_window_(flow.initial_window),
      startup_gain_(startup_gain),
      startup_rounds_(startup_rounds),
      random_(flow.seed, flow.stream, purpose) {
  // The initial window per 1 ms until an RTT is known.
  limits_.pacing_rate = static_cast<std::uint64_t>(startup_gain_ * 8000.0 * static_cast<double>(initial_window_));
}

void BbrBase::pace_initial_window(Picoseconds rtt) {
  has_rtt_ = true;
  limits_.pacing_rate = static_cast<std::uint64_t>((1 - kPacingMargin) * startup_gain_ * 8.0 *
                                                   static_cast<double>(initial_window_) / rtt.seconds());
}

void BbrBase::update_round(const AckSample& s) {
  round_start_ = s.rate_interval.count > 0 && s.prior_delivered >= next_round_delivered_;
  if (!round_start_) return;
  begin_round(s.delivered_total);
  ++round_count_;
}

bool BbrBase::plateau(double rate) {
  if (rate >= full_bw_ * 1.25) {
    restart_plateau(rate);
    return false;
  }
  return ++full_bw_count_ >= 3;
}

// Links and receivers that hold ACKs back let more be acknowledged at once than the estimated rate
// explains. The largest excess of the last rounds is added to the window ("BBR: ack aggregation", Linux since 5.1).
void BbrBase::update_ack_aggregation(const AckSample& s, double rate) {
  if (s.delivered == 0 || s.rate_interval.count <= 0) return;
  const int rounds = filled_pipe_ ? kAggregationRounds : startup_rounds_;
  if (round_start_ && ++extra_acked_rounds_ >= rounds) {
    extra_acked_rounds_ = 0;
    extra_acked_index_ ^= 1;
    extra_acked_[static_cast<std::size_t>(extra_acked_index_)] = 0;
  }
  auto expected = static_cast<std::uint64_t>(rate * (s.now - aggregation_begin_).seconds());
  if (aggregation_acked_ <= expected || aggregation_acked_ + s.delivered >= kAggregationEpoch * limits_.mss) {
    aggregation_acked_ = 0;
    aggregation_begin_ = s.now;
    expected = 0;
  }
  aggregation_acked_ += s.delivered;
  std::uint64_t& most = extra_acked_[static_cast<std::size_t>(extra_acked_index_)];
  most = std::max(most, std::min(aggregation_acked_ - expected, limits_.cwnd));
}

std::uint64_t BbrBase::aggregated(double rate) const {
  return std::min(std::max(extra_acked_[0], extra_acked_[1]),
                  static_cast<std::uint64_t>(rate * kAggregationMost.seconds()));
}

void BbrBase::set_pacing_rate(double gain, double rate) {
  const auto bps = static_cast<std::uint64_t>((1 - kPacingMargin) * gain * 8 * rate);
  if (bps > 0 && (filled_pipe_ || bps > limits_.pacing_rate)) limits_.pacing_rate = bps;
}

std::uint64_t BbrBase::send_quantum() const {  // in whole segments, as Linux counts them
  const std::uint64_t mss = limits_.mss, least = limits_.pacing_rate < 1'200'000 ? 1 : 2;
  const std::uint64_t bytes = std::min<std::uint64_t>(limits_.pacing_rate / 8 / 1024, 64 << 10);
  return std::max(bytes / mss, least) * mss;
}

bool BbrBase::probe_rtt_over(const AckSample& s, std::uint64_t most) {
  limited_until_ = s.delivered_total + s.in_flight;  // its low rates say nothing
  if (probe_rtt_done_ == kNever) {
    if (s.in_flight <= most) {
      probe_rtt_done_ = s.now + kProbeRttDuration;
      probe_rtt_round_done_ = false;
      begin_round(s.delivered_total);
    }
    return false;
  }
  if (round_start_) probe_rtt_round_done_ = true;
  return probe_rtt_round_done_ && probe_rtt_time_over(s.now);
}

}  // namespace loomnet::congestion
