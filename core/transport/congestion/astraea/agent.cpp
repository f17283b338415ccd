// The decisions of one flow; see agent.hpp.
#include "transport/congestion/astraea/agent.hpp"

#include <algorithm>

namespace loomnet::astraea {
namespace {
constexpr std::uint64_t kStartSamples = 8;
constexpr double kLeastRise_us = 4'000, kMostRise_us = 16'000;
constexpr double kShortPath_us = 8'000;
constexpr double kQueued = 1.05;  // mean over least RTT from which on a queue is worth draining
}  // namespace

void RttSamples::add(double rtt_us) {
  sum_us += rtt_us;
  ++count;
  least_us = least_us > 0 ? std::min(least_us, rtt_us) : rtt_us;
}

std::uint64_t path_after_start(double rate_Bps, double least_rtt_us) {
  if (least_rtt_us <= 0 || least_rtt_us >= kShortPath_us || rate_Bps < 0) return 0;
  return std::max<std::uint64_t>(static_cast<std::uint64_t>(rate_Bps * least_rtt_us / 1e6), 1);
}

Agent::Agent(const AgentOptions& options)
    : options_(options),
      extremes_(options.lifetime),
      history_(options.features, options.frames, options.spacing),
      mode_(options.slow_start ? Mode::start : Mode::agent) {}

Picoseconds Agent::interval() const {
  const double least_us = range().min_rtt_us > 0 ? range().min_rtt_us : start_least_us_;
  if (options_.interval_rtts <= 0 || least_us <= 0) return options_.interval;
  const Picoseconds asked{static_cast<std::int64_t>(options_.interval_rtts * least_us * 1e6)};
  return std::clamp(asked, options_.interval_least, options_.interval_most);
}

void Agent::begin(Picoseconds now) { due_ = now + interval(); }

void Agent::judge_start(const RttSamples& rtts, bool lost, std::uint32_t cwnd) {
  if (mode_ != Mode::start) return;
  if (rtts.count > 0) {
    start_least_us_ = start_least_us_ > 0 ? std::min(start_least_us_, rtts.least_us) : rtts.least_us;
    start_.sum_us += rtts.sum_us;
    start_.count += rtts.count;
  }
  bool over = lost || cwnd >= options_.cwnd_max;
  if (start_.count >= kStartSamples) {
    const double rise = std::clamp(start_least_us_ / 8, std::min(kLeastRise_us, start_least_us_ / 2), kMostRise_us);
    over = over || start_.mean_us() > start_least_us_ + rise;
    start_ = {};
  }
  if (over) mode_ = Mode::agent;
}

bool Agent::observe(const Measured& m, double least_rtt_us, Picoseconds now) {
  measured_ = m;
  extremes_.update(m.avg_thr_Bps, least_rtt_us, now);
  while (due_ <= now) due_ += interval();
  history_.push(m, range());
  action_ = 0;
  if (mode_ != Mode::agent) return false;
  if (options_.lifetime == Lifetime::windowed_drain) {
    // Early enough for round trips without a queue to arrive before the least one is forgotten.
    const Picoseconds rtt{static_cast<std::int64_t>(range().min_rtt_us * 1e6)};
    const Picoseconds lasts = std::max(rtt, interval()) + interval();
    const Picoseconds ahead = lasts + interval();
    drains_ =
        now >= drain_again_ && m.avg_urtt_us > kQueued * range().min_rtt_us && extremes_.forgets_min_rtt(now, ahead);
    if (drains_) {
      drained_at_ = now + lasts;
      drain_again_ = now + ahead;
    }
  }
  return !drains_;
}

std::uint32_t Agent::bounded(std::uint32_t window) const {
  return std::clamp(window, options_.cwnd_min, options_.cwnd_max);
}

std::uint32_t Agent::command(double action, std::uint32_t window) {
  action_ = action;
  return bounded(map_action(window, action, options_.alpha));
}

std::uint32_t Agent::command_int(std::int32_t q, std::uint32_t window) {
  action_ = static_cast<double>(q) / kFullAction;
  return bounded(map_action_int(window, q, static_cast<std::uint32_t>(options_.alpha * 1e6 + 0.5)));
}

std::uint32_t Agent::command_without_policy(std::uint32_t window, Picoseconds now) {
  if (drains_) {
    drains_ = false;
    mode_ = Mode::drain;
    restored_ = window;
    return std::max(options_.cwnd_min, window / 2);
  }
  if (mode_ == Mode::drain && now >= drained_at_) {
    mode_ = Mode::agent;
    return bounded(restored_);
  }
  return 0;
}

}  // namespace loomnet::astraea
