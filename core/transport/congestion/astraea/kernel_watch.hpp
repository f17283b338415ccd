// Where the kernel's program decides for Astraea's flows by itself, the agent only hands the policy over, and reads in
// the slots what was decided: for counts and series. Flows need it for nothing.
#pragma once

#include <memory>

#include "transport/congestion/astraea/plan.hpp"
#include "transport/kernel_agent.hpp"

namespace loomnet::astraea {

std::unique_ptr<KernelAgent> make_kernel_watch(Plan plan);

}  // namespace loomnet::astraea
