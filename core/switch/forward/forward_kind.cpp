// Packs forward's rows for the kernel as ebpf/forward_abi.h says, and describes its options.
#include "switch/forward/forward_kind.hpp"

#include <set>

#include "switch/forward/forward_batch.hpp"
#include "switch/forward/forward_program.hpp"

namespace loomnet {
namespace {

ForwardSettings settings_of(const ProgramSettings& s) {
  return {.hash_seed = s.seed, .options = FallsThroughToForward::forward_settings(s).options};
}

}  // namespace

std::vector<ProgramOption> FallsThroughToForward::forward_options() {
  return {{"check_addresses", true, "drop packets from and to addresses that cannot be routed"},
          {"allow_stale_length", false, "let an IPv6 payload length point beyond the frame's end"}};
}

forward_config FallsThroughToForward::forward_settings(const ProgramSettings& settings) {
  forward_config config{};
  config.hash_seed = settings.seed;
  config.options = (flag(settings, "check_addresses") ? FORWARD_CHECK_ADDRESSES : 0) |
                   (flag(settings, "allow_stale_length") ? FORWARD_ALLOW_STALE_LENGTH : 0);
  return config;
}

std::vector<std::string_view> FallsThroughToForward::forward_counters() {
  std::vector<std::string_view> names;
  for (std::size_t i = 0; i < FORWARD_OWN_COUNTERS; ++i) names.push_back(forward_counter_name(i));
  return names;
}

std::unique_ptr<const LookupTables> FallsThroughToForward::tables(const TableBatch& batch, std::size_t ports) {
  const ForwardBatch rows = ForwardBatch::unpack(batch);
  validate(rows, ports);
  return std::make_unique<const LookupTables>(rows);
}

KernelRows FallsThroughToForward::kernel_rows(const TableBatch& batch, std::size_t ports) {
  return forward_kernel_rows(batch, ports);
}

KernelRows forward_kernel_rows(const TableBatch& packed, std::size_t ports, std::uint32_t value_bytes) {
  const ForwardBatch batch = ForwardBatch::unpack(packed);
  validate(batch, ports);
  KernelRows rows{value_bytes, {}, {}};
  const auto add = [&rows](std::uint32_t table, std::uint64_t high, std::uint64_t low, std::uint32_t value) {
    rows.add({table, 0, high, low}, value);
  };
  add(LN_TABLE_GENERATION, 0, 0, batch.generation);
  std::set<UsidKey> own;
  for (const UsidKey& key : batch.own_un) {
    own.insert(key);
    add(FORWARD_TABLE_SID, key.packed(), 0, FORWARD_SID_UN);
  }
  for (const auto& route : batch.own_ua) {
    own.insert(route.key);
    add(FORWARD_TABLE_SID, route.key.packed(), 0, FORWARD_SID_UA | route.port);
  }
  for (const auto& route : batch.fib) {
    if (own.contains(route.key)) continue;  // own SIDs win
    add(FORWARD_TABLE_SID, route.key.packed(), 0, FORWARD_SID_FIB | route.port);
  }
  for (const auto& host : batch.hosts) {
    const auto size = static_cast<std::uint32_t>(batch.groups.at(host.group).size());
    add(FORWARD_TABLE_HOST, ln_load_be64(host.address.data()), ln_load_be64(host.address.data() + 8),
        forward_host_row(host.group, size));
  }
  for (std::size_t group = 0; group < batch.groups.size(); ++group) {
    for (std::size_t i = 0; i < batch.groups[group].size(); ++i) {
      add(FORWARD_TABLE_MEMBER, group, i, FORWARD_FOUND | batch.groups[group][i]);
    }
  }
  return rows;
}

ProgramKind forward_kind() {
  ProgramKind kind{.name = "forward",
                   .summary = "SRv6 uSID shift-and-forward, and plain IPv6 by ECMP",
                   .options = FallsThroughToForward::forward_options()};
  for (std::size_t i = 0; i < FORWARD_COUNTER_COUNT; ++i) {
    kind.counters.push_back(forward_counter_name(i));
  }
  kind.make = [](const ProgramSettings& s) -> std::unique_ptr<SwitchProgram> {
    return std::make_unique<ForwardProgram>(s.ports, settings_of(s));
  };
  kind.config = [](const ProgramSettings& s) { return bytes_of(FallsThroughToForward::forward_settings(s)); };
  kind.kernel_rows = FallsThroughToForward::kernel_rows;
  return kind;
}

}  // namespace loomnet
