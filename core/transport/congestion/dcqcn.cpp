// The rate's cuts and raises; see dcqcn.hpp.
#include "transport/congestion/dcqcn.hpp"

#include <algorithm>
#include <cmath>

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
              .range = positive,
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
             {.unit = "bytes", .doc = "the rate is raised once per so many bytes on the wire; 0: by time alone"})
        .add("fast_recovery", &DcqcnOptions::fast_recovery,
             {.doc = "F: raises that halve the way back to the target before it grows"})
        .add("decrease_interval_ps", &DcqcnOptions::decrease_interval,
             {.unit = "ps",
              .doc = "the rate is cut at most once per interval; 0: at each CNP",
              .least = 0,
              .field = "decrease_interval"})
        .add("alpha_sampled", &DcqcnOptions::alpha_sampled,
             {.doc = "alpha moves once per alpha_timer_ps, by whether a CNP came, as in NICs"})
        .add("clamp_target", &DcqcnOptions::clamp_target,
             {.doc = "each cut takes the target rate down; False: only the first after a raise"})
        .add("alpha_restart", &DcqcnOptions::alpha_restart,
             {.doc = "alpha is 1 again at the first CNP after a time at line rate"});
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
  limits_.cwnd = kNoLimit;
}

void Dcqcn::on_congestion(const CongestionEvent& e) {
  if (e.kind != Congestion::notified) return;
  advance(e.now);
  const bool fresh = !limited_;
  if (fresh) {
    if (options_.alpha_restart || reactions_.cuts == 0) {
      alpha_ = 1;
    } else if (alpha_due_ <= e.now) {
      decay(e.now);  // no timer ran meanwhile
    }
    alpha_due_ = e.now + options_.alpha_timer;
  }
  if (options_.alpha_sampled) notified_ = !fresh;
  if (!fresh && options_.decrease_interval.count > 0 && e.now < last_cut_ + options_.decrease_interval) {
    cut_due_ = last_cut_ + options_.decrease_interval;
  } else {
    cut(e.now);
  }
  publish(e.now);
}

void Dcqcn::cut(Picoseconds now) {
  const bool raised = !limited_ || by_time_ > 0 || by_bytes_ > 0;
  limited_ = true;
  if (options_.clamp_target || raised) target_ = rate_;
  rate_ = std::max(rate_ * (1 - alpha_ / 2), floor());
  if (!options_.alpha_sampled) {
    alpha_ = (1 - options_.g) * alpha_ + options_.g;
    alpha_due_ = now + options_.alpha_timer;
  }
  by_time_ = by_bytes_ = 0;
  counted_from_ = limits_.sent;
  raise_due_ = now + options_.rate_timer;
  last_cut_ = now;
  cut_due_ = kNever;
  ++reactions_.cuts;
  if (rate_ <= floor() && floor_since_ == kNever) {
    ++reactions_.floors;
    floor_since_ = now;
  }
}

// With a minimum at or above the line rate no cut lowers anything; reports say so.
double Dcqcn::floor() const { return std::min(static_cast<double>(options_.minimum_rate), line_); }

// Called with the packet that is leaving, after its bytes have been counted.
void Dcqcn::on_tick(Picoseconds now) {
  if (!limited_) {  // the packet that let the limiter go was the last one paced
    limits_.pacing_rate = 0;
    limits_.next_tick = kNever;
    limits_.next_sent = kNoLimit;
    return;
  }
  advance(now);
  if (options_.byte_counter > 0 && limits_.sent - counted_from_ >= options_.byte_counter) {
    counted_from_ += options_.byte_counter;
    ++by_bytes_;
    raise(now);
  }
  publish(now);
}

Picoseconds Dcqcn::next_due() const { return std::min({alpha_due_, raise_due_, cut_due_}); }

void Dcqcn::publish(Picoseconds now) {
  limits_.pacing_rate = rate_;
  limits_.next_tick = limited_ ? next_due() : now + Picoseconds{1};
  limits_.next_sent = limited_ && options_.byte_counter > 0 ? counted_from_ + options_.byte_counter : kNoLimit;
}

void Dcqcn::advance(Picoseconds now) {
  while (limited_ && next_due() <= now) {
    if (alpha_due_ <= std::min(raise_due_, cut_due_)) {
      decay(std::min({now, raise_due_, cut_due_}));
    } else if (cut_due_ <= raise_due_) {
      cut(cut_due_);
    } else {
      ++by_time_;
      const Picoseconds at = raise_due_;
      raise_due_ += options_.rate_timer;
      raise(at);
    }
  }
  if (floor_since_ < now) {
    reactions_.at_floor += now - floor_since_;
    floor_since_ = now;
  }
}

void Dcqcn::decay(Picoseconds until) {
  constexpr int kStepByStep = 16;  // a long silence of a short timer takes one power
  for (int i = 0; i < kStepByStep && alpha_due_ <= until; ++i) {
    alpha_ *= 1 - options_.g;
    if (notified_) alpha_ += options_.g;
    notified_ = false;
    alpha_due_ += options_.alpha_timer;
  }
  if (alpha_due_ > until) return;
  const auto periods = (until - alpha_due_).count / options_.alpha_timer.count + 1;
  alpha_ *= std::pow(1 - options_.g, static_cast<double>(periods));
  alpha_due_ += options_.alpha_timer * periods;
}

void Dcqcn::raise(Picoseconds now) {
  const std::uint32_t most = std::max(by_time_, by_bytes_);
  const bool by_time_alone = options_.byte_counter == 0;
  const std::uint32_t least = by_time_alone ? 0 : std::min(by_time_, by_bytes_);
  if (by_time_alone && most > options_.fast_recovery + 1) {
    // As simulators have it: one additive increase, then a hyper increase of one step each time.
    target_ += static_cast<double>(options_.hyper_rate);
  } else if (least > options_.fast_recovery) {
    target_ += static_cast<double>(options_.hyper_rate) * (least - options_.fast_recovery);
  } else if (most > options_.fast_recovery) {
    target_ += static_cast<double>(options_.additive_rate);
  }
  target_ = std::min(target_, line_);
  rate_ = std::min((rate_ + target_) / 2, line_);
  if (floor_since_ != kNever && rate_ > floor()) {
    reactions_.at_floor += now - floor_since_;
    floor_since_ = kNever;
  }
  // Within a thousandth of the line the limiter is let go, as a NIC frees it.
  if (target_ >= line_ && rate_ > 0.999 * line_ && cut_due_ == kNever) {
    limited_ = false;
    rate_ = target_ = line_;
    floor_since_ = kNever;
  }
}

void Dcqcn::observe(Observer& out) const {
  out.value("rate_bps", rate_);
  out.value("target_bps", target_);
  out.value("alpha", alpha_);
  out.value("limited", limited_ ? 1 : 0);
}

}  // namespace loomnet::congestion
