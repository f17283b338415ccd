// What Astraea decides for one flow: when an interval is over, which inputs the policy sees, which window
// follows from its action, when the start-up ends, and when the queue is drained to measure the base round
// trip anew. No clock, no socket, no packet: the congestion control of virtual runs, a training environment
// and the agent of the kernel's TCP hand in their own counters.
#pragma once

#include <cstdint>

#include "clock/time.hpp"
#include "transport/congestion/astraea/action.hpp"
#include "transport/congestion/astraea/extremes.hpp"
#include "transport/congestion/astraea/features.hpp"

namespace loomnet::astraea {

struct AgentOptions {
  Picoseconds interval = milliseconds(30);
  // Where this is not 0: so many of the least round trips that the flow remembers, within the two bounds.
  double interval_rtts = 0;
  Picoseconds interval_least = milliseconds(10), interval_most = milliseconds(100);
  FeatureSet features = FeatureSet::ours11;
  std::size_t frames = 5;
  Spacing spacing = Spacing::every;
  Lifetime lifetime = Lifetime::windowed_drain;
  bool slow_start = true;
  double alpha = kAlpha;
  std::uint32_t cwnd_min = kLeastWindow, cwnd_max = kMostWindow;  // packets
};

// The sum and number of RTT samples, for a mean.
struct RttSamples {
  double sum_us = 0;
  std::uint64_t count = 0;
  double least_us = 0;  // 0: none
  void add(double rtt_us);
  double mean_us() const { return count > 0 ? sum_us / static_cast<double>(count) : 0; }
};

// Whether a flow has used half of its window, as Linux asks in slow start: the window of a sender that has
// little to send, or a small buffer, would grow without a bound and say nothing of the path.
inline bool filled(std::uint32_t window, std::uint32_t packets_out) { return window < 2 * packets_out; }

// Bytes that the window of a flow whose start ended at a loss becomes at most; 0: it is kept. On short paths
// it would overflow the queue for many round trips before the policy's first action, so it becomes what one
// round trip delivered. `rate_Bps`: of the last delivery, below 0: no sample; `least_rtt_us`: of the flow,
// 0: no sample.
std::uint64_t path_after_start(double rate_Bps, double least_rtt_us);

class Agent {
 public:
  enum class Mode : std::uint8_t {
    start,  // slow start: the window grows by the acknowledged packets
    agent,  // the policy sets the window
    drain,  // half of the window for a round trip and an interval, then the former window
  };

  // Throws std::invalid_argument for frames that the spacing does not have.
  explicit Agent(const AgentOptions& options);

  // The flow has sent its first packet, or sends again after a pause: an interval begins.
  void begin(Picoseconds now);
  // When the interval ends; without drift, whenever it was looked at.
  Picoseconds due() const { return due_; }
  // How long the intervals are that begin now.
  Picoseconds interval() const;
  Mode mode() const { return mode_; }

  // In mode start, at each wake-up: what was measured since the last one. The start-up ends at a loss, at
  // the largest window, or where the mean of 8 or more RTT samples is above the least one by an eighth of
  // it, by 4 ms at least and 16 ms at most; by half of it where that is less than 4 ms, since a queue that
  // adds more would already have been full.
  void judge_start(const RttSamples& rtts, bool lost, std::uint32_t cwnd);

  // An interval has ended. `least_rtt_us`: the least RTT sample in it; 0: none. Returns whether the policy
  // is to act on input(); if not, command() needs no action.
  bool observe(const Measured& m, double least_rtt_us, Picoseconds now);
  std::span<const float> input() const { return history_.input(); }
  const Measured& measured() const { return measured_; }
  const Range& range() const { return extremes_.range(); }
  double start_least_us() const { return start_least_us_; }  // the least RTT of the start-up; 0: none
  double action() const { return action_; }
  double queue() const { return queue_packets(measured_, range()); }

  // The window in packets after the policy's action; `q`: 32767 times the action, of a policy in whole
  // numbers. `window`: what the action multiplies, the flow's window now.
  std::uint32_t command(double action, std::uint32_t window);
  std::uint32_t command_int(std::int32_t q, std::uint32_t window);
  // The same for an action that is no window's.
  void acted(double action) { action_ = action; }
  // The window where observe() has said that the policy does not act; 0: it stays.
  std::uint32_t command_without_policy(std::uint32_t window, Picoseconds now);

 private:
  std::uint32_t bounded(std::uint32_t window) const;

  AgentOptions options_;
  Extremes extremes_;
  History history_;
  Measured measured_;
  Mode mode_;
  Picoseconds due_ = kNever, drained_at_ = kNever;
  Picoseconds drain_again_{};   // one drain for each least RTT that is forgotten
  std::uint32_t restored_ = 0;  // the window before a drain
  bool drains_ = false;         // from this interval on
  double action_ = 0;
  RttSamples start_;            // of the start-up, not judged yet
  double start_least_us_ = 0;   // the least of all
};

}  // namespace loomnet::astraea
