// The symphony program's options, and its configuration from them.
#pragma once

#include <vector>

#include "ebpf/symphony_abi.h"
#include "switch/program_kind.hpp"

namespace loomnet {

std::vector<ProgramOption> symphony_options();
// Throws std::invalid_argument naming the option that cannot be.
symphony_config symphony_settings(const ProgramSettings& settings);
// Rows of one half-link's table.
std::uint32_t symphony_rows(const ProgramSettings& settings);

}  // namespace loomnet
