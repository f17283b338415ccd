// A learned factor of another control's window, as in Orca (Abbasloo, Yen and Chao, "Classic Meets Modern: a
// Pragmatic Learning-Based Congestion Control for the Internet", SIGCOMM 2020): an inner rule, CUBIC there, runs
// at every acknowledgement as in ordinary TCP, and now and then an action a of -1 to 1 multiplies its window by
// 2^(2a). The inner rule goes on from the window that was set.
//
// Nothing but the window is changed. So a window below the slow-start threshold is in slow start again, and
// CUBIC's curve stays where it was: a window that was cut grows back to it by at most a half per round trip, and
// one that was raised above it waits for the curve. While the sender's recovery takes the window down to the
// threshold (PRR), that threshold is the window of the inner rule, and the action multiplies it.
#pragma once

#include <memory>

#include "transport/congestion/astraea/decider.hpp"

namespace loomnet::astraea {

class FactorControl final : public Decider {
 public:
  // `inner`: made on the same limits.
  FactorControl(std::unique_ptr<CongestionControl> inner, FlowLimits& limits, const AstraeaOptions& options,
                const AgentOptions& agent, NamedPolicy policy, const FlowContext& flow);
  std::string_view name() const override { return "astraea"; }
  void on_ack(const AckSample& sample) override;
  void on_congestion(const CongestionEvent& event) override { inner_->on_congestion(event); }
  void on_lost(const LostPacket& packet) override { inner_->on_lost(packet); }
  void on_recovered(Picoseconds now) override { inner_->on_recovered(now); }
  void on_undo(Picoseconds now) override { inner_->on_undo(now); }
  void on_established(Picoseconds rtt, Picoseconds now) override { inner_->on_established(rtt, now); }
  void on_restart(Picoseconds now) override;
  void on_ports(std::size_t live, std::size_t total, Picoseconds now) override { inner_->on_ports(live, total, now); }
  void observe(Observer& out) const override;

 private:
  void decide(double action) override;
  void decide_int(std::int16_t q) override { decide(static_cast<double>(q) / kFullAction); }
  void decide_by_rule(double action) override;
  double sending_rate() const override;
  void apply(std::uint64_t& window);

  const std::unique_ptr<CongestionControl> inner_;
  const double exponent_;
  const std::uint32_t cwnd_min_, cwnd_max_;
  double factor_ = 1;          // that no acknowledgement has taken yet …
  Picoseconds factor_at_{};    // … and that one takes from this time on
};

// The options of all inner rules.
std::vector<OptionInfo> inner_options();
// Makes the inner rule of a flow. Options of the other rules are checked, and unused. Throws
// std::invalid_argument for options that no rule has, or that are out of range.
CongestionMake choose_inner(InnerRule rule, const OptionValues& options);

}  // namespace loomnet::astraea
