// Options of a run, checked, as each flow's control on the virtual clock and the agent of the kernel's TCP
// both take them.
#pragma once

#include "transport/congestion/astraea/astraea.hpp"

namespace loomnet::astraea {

struct Plan {
  AstraeaOptions options;
  AgentOptions agent;
  NamedPolicy policy;
  CongestionMake inner = nullptr;  // by action="factor", what makes the inner rule of a flow
};

// Throws std::invalid_argument with one line that names the field and the fix.
Plan plan_of(const OptionValues& values);
// The same where the kernel's TCP is driven: what only a model has is refused.
Plan kernel_plan_of(const OptionValues& values);

}  // namespace loomnet::astraea
