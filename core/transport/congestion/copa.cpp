// Copa's measurements and its steps; see copa.hpp.
#include "transport/congestion/copa.hpp"

#include <algorithm>
#include <cmath>

namespace loomnet::congestion {
namespace {
constexpr Picoseconds kMinWindow = seconds(10);
constexpr int kSteady = 3;            // round trips in one direction before the velocity doubles
constexpr double kNearlyEmpty = 0.1;  // of the round trip's oscillation
constexpr std::int64_t kOscillation = 4, kPatience = 5;  // round trips
constexpr std::uint64_t kLeast = 2;                      // packets, as in the authors' code
constexpr double kFastest = 1e15;                        // bits per second
// The authors' code: of what two round trips and more than 20 packets show, the share of losses above which the
// window is cut, and the factor by which it is.
constexpr double kHeavyLoss = 0.3, kLeftOfWindow = 0.7;
constexpr std::uint64_t kJudged = 20;
constexpr std::int64_t kJudgedRounds = 2;
}  // namespace

const OptionTable<CopaOptions>& CopaOptions::table() {
  static const OptionTable<CopaOptions> rows = [] {
    using O = CopaOptions;
    OptionTable<O> t("TcpOptions");
    t.add("copa_delta", &O::delta,
          {.doc = "a flow keeps about 1/delta packets queued", .least = 0, .most = 1, .above = true})
        .add("mode_switch", &O::mode_switch,
             {.doc = "copa competes where the queue is never nearly empty: 1/delta grows until a loss"});
    return t;
  }();
  return rows;
}

Copa::Copa(FlowLimits& limits, const CopaOptions& options, const FlowContext&)
    : CongestionControl(limits, {.owns_window = true}),
      options_(options),
      delta_(options.delta),
      standing_(0),
      least_(static_cast<std::uint64_t>(kMinWindow.count)),
      most_(0) {}

Picoseconds Copa::queue_delay() const {
  if (!std::isfinite(standing_.best()) || !std::isfinite(least_.best())) return {};
  return Picoseconds{static_cast<std::int64_t>(std::max(standing_.best() - least_.best(), 0.0))};
}

void Copa::observe(Observer& out) const {
  out.value("queue_delay_ps", static_cast<double>(queue_delay().count));
  out.value("delta", delta_);
  out.value("velocity", velocity_);
  out.value("competitive", competitive_ ? 1 : 0);
}

void Copa::measure(const AckSample& s) {
  const auto rtt = static_cast<double>(s.rtt.count);
  const auto now = static_cast<std::uint64_t>(s.now.count);
  const Picoseconds srtt = s.srtt.count > 0 ? s.srtt : s.rtt;
  standing_.set_window(static_cast<std::uint64_t>(srtt.count / 2));
  most_.set_window(static_cast<std::uint64_t>(srtt.count * kOscillation));
  standing_.update(rtt, now);
  least_.update(rtt, now);
  most_.update(rtt, now);
}

void Copa::on_ack(const AckSample& s) {
  if (s.rtt != kNever) measure(s);
  if (!std::isfinite(standing_.best())) return;
  heed_heavy_loss(s);
  if (options_.mode_switch) switch_mode(s);
  const double mss = limits_.mss, acked = static_cast<double>(s.delivered) / mss;
  const double standing = standing_.best() * 1e-12, queued = queue_delay().seconds();
  const double window = static_cast<double>(limits_.cwnd) / mss;
  const double rate = window / standing;
  const bool below = queued <= 0 || rate <= 1 / (delta_ * queued);
  if (slow_start_) {
    if (below) {
      if (s.cwnd_limited) move(acked);
    } else {
      slow_start_ = false;
      began_ = false;
    }
  }
  if (!slow_start_) {
    update_velocity(s);
    velocity_ = std::min(velocity_, std::max(window * delta_, 1.0));
    ++(below ? below_ : above_);
    const double step = velocity_ / (delta_ * window) * acked;
    if (!below) {
      move(-step);
    } else if (s.cwnd_limited) {
      move(step);
    }
  }
  limits_.pacing_rate = std::clamp(2 * 8 * static_cast<double>(limits_.cwnd) / standing, kLeastPacing, kFastest);
}

// Once per window: doubles once the window of data has moved cwnd in one direction for three round trips. A
// window ends with what was sent after the one before it was delivered: while losses are repaired, what is
// acknowledged in order stands still for many round trips.
void Copa::update_velocity(const AckSample& s) {
  if (began_ && (s.delivered == 0 || s.prior_delivered < window_end_)) return;
  if (began_) {
    const int direction = limits_.cwnd > window_begin_cwnd_ ? 1 : limits_.cwnd < window_begin_cwnd_ ? -1 : 0;
    const std::uint32_t with = direction > 0 ? below_ : above_;
    if (direction != 0 && 6 * with > 5 * (above_ + below_) && direction == direction_) {
      if (++same_direction_ >= kSteady) velocity_ *= 2;
    } else {
      same_direction_ = 0;
      velocity_ = 1;
    }
    direction_ = direction;
  }
  began_ = true;
  window_end_ = s.delivered_total;
  window_begin_cwnd_ = limits_.cwnd;
  above_ = below_ = 0;
}

// A queue that is full for RTTmin's ten seconds looks like none: without this the window would only grow.
void Copa::heed_heavy_loss(const AckSample& s) {
  lost_bytes_ += s.lost;
  judged_bytes_ += s.lost + s.delivered;
  if (s.rtt == kNever || s.now - judged_at_ <= s.rtt * kJudgedRounds || judged_bytes_ <= kJudged * limits_.mss) return;
  if (static_cast<double>(lost_bytes_) > kHeavyLoss * static_cast<double>(judged_bytes_)) {
    const auto left = static_cast<std::uint64_t>(kLeftOfWindow * static_cast<double>(limits_.cwnd));
    limits_.cwnd = std::max(left, kLeast * limits_.mss);
  }
  lost_bytes_ = judged_bytes_ = 0;
  judged_at_ = s.now;
}

// Section 2.2: where only Copa shares the queue, it is nearly empty at least every five round trips.
void Copa::switch_mode(const AckSample& s) {
  if (empty_at_ == kNever) empty_at_ = delta_at_ = s.now;
  const double queued = standing_.best() - least_.best();
  if (queued <= kNearlyEmpty * (most_.best() - least_.best())) empty_at_ = s.now;
  const bool before = competitive_;
  competitive_ = !slow_start_ && s.now - empty_at_ > s.srtt * kPatience;
  if (!competitive_) {
    delta_ = options_.delta;
    lost_ = false;
    return;
  }
  if (!before) delta_at_ = s.now;
  if (s.now - delta_at_ < s.srtt) return;
  const double per = 1 / delta_;
  delta_ = std::min(1 / (lost_ ? per / 2 : per + 1), options_.delta);
  lost_ = false;
  delta_at_ = s.now;
}

void Copa::move(double packets) {
  fraction_ += packets * limits_.mss;
  const double whole = std::floor(fraction_);
  fraction_ -= whole;
  const double least = static_cast<double>(kLeast * limits_.mss);
  limits_.cwnd = static_cast<std::uint64_t>(std::max(static_cast<double>(limits_.cwnd) + whole, least));
}

void Copa::on_congestion(const CongestionEvent& e) {
  if (e.kind == Congestion::ecn) return;
  lost_ = true;
  if (e.kind != Congestion::timeout) return;
  limits_.cwnd = kLeast * limits_.mss;
  velocity_ = 1;
  direction_ = same_direction_ = 0;
  slow_start_ = true;
}

}  // namespace loomnet::congestion
