// A trained policy where the kernel's program decides by it (ebpf/astraea_policy_abi.h).
#pragma once

#include "ebpf/astraea_policy_abi.h"
#include "transport/congestion/astraea/plan.hpp"

namespace loomnet::astraea {

// Throws std::invalid_argument, one line, for a network that has no place there; `policy` is quantised.
void check_kernel_policy(const Policy& policy);

// Writes the plan's policy into the bank that is not active, with the version after the active one's, and makes it
// the active one. Flows follow it from their next decision on.
void publish_policy(astraea_policies& policies, const Plan& plan);
// There is none: flows are the kernel's own from their next acknowledgement on.
void withdraw_policy(astraea_policies& policies);

}  // namespace loomnet::astraea
