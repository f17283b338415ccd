// Named sets of options: the hosts with which the simulations of Symphony (arXiv 2604.16880) are repeated.
// The publication's own hosts are not known; the sets are our completion, from what NICs and the public
// RDMA simulators ship.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "transport/options.hpp"

namespace loomnet::roce {

const std::vector<OptionPreset>& presets();
// The one that `values` name by their option "preset"; null: none. Throws std::invalid_argument.
const OptionPreset* preset_of(const OptionValues& values);
// `values` without "preset", and what the preset says of options that are not among them. Throws
// std::invalid_argument where they name another congestion control than the preset.
OptionValues with_preset(const OptionPreset& preset, const OptionValues& values);

}  // namespace loomnet::roce
