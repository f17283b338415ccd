// A switch program that was compiled when Loomnet ran, from one C file of a user's (ebpf/switch_program.h). Its
// name, counters, options and rows are read from the compiled object; its code is called through a C function.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "switch/program_kind.hpp"

namespace loomnet {

struct LoadedProgram {
  // ln_switch_program of the object. `config`: struct ln_config_.
  using Entry = ln_verdict(const void* config, ln_host* host, ln_packet* packet, const ln_meta* meta);
  struct Option {
    std::string name, unit;
    std::int64_t fallback = 0, least = 0, most = 0;
  };
  struct Field {
    std::string name;
    std::uint32_t offset = 0, bytes = 0;
    bool number = true;
  };

  std::string name;     // of the kind: the file's, and a hash of what was compiled
  std::string file;     // as messages name it
  std::string summary;
  std::vector<std::string> counters;  // its own, without forward's
  std::vector<Option> options;
  std::vector<Field> fields;  // of a state row
  std::uint32_t rows = 0, row_bytes = 0;
  std::uint32_t config_bytes = 0;
  std::uint32_t payload_at = 0, payload_bytes = 0;
  Entry* entry = nullptr;  // null: this process does not run its code, and `refusal` says why
  std::string refusal;
  // ln_switch_no_counter of the object: 1 + the number that it gave to ln_count, where no counter has it; else 0.
  std::uint64_t* no_counter = nullptr;

  // Loads the object at `path` into this process. Its code then has all the rights of this process.
  // Throws std::invalid_argument for an object of another contract.
  void load(const std::string& path);
};

// The kind refers to the program, which must stay.
ProgramKind loaded_kind(const LoadedProgram& program);

}  // namespace loomnet
