// The aggregation program's options, counters, tables and state around the logic in ebpf/aggregate.h.
#include "switch/aggregate/aggregate_program.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "ebpf/aggregate.h"
#include "switch/aggregate/aggregate_tables.hpp"
#include "switch/c_program.hpp"
#include "switch/forward/forward_kind.hpp"
#include "switch/forward/native_lookups.hpp"

namespace {
const loomnet::AggregateTables& native(const ln_tables* tables) {
  return static_cast<const loomnet::AggregateTables&>(forward_native(tables));
}
}  // namespace

LN_INLINE const aggregate_job* aggregate_lookup_job(ln_tables* tables, ln_u32 job) { return native(tables).job(job); }
LN_INLINE ln_u64 aggregate_lookup_below(ln_tables* tables, ln_u32 job, ln_u32 port) {
  return native(tables).below(job, port);
}
LN_INLINE ln_u32 aggregate_lookup_worker(ln_tables* tables, ln_u32 job, ln_u32 worker) {
  return native(tables).worker(job, worker);
}
LN_INLINE ln_u32 aggregate_lookup_hop(ln_tables* tables, ln_u32 job, ln_u32 hop) {
  return native(tables).hop(job, hop);
}

namespace loomnet {
namespace {

constexpr std::array<std::string_view, 3> kDealloc = {"completion", "ack", "lazy"};

template <std::size_t N>
std::uint8_t place(const std::array<std::string_view, N>& names, std::string_view name) {
  return static_cast<std::uint8_t>(std::find(names.begin(), names.end(), name) - names.begin());
}

struct AggregateLogic {
  static constexpr std::string_view kName = "aggregate";
  static constexpr std::string_view kSummary =
      "sums gradient fragments by the rules of SwitchML, ATP or ESA, forwards the rest";
  static constexpr ProgramNeeds kNeeds{
      .view = true, .header_bytes = AGGREGATE_PAYLOAD_AT, .payload_bytes = 4 * AGGREGATE_MAX_VALUES};
  using Config = aggregate_config;
  using Tables = AggregateTables;

