// Rows of the aggregation program from its batch.
#include "switch/aggregate/aggregate_tables.hpp"

#include <algorithm>

namespace loomnet {

std::vector<aggregate_job> aggregate_rows(const AggregateBatch& batch) {
  std::vector<aggregate_job> rows;
  auto all = static_cast<std::uint16_t>(batch.jobs.size());
  for (const AggregateBatch::Job& job : batch.jobs) {
    aggregate_job row{};
    for (const auto& child : job.children) row.workers |= child.workers;
    row.server_high = ln_load_be64(job.server.data());
    row.server_low = ln_load_be64(job.server.data() + 8);
    row.window = job.window;
    row.base = job.base;
    row.up = job.up;
    row.down = static_cast<std::uint16_t>(rows.size());
    row.scheme = static_cast<std::uint8_t>(job.scheme);
    row.root = static_cast<std::uint8_t>(job.root);
    row.parts = static_cast<std::uint16_t>(job.children.size());
    if (job.root == AGGREGATE_ANSWERS) row.all = all++;
    rows.push_back(row);
  }
  return rows;
}

AggregateTables::AggregateTables(const AggregateBatch& batch, std::size_t ports) : LookupTables(batch.forward) {
  const std::vector<aggregate_job> rows = aggregate_rows(batch);
  for (std::size_t i = 0; i < batch.jobs.size(); ++i) {
    const AggregateBatch::Job& from = batch.jobs[i];
    if (from.job >= place_.size()) place_.resize(from.job + 1u);
    place_[from.job] = static_cast<std::uint16_t>(i + 1);
    Job& job = jobs_.emplace_back();
    job.row = rows[i];
    job.below.resize(ports);
    job.hops = from.hops;
    for (const auto& child : from.children) {
      job.below[child.port] = child.workers;
      for (std::uint32_t w = 0; w < AGGREGATE_MAX_WORKERS; ++w) {
        if (child.workers >> w & 1) job.workers[w] = AGGREGATE_FOUND | child.port;
      }
    }
  }
}

std::uint32_t AggregateTables::hop(std::uint32_t number, std::uint32_t hop) const {
  const Job* job = find(number);
  if (!job) return 0;
  const auto at =
      std::find_if(job->hops.begin(), job->hops.end(), [&](const AggregateBatch::Hop& h) { return h.hop == hop; });
  return at == job->hops.end() ? 0 : AGGREGATE_FOUND | at->port;
}

}  // namespace loomnet
