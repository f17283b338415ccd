// A kind of switch program as a switch is given it by name: its options, how its engine build is made,
// and what the kernel's host is told of it.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ebpf/xdp_abi.h"
#include "switch/program.hpp"
#include "switch/program_rows.hpp"

namespace loomnet {

struct ForwardBatch;   // switch/forward, of which each program's tables are
struct LoadedProgram;  // switch/loaded, a program that was compiled when Loomnet ran

using ProgramValue = std::variant<bool, std::int64_t, double, std::string>;
using ProgramOptions = std::map<std::string, ProgramValue>;

struct ProgramOption {
  std::string_view name;
  ProgramValue fallback;  // where the option is not given; its type is the option's
  std::string_view help;
  double least = 0, most = 0;             // of a number
  std::vector<std::string_view> choices;  // of a text; empty: any
  // "bytes": users may write it as a size; "run": a run sets it, and users do not.
  std::string_view unit = "";
};

struct ProgramSettings {
  std::size_t ports = 0;
  // Of the switch. Give every switch its own, for example hash_key(seed, node, purpose): with one seed
  // for all, the leaf's ECMP choice fixes the spine's.
  std::uint64_t seed = 0;
  ProgramOptions options;  // checked: every option of the kind, with its type
  const LoadedProgram* loaded = nullptr;  // the kind's
};

// Rows of the kernel's one hash map: keys[i] belongs to values[i * value_bytes] on.
struct KernelRows {
  std::uint32_t value_bytes = sizeof(std::uint32_t);
  std::vector<ln_key> keys;
  std::vector<std::uint8_t> values;

  // Zeros fill a value that is shorter than value_bytes; none may be longer.
  template <typename Value>
  void add(const ln_key& key, const Value& value) {
    if (sizeof value > value_bytes) throw std::logic_error("KernelRows: the value is longer than a row's");
    keys.push_back(key);
    const std::size_t at = values.size();
    values.resize(at + value_bytes);
    std::memcpy(&values[at], &value, sizeof value);
  }
};

struct ProgramKind {
  std::string_view name;  // also of its object in the kernel: ebpf/NAME.bpf.c
  std::string_view summary;
  std::vector<ProgramOption> options;
  std::vector<std::string_view> counters;  // "received", the program's own, the host's
  ProgramNeeds needs;
  std::vector<EgressCounter> egress_counters;  // empty: no egress hook counts
  // Lots of rows that the egress hook keeps for each half-link; null: it keeps nothing.
  std::vector<StateLayout> (*egress_state)(const ProgramSettings&) = nullptr;
  // Throws std::invalid_argument for a number of ports that the program cannot have.
  std::unique_ptr<SwitchProgram> (*make)(const ProgramSettings&) = nullptr;
  // What the program keeps; null: nothing.
  StateLayout (*state)(const ProgramSettings&) = nullptr;
  // struct NAME_config as both builds read it.
  std::vector<std::uint8_t> (*config)(const ProgramSettings&) = nullptr;
  // Its tables from forward's and its own rows; null: it has none of its own. Throws std::invalid_argument.
  std::shared_ptr<const TableBatch> (*pack)(const ForwardBatch& forward, const ProgramRows& rows) = nullptr;
  // A batch as rows for the kernel. Throws std::invalid_argument for one that does not fit the switch.
  KernelRows (*kernel_rows)(const TableBatch&, std::size_t ports) = nullptr;
  const LoadedProgram* loaded = nullptr;  // null: a program of Loomnet's own
  std::span<const std::uint8_t> kernel_object;  // a loaded program's; empty: it was not compiled for the kernel
};

// All of the kind's options: the given ones, and for each other one its fallback. Throws
// std::invalid_argument in one line for an unknown name, a value of another type or out of range.
ProgramSettings checked_settings(const ProgramKind& kind, std::size_t ports, std::uint64_t seed,
                                 const ProgramOptions& given);

bool flag(const ProgramSettings& settings, const std::string& option);
std::int64_t integer(const ProgramSettings& settings, const std::string& option);
const std::string& text(const ProgramSettings& settings, const std::string& option);

// "a, b and c", or with another `last` word.
std::string listed(const std::vector<std::string_view>& names, std::string_view last = "and");
// The names that the host counts under, behind a program's own.
void append_host_counters(std::vector<std::string_view>& names);

template <typename Config>
std::vector<std::uint8_t> bytes_of(const Config& config) {
  const auto* first = reinterpret_cast<const std::uint8_t*>(&config);
  return {first, first + sizeof config};
}

}  // namespace loomnet
