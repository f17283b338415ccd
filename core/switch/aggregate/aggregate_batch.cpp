// Packs, unpacks and checks the aggregation program's tables.
#include "switch/aggregate/aggregate_batch.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "packet/bytes.hpp"

namespace loomnet {
namespace {

[[noreturn]] void refuse(const AggregateBatch::Job& job, const std::string& field, const std::string& why) {
  throw std::invalid_argument("AggregateBatch.jobs: job " + std::to_string(job.job) + ": " + field + ": " + why);
}

// Packed: bytes of forward's batch (u32), those bytes, the number of jobs (u16), then each job, in
// network byte order.
constexpr std::size_t kJobBytes = 2 + 1 + 1 + 4 + 4 + 2 + sizeof(Ipv6Address) + 2 + 2;
constexpr std::size_t kChildBytes = 2 + 8;
constexpr std::size_t kHopBytes = 2 + 2;

void write(ByteWriter& out, const AggregateBatch::Job& job) {
  out.u16(job.job);
  out.u8(static_cast<std::uint8_t>(job.scheme));
  out.u8(static_cast<std::uint8_t>(job.root));
  out.u32(job.window);
  out.u32(job.base);
  out.u16(job.up);
  out.copy(job.server);
  out.u16(static_cast<std::uint16_t>(job.children.size()));
  out.u16(static_cast<std::uint16_t>(job.hops.size()));
  for (const auto& child : job.children) out.u16(child.port), out.u64(child.workers);
  for (const auto& hop : job.hops) out.u16(hop.hop), out.u16(hop.port);
}

AggregateBatch::Job read(ByteReader& in) {
  AggregateBatch::Job job;
  job.job = in.u16();
  job.scheme = static_cast<aggregate_scheme>(in.u8());
  const std::uint8_t root = in.u8();
  job.root = static_cast<aggregate_root>(root);
  job.window = in.u32();
  job.base = in.u32();
  job.up = in.u16();
  in.copy(job.server);
  const std::size_t children = in.u16(), hops = in.u16();
  if (root > AGGREGATE_ANSWERS || children * kChildBytes + hops * kHopBytes > in.remaining()) {
    in.skip(in.remaining() + 1);
    return job;
  }
  for (std::size_t i = 0; i < children; ++i) {
    const SwitchPort port = in.u16();
    job.children.push_back({port, in.u64()});
  }
  for (std::size_t i = 0; i < hops; ++i) {
    const std::uint16_t hop = in.u16();
    job.hops.push_back({hop, in.u16()});
  }
  return job;
}

}  // namespace

std::shared_ptr<const TableBatch> AggregateBatch::pack() const {
  const auto routes = forward.pack();
  std::size_t size = 4 + routes->bytes.size() + 2;
  auto batch = std::make_shared<TableBatch>();
  batch->generation = forward.generation;
  if (jobs.size() > 0xffff) throw std::invalid_argument("AggregateBatch.jobs: at most 65,535");
  for (const Job& job : jobs) {
    if (job.children.size() > 0xffff) refuse(job, "children", "at most 65,535");
    if (job.hops.size() > 0xffff) refuse(job, "hops", "at most 65,535");
    size += kJobBytes + job.children.size() * kChildBytes + job.hops.size() * kHopBytes;
    auto& group = batch->groups.emplace_back();
    for (const Child& child : job.children) group.push_back(child.port);
  }
  for (const Job& job : jobs) {
    if (job.root != AGGREGATE_ANSWERS) continue;
    auto& group = batch->groups.emplace_back(batch->groups[static_cast<std::size_t>(&job - jobs.data())]);
    if (std::find(group.begin(), group.end(), job.up) == group.end()) group.push_back(job.up);
  }
  if (batch->groups.size() > 0xffff) throw std::invalid_argument("AggregateBatch.jobs: at most 65,535 groups");
  batch->bytes.resize(size);
  ByteWriter out(batch->bytes);
  out.u32(static_cast<std::uint32_t>(routes->bytes.size()));
  out.copy(routes->bytes);
  out.u16(static_cast<std::uint16_t>(jobs.size()));
  for (const Job& job : jobs) write(out, job);
  return batch;
}

AggregateBatch AggregateBatch::unpack(const TableBatch& batch) {
  ByteReader in(batch.bytes);
  AggregateBatch out;
  const std::uint32_t routes = in.u32();
  const auto refused = [&] {
    throw std::invalid_argument("AggregateBatch: " + std::to_string(batch.bytes.size()) +
                                " bytes do not hold the rows that they count");
  };
  if (!in.ok() || routes > in.remaining()) refused();
  const auto first = batch.bytes.begin() + 4;
  TableBatch forward{batch.generation, {first, first + routes}, {}};
  out.forward = ForwardBatch::unpack(forward);
  in.skip(routes);
  const std::size_t jobs = in.u16();
  if (jobs * kJobBytes > in.remaining()) refused();
  for (std::size_t i = 0; i < jobs && in.ok(); ++i) out.jobs.push_back(read(in));
  if (!in.ok() || in.remaining() != 0) refused();
  return out;
}

void validate(const AggregateBatch& batch, std::size_t ports) {
  validate(batch.forward, ports);
  std::vector<std::uint16_t> numbers;
  for (const AggregateBatch::Job& job : batch.jobs) {
    const auto check_port = [&](const std::string& field, SwitchPort port) {
      if (port >= ports) {
        refuse(job, field, "port " + std::to_string(port) + " of a switch of " + std::to_string(ports));
      }
    };
    numbers.push_back(job.job);
    if (job.job == 0xffff) refuse(job, "job", "at most 65,534");  // a slot keeps its owner plus one
    if (job.scheme >= AGGREGATE_SCHEMES) refuse(job, "scheme", "0 to " + std::to_string(AGGREGATE_SCHEMES - 1));
    const aggregate_policy& policy = aggregate_policies[job.scheme];
    if (job.window == 0 || job.window > 1u << 30) refuse(job, "window", "1 to 2^30");
    check_port("up", job.up);
    if (job.root == AGGREGATE_ANSWERS && policy.answering != AGGREGATE_ROOT_MAY_ANSWER) {
      refuse(job, "root", std::string("under ") + policy.name + " no root answers beside the server");
    }
    if (job.children.empty()) refuse(job, "children", "at least one");
    std::uint64_t workers = 0;
    for (const auto& child : job.children) {
      check_port("children", child.port);
      if (child.workers == 0) refuse(job, "children", "no worker below port " + std::to_string(child.port));
      if (child.workers & workers) refuse(job, "children", "a worker below two ports");
      workers |= child.workers;
    }
    for (const auto& hop : job.hops) check_port("hops", hop.port);
  }
  // Jobs with slots of their own share none: those of two jobs would mix in their sums.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> shares;
  for (const AggregateBatch::Job& job : batch.jobs) {
    if (aggregate_policies[job.scheme].has_servers()) continue;
    const std::uint64_t base = job.base;
    shares.push_back({base, base + 2 * std::uint64_t{job.window}});
  }
  std::sort(shares.begin(), shares.end());
  for (std::size_t i = 1; i < shares.size(); ++i) {
    if (shares[i].first < shares[i - 1].second) {
      throw std::invalid_argument("AggregateBatch.jobs: two of SwitchML's have slot " +
                                  std::to_string(shares[i].first));
    }
  }
  std::sort(numbers.begin(), numbers.end());
  if (const auto twice = std::adjacent_find(numbers.begin(), numbers.end()); twice != numbers.end()) {
    throw std::invalid_argument("AggregateBatch.jobs: job " + std::to_string(*twice) + " stands twice");
  }
}

AggregateBatch::Job aggregate_job_of(const ProgramRow& row) {
  AggregateBatch::Job job;
  job.job = row.number<std::uint16_t>("job");
  job.scheme = static_cast<aggregate_scheme>(row.number<std::uint8_t>("scheme"));
  job.root = static_cast<aggregate_root>(row.number<std::uint8_t>("root"));
  job.window = row.number<std::uint32_t>("window");
  job.base = row.number<std::uint32_t>("base");
  job.up = row.number<SwitchPort>("up");
  job.server = address_of(row.text("server"));
  for (const auto& [port, workers] : row.pairs<SwitchPort, std::uint64_t>("children")) {
    job.children.push_back({port, workers});
  }
  for (const auto& [hop, port] : row.pairs<std::uint16_t, SwitchPort>("hops")) job.hops.push_back({hop, port});
  return job;
}

}  // namespace loomnet
