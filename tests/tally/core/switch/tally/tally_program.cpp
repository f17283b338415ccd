// The tally program: counts packets that come in by a port which its rows list, and forwards all.
#include <set>

#include "ebpf/tally.h"
#include "packet/bytes.hpp"
#include "switch/c_program.hpp"
#include "switch/forward/forward_kind.hpp"
#include "switch/forward/native_lookups.hpp"

namespace loomnet {
ProgramKind tally_kind();
namespace {

struct TallyTables : LookupTables {
  TallyTables(const ForwardBatch& forward, std::set<std::uint32_t> listed)
      : LookupTables(forward), ports(std::move(listed)) {}
  std::set<std::uint32_t> ports;
};

// Packed: the length of forward's batch (u32), that batch, and each port (u32).
std::pair<TableBatch, std::set<std::uint32_t>> unpacked(const TableBatch& packed) {
  ByteReader in(packed.bytes);
  const std::uint32_t length = in.u32();
  if (!in.ok() || length > in.remaining() || (in.remaining() - length) % 4 != 0) {
    throw std::invalid_argument("tally: not a batch of this program");
  }
  const auto first = packed.bytes.begin() + 4;
  TableBatch forward{packed.generation, {first, first + length}, {}};
  in.skip(length);
  std::set<std::uint32_t> ports;
  while (in.remaining() > 0) ports.insert(in.u32());
  return {std::move(forward), std::move(ports)};
}

}  // namespace
}  // namespace loomnet

LN_INLINE ln_u32 tally_lookup_port(ln_tables* tables, ln_u32 port) {
  return static_cast<const loomnet::TallyTables&>(forward_native(tables)).ports.contains(port);
}

namespace loomnet {
namespace {

struct TallyLogic {
  static constexpr std::string_view kName = "tally";
  static constexpr std::string_view kSummary = "of a test: counts packets from listed ports, forwards all";
  static constexpr ProgramNeeds kNeeds{};
  using Config = tally_config;
  using Tables = TallyTables;
  static std::vector<ProgramOption> options() { return FallsThroughToForward::forward_options(); }
  static Config config(const ProgramSettings& s) { return {FallsThroughToForward::forward_settings(s)}; }
  static std::vector<std::string_view> own_counters() {
    std::vector<std::string_view> names = FallsThroughToForward::forward_counters();
    names.push_back("counted");
    return names;
  }
  static StateLayout state() { return {}; }
  static std::shared_ptr<const TableBatch> pack(const ForwardBatch& forward, const ProgramRows& rows) {
    check_tables(rows, {"ports"});
    const auto routes = forward.pack();
    const std::vector<ProgramRow>& ports = rows_of(rows, "ports");
    auto batch = std::make_shared<TableBatch>();
    batch->generation = forward.generation;
    batch->bytes.resize(4 + routes->bytes.size() + 4 * ports.size());
    ByteWriter out(batch->bytes);
    out.u32(static_cast<std::uint32_t>(routes->bytes.size()));
    out.copy(routes->bytes);
    for (const ProgramRow& row : ports) out.u32(row.number<std::uint32_t>("port"));
    return batch;
  }
  static std::unique_ptr<const Tables> tables(const TableBatch& packed, std::size_t ports) {
    auto [forward, listed] = unpacked(packed);
    const ForwardBatch batch = ForwardBatch::unpack(forward);
    validate(batch, ports);
    return std::make_unique<const Tables>(batch, std::move(listed));
  }
  static KernelRows kernel_rows(const TableBatch& packed, std::size_t ports) {
    const auto [forward, listed] = unpacked(packed);
    KernelRows rows = forward_kernel_rows(forward, ports);
    for (const std::uint32_t port : listed) rows.add({TALLY_TABLE_PORT, 0, port, 0}, std::uint32_t{1});
    return rows;
  }
  static ln_verdict ingress(const Config& config, ln_host& host, ln_packet& packet, const ln_meta& meta) {
    return tally_ingress(&config, &host, &packet, &meta);
  }
};

}  // namespace

ProgramKind tally_kind() { return CProgram<TallyLogic>::kind(); }

}  // namespace loomnet
