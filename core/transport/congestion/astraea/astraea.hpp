// Astraea as a congestion control: it measures a flow interval by interval, and a policy changes the window
// at the end of each. Liao et al., "Towards Fair and Efficient Learning-based Congestion Control", EuroSys
// 2024; agent.hpp has the decisions, this file the flow's counters, its window and its pacing.
//
// The contract counts bytes of the stream, Astraea packets: packets() and bytes() convert.
#pragma once

#include <string>

#include "transport/congestion.hpp"
#include "transport/congestion/astraea/agent.hpp"
#include "transport/congestion/astraea/policies.hpp"

namespace loomnet::astraea {

enum class Startup : std::uint8_t { slow_start, none };
enum class Arithmetic : std::uint8_t { float32, int16 };
// Who decides for flows of the kernel's TCP: an agent in the engine, or the program in the kernel.
enum class Seat : std::uint8_t { thread, kernel };
// What an action is: a factor of the window, a factor of the sending rate, or that rate itself.
enum class ActionKind : std::uint8_t { window, rate, absolute };

struct AstraeaOptions {
  std::uint32_t interval_us = 30'000;
  std::uint32_t features = 1;  // of kFeatureSets: ours11
  std::uint32_t frames = 5;
  Spacing spacing = Spacing::every;
  Lifetime extremes = Lifetime::windowed_drain;
  Startup startup = Startup::slow_start;
  double alpha = kAlpha;
  std::uint32_t wake_us = 5'000;
  double interval_rtts = 0;
  std::uint32_t interval_least_us = 10'000, interval_most_us = 100'000;
  std::uint32_t action_delay_us = 0;
  ActionKind action = ActionKind::window;
  double rate_least_bps = 1e5, rate_most_bps = 1e9;  // of `absolute`
  Arithmetic arithmetic = Arithmetic::float32;
  Seat agent = Seat::thread;
  std::string policy = "teacher";

  static const OptionTable<AstraeaOptions>& table();
  Picoseconds wake() const { return microseconds(wake_us); }
  Picoseconds action_delay() const { return microseconds(action_delay_us); }
};

class Astraea final : public CongestionControl, private Pupil {
 public:
  Astraea(FlowLimits& limits, const AstraeaOptions& options, const AgentOptions& agent, NamedPolicy policy,
          const FlowContext& flow);
  std::string_view name() const override { return "astraea"; }
  void on_ack(const AckSample& sample) override;
  void on_congestion(const CongestionEvent& event) override;
  void on_tick(Picoseconds now) override;
  void on_recovered(Picoseconds now) override;
  void on_undo(Picoseconds now) override;
  void on_restart(Picoseconds now) override;
  // Under policy="outside" it waits for decisions; under the others it shows its intervals.
  Pupil* pupil() override { return this; }
  void observe(Observer& out) const override;

  const Agent& agent() const { return agent_; }

 private:
  // What the flow has done since `began`.
  struct Interval {
    Picoseconds began{};
    double rate_sum_Bps = 0;
    std::uint64_t rates = 0, acks = 0;
    std::uint32_t most_out = 0;  // packets in flight
    RttSamples rtts;
    std::uint64_t lost_before = 0;  // bytes lost since the flow began
  };

  bool waits() const override { return waits_; }
  Picoseconds wake() const override { return wake_; }
  const PupilInterval& interval() const override { return seen_; }
  std::span<const float> input() const override { return agent_.input(); }
  void act(double action) override;

  std::uint32_t packets(std::uint64_t bytes) const;
  std::uint64_t bytes(std::uint32_t packets) const { return std::uint64_t{packets} * limits_.mss; }
  bool paused() const;
  void begin(Picoseconds now);
  void wake_up(Picoseconds now);
  void end_interval(Picoseconds now);
  Measured measure(Picoseconds now) const;
  void decide(double action);
  void decide_rate(double action);
  void take(std::uint32_t to);
  void command(std::uint32_t to);
  void schedule(Picoseconds now);
  void take_window(std::uint64_t bytes);
  void leave_start(const AckSample& s);
  void pace();
  // While the window grows back after a timeout, actions are on the window that it grows to.
  std::uint32_t window() const { return after_timeout_ ? command_ : packets(limits_.cwnd); }

  const Picoseconds wake_;
  const Arithmetic arithmetic_;
  const std::uint32_t cwnd_min_, cwnd_max_;
  const double alpha_;
  const ActionKind kind_;
  const double rate_least_, rate_most_;  // bits of payload per second
  const Picoseconds action_delay_;
  const double mtu_share_;  // bytes of a full packet over those of its payload
  const NamedPolicy policy_;
  Agent agent_;
  Interval interval_;
  PupilInterval seen_;
  std::uint32_t most_out_ = 0;   // packets in flight during the interval of `seen_`
  bool waits_ = false;           // for act()
  RttSamples start_rtts_;        // since the last wake-up
  bool began_ = false;           // an interval is under way
  bool lost_in_start_ = false, left_start_ = false;
  bool after_timeout_ = false;   // slow start up to the command
  bool command_due_ = false;     // at the next acknowledgement, as a kernel takes it …
  Picoseconds command_at_{};     // … from this time on
  double rate_ = 0;              // bits of payload per second that actions have set; 0: none has
  std::uint32_t command_ = 0;    // packets
  // As of the last acknowledgement.
  std::uint64_t sent_then_ = 0, lost_total_ = 0;
  std::uint32_t packets_out_ = 0, retransmissions_out_ = 0;
  bool acked_ = false;  // there was one
  Picoseconds srtt_{};
};

// Its row in the register. Needs what TCP gives.
CongestionKind astraea_kind();

}  // namespace loomnet::astraea
