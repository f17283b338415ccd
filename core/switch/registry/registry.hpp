// Every kind of switch program by its name.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "switch/program_kind.hpp"

namespace loomnet {

// Loomnet's own.
const std::vector<ProgramKind>& program_kinds();
// One of Loomnet's own or a loaded one. Throws std::invalid_argument naming Loomnet's own.
const ProgramKind& program_kind(std::string_view name);
// Makes a loaded program known by its name, for as long as the process lives. A name stands for one content:
// a program that is known already stays. Throws std::invalid_argument for a name of Loomnet's own.
const ProgramKind& add_program(std::unique_ptr<LoadedProgram> program);
// Gives a loaded program its build for the kernel. Throws as program_kind.
void set_kernel_object(std::string_view name, std::vector<std::uint8_t> object);

// A program for the engine: by name, options checked.
std::unique_ptr<SwitchProgram> make_program(std::string_view name, std::size_t ports, std::uint64_t seed,
                                            const ProgramOptions& options = {});

}  // namespace loomnet
