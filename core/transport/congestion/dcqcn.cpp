// The rate's cuts and raises; see dcqcn.hpp.
#include "transport/congestion/dcqcn.hpp"

#include <algorithm>

namespace loomnet::congestion {

const OptionTable<DcqcnOptions>& DcqcnOptions::table() {
  static const OptionTable<DcqcnOptions> rows = [] {
    OptionTable<DcqcnOptions> t("RoceOptions.dcqcn");
    const std::string positive = "must be more than 0";
    t.add("dcqcn_g", &DcqcnOptions::g,
          {.doc = "gain of alpha, the estimate of congestion",
           .least = 0,
           .most = 1,
           .above = true,
           .range = "a share, more than 0",
           .field = "g"})
        .add("minimum_rate_bps", &DcqcnOptions::minimum_rate,
             {.unit = "bit/s",
              .doc = "the rate never falls below it",
              .least = 1,
              .range = "1 bit/s to the line rate",
              .field = "minimum_rate"})
        .add("additive_rate_bps", &DcqcnOptions::additive_rate,
             {.unit = "bit/s", .doc = "R_AI: added to the target at each additive increase"})
        .add("hyper_rate_bps", &DcqcnOptions::hyper_rate,
             {.unit = "bit/s", .doc = "R_HAI: added to the target at each hyper increase"})
        .add("alpha_timer_ps", &DcqcnOptions::alpha_timer,
             {.unit = "ps",
              .doc = "alpha decays once per period without a CNP",
              .least = 1,
              .range = positive,
              .field = "alpha_timer"})
        .add("rate_timer_ps", &DcqcnOptions::rate_timer,
             {.unit = "ps",
              .doc = "the rate is raised once per period",
              .least = 1,
              .range = positive,
              .field = "rate_timer"})
        .add("byte_counter", &DcqcnOptions::byte_counter,
             {.unit = "bytes",
              .doc = "the rate is raised once per so many bytes on the wire",
              .least = 1,
              .range = positive})
        .add("fast_recovery", &DcqcnOptions::fast_recovery,
             {.doc = "F: raises that halve the way back to the target before it grows"});
    return t;
  }();
  return rows;
}

Dcqcn::Dcqcn(FlowLimits& limits, const DcqcnOptions& options, const FlowContext& flow)
    : CongestionControl(limits, {.owns_window = true, .sees_acks = false, .lazy = true}),
      options_(options),
      line_(static_cast<double>(flow.line_rate)),
      rate_(line_),
      target_(line_) {
  if (flow.line_rate == 0) {
    refuse_option("RoceOptions.dcqcn.line_rate", "DCQCN begins at a port's rate");
  }
  if (options.minimum_rate > flow.line_rate) {
    refuse_option("RoceOptions.dcqcn.minimum_rate", "1 bit/s to the line rate");
  }
  limits_.cwnd = kNoLimit;
}

void Dcqcn::on_congestion(const CongestionEvent& e) {
  if (e.kind != Congestion::notified) return;
  advance(e.now);
  if (!limited_) alpha_ = 1;  // a fresh limiter, as after a long time without congestion
  limited_ = true;
  target_ = rate_;
  rate_ = std::max(rate_ * (1 - alpha_ / 2), static_cast<double>(options_.minimum_rate));
  alpha_ = (1 - options_.g) * alpha_ + options_.g;
  by_time_ = by_bytes_ = 0;
  counted_from_ = limits_.sent;
  alpha_due_ = e.now + options_.alpha_timer;
  raise_due_ = e.now + options_.rate_timer;
  publish(e.now);
}

// Called with the packet that is leaving, after its bytes have been counted.
void Dcqcn::on_tick(Picoseconds now) {
  if (!limited_) {  // the packet that let the limiter go was the last one paced
    limits_.pacing_rate = 0;
    limits_.next_tick = kNever;
    limits_.next_sent = kNoLimit;
    return;
  }
  advance(now);
  if (limits_.sent - counted_from_ >= options_.byte_counter) {
    counted_from_ += options_.byte_counter;
    ++by_bytes_;
    raise();
  }
  publish(now);
}

void Dcqcn::publish(Picoseconds now) {
  limits_.pacing_rate = rate_;
  limits_.next_tick = limited_ ? std::min(alpha_due_, raise_due_) : now + Picoseconds{1};
  limits_.next_sent = limited_ ? counted_from_ + options_.byte_counter : kNoLimit;
}

void Dcqcn::advance(Picoseconds now) {
  while (limited_ && std::min(alpha_due_, raise_due_) <= now) {
    if (alpha_due_ <= raise_due_) {
      alpha_ *= 1 - options_.g;
      alpha_due_ += options_.alpha_timer;
    } else {
      ++by_time_;
      raise_due_ += options_.rate_timer;
      raise();
    }
  }
}

void Dcqcn::raise() {
  const std::uint32_t most = std::max(by_time_, by_bytes_), least = std::min(by_time_, by_bytes_);
  if (least > options_.fast_recovery) {
    target_ += static_cast<double>(options_.hyper_rate) * (least - options_.fast_recovery);
  } else if (most > options_.fast_recovery) {
    target_ += static_cast<double>(options_.additive_rate);
  }
  target_ = std::min(target_, line_);
  rate_ = std::min((rate_ + target_) / 2, line_);
  // Within a thousandth of the line the limiter is let go, as a NIC frees it.
  if (target_ >= line_ && rate_ > 0.999 * line_) {
    limited_ = false;
    rate_ = target_ = line_;
  }
}

void Dcqcn::observe(Observer& out) const {
  out.value("rate_bps", rate_);
  out.value("target_bps", target_);
  out.value("alpha", alpha_);
  out.value("limited", limited_ ? 1 : 0);
}

}  // namespace loomnet::congestion
