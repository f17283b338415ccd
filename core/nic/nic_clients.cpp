#include "nic/nic_clients.hpp"

#include <algorithm>
#include <stdexcept>

#include "packet/rdma.hpp"

namespace loomnet {
namespace {

std::string text(JobId job) { return "job " + std::to_string(static_cast<std::uint32_t>(job)); }

}  // namespace

NicJob& NicClients::job(JobId id) {
  for (const auto& job : jobs_) {
    if (job->id == id) return *job;
  }
  jobs_.push_back(std::make_unique<NicJob>(NicJob{id, WorkMeter(meter_bin_)}));
  if (meter_bins_) jobs_.back()->meter.limit(meter_bins_);
  find_sole();
  return *jobs_.back();
}

const NicJob* NicClients::find_job(JobId id) const {
  for (const auto& job : jobs_) {
    if (job->id == id) return job.get();
  }
  return nullptr;
}

void NicClients::limit_meters(std::size_t bins) {
  meter_bins_ = bins;
  for (const auto& job : jobs_) job->meter.limit(bins);
}

ClientId NicClients::add(NicClient& client, JobId job_id, std::string_view role) {
  entries_.push_back({&client, &job(job_id), std::string(role)});
  find_sole();
  return ClientId{static_cast<std::uint32_t>(entries_.size())};
}

void NicClients::remove(ClientId id) {
  entry(id);
  entries_[static_cast<std::uint32_t>(id) - 1].client = nullptr;
  find_sole();
}

const NicClients::Entry& NicClients::entry(ClientId id) const {
  const auto number = static_cast<std::uint32_t>(id);
  if (number == 0 || number > entries_.size()) {
    throw std::invalid_argument("nic: no client " + std::to_string(number));
  }
  return entries_[number - 1];
}

void NicClients::find_sole() {
  sole_ = nullptr;
  if (jobs_.size() != 1) return;
  for (const Entry& e : entries_) {
    if (!e.client) continue;
    if (sole_) {
      sole_ = nullptr;
      return;
    }
    sole_ = e.client;
  }
}

void NicClients::own(QpNumber qp, const QpOwner& owner) {
  const std::string who = "nic: queue pair " + std::to_string(qp);
  NicJob& owning = job(owner.job);
  const bool named = owner.client != ClientId{};
  if (named && entry(owner.client).job != &owning) {
    throw std::invalid_argument(who + ": its client is of " + text(entry(owner.client).job->id) + ", not of " +
                                text(owner.job));
  }
  const std::uint32_t at = by_number_.find(qp);
  if (at == NumberIndex::kAbsent) {
    by_number_.add(qp, static_cast<std::uint32_t>(queue_pairs_.size()));
    queue_pairs_.push_back({&owning, nullptr, owner.client});
    next_qp_ = std::max(next_qp_, qp + 1);
    return;
  }
  QueuePair& known = queue_pairs_[at];
  if (known.job != &owning) {
    throw std::invalid_argument(who + " belongs to " + text(known.job->id) + ", not to " + text(owner.job));
  }
  if (!named || known.client == owner.client) return;
  if (known.client != ClientId{} && entry(known.client).client) {
    throw std::invalid_argument(who + " belongs to another client of " + text(owner.job));
  }
  known.client = owner.client;
}

bool NicClients::carried_by(const Transport& transport) const {
  return std::any_of(queue_pairs_.begin(), queue_pairs_.end(),
                     [&](const QueuePair& each) { return each.transport == &transport; });
}

QpNumber NicClients::reserve(std::uint32_t count) {
  if (count > kMask24 + 1 - std::min<QpNumber>(next_qp_, kMask24 + 1)) {
    throw std::length_error("nic: its queue pairs have no " + std::to_string(count) + " numbers left (24 bits)");
  }
  const QpNumber first = next_qp_;
  next_qp_ += count;
  return first;
}

NicClient* NicClients::search(QpNumber qp) const {
  const std::uint32_t at = by_number_.find(qp);
  if (at == NumberIndex::kAbsent) return nullptr;
  const QueuePair& known = queue_pairs_[at];
  if (known.client != ClientId{}) return entry(known.client).client;
  for (const Entry& e : entries_) {
    if (e.client && e.job == known.job) return e.client;
  }
  return nullptr;
}

}  // namespace loomnet
