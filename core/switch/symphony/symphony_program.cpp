// The symphony program's tables, rows and counters around the logic in ebpf/symphony.h.
#include "switch/symphony/symphony_program.hpp"

#include <array>
#include <cstddef>
#include <span>

#include "ebpf/symphony.h"
#include "switch/c_program.hpp"
#include "switch/forward/forward_kind.hpp"
#include "switch/forward/native_lookups.hpp"
#include "switch/symphony/symphony_options.hpp"
#include "switch/symphony/symphony_tables.hpp"

namespace {
const loomnet::SymphonyTables& native(const ln_tables* tables) {
  return static_cast<const loomnet::SymphonyTables&>(forward_native(tables));
}
}  // namespace

LN_INLINE const symphony_job* symphony_lookup_job(ln_tables* tables, ln_u32 job) { return native(tables).job(job); }
LN_INLINE ln_u32 symphony_lookup_address(ln_tables* tables, ln_u64 high, ln_u64 low) {
  return native(tables).address(high, low);
}
LN_INLINE const symphony_rule* symphony_lookup_flow(ln_tables* tables, ln_u64 ends, ln_u64 port) {
  return native(tables).flow(ends, port);
}

namespace loomnet {
namespace {

static_assert(sizeof(symphony_row) == 64);

struct SymphonyLogic {
  static constexpr std::string_view kName = "symphony";
  static constexpr std::string_view kSummary =
      "marks packets of senders that are ahead in their ring where they share a queue with one behind; "
      "forwards all";
  static constexpr ProgramNeeds kNeeds{};
  using Config = symphony_config;
  using Tables = SymphonyTables;

  static std::vector<ProgramOption> options() { return symphony_options(); }
  static Config config(const ProgramSettings& s) { return symphony_settings(s); }
  static std::vector<std::string_view> own_counters() { return FallsThroughToForward::forward_counters(); }
  static StateLayout state() { return {}; }
  static std::unique_ptr<const Tables> tables(const TableBatch& packed, std::size_t ports) {
    const SymphonyBatch batch = SymphonyBatch::unpack(packed);
    validate(batch, ports);
    return std::make_unique<const Tables>(batch);
  }
  static std::shared_ptr<const TableBatch> pack(const ForwardBatch& forward, const ProgramRows& rows);
  static KernelRows kernel_rows(const TableBatch& packed, std::size_t ports);
  static ln_verdict ingress(const Config& config, ln_host& host, ln_packet& packet, const ln_meta&) {
    return symphony_ingress(&config, &host, &packet);
  }

  static std::vector<EgressCounter> egress_counters() {
    std::vector<EgressCounter> all;
#define SYMPHONY_NAME(symbol, name) all.push_back({#name, SYMPHONY_##symbol == SYMPHONY_GAP});
    SYMPHONY_COUNTERS(SYMPHONY_NAME)
#undef SYMPHONY_NAME
    return all;
  }
  static std::vector<StateLayout> egress_state(const ProgramSettings& s) {
    StateLayout rings{"rings", symphony_rows(s), sizeof(symphony_row), {}};
#define SYMPHONY_FIELD(field) \
  rings.fields.push_back({#field, offsetof(symphony_row, field), sizeof(symphony_row::field)});
    SYMPHONY_ROW_FIELDS(SYMPHONY_FIELD)
#undef SYMPHONY_FIELD
    StateLayout jobs{"jobs", SYMPHONY_JOB_ROWS + 1, sizeof(symphony_tally), {}};
    jobs.fields = {{"job", offsetof(symphony_tally, job), sizeof(symphony_tally::job)},
                   {"egress", offsetof(symphony_tally, egress), sizeof(symphony_tally::egress)}};
#define SYMPHONY_FIELD(symbol, name)                                                          \
  jobs.fields.push_back({#name,                                                               \
                         static_cast<std::uint32_t>(offsetof(symphony_tally, counters) +      \
                                                    SYMPHONY_##symbol * sizeof(std::uint64_t)), \
                         sizeof(std::uint64_t)});
    SYMPHONY_COUNTERS(SYMPHONY_FIELD)
#undef SYMPHONY_FIELD
    return {rings, jobs};
  }
  static std::span<const std::string_view> egress_notes() {
#define SYMPHONY_NAME(name) #name,
    static constexpr std::array<std::string_view, SYMPHONY_NOTE_COUNT> kNames = {SYMPHONY_NOTES(SYMPHONY_NAME)};
#undef SYMPHONY_NAME
    return kNames;
  }
  static bool watches(const Config& config, const EgressPlace& place) { return config.hosts || !place.to_host; }
  static ln_u32 egress(const Config& config, ln_egress_host& host, ln_packet& packet, const ln_egress_meta& meta) {
    return symphony_egress(&config, &host, &packet, &meta);
  }
};

// All rows have the length of the longest, a rule's.
std::shared_ptr<const TableBatch> SymphonyLogic::pack(const ForwardBatch& forward, const ProgramRows& rows) {
  check_tables(rows, {"jobs", "rules"});
  SymphonyBatch batch;
  batch.forward = forward;
  for (const ProgramRow& row : rows_of(rows, "jobs")) batch.jobs.push_back(symphony_job_of(row));
  for (const ProgramRow& row : rows_of(rows, "rules")) batch.rules.push_back(symphony_rule_of(row));
  return batch.pack();
}

KernelRows SymphonyLogic::kernel_rows(const TableBatch& packed, std::size_t ports) {
  const SymphonyBatch batch = SymphonyBatch::unpack(packed);
  validate(batch, ports);
  KernelRows rows = forward_kernel_rows(*batch.forward.pack(), ports, sizeof(symphony_rule));
  const SymphonyTables tables(batch);
  for (const SymphonyBatch::Job& job : batch.jobs) {
    rows.add({SYMPHONY_TABLE_JOB, 0, job.job, 0}, *tables.job(job.job));
  }
  for (const Ipv6Address& each : symphony_addresses(batch)) {
    const auto [high, low] = SymphonyTables::key_of(each);
    rows.add({SYMPHONY_TABLE_ADDRESS, 0, high, low}, tables.address(high, low));
  }
  for (const SymphonyBatch::Rule& rule : batch.rules) {
    const auto [ends, port] = tables.key_of(rule);
    rows.add({SYMPHONY_TABLE_FLOW, 0, ends, port}, *tables.flow(ends, port));
  }
  return rows;
}

}  // namespace

ProgramKind symphony_kind() { return CProgram<SymphonyLogic>::kind(); }

}  // namespace loomnet
