// Finds the object's code, and gives CProgram the facts of a loaded program.
#include "switch/loaded/loaded_kind.hpp"

#include <dlfcn.h>

#include <cstddef>
#include <stdexcept>

#include "ebpf/forward.h"
#include "switch/c_program.hpp"
#include "switch/forward/forward_kind.hpp"
#include "switch/forward/native_lookups.hpp"
#include "switch/loaded/guarded_call.hpp"
#include "switch/loaded/guarded_memory.hpp"

namespace loomnet {
namespace {

// What a compiled object relies on. Where one of these changes, so must LN_CONTRACT_HERE in ebpf/switch_program.h,
// and objects of the contract before are refused.
constexpr std::uint32_t kContract = 1;
static_assert(sizeof(ln_packet) == 56 && offsetof(ln_packet, length) == 32 && offsetof(ln_packet, flow) == 36 &&
              offsetof(ln_packet, message) == 40 && offsetof(ln_packet, edit) == 48);
static_assert(sizeof(ln_meta) == 32 && offsetof(ln_meta, sequence) == 16 && offsetof(ln_meta, ingress) == 24);
static_assert(sizeof(ln_host) == 24 && offsetof(ln_host, state) == 8 && offsetof(ln_host, counters) == 16);
static_assert(sizeof(ln_state) == 16 && offsetof(ln_state, row_bytes) == 8 && offsetof(ln_state, count) == 12);
static_assert(sizeof(ln_verdict) == 4 && sizeof(forward_config) == 16);
static_assert(FORWARD_OWN_COUNTERS == 16 && FORWARD_DROP_TOO_SHORT == 5);

// struct ln_config_ of the object: forward's configuration, a word that stands for nothing, and a word for each option.
std::vector<std::uint8_t> packed_config(const ProgramSettings& settings) {
  std::vector<std::uint8_t> bytes = bytes_of(FallsThroughToForward::forward_settings(settings));
  const auto add = [&bytes](std::uint64_t word) {
    const std::vector<std::uint8_t> more = bytes_of(word);
    bytes.insert(bytes.end(), more.begin(), more.end());
  };
  add(0);
  for (const LoadedProgram::Option& option : settings.loaded->options) {
    add(static_cast<std::uint64_t>(integer(settings, option.name)));
  }
  return bytes;
}

std::vector<std::string_view> counters_of(const LoadedProgram& program) {
  std::vector<std::string_view> names = FallsThroughToForward::forward_counters();
  names.insert(names.end(), program.counters.begin(), program.counters.end());
  return names;
}

StateLayout layout_of(const LoadedProgram& program) {
  if (program.rows == 0) return {};
  StateLayout layout{"rows", program.rows, program.row_bytes, {}};
  for (const LoadedProgram::Field& field : program.fields) {
    layout.fields.push_back({field.name, field.offset, field.bytes, field.number});
  }
  return layout;
}

ProgramNeeds needs_of(const LoadedProgram& program) {
  return {.view = true, .header_bytes = program.payload_at, .payload_bytes = program.payload_bytes};
}

ln_verdict route(ln_host* host, ln_packet* packet) {
  const auto* calling = reinterpret_cast<const CallingHost*>(host);
  return forward_ingress(host->tables, calling->forward, host->counters, packet->frame, packet->end, packet->length);
}

struct LoadedLogic : FallsThroughToForward {
  using StateMemory = GuardedMemory;
  struct Config {
    const LoadedProgram* program;
    forward_config forward;
    std::vector<std::uint8_t> packed;
    std::shared_ptr<const void> watched;
  };

  static std::string_view name(const Config& config) { return config.program->name; }
  static ProgramNeeds needs(const Config& config) { return needs_of(*config.program); }
  static std::vector<std::string_view> own_counters(const ProgramSettings& s) { return counters_of(*s.loaded); }
  static StateLayout state(const ProgramSettings& s) { return layout_of(*s.loaded); }
  static Config config(const ProgramSettings& s) {
    if (!s.loaded->entry) throw std::invalid_argument(s.loaded->refusal);
    return {s.loaded, forward_settings(s), packed_config(s), watched_programs(*s.loaded)};
  }
  static ln_verdict ingress(const Config& config, ln_host& host, ln_packet& packet, const ln_meta& meta) {
    return guarded_call(*config.program, config.packed.data(), {host, route, &config.forward}, packet, meta);
  }
};

}  // namespace

void LoadedProgram::load(const std::string& path) {
  // Stays loaded: networks that run it may outlive each other.
  void* const object = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!object) throw std::invalid_argument(file + ": its compiled object cannot be loaded: " + ::dlerror());
  const auto* contract = static_cast<const std::uint32_t*>(::dlsym(object, "ln_switch_contract"));
  auto* const code = reinterpret_cast<Entry*>(::dlsym(object, "ln_switch_program"));
  if (!contract || *contract != kContract || !code) {
    throw std::invalid_argument(
        file + ": its compiled object has contract " + (contract ? std::to_string(*contract) : std::string("none")) +
        " of switch programs, this engine contract " + std::to_string(kContract) + "; compile it anew");
  }
  entry = code;
  no_counter = static_cast<std::uint64_t*>(::dlsym(object, "ln_switch_no_counter"));
}

ProgramKind loaded_kind(const LoadedProgram& program) {
  ProgramKind kind{.name = program.name,
                   .summary = program.summary,
                   .options = FallsThroughToForward::forward_options(),
                   .counters = counters_of(program),
                   .needs = needs_of(program)};
  append_host_counters(kind.counters);
  for (const LoadedProgram::Option& option : program.options) {
    kind.options.push_back({.name = option.name,
                            .fallback = option.fallback,
                            .help = option.unit,
                            .least = static_cast<double>(option.least),
                            .most = static_cast<double>(option.most),
                            .unit = option.unit == "bytes" || option.unit == "ps" ? option.unit : std::string_view()});
  }
  kind.make = [](const ProgramSettings& s) -> std::unique_ptr<SwitchProgram> {
    return std::make_unique<CProgram<LoadedLogic>>(s);
  };
  kind.state = LoadedLogic::state;
  kind.config = packed_config;
  kind.kernel_rows = FallsThroughToForward::kernel_rows;
  kind.loaded = &program;
  return kind;
}

}  // namespace loomnet
