// The one place that lists the programs.
#include "switch/registry/registry.hpp"

#include <stdexcept>

#include "switch/aggregate/aggregate_program.hpp"
#include "switch/forward/forward_kind.hpp"
#include "switch/mirror/mirror_program.hpp"
#include "switch/sum/sum_program.hpp"
#include "switch/symphony/symphony_program.hpp"

namespace loomnet {

const std::vector<ProgramKind>& program_kinds() {
  static const std::vector<ProgramKind> kinds = {forward_kind(), aggregate_kind(), symphony_kind(),
                                                 mirror_kind(), sum_kind()};
  return kinds;
}

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
