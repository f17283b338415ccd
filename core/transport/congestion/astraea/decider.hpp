// The decisions of a flow: their times, the policy, and the measurements that it gets. Subclasses carry out the
// actions: Astraea (astraea.hpp) sets the window or the sending rate, FactorControl (factor.hpp) multiplies
// another control's window.
//
// The contract counts bytes of the stream, Astraea packets: packets() and bytes() convert.
#pragma once

#include "transport/congestion.hpp"
#include "transport/congestion/astraea/meter.hpp"
#include "transport/congestion/astraea/options.hpp"
#include "transport/congestion/astraea/policies.hpp"

namespace loomnet::astraea {

class Decider : public CongestionControl, private Pupil {
 public:
  void on_tick(Picoseconds now) override;
  void on_restart(Picoseconds now) override;
  // Under policy="outside" it waits for decisions; under the others it shows its intervals.
  Pupil* pupil() override { return this; }
  void observe(Observer& out) const override;

 protected:
  Decider(FlowLimits& limits, Traits traits, const AstraeaOptions& options, const AgentOptions& agent,
          NamedPolicy policy, const FlowContext& flow);

  // The decision, from -1 to 1; of a policy in whole numbers, 32767 times as much.
  virtual void decide(double action) = 0;
  virtual void decide_int(std::int16_t q) = 0;
  // What the rule of policy="teacher" asks for: an action of the window's map by `alpha`.
  virtual void decide_by_rule(double action) { decide(action); }
  // Called instead of decide() at the end of an interval in which the start-up or a drain sets the window.
  virtual void undecided(Picoseconds /*now*/) {}
  // A wake-up of the start-up.
  virtual void judge_start() {}
  // The rate at which the flow sends, bits of payload per second; 0: unknown.
  virtual double sending_rate() const = 0;

  std::uint32_t packets(std::uint64_t bytes) const { return meter_.packets(bytes); }
  std::uint64_t bytes(std::uint32_t packets) const { return std::uint64_t{packets} * limits_.mss; }
  // The rate at which a window leaves within a round trip, bits of payload per second; 0 without a round trip.
  double rate_of_window() const;
  const PupilInterval& last_interval() const { return seen_; }
  std::uint32_t most_out() const { return most_out_; }  // packets in flight during that interval
  // From when on an acknowledgement takes the decision that is made now.
  Picoseconds taken_at() const { return seen_.end + action_delay_; }

  Agent agent_;
  Meter meter_;
  const double alpha_;

 private:
  bool waits() const override { return waits_; }
  Picoseconds wake() const override { return wake_; }
  const PupilInterval& interval() const override { return seen_; }
  std::span<const float> input() const override { return agent_.input(); }
  void act(double action) override;

  void begin(Picoseconds now);
  void wake_up(Picoseconds now);
  void end_interval(Picoseconds now);
  void schedule(Picoseconds now);

  const Picoseconds wake_;
  const Arithmetic arithmetic_;
  const Picoseconds action_delay_;
  const NamedPolicy policy_;
  PupilInterval seen_;
  std::uint32_t most_out_ = 0;
  bool waits_ = false;  // for act()
  bool began_ = false;  // an interval is under way
};

}  // namespace loomnet::astraea
