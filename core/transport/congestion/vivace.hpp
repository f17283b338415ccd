// PCC Vivace: a sending rate by gradient ascent on a utility that the sender measures. Dong et al.,
// "PCC Vivace: Online-Learning Congestion Control", NSDI 2018: the latency utility (section 3), the
// steps of the rate (section 4) and their constants.
//
// Time is cut into monitor intervals of a round trip. A pair of them tries a rate above and one below
// the current rate, in random order; the current one is kept until their ACKs are in. The rate moves
// where two pairs in a row agree on the direction, by the mean of their gradients, as in both
// implementations that the authors have published: of one pair, random losses decide too often. The
// window limits nothing once a round trip is known.
//
// The publication leaves open: how losses belong to intervals (here to the one in which the packet
// was sent whose ACK tells of them), an interval of few packets (here ten at least), a sender without
// data (here such a pair of intervals says nothing), and a timeout (here it halves the rate). The
// swing buffer is that of the authors' module for Linux: after a reversal the confidence amplifier
// stays at its first step, for a decision more with each further reversal, two at most. Packets leave one
// by one, as the authors' sender in user space paces them: where a round trip holds few of the bursts of
// Linux, all packets of an interval would have left at one time, and their round trips have no slope.
#pragma once

#include <array>

#include "clock/random.hpp"
#include "transport/congestion.hpp"

namespace loomnet::congestion {

struct VivaceOptions {
  double exponent = 0.9;  // t: of the rate in Mb/s
  double latency = 900;   // b
  double loss = 11.35;    // c
  static const OptionTable<VivaceOptions>& table();
};

// What one monitor interval has shown. Times are of sending.
struct MonitorInterval {
  Picoseconds begin{}, end = kNever;     // packets sent after `begin`, and not after `end`
  double rate = 0;                       // bits per second, as set
  std::uint64_t sent_begin = 0, sent_end = 0;  // bytes sent by the flow until then
  std::uint64_t delivered = 0, lost = 0;       // bytes of its packets
  // Round trips by time of sending, in seconds, for the line of least squares.
  double samples = 0, sum_t = 0, sum_rtt = 0, sum_tt = 0, sum_t_rtt = 0;

  void add_rtt(Picoseconds sent, Picoseconds rtt);
  double loss() const;
  // Change of the round trip per time.
  double gradient() const;
  // Sent as fast as the rate lets it: it had data, and nothing else held it back.
  bool used() const;
};

// How far the rate moves for a gradient of the utility, and what that depends on.
class VivaceSteps {
 public:
  // Bits per second to add to `rate`.
  double next(double gradient, double rate);
  void reset() { *this = VivaceSteps(); }
  // m(tau).
  static double amplifier(int confidence) { return confidence <= 3 ? confidence : 2 * confidence - 3; }
  int confidence() const { return confidence_; }
  double boundary() const { return kFirstBound + kBoundStep * bounds_; }

 private:
  static constexpr double kConversion = 1e6;  // theta_0: 1 in Mb/s
  static constexpr double kFirstBound = 0.05, kBoundStep = 0.1;  // omega_0, delta
  static constexpr int kMostSwings = 2;
  int confidence_ = 1, direction_ = 0, swings_ = 0, bounds_ = 0;
};

class Vivace final : public CongestionControl {
 public:
  enum class State : std::uint8_t { starting, probing, waiting };
  static constexpr double kProbe = 0.05;  // epsilon
  Vivace(FlowLimits& limits, const VivaceOptions& options, const FlowContext& flow);
  std::string_view name() const override { return "vivace"; }
  void on_ack(const AckSample& sample) override;
  void on_congestion(const CongestionEvent& event) override;
  void on_tick(Picoseconds now) override;
  void on_established(Picoseconds rtt, Picoseconds now) override;
  void on_restart(Picoseconds now) override;
  void observe(Observer& out) const override;

  State phase() const { return state_; }
  double rate() const { return rate_; }
  double utility(double rate, double gradient, double loss) const;

 private:
  // What an interval is for: nothing, the doubling of the beginning, one of a pair.
  enum class Role : std::uint8_t { none, starting, above, below };
  struct Slot {
    MonitorInterval interval;
    Role role = Role::none;
  };
  void begin(Picoseconds now);
  void begin_pair(Picoseconds now);
  void open(Role role, double rate, Picoseconds now);
  void settle(Picoseconds sent, Picoseconds now);
  void judge_start(const MonitorInterval& interval, Picoseconds now);
  void judge_pair(Picoseconds now);
  double utility_of(const MonitorInterval& interval);
  double bounded(double rate) const;
  Slot& at(std::uint64_t number) { return slots_[number % slots_.size()]; }

  const VivaceOptions options_;
  const std::uint64_t initial_window_;
  RandomStream random_;
  State state_ = State::starting;
  VivaceSteps steps_;
  Picoseconds rtt_ = kNever;
  double rate_ = 0;
  // Intervals first_ to next_ - 1 wait for ACKs; the last of them is being sent.
  std::array<Slot, 8> slots_{};
  std::uint64_t first_ = 0, next_ = 0;
  bool above_first_ = false;
  bool has_best_ = false;  // of starting
  double best_utility_ = 0, best_rate_ = 0;
  int known_ = 0;  // of the pair
  double first_slope_ = 0;  // of the utility, by the first of two pairs; 0: none yet
  MonitorInterval above_, below_;
  double utility_ = 0, gradient_ = 0;  // of the interval judged last
};

}  // namespace loomnet::congestion