  static std::vector<ProgramOption> options() {
    std::vector<ProgramOption> all = FallsThroughToForward::forward_options();
    all.push_back({"policy", std::string("esa"), "whose rules", 0, 0, aggregate_policy_names<std::string_view>()});
    all.push_back({"pool", std::int64_t{5'000'000}, "bytes of the pool; 0: nothing is summed", 0, 1e9, {}, "bytes"});
    all.push_back({"values", std::int64_t{256}, "int32 in a fragment: 64, 128 or 256", 64, 256});
    all.push_back({"dealloc",
                   std::string(),
                   "when a slot is free again: once its sum has left (completion, ESA's default), "
                   "once the result has passed (ack, ATP's), or then or when another wants it (lazy)",
                   0,
                   0,
                   {"", "completion", "ack", "lazy"}});
    all.push_back(
        {"downgrade", std::int64_t{1}, "ESA: bits by which a slot that resists loses priority; 0: none", 0, 7});
    all.push_back({"downgrade_every", std::int64_t{1}, "ESA: failed attempts for each loss of priority", 1, 255});
    all.push_back({"saturate", false, "additions stop at the int32 range and set OVERFLOW"});
    all.push_back({"generation_check", true,
                   "SwitchML: packets of an older turn of their slot are dropped; the published "
                   "program does not, and is wrong where packets overtake one another"});
    all.push_back({"hop", std::int64_t{0}, "the switch's number, for reminders", 0, 65535, {}, "run"});
    return all;
  }
  static Config config(const ProgramSettings& s) {
    Config config{};
    config.forward = FallsThroughToForward::forward_settings(s);
    config.values = static_cast<ln_u32>(integer(s, "values"));
    if (config.values != 64 && config.values != 128 && config.values != 256) {
      throw std::invalid_argument("switch program \"aggregate\": values: 64, 128 or 256, not " +
                                  std::to_string(config.values));
    }
    config.slots = static_cast<ln_u32>(integer(s, "pool")) / AGGREGATE_SLOT_BYTES(config.values);
    if (config.slots == 0 && integer(s, "pool") != 0) {
      throw std::invalid_argument("switch program \"aggregate\": pool: " + std::to_string(integer(s, "pool")) +
                                  " bytes are less than a slot, " +
                                  std::to_string(AGGREGATE_SLOT_BYTES(config.values)) +
                                  " for these values; 0: nothing is summed");
    }
    const std::vector<std::string> names = aggregate_policy_names<std::string>();
    config.policy = static_cast<ln_u8>(std::find(names.begin(), names.end(), text(s, "policy")) - names.begin());
    const aggregate_policy& policy = aggregate_policies[config.policy];
    config.preempts = policy.preempts;
    config.resends = policy.resends;
    const std::string& dealloc = text(s, "dealloc");
    config.dealloc = dealloc.empty() ? static_cast<ln_u8>(policy.dealloc) : place(kDealloc, dealloc);
    config.downgrade = static_cast<ln_u8>(integer(s, "downgrade"));
    config.downgrade_every = static_cast<ln_u8>(integer(s, "downgrade_every"));
    config.saturate = flag(s, "saturate");
    config.generation_check = flag(s, "generation_check");
    config.hop = static_cast<ln_u16>(integer(s, "hop"));
    return config;
  }
  static std::vector<std::string_view> own_counters() {
    std::vector<std::string_view> names = FallsThroughToForward::forward_counters();
#define AGGREGATE_NAME(symbol, name) names.push_back(name);
    AGGREGATE_COUNTERS(AGGREGATE_NAME)
#undef AGGREGATE_NAME
    return names;
  }
  static StateLayout state(const ProgramSettings& s) {
    StateLayout layout{"slots", config(s).slots, sizeof(aggregate_slot), {}};
#define AGGREGATE_FIELD(field)                                                                  \
  layout.fields.push_back({#field, offsetof(aggregate_slot, field), sizeof(aggregate_slot::field), \
                           std::is_integral_v<decltype(aggregate_slot::field)>});
    AGGREGATE_FIELDS(AGGREGATE_FIELD)
#undef AGGREGATE_FIELD
    return layout;
  }
  static std::unique_ptr<const Tables> tables(const TableBatch& packed, std::size_t ports) {
    const AggregateBatch batch = AggregateBatch::unpack(packed);
    validate(batch, ports);
    return std::make_unique<const AggregateTables>(batch, ports);
  }
  static std::shared_ptr<const TableBatch> pack(const ForwardBatch& forward, const ProgramRows& rows);
  static KernelRows kernel_rows(const TableBatch& packed, std::size_t ports);
  static ln_verdict ingress(const Config& config, ln_host& host, ln_packet& packet, const ln_meta& meta) {
    return aggregate_ingress(&config, &host, &packet, &meta);
  }
};

std::shared_ptr<const TableBatch> AggregateLogic::pack(const ForwardBatch& forward, const ProgramRows& rows) {
  check_tables(rows, {"jobs"});
  AggregateBatch batch;
  batch.forward = forward;
  for (const ProgramRow& row : rows_of(rows, "jobs")) batch.jobs.push_back(aggregate_job_of(row));
  return batch.pack();
}

// All rows have the length of the longest, a job's.
KernelRows AggregateLogic::kernel_rows(const TableBatch& packed, std::size_t ports) {
  const AggregateBatch batch = AggregateBatch::unpack(packed);
  validate(batch, ports);
  KernelRows rows = forward_kernel_rows(*batch.forward.pack(), ports, sizeof(aggregate_job));
  const std::vector<aggregate_job> places = aggregate_rows(batch);
  for (std::size_t i = 0; i < batch.jobs.size(); ++i) {
    const AggregateBatch::Job& job = batch.jobs[i];
    const std::uint64_t number = job.job;
    rows.add({AGGREGATE_TABLE_JOB, 0, number, 0}, places[i]);
    for (const auto& child : job.children) {
      rows.add({AGGREGATE_TABLE_BELOW, 0, number << 16 | child.port, 0}, child.workers);
      const std::uint32_t port = AGGREGATE_FOUND | child.port;
      for (std::uint64_t w = 0; w < AGGREGATE_MAX_WORKERS; ++w) {
        if (child.workers >> w & 1) rows.add({AGGREGATE_TABLE_WORKER, 0, number << 16 | w, 0}, port);
      }
    }
    for (const auto& hop : job.hops) {
      const std::uint32_t port = AGGREGATE_FOUND | hop.port;
      rows.add({AGGREGATE_TABLE_HOP, 0, number << 16 | hop.hop, 0}, port);
    }
  }
  return rows;
}

}  // namespace

ProgramKind aggregate_kind() { return CProgram<AggregateLogic>::kind(); }

}  // namespace loomnet
