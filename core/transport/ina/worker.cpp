// Rules W1 to W6 of worker.hpp, timeouts and the congestion window. "ATP": Lao et al., NSDI 2021.
#include "transport/ina/worker.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>
#include <utility>

namespace loomnet::ina {
namespace {
constexpr std::uint64_t kJitterStream = 0x696e61;
constexpr std::uint32_t kRepairs = 8;  // gaps of each worker for one result that was lost (ours)
}  // namespace

Worker::Worker(const InaOptions& options, const InaJob& job, unsigned number, std::uint64_t seed)
    : options_((check(job, options), options)),
      job_(job),
      number_(number),
      first_(options.first_sequence),
      window_(options.window),
      base_(first_),
      next_(first_),
      submitted_(first_),
      tensor_(first_),
      answered_(first_ - 1),
      gaps_from_(std::max<std::size_t>(job.trees.size(), 1), first_),
      boundary_(first_),
      cwnd_(options.most_cwnd()),
      step_(std::max(1u, options.cwnd_step_bytes / (AGGREGATE_PAYLOAD_AT + 4 * options.values))),
      indices_(options.index_policy, job.job, options.window, options.pool),
      // W6 keeps two windows behind next_; submit() takes one ahead of base_.
      ring_(std::bit_ceil(std::size_t{options.window} * (options.result_path == ResultPath::root ? 3 : 1))),
      jitter_(seed, std::uint64_t{job.job} << 8 | number, kJitterStream) {
  if (!options.policy().has_servers()) {
    throw std::invalid_argument("InaOptions.scheme: SwitchML has a worker of its own, SwitchMlWorker");
  }
  if (number >= AGGREGATE_MAX_WORKERS || !(job.workers & bit(number))) {
    throw std::invalid_argument("InaJob.workers: job " + std::to_string(job.job) + " has no worker " +
                                std::to_string(number));
  }
}

Sequence Worker::submit(const Contribution& contribution) {
  if (!room()) throw std::logic_error("ina::Worker::submit: no room in the window");
  check(contribution, options_);
  const Sequence n = submitted_++;
  if (contribution.first_of_tensor) tensor_ = n;
  Entry& entry = at(n);
  entry = Entry{};
  entry.contribution = contribution;
  entry.number = n;
  entry.tensor = tensor_;
  return n;
}

Sequence Worker::keeps_from() const {
  return options_.result_path == ResultPath::root ? std::max(first_, std::min(base_, next_ - 2 * window_)) : base_;
}

// A tensor's first window waits longer, until its first result: workers start a tensor at different
// times, and a short timeout would turn each straggler into a burst of retransmissions (ATP).
Picoseconds Worker::first_timeout(const Entry& entry) const {
  if (answered_ < entry.tensor && entry.number - entry.tensor < window_) return options_.rto_first;
  return std::max(options_.rto_min, srtt_ * 4);
}

Outgoing Worker::packet(const Entry& entry, std::uint32_t type, Picoseconds now) const {
  Outgoing out = packet_of(entry.contribution, options_, job_.job, number_, type, entry.number, now);
  out.header.index = indices_.of(entry.number);
  return out;
}

std::optional<Outgoing> Worker::pull(Picoseconds now) {
  while (!again_.empty()) {
    const Sequence n = again_.pop();
    Entry& entry = at(n);
    if (entry.number != n) continue;  // its result came, and its place is a younger fragment's
    entry.queued = false;
    const bool by_nak = entry.by_nak;
    if (entry.held && !(by_nak && options_.result_path == ResultPath::root)) continue;
    ++counters_.resend;
    if (by_nak) ++counters_.nak_resend;
    entry.sent_again = true;
    if (!entry.held) {
      const double off = options_.rto_jitter * (2 * jitter_.uniform() - 1);
      timers_.set(slot(entry.number), now + entry.rto.scaled(1 + off));
    }
    return packet(entry, AGGREGATE_RESEND, now);
  }
  if (!may_send()) return std::nullopt;
  Entry& entry = at(next_++);  // W1
  ++counters_.data;
  entry.sent = now;
  entry.rto = first_timeout(entry);
  timers_.set(slot(entry.number), now + entry.rto);
  return packet(entry, AGGREGATE_DATA, now);
}

void Worker::send_again(Entry& entry, bool by_nak) {
  if (entry.queued) return;
  entry.queued = true;
  entry.by_nak = by_nak;
  timers_.set(slot(entry.number), kNever);
  again_.push(entry.number);
}

void Worker::on_deadline(Picoseconds now) {
  while (timers_.next() <= now) {  // W3
    Entry& entry = ring_[timers_.front()];
    ++counters_.timeout;
    ++entry.timeouts;
    if (!std::exchange(entry.overtaken, false)) {
      entry.rto = std::min(entry.rto * 2, first_timeout(entry) * options_.rto_cap);
    }
    send_again(entry, false);
  }
}

Received Worker::on_packet(const aggregate_header& header, Bytes payload, Picoseconds now) {
  if (!sound(header, payload, options_, job_, counters_)) return {};
  const Sequence n = unwrap(header.sequence, base_);
  if (header.type != AGGREGATE_RESULT && header.type != AGGREGATE_NAK) return ++counters_.drop_type, Received{};
  // A result holds this worker's own part, so nothing beyond next_ has one.
  if (n < first_ || (n >= next_ && header.type == AGGREGATE_RESULT)) return ++counters_.drop_sequence, Received{};
  return header.type == AGGREGATE_RESULT ? on_result(header, payload, n, now) : on_nak(header, n, now);
}

Received Worker::on_result(const aggregate_header& header, Bytes payload, Sequence n, Picoseconds now) {
  if (n < base_ || at(n).held) return ++counters_.dup_result, Received{};
  Entry& entry = at(n);
  if (!fits(header, entry.contribution, counters_)) return {};
  if (indices_.policy() == IndexPolicy::rehash && header.next_index != AGGREGATE_NO_INDEX) {
    if (!indices_.valid(header.next_index)) return ++counters_.drop_index, Received{};
    indices_.adopt(n, header.next_index);
  }
  ++counters_.result;
  entry.held = true;  // W2
  if (header.flags & AGGREGATE_UNICAST && entry.sent_again) {
    repairs_ = kRepairs * static_cast<std::uint32_t>(std::popcount(job_.workers));
    patience_ = 1;
  }
  timers_.set(slot(n), kNever);
  if (!entry.sent_again) {
    const Picoseconds sample = now - entry.sent;
    srtt_ = srtt_.count == 0 ? sample : srtt_ + (sample - srtt_) / 8;
  }
  if (answered_ < entry.tensor) first_result(entry.tensor, now);
  while (base_ < next_ && at(base_).held) ++base_;
  if (options_.gap_repair) fill_gaps(n, now);
  const bool marked = header.flags & AGGREGATE_ECN;
  if (marked) ++counters_.ecn_result;
  if (options_.congestion_control) control(n, marked);
  return result_of(header, payload, n);
}

// From here on the tensor's timers are the short ones, those under way too.
void Worker::first_result(Sequence tensor, Picoseconds now) {
  answered_ = tensor;
  for (Sequence n = base_; n < next_; ++n) {
    Entry& entry = at(n);
    if (entry.held || entry.queued || entry.tensor != tensor || entry.rto != options_.rto_first) continue;
    entry.rto = first_timeout(entry);
    timers_.at_latest(slot(n), now + entry.rto);
  }
}

void Worker::set_trees(std::size_t count) { gaps_from_.assign(std::max<std::size_t>(count, 1), next_); }

// ATP: what a later result has overtaken is sent again, once. Results come in order by one tree: of
// another tree they tell nothing.
void Worker::fill_gaps(Sequence overtaking, Picoseconds now) {
  const auto trees = static_cast<Sequence>(gaps_from_.size());
  Sequence& from = gaps_from_[static_cast<std::size_t>(static_cast<std::uint64_t>(overtaking)) % gaps_from_.size()];
  if (overtaking <= from) return;
  Sequence z = std::max(base_, from);
  z += (overtaking - z) % trees;  // the first of this tree
  for (; z < overtaking; z += trees) {
    if (at(z).held || at(z).queued) continue;
    if (may_repair()) {
      ++counters_.gap_resend;
      send_again(at(z), false);
    } else if (options_.policy().repairs == AGGREGATE_REPAIRS_LOST && srtt_.count > 0) {
      at(z).overtaken = true;
      timers_.at_latest(slot(z), now + srtt_ * patience_);
    }
  }
  from = overtaking;
}

// Under ESA a gap may also be a sum that a more urgent packet has put out of its slot, which the server
// finishes without a worker's help: so a gap has some round trips for that before it is sent again (ours). A server
// that answers one worker alone had the result already: it was lost. Each result that is known to be lost lets a
// worker repair some gaps at once, and from then on gaps have one round trip.
bool Worker::may_repair() {
  const aggregate_repairs repairs = options_.policy().repairs;
  if (repairs != AGGREGATE_REPAIRS_LOST || repairs_ == 0) return repairs == AGGREGATE_REPAIRS_ALL;
  --repairs_;
  return true;
}

// ATP: half the window after a window with a mark, else 1,500 B more. A window ends with the result of
// the first fragment sent after the one before had ended; a mark on any result of the window counts.
void Worker::control(Sequence n, bool marked) {
  marked_ |= marked;
  if (n < boundary_) return;
  cwnd_ = marked_ ? std::max(1u, cwnd_ / 2) : std::min(options_.most_cwnd(), cwnd_ + step_);
  marked_ = false;
  boundary_ = next_;
}

Received Worker::on_nak(const aggregate_header& header, Sequence n, Picoseconds now) {  // W4
  const bool root = options_.result_path == ResultPath::root;
  if (!(header.workers & bit(number_)) || n < keeps_from() || n >= next_ || (at(n).held && !root)) {
    return ++counters_.nak_early, Received{};
  }
  Entry& entry = at(n);
  const Picoseconds pause = srtt_.count ? srtt_ : options_.rto_min;
  if (entry.queued || (entry.asked != -kNever && now - entry.asked < pause)) {
    return ++counters_.nak_early, Received{};
  }
  entry.asked = now;
  send_again(entry, true);
  return {Received::Kind::nak, n, {}, 0, 0};
}

}  // namespace loomnet::ina
