// Programs by name; CMake lists them, by their folders.
#include "switch/registry/registry.hpp"

#include <stdexcept>

namespace loomnet {

const ProgramKind& program_kind(std::string_view name) {
  std::vector<std::string_view> names;
  for (const ProgramKind& kind : program_kinds()) {
    if (kind.name == name) return kind;
    names.push_back(kind.name);
  }
  throw std::invalid_argument("no switch program \"" + std::string(name) + "\"; there are " +
                              listed(names));
}

std::unique_ptr<SwitchProgram> make_program(std::string_view name, std::size_t ports,
                                            std::uint64_t seed, const ProgramOptions& options) {
  const ProgramKind& kind = program_kind(name);
  return kind.make(checked_settings(kind, ports, seed, options));
}

}  // namespace loomnet
