// Astraea as a congestion control: it measures a flow interval by interval, and a policy changes the window
// at the end of each. Liao et al., "Towards Fair and Efficient Learning-based Congestion Control", EuroSys
// 2024; agent.hpp has the decisions, this file the flow's counters, its window and its pacing.
//
// The contract counts bytes of the stream, Astraea packets: packets() and bytes() convert.
#pragma once

#include "transport/congestion/astraea/decider.hpp"

namespace loomnet::astraea {

class Astraea final : public Decider {
 public:
  Astraea(FlowLimits& limits, const AstraeaOptions& options, const AgentOptions& agent, NamedPolicy policy,
          const FlowContext& flow);
  std::string_view name() const override { return "astraea"; }
  void on_ack(const AckSample& sample) override;
  void on_congestion(const CongestionEvent& event) override;
  void on_recovered(Picoseconds now) override;
  void on_undo(Picoseconds now) override;

 private:
  void decide(double action) override;
  void decide_int(std::int16_t q) override;
  void undecided(Picoseconds now) override;
  void judge_start() override;
  double sending_rate() const override { return limits_.pacing_rate; }

  void decide_rate(double action);
  void take(std::uint32_t to);
  void command(std::uint32_t to);
  void take_window(std::uint64_t bytes);
  void leave_start(const AckSample& s);
  void pace();
  // While the window grows back after a timeout, actions are on the window that it grows to.
  std::uint32_t window() const { return after_timeout_ ? command_ : packets(limits_.cwnd); }

  const std::uint32_t cwnd_min_, cwnd_max_;
  const ActionKind kind_;
  const double rate_least_, rate_most_;  // bits of payload per second
  RttSamples start_rtts_;                // since the last wake-up
  bool lost_in_start_ = false, left_start_ = false;
  bool after_timeout_ = false;   // slow start up to the command
  bool command_due_ = false;     // at the next acknowledgement, as a kernel takes it …
  Picoseconds command_at_{};     // … from this time on
  double rate_ = 0;              // bits of payload per second that actions have set; 0: none has
  std::uint32_t command_ = 0;    // packets
};

// Its row in the register. Needs what TCP gives.
CongestionKind astraea_kind();

}  // namespace loomnet::astraea
