// The congestion controls that come with Loomnet: one line each in built_in.cpp registers them.
#pragma once

#include <vector>

#include "transport/congestion.hpp"

namespace loomnet {

std::vector<CongestionKind> built_in_congestion_controls();

}  // namespace loomnet
