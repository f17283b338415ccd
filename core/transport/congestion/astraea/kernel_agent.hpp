// The agent of Astraea's flows in the kernel's TCP: at each wake-up it reads the slots, has the policy act
// for the flows whose intervals have ended, and writes their commands.
#pragma once

#include <memory>

#include "transport/congestion/astraea/plan.hpp"
#include "transport/kernel_agent.hpp"

namespace loomnet::astraea {

std::unique_ptr<KernelAgent> make_kernel_agent(Plan plan);

}  // namespace loomnet::astraea
