// Packs, unpacks and checks the symphony program's tables.
#include "switch/symphony/symphony_batch.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>
#include <tuple>

#include "packet/bytes.hpp"

namespace loomnet {
namespace {

constexpr std::uint64_t kMost = 0x7fffffff;  // of what serial arithmetic can compare

// Packed: bytes of forward's batch (u32), those bytes, the numbers of jobs and rules (u16 each), then
// each job and each rule, in network byte order.
constexpr std::size_t kJobBytes = 2 + 1 + 1 + 4;
constexpr std::size_t kRuleBytes = 2 * sizeof(Ipv6Address) + 1 + 4 + 4 * 2 + 1 + 4 + 2 + 1 + 4;

[[noreturn]] void refuse(const char* rows, std::size_t row, const std::string& why) {
  throw std::invalid_argument("SymphonyBatch." + std::string(rows) + ": row " + std::to_string(row) + ": " + why);
}

void check(const SymphonyBatch::Rule& rule, std::size_t row) {
  if (rule.nranks < 2 || rule.nranks > SYMPHONY_MAX_RANKS) {
    refuse("rules", row, "nranks: 2 to 8,192, not " + std::to_string(rule.nranks));
  }
  if (rule.rank >= rule.nranks) {
    refuse("rules", row, "rank " + std::to_string(rule.rank) + " of " + std::to_string(rule.nranks));
  }
  const std::uint64_t ring = 2ull * rule.nranks;
  if (rule.step_bytes == 0) {
    if (rule.carrier != SymphonyBatch::Carrier::udp) refuse("rules", row, "step_bytes: 1 or more");
    if (ring << 20 > kMost) refuse("rules", row, "nranks: fewer than 1,024 with a 12-bit step");
  } else if (ring * rule.step_bytes > kMost) {
    refuse("rules", row, "2 * nranks * step_bytes must stay below 2^31: a longer lead cannot be told from a lag");
  }
  if (rule.carrier == SymphonyBatch::Carrier::roce) {
    if (!std::has_single_bit(rule.mtu) || rule.mtu < 256) {
      refuse("rules", row, "mtu: a power of two of 256 or more, not " + std::to_string(rule.mtu));
    }
    if (!rule.known) refuse("rules", row, "base: no packet says RoCE's first PSN; give it");
  }
}

}  // namespace

std::shared_ptr<const TableBatch> SymphonyBatch::pack() const {
  const auto routes = forward.pack();
  if (jobs.size() > 0xffff || rules.size() > 0xffff) {
    throw std::invalid_argument("SymphonyBatch: at most 65,535 jobs and rules");
  }
  auto batch = std::make_shared<TableBatch>();
  batch->generation = forward.generation;
  batch->bytes.resize(4 + routes->bytes.size() + 4 + jobs.size() * kJobBytes + rules.size() * kRuleBytes);
  ByteWriter out(batch->bytes);
  out.u32(static_cast<std::uint32_t>(routes->bytes.size()));
  out.copy(routes->bytes);
  out.u16(static_cast<std::uint16_t>(jobs.size()));
  out.u16(static_cast<std::uint16_t>(rules.size()));
  for (const Job& job : jobs) {
    out.u16(job.job), out.u8(job.enable), out.u8(static_cast<std::uint8_t>(job.mode)), out.u32(job.g);
  }
  for (const Rule& rule : rules) {
    out.copy(rule.source), out.copy(rule.destination);
    out.u8(static_cast<std::uint8_t>(rule.carrier)), out.u32(rule.port);
    out.u16(rule.job), out.u16(rule.ring), out.u16(rule.rank), out.u16(rule.nranks), out.u8(rule.gen);
    out.u32(rule.step_bytes), out.u16(rule.mtu), out.u8(rule.known), out.u32(rule.base);
  }
  return batch;
}

SymphonyBatch SymphonyBatch::unpack(const TableBatch& batch) {
  ByteReader in(batch.bytes);
  SymphonyBatch out;
  const auto refused = [&] {
    throw std::invalid_argument("SymphonyBatch: " + std::to_string(batch.bytes.size()) +
                                " bytes do not hold the rows that they count");
  };
  const std::uint32_t routes = in.u32();
  if (!in.ok() || routes > in.remaining()) refused();
  const auto first = batch.bytes.begin() + 4;
  out.forward = ForwardBatch::unpack({batch.generation, {first, first + routes}, {}});
  in.skip(routes);
  const std::size_t jobs = in.u16(), rules = in.u16();
  if (!in.ok() || jobs * kJobBytes + rules * kRuleBytes != in.remaining()) refused();
  for (std::size_t i = 0; i < jobs; ++i) {
    Job job;
    job.job = in.u16();
    const std::uint8_t enable = in.u8(), mode = in.u8();
    if (enable > 1 || mode > SYMPHONY_PROB) refused();
    job.enable = enable, job.mode = static_cast<symphony_mode>(mode);
    job.g = in.u32();
    out.jobs.push_back(job);
  }
  for (std::size_t i = 0; i < rules; ++i) {
    Rule rule;
    in.copy(rule.source), in.copy(rule.destination);
    const std::uint8_t carrier = in.u8();
    if (carrier != SYMPHONY_UDP_FLOW && carrier != SYMPHONY_TCP_FLOW && carrier != SYMPHONY_ROCE) refused();
    rule.carrier = static_cast<Carrier>(carrier), rule.port = in.u32();
    rule.job = in.u16(), rule.ring = in.u16(), rule.rank = in.u16(), rule.nranks = in.u16();
    rule.gen = in.u8(), rule.step_bytes = in.u32(), rule.mtu = in.u16();
    const std::uint8_t known = in.u8();
    if (known > 1) refused();
    rule.known = known, rule.base = in.u32();
    out.rules.push_back(rule);
  }
  if (!in.ok() || in.remaining() != 0) refused();
  return out;
}

void validate(const SymphonyBatch& batch, std::size_t ports) {
  validate(batch.forward, ports);
  std::vector<std::uint16_t> jobs;
  for (std::size_t i = 0; i < batch.jobs.size(); ++i) {
    if (batch.jobs[i].g > kMost) refuse("jobs", i, "g: less than 2^31");
    jobs.push_back(batch.jobs[i].job);
  }
  std::sort(jobs.begin(), jobs.end());
  if (const auto twice = std::adjacent_find(jobs.begin(), jobs.end()); twice != jobs.end()) {
    throw std::invalid_argument("SymphonyBatch.jobs: job " + std::to_string(*twice) + " stands twice");
  }
  std::vector<std::tuple<Ipv6Address, Ipv6Address, std::uint8_t, std::uint32_t, std::size_t>> flows;
  for (std::size_t i = 0; i < batch.rules.size(); ++i) {
    const SymphonyBatch::Rule& rule = batch.rules[i];
    check(rule, i);
    flows.emplace_back(rule.source, rule.destination, static_cast<std::uint8_t>(rule.carrier), rule.port, i);
  }
  std::sort(flows.begin(), flows.end());
  for (std::size_t i = 1; i < flows.size(); ++i) {
    const auto& [source, destination, carrier, port, row] = flows[i];
    const auto& before = flows[i - 1];
    if (std::get<0>(before) == source && std::get<1>(before) == destination && std::get<2>(before) == carrier &&
        std::get<3>(before) == port) {
      refuse("rules", row, "its flow is row " + std::to_string(std::get<4>(before)) + "'s too");
    }
  }
}

std::vector<symphony_rule> symphony_rules(const SymphonyBatch& batch) {
  std::vector<symphony_rule> rows;
  for (const SymphonyBatch::Rule& rule : batch.rules) {
    symphony_rule row{};
    row.job = rule.job, row.ring = rule.ring, row.rank = rule.rank, row.nranks = rule.nranks;
    row.number = static_cast<std::uint32_t>(rows.size());
    row.base = rule.base, row.gen = rule.gen, row.known = rule.known;
    row.unit = rule.step_bytes ? rule.step_bytes : 1u << 20;
    row.span = std::bit_ceil(row.unit);
    if (rule.carrier == SymphonyBatch::Carrier::roce) {
      row.mtu = static_cast<ln_u8>(std::countr_zero(rule.mtu));
    }
    rows.push_back(row);
  }
  return rows;
}

std::vector<Ipv6Address> symphony_addresses(const SymphonyBatch& batch) {
  std::vector<Ipv6Address> all;
  for (const SymphonyBatch::Rule& rule : batch.rules) {
    all.push_back(rule.source);
    all.push_back(rule.destination);
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

SymphonyBatch::Job symphony_job_of(const ProgramRow& row) {
  return {row.number<std::uint16_t>("job"), row.number<bool>("enable"),
          row.number<bool>("prob") ? SYMPHONY_PROB : SYMPHONY_SPACED, row.number<std::uint32_t>("g")};
}

SymphonyBatch::Rule symphony_rule_of(const ProgramRow& row) {
  using Named = std::pair<std::string_view, SymphonyBatch::Carrier>;
  static constexpr Named kCarriers[] = {{"udp", SymphonyBatch::Carrier::udp},
                                        {"tcp", SymphonyBatch::Carrier::tcp},
                                        {"roce", SymphonyBatch::Carrier::roce}};
  SymphonyBatch::Rule rule;
  rule.source = address_of(row.text("source"));
  rule.destination = address_of(row.text("destination"));
  const std::string& carrier = row.text("carrier");
  const auto known = std::ranges::find(kCarriers, std::string_view(carrier), &Named::first);
  if (known == std::end(kCarriers)) {
    throw std::invalid_argument("rules: carrier: udp, tcp or roce, not \"" + carrier + "\"");
  }
  rule.carrier = known->second;
  rule.port = row.number_if<std::uint32_t>("port").value_or(SYMPHONY_ANY_PORT);
  rule.job = row.number<std::uint16_t>("job");
  rule.ring = row.number<std::uint16_t>("ring");
  rule.rank = row.number<std::uint16_t>("rank");
  rule.nranks = row.number<std::uint16_t>("nranks");
  rule.gen = row.number<std::uint8_t>("gen");
  rule.step_bytes = row.number<std::uint32_t>("step_bytes");
  rule.mtu = row.number<std::uint16_t>("mtu");
  const auto base = row.number_if<std::uint32_t>("base");
  rule.known = base.has_value();
  rule.base = base.value_or(0);
  return rule;
}

}  // namespace loomnet
