// Vivace's intervals, what they show and how the rate moves; see vivace.hpp.
#include "transport/congestion/vivace.hpp"

#include <algorithm>
#include <cmath>

namespace loomnet::congestion {
namespace {
constexpr double kGradientFilter = 0.01;  // smaller changes of the round trip are noise
constexpr double kOneTime = 1e-9;         // spread of sending times beside their squares
constexpr double kLeastPackets = 10;      // of an interval
constexpr double kSlowest = 2;            // packets per round trip, as in the authors' module
constexpr double kUsed = 0.8;             // of an interval's rate
constexpr double kFastest = 1e15;         // bits per second
constexpr std::uint64_t kVivacePurpose = 0x766976616365;  // "vivace"
}  // namespace

const OptionTable<VivaceOptions>& VivaceOptions::table() {
  static const OptionTable<VivaceOptions> rows = [] {
    using O = VivaceOptions;
    OptionTable<O> t("TcpOptions");
    t.add("vivace_exponent", &O::exponent,
          {.doc = "t: power of the rate, in Mb/s, in the utility", .least = 0, .most = 1, .above = true})
        .add("vivace_latency", &O::latency,
             {.doc = "b: weight of rate times change of the round trip per time", .least = 0, .most = 1e9})
        .add("vivace_loss", &O::loss, {.doc = "c: weight of rate times share of bytes lost", .least = 0, .most = 1e9});
    return t;
  }();
  return rows;
}

// --- one interval --------------------------------------------------------------------------------

void MonitorInterval::add_rtt(Picoseconds sent, Picoseconds rtt) {
  const double t = (sent - begin).seconds(), r = rtt.seconds();
  samples += 1;
  sum_t += t;
  sum_rtt += r;
  sum_tt += t * t;
  sum_t_rtt += t * r;
}

double MonitorInterval::loss() const {
  const std::uint64_t all = delivered + lost;
  return all == 0 ? 1 : static_cast<double>(lost) / static_cast<double>(all);
}

double MonitorInterval::gradient() const {
  const double spread = samples * sum_tt - sum_t * sum_t;
  // Of packets that were all sent at one time it is a rounding error.
  return spread <= kOneTime * samples * sum_tt ? 0 : (samples * sum_t_rtt - sum_t * sum_rtt) / spread;
}

bool MonitorInterval::used() const {
  const double sent = 8 * static_cast<double>(sent_end - sent_begin);
  return sent >= kUsed * rate * (end - begin).seconds();
}

// --- how far the rate moves ----------------------------------------------------------------------

double VivaceSteps::next(double gradient, double rate) {
  if (gradient == 0) return 0;
  const int direction = gradient > 0 ? 1 : -1;
  if (direction != direction_) {
    if (direction_ != 0) swings_ = std::min(swings_ + 1, kMostSwings);
    direction_ = direction;
    confidence_ = 1;
    bounds_ = 0;
  } else if (swings_ > 0) {
    --swings_;
  } else {
    ++confidence_;
  }
  const double change = amplifier(confidence_) * kConversion * gradient;
  const double share = std::abs(change) / rate;
  if (share > boundary()) {
    const double most = boundary() * rate;
    ++bounds_;
    return direction * most;
  }
  while (bounds_ > 0 && share <= boundary() - kBoundStep) --bounds_;
  return change;
}

// --- the control ---------------------------------------------------------------------------------

Vivace::Vivace(FlowLimits& limits, const VivaceOptions& options, const FlowContext& flow)
    : CongestionControl(limits, {.owns_window = true, .lazy = true, .smooth = true}),
      options_(options),
      initial_window_(flow.initial_window),
      random_(flow.seed, flow.stream, kVivacePurpose) {}

double Vivace::utility(double rate, double gradient, double loss) const {
  const double x = rate / 1e6;
  return std::pow(x, options_.exponent) - options_.latency * x * gradient - options_.loss * x * loss;
}

double Vivace::utility_of(const MonitorInterval& interval) {
  gradient_ = interval.gradient();
  if (std::abs(gradient_) < kGradientFilter) gradient_ = 0;
  return utility_ = utility(interval.rate, gradient_, interval.loss());
}

double Vivace::bounded(double rate) const {
  const double slowest = std::max(kSlowest * 8 * limits_.mss / rtt_.seconds(), kLeastPacing);
  return std::min(std::max(rate, slowest), kFastest);
}

void Vivace::observe(Observer& out) const {
  out.value("phase", static_cast<double>(state_));  // of State, from 0
  out.value("rate_bps", rate_);
  out.value("utility", utility_);
  out.value("gradient", gradient_);
}

void Vivace::on_established(Picoseconds rtt, Picoseconds now) {
  rtt_ = rtt;
  begin(now);
}

void Vivace::begin(Picoseconds now) {
  limits_.cwnd = kNoLimit;
  rate_ = bounded(8 * static_cast<double>(initial_window_) / rtt_.seconds());
  open(Role::starting, rate_, now);
}

// Ends the interval that is being sent, and begins the next.
void Vivace::open(Role role, double rate, Picoseconds now) {
  if (first_ != next_) {
    MonitorInterval& sent = at(next_ - 1).interval;
    sent.end = now;
    sent.sent_end = limits_.sent;
  }
  if (next_ - first_ == slots_.size()) ++first_;
  Slot& slot = at(next_++);
  slot = {};
  slot.role = role;
  slot.interval.begin = now;
  slot.interval.rate = limits_.pacing_rate = bounded(rate);
  slot.interval.sent_begin = limits_.sent;
  if (role == Role::none) {
    limits_.next_tick = kNever;
    return;
  }
  const double seconds = std::max(rtt_.seconds(), kLeastPackets * 8 * limits_.mss / slot.interval.rate);
  limits_.next_tick = now + Picoseconds{static_cast<std::int64_t>(seconds * 1e12) + 1};
}

void Vivace::begin_pair(Picoseconds now) {
  state_ = State::probing;
  known_ = 0;
  above_first_ = random_.below(2) == 0;
  open(above_first_ ? Role::above : Role::below, rate_ * (above_first_ ? 1 + kProbe : 1 - kProbe), now);
}

// By the first packet after an interval's time.
void Vivace::on_tick(Picoseconds now) {
  limits_.next_tick = kNever;
  if (first_ == next_) return;
  const Slot& sent = at(next_ - 1);
  if (state_ == State::starting) {
    MonitorInterval interval = sent.interval;
    interval.end = now;
    interval.sent_end = limits_.sent;
    if (interval.used()) rate_ = bounded(2 * rate_);
    open(Role::starting, rate_, now);
  } else if (sent.role == (above_first_ ? Role::above : Role::below)) {
    open(above_first_ ? Role::below : Role::above, rate_ * (above_first_ ? 1 - kProbe : 1 + kProbe), now);
  } else {
    state_ = State::waiting;
    open(Role::none, rate_, now);
  }
}

void Vivace::on_ack(const AckSample& s) {
  if (s.srtt.count > 0) rtt_ = s.srtt;
  if (rtt_ == kNever) return;
  if (first_ == next_) return begin(s.now);
  const Picoseconds sent = s.now - (s.rtt == kNever ? rtt_ : s.rtt);
  settle(sent, s.now);
  for (std::uint64_t n = first_; n != next_; ++n) {
    MonitorInterval& interval = at(n).interval;
    if (sent <= interval.begin || sent > interval.end) continue;
    interval.delivered += s.delivered;
    interval.lost += s.lost;
    if (s.rtt != kNever) interval.add_rtt(sent, s.rtt);
  }
}

// All that was sent before `sent` has been acknowledged or lost.
void Vivace::settle(Picoseconds sent, Picoseconds now) {
  while (first_ != next_ && at(first_).interval.end < sent) {
    const Slot slot = at(first_++);
    switch (slot.role) {
      case Role::none:
        break;
      case Role::starting:
        judge_start(slot.interval, now);
        break;
      case Role::above:
        above_ = slot.interval;
        ++known_;
        break;
      case Role::below:
        below_ = slot.interval;
        ++known_;
        break;
    }
    if (known_ == 2) judge_pair(now);
  }
}

void Vivace::judge_start(const MonitorInterval& interval, Picoseconds now) {
  if (state_ != State::starting || !interval.used()) return;
  const double found = utility_of(interval);
  if (!has_best_ || found >= best_utility_) {
    has_best_ = true;
    best_utility_ = found;
    best_rate_ = interval.rate;
    return;
  }
  rate_ = best_rate_;
  begin_pair(now);
}

// Slopes are of the utility, per Mb/s.
void Vivace::judge_pair(Picoseconds now) {
  const double above = utility_of(above_), below = utility_of(below_);
  const double slope = (above - below) / (2 * kProbe * rate_ / 1e6);
  if (!above_.used() || !below_.used()) {
    first_slope_ = 0;
  } else if (first_slope_ == 0) {
    first_slope_ = slope;
  } else {
    const double before = rate_;
    if ((slope > 0) == (first_slope_ > 0)) {
      rate_ = bounded(rate_ + steps_.next((slope + first_slope_) / 2, rate_));
      reactions_.cuts += rate_ < before;
    }
    first_slope_ = 0;
  }
  begin_pair(now);
}

void Vivace::on_congestion(const CongestionEvent& e) {
  if (e.kind != Congestion::timeout || rtt_ == kNever) return;
  rate_ = bounded(rate_ / 2);
  ++reactions_.cuts;
  steps_.reset();
  first_slope_ = 0;
  first_ = next_;
  begin_pair(e.now);
}

// What was measured before the pause says nothing of what comes.
void Vivace::on_restart(Picoseconds now) {
  if (first_ == next_) return;
  first_slope_ = 0;
  first_ = next_;
  if (state_ == State::starting) {
    open(Role::starting, rate_, now);
  } else {
    begin_pair(now);
  }
}

}  // namespace loomnet::congestion
