// Programs by name; CMake lists Loomnet's own, by their folders.
#include "switch/registry/registry.hpp"

#include <algorithm>
#include <deque>
#include <mutex>
#include <stdexcept>

#include "switch/loaded/loaded_kind.hpp"

namespace loomnet {
namespace {

struct Known {
  std::unique_ptr<LoadedProgram> program;
  ProgramKind kind;
  std::vector<std::uint8_t> object;
};
std::mutex mutex;
// Never taken away, and a deque, so that what was handed out stays where it is.
std::deque<Known>& loaded() {
  static std::deque<Known> programs;
  return programs;
}
Known* find_loaded(std::string_view name) {
  for (Known& each : loaded()) {
    if (each.kind.name == name) return &each;
  }
  return nullptr;
}

void refuse_twice(const LoadedProgram& program, const char* what, std::vector<std::string_view> names) {
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) {
    throw std::invalid_argument(program.file + ": " + what + " \"" + std::string(*twice) +
                                "\" is one that every program has; give yours another name");
  }
}

}  // namespace

const ProgramKind& program_kind(std::string_view name) {
  std::vector<std::string_view> names;
  for (const ProgramKind& kind : program_kinds()) {
    if (kind.name == name) return kind;
    names.push_back(kind.name);
  }
  const std::lock_guard lock(mutex);
  if (const Known* found = find_loaded(name)) return found->kind;
  throw std::invalid_argument("no switch program \"" + std::string(name) + "\"; there are " + listed(names));
}

const ProgramKind& add_program(std::unique_ptr<LoadedProgram> program) {
  for (const ProgramKind& kind : program_kinds()) {
    if (kind.name == program->name) {
      throw std::invalid_argument("switch program \"" + program->name + "\" is one of Loomnet's own");
    }
  }
  const std::lock_guard lock(mutex);
  if (const Known* found = find_loaded(program->name)) return found->kind;
  ProgramKind kind = loaded_kind(*program);
  refuse_twice(*program, "counter", kind.counters);
  std::vector<std::string_view> options;
  for (const ProgramOption& option : kind.options) options.push_back(option.name);
  refuse_twice(*program, "option", options);
  Known& made = loaded().emplace_back();
  made.kind = std::move(kind);
  made.program = std::move(program);
  return made.kind;
}

void set_kernel_object(std::string_view name, std::vector<std::uint8_t> object) {
  const std::lock_guard lock(mutex);
  Known* const found = find_loaded(name);
  if (!found) throw std::invalid_argument("no loaded switch program \"" + std::string(name) + "\"");
  if (!found->object.empty()) return;  // a switch may be loading it now, and the name stands for one content
  found->object = std::move(object);
  found->kind.kernel_object = found->object;
}

std::unique_ptr<SwitchProgram> make_program(std::string_view name, std::size_t ports, std::uint64_t seed,
                                            const ProgramOptions& options) {
  const ProgramKind& kind = program_kind(name);
  return kind.make(checked_settings(kind, ports, seed, options));
}

}  // namespace loomnet
