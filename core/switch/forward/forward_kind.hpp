// The forward program by name, and its tables and options as part of another program that falls
// through to it.
#pragma once

#include <memory>
#include <vector>

#include "ebpf/forward_abi.h"
#include "switch/forward/lookup_tables.hpp"
#include "switch/program_kind.hpp"

namespace loomnet {

ProgramKind forward_kind();

// A batch as rows of the kernel's one hash map: SIDs, hosts, group members and the generation. Throws
// std::invalid_argument for a batch that does not fit a switch of `ports` ports. `value_bytes`: of a row,
// for a program that adds rows of its own with longer values.
KernelRows forward_kernel_rows(const TableBatch& batch, std::size_t ports,
                               std::uint32_t value_bytes = sizeof(std::uint32_t));

// For a program that falls through to ebpf/forward.h and has no tables of its own: a base of its Logic.
struct FallsThroughToForward {
  using Tables = LookupTables;
  static std::vector<ProgramOption> forward_options();
  static forward_config forward_settings(const ProgramSettings& settings);
  static std::vector<std::string_view> forward_counters();  // forward's own, without the host's
  static std::unique_ptr<const LookupTables> tables(const TableBatch& batch, std::size_t ports);
  static KernelRows kernel_rows(const TableBatch& batch, std::size_t ports);
};

}  // namespace loomnet
