// The rate's updates; see timely.hpp.
#include "transport/congestion/timely.hpp"

#include <algorithm>

namespace loomnet::congestion {

const OptionTable<TimelyOptions>& TimelyOptions::table() {
  static const OptionTable<TimelyOptions> rows = [] {
    using O = TimelyOptions;
    OptionTable<O> t("RoceOptions.timely");
    const std::string positive = "must be more than 0";
    t.add("timely_low_ps", &O::low,
          {.unit = "ps", .doc = "T_low: below it the rate grows whatever the gradient", .least = 0, .field = "low"})
        .add("timely_high_ps", &O::high,
             {.unit = "ps",
              .doc = "T_high: above it the rate falls whatever the gradient",
              .least = 1,
              .range = positive,
              .field = "high"})
        .add("timely_min_rtt_ps", &O::min_rtt,
             {.unit = "ps",
              .doc = "what gradients are divided by; 0: the fabric's longest round trip",
              .least = 0,
              .field = "min_rtt"})
        .add(
            "timely_ewma", &O::ewma,
            {.doc = "weight of a new difference of round trips", .least = 0, .most = 1, .above = true, .field = "ewma"})
        .add("timely_beta", &O::beta,
             {.doc = "share of the rate that a cut takes, times the gradient or the excess",
              .least = 0,
              .most = 1,
              .above = true,
              .field = "beta"})
        .add("timely_increment_bps", &O::increment,
             {.unit = "bit/s",
              .doc = "delta: added at each completion; the publication's is for 10 Gb/s",
              .least = 1,
              .range = positive,
              .field = "increment"})
        .add("timely_hyper_after", &O::hyper_after,
             {.doc = "falling round trips in a row that begin hyper-active increase", .field = "hyper_after"})
        .add("timely_hyper_times", &O::hyper_times,
             {.doc = "N: increments at once in hyper-active increase",
              .least = 1,
              .range = "at least 1",
              .field = "hyper_times"})
        .add("timely_minimum_rate_bps", &O::minimum_rate,
             {.unit = "bit/s",
              .doc = "the rate never falls below it",
              .least = 1,
              .range = positive,
              .field = "minimum_rate"});
    return t;
  }();
  return rows;
}

Timely::Timely(FlowLimits& limits, const TimelyOptions& options, const FlowContext& flow)
    : CongestionControl(limits, {.owns_window = true, .notified = false}),
      options_(options),
      line_(static_cast<double>(flow.line_rate)),
      least_(static_cast<double>(std::min(options.minimum_rate, flow.line_rate))),
      rate_(line_) {
  if (flow.line_rate == 0) {
    refuse_option("RoceOptions.timely.line_rate", "TIMELY begins at a port's rate");
  }
  if (options.low >= options.high) {
    refuse_option("RoceOptions.timely.low", "T_low must be below T_high");
  }
  Picoseconds floor = options.min_rtt.count > 0 ? options.min_rtt : flow.base_rtt;
  if (floor == kNever) {
    refuse_option("RoceOptions.timely.min_rtt", "the round trip of this fabric is unknown; give one");
  }
  min_rtt_us_ = floor.microseconds();
  limits_.cwnd = kNoLimit;
  limits_.pacing_rate = rate_;
}

void Timely::on_ack(const AckSample& s) {
  if (s.rtt == kNever) return;
  if (floor_since_ != kNever) {
    reactions_.at_floor += s.now - floor_since_;
    floor_since_ = s.now;
  }
  const double rtt = s.rtt.microseconds();
  const double difference = previous_us_ < 0 ? 0 : rtt - previous_us_;
  const double share = previous_us_ < 0 ? 1 : std::min((s.now - updated_at_).microseconds() / min_rtt_us_, 1.0);
  previous_us_ = rtt;
  updated_at_ = s.now;
  falling_ = difference < 0 ? falling_ + 1 : 0;
  difference_us_ = (1 - options_.ewma) * difference_us_ + options_.ewma * difference;

  const double before = rate_;
  rate_ = std::clamp(std::max(updated(rtt, share), before / 2), least_, line_);
  limits_.pacing_rate = rate_;
  if (rate_ < before) ++reactions_.cuts;
  if (rate_ > least_) {
    floor_since_ = kNever;
  } else if (floor_since_ == kNever) {
    reactions_.floors += rate_ < before;
    floor_since_ = s.now;
  }
}

// Algorithm 1. `share`: of a minimum round trip, since the update before.
double Timely::updated(double rtt_us, double share) const {
  const double step = static_cast<double>(options_.increment) * share;
  const double high = options_.high.microseconds();
  if (rtt_us < options_.low.microseconds()) return rate_ + step;
  if (rtt_us > high) return rate_ * (1 - share * options_.beta * (1 - high / rtt_us));
  if (gradient() <= 0) {
    return rate_ + step * (falling_ >= options_.hyper_after ? options_.hyper_times : 1);
  }
  return rate_ * (1 - options_.beta * gradient());
}

void Timely::observe(Observer& out) const {
  out.value("rate_bps", rate_);
  out.value("gradient", gradient());
  out.value("rtt_us", std::max(previous_us_, 0.0));
}

}  // namespace loomnet::congestion
