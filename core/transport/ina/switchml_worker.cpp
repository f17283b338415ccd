// The self-clocked window of SwitchML and the timeout of each of its threads.
#include "transport/ina/switchml_worker.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>
#include <utility>

namespace loomnet::ina {
namespace {

constexpr Picoseconds kLongest = seconds(3600);

}  // namespace

SwitchMlWorker::SwitchMlWorker(const InaOptions& options, const InaJob& job, unsigned number)
    : options_((check(job, options), options)),
      job_(job),
      number_(number),
      first_(options.first_sequence),
      window_(options.window),
      base_(first_),
      submitted_(first_),
      furthest_(first_ - 1),
      threads_(options.switchml_threads, {options.switchml_timeout, 0, options.switchml_threshold}),
      ring_(std::bit_ceil(2 * std::size_t{options.window})),
      under_way_(options.window) {
  if (options.policy().has_servers()) {
    throw std::invalid_argument("InaOptions.scheme: SwitchMlWorker needs SwitchML");
  }
  if (number >= AGGREGATE_MAX_WORKERS || !(job.workers & bit(number))) {
    throw std::invalid_argument("InaJob.workers: job " + std::to_string(job.job) + " has no worker " +
                                std::to_string(number));
  }
}

Sequence SwitchMlWorker::submit(const Contribution& contribution) {
  if (!room()) throw std::logic_error("ina::SwitchMlWorker::submit: no room in the window");
  check(contribution, options_);
  if (static_cast<std::size_t>(submitted_ - base_) == ring_.size()) grow();
  const Sequence n = submitted_++;
  Entry& entry = at(n);
  entry = Entry{contribution, n};
  if (n - window_ < base_ || at(n - window_).held) ready_.push(n);
  return n;
}

void SwitchMlWorker::grow() {
  std::vector<Entry> larger(2 * ring_.size());
  for (Sequence n = base_; n < submitted_; ++n) larger[static_cast<std::size_t>(n) & (larger.size() - 1)] = at(n);
  ring_ = std::move(larger);
}

std::optional<Outgoing> SwitchMlWorker::pull(Picoseconds now) {
  while (!ready_.empty()) {
    const Sequence n = ready_.pop();
    Entry& entry = at(n);
    if (entry.number != n || entry.held) continue;  // its result came while it waited here
    if (options_.switchml_slices && !entry.sent && entry.contribution.first_of_tensor) {
      for (Thread& each : threads_) each.timeout = options_.switchml_timeout;
    }
    ++(entry.sent ? counters_.resend : counters_.data);
    entry.sent = true;
    under_way_[pair_of(n)] = n;
    timers_.set(pair_of(n), now + thread_of(n).timeout);
    // The switch knows a retransmission by its bit in the slot: it is DATA again.
    Outgoing out = packet_of(entry.contribution, options_, job_.job, number_, AGGREGATE_DATA, n, now);
    out.header.index = static_cast<std::uint16_t>(n % (2 * Sequence{options_.window}));
    return out;
  }
  return std::nullopt;
}

Received SwitchMlWorker::on_packet(const aggregate_header& header, Bytes payload, Picoseconds) {
  if (!sound(header, payload, options_, job_, counters_)) return {};
  if (header.type != AGGREGATE_RESULT) return ++counters_.drop_type, Received{};
  const Sequence n = unwrap(header.sequence, base_);
  if (n < first_ || n >= submitted_) return ++counters_.drop_sequence, Received{};
  if (n < base_ || at(n).held) return ++counters_.dup_result, Received{};
  Entry& entry = at(n);
  if (!entry.sent) return ++counters_.drop_sequence, Received{};
  if (!fits(header, entry.contribution, counters_)) return {};
  ++counters_.result;
  if (header.flags & AGGREGATE_ECN) ++counters_.ecn_result;
  entry.held = true;
  timers_.set(pair_of(n), kNever);
  furthest_ = std::max(furthest_, n);
  if (n + window_ < submitted_) ready_.push(n + window_);  // the same slot of the other set
  while (base_ < submitted_ && at(base_).held) ++base_;
  return result_of(header, payload, n);
}

// SwitchML's public client: of each thread the timeout doubles after 100 timeouts, then after 200 more, 300
// more and so on, up to the longest that InaOptions.switchml_timeout may be. SwitchML itself has no such end.
void SwitchMlWorker::on_deadline(Picoseconds now) {
  while (timers_.next() <= now) {
    const std::uint32_t owner = timers_.front();
    timers_.set(owner, kNever);
    Entry& entry = at(under_way_[owner]);
    ++entry.timeouts;
    ++counters_.timeout;
    Thread& thread = thread_of(entry.number);
    if (++thread.count > thread.threshold) {
      thread.timeout = std::min(thread.timeout * 2, kLongest);
      thread.threshold += options_.switchml_threshold;
      thread.count = 0;
    }
    ready_.push(entry.number);
  }
}

Picoseconds SwitchMlWorker::timeout() const {
  return std::max_element(threads_.begin(), threads_.end(),
                          [](const Thread& a, const Thread& b) { return a.timeout < b.timeout; })
      ->timeout;
}

}  // namespace loomnet::ina
