// Every kind of switch program by its name.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "switch/program_kind.hpp"

namespace loomnet {

const std::vector<ProgramKind>& program_kinds();
// Throws std::invalid_argument naming the programs that there are.
const ProgramKind& program_kind(std::string_view name);

// A program for the engine: by name, options checked.
std::unique_ptr<SwitchProgram> make_program(std::string_view name, std::size_t ports,
                                            std::uint64_t seed, const ProgramOptions& options = {});

}  // namespace loomnet
