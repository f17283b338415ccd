// One flow of the kernel's TCP under Astraea: readings of its slot become the measurements of an interval,
// and what the policy makes of them becomes the window that the slot commands. The decisions are agent.hpp's,
// as on the virtual clock; this file has what astraea.cpp has there, the counters and the window.
#pragma once

#include "ebpf/astraea_abi.h"
#include "transport/congestion/astraea/agent.hpp"
#include "transport/congestion/astraea/plan.hpp"
#include "transport/kernel_agent.hpp"

namespace loomnet::astraea {

class KernelFlow {
 public:
  // `first`: the slot when the flow is first seen. The plan outlives the flow.
  KernelFlow(const Plan& plan, const astraea_slot& first);

  std::uint32_t gen() const { return gen_; }
  // Takes in a reading at a wake-up. Whether an interval has ended and the policy is to act on input().
  bool look(const astraea_slot& read, Picoseconds now);
  std::span<const float> input() const { return agent_.input(); }
  // The rules that are no trained policy, and what a trained one says, in floats or whole numbers.
  void act_by_rule();
  void act(float action);
  void act_int16(std::int16_t q);

  // The window in packets that the slot is to command, 0 for none, and the number of the interval.
  std::uint32_t command() const { return command_; }
  std::uint32_t epoch() const { return epoch_; }
  // At the last look: an interval has ended, there is another command, the reading was not plausible.
  bool ended() const { return ended_; }
  bool commands() const { return commands_; }
  bool refused() const { return refused_; }
  KernelDecision decision() const;  // of the last interval that has ended

 private:
  void begin(const astraea_slot& read, Picoseconds now);
  void judge_start(const astraea_slot& read);
  Measured measure(const astraea_slot& read, Picoseconds now) const;
  void take(std::uint32_t to);
  void set(std::uint32_t to);
  std::uint32_t window() const;

  const Plan* plan_;
  Agent agent_;
  std::uint32_t gen_, netns_;
  std::uint16_t local_port_, remote_port_;
  std::uint32_t epoch_;
  astraea_slot base_{};  // the reading at which the interval began
  astraea_slot last_{};  // of the last wake-up
  Picoseconds began_{};
  bool under_way_ = false;  // an interval is
  bool ended_ = false, commands_ = false, refused_ = false;
  std::uint32_t command_ = 0;
  std::uint32_t most_out_ = 0;
  Measured seen_;
};

}  // namespace loomnet::astraea
