// Rules P1 to P6 of parameter_server.hpp, reminders and results.
#include "transport/ina/parameter_server.hpp"

#include <algorithm>
#include <cassert>
#include <stdexcept>
#include <string>

namespace loomnet::ina {
namespace {
// Without the server's own results as a bound (ResultPath::root) a sequence number may be this far ahead.
constexpr Sequence kFarAhead = Sequence{1} << 24;
}  // namespace

ParameterServer::ParameterServer(const InaOptions& options, const InaJob& job)
    : options_((check(job, options), options)),
      job_(job),
      first_(options.first_sequence),
      window_(options.window),
      highest_(first_ - 1),
      base_(first_),
      completed_(first_ - 1),
      early_from_(first_),
      srtt_(options.switch_rtt),
      indices_(options.index_policy, job.job, options.window, options.pool),
      sums_(options.values),
      ring_(2 * std::size_t{options.window}),
      queued_(ring_.size()) {
  if (!options.policy().has_servers()) {
    throw std::invalid_argument("InaOptions.scheme: SwitchML has no parameter server");
  }
}

// A packet that a switch or worker of the job could have sent for fragment n.
bool ParameterServer::believed(const aggregate_header& header, Sequence n) {
  if (header.type == AGGREGATE_REMIND || header.type == AGGREGATE_NAK ||
      (header.type == AGGREGATE_RESULT && options_.result_path != ResultPath::root)) {
    return ++counters_.drop_type, false;
  }
  // The root's own, of a sum that was whole there.
  if (header.type == AGGREGATE_RESULT && header.workers != mask()) return ++counters_.drop_workers, false;
  if (header.workers == 0 && header.type != AGGREGATE_REPLY) return ++counters_.drop_workers, false;
  if (header.type == AGGREGATE_RESEND &&
      (header.source >= AGGREGATE_MAX_WORKERS || !(header.workers & bit(header.source)))) {
    return ++counters_.drop_workers, false;
  }
  // A worker that sends n has the results up to n - W, and those were completed here.
  const Sequence end = options_.result_path == ResultPath::root ? highest_ + kFarAhead : base_ + window_;
  if (n < first_ || n >= end) return ++counters_.drop_sequence, false;
  return true;
}

void ParameterServer::on_packet(const aggregate_header& header, Bytes payload, Picoseconds now) {
  if (!sound(header, payload, options_, job_, counters_)) return;
  const Sequence n = unwrap(header.sequence, highest_);
  if (!believed(header, n)) return;
  if (n <= highest_ - 2 * window_) return ++counters_.ghost, void();  // P1
  if (n > highest_) advance(n);
  Entry& entry = at(n);
  assert(entry.number == n);
  if (header.type == AGGREGATE_REPLY && entry.timing && header.time == clock_us(entry.reminded)) {
    srtt_ += (now - entry.reminded - srtt_) / 8;
    srtt_ = std::max(srtt_, Picoseconds{1});
    entry.timing = false;
  }
  if (header.workers == 0) return;
  if (entry.done) {  // P2
    if (header.type != AGGREGATE_RESEND) return ++counters_.late, void();
    ++counters_.re_result;
    entry.asked |= bit(header.source);
    return queue(entry);
  }
  const bool boot = header.flags & AGGREGATE_BOOT;
  if (entry.known) {
    if (boot != static_cast<bool>(entry.flags & AGGREGATE_BOOT)) return ++counters_.drop_boot, void();
    if ((header.flags ^ entry.flags) & AGGREGATE_FLOATS) return ++counters_.drop_floats, void();
    if (header.values != entry.values) return ++counters_.drop_values, void();
  }
  entry.known = true;
  entry.values = header.values;
  entry.flags |= header.flags & (AGGREGATE_STICKY | AGGREGATE_COLLISION | AGGREGATE_BOOT | AGGREGATE_FLOATS);  // P3
  entry.exponent = std::max(entry.exponent, static_cast<std::int8_t>(header.exponent));
  const std::uint64_t before = entry.have;
  store(entry, header, payload);
  if (entry.have == mask()) {  // P5
    complete(entry, header);
    if (!options_.policy().reminds) return;
    // What came before and is still not complete may lie in a switch, or be lost without a trace here.
    const Sequence end = n - static_cast<Sequence>(options_.gap());
    for (Sequence z = std::max(base_, early_from_); z <= end; ++z) {
      if (at(z).done || at(z).reminders) continue;
      ++counters_.early;
      remind(at(z), now);
    }
    early_from_ = std::max(early_from_, end + 1);
  } else if (header.type != AGGREGATE_REPLY && options_.policy().reminds &&
             (entry.have != before || entry.due == kNever)) {
    // P6. A part that the server has already does not restart the timer: with ResultPath::root a worker
    // may repeat its part for ever, and faster than the timer, until a NAK reaches those that hold the result.
    start_timer(entry, now);
  }
}

// Makes n the highest; fragments two windows older are forgotten.
void ParameterServer::advance(Sequence n) {
  for (Sequence z = std::max(highest_ + 1, n - 2 * window_ + 1); z <= n; ++z) {
    Entry& entry = at(z);
    sums_.release(entry.parts);
    entry = Entry{};
    entry.number = z;
    entry.index = indices_.of(z);  // z - W is complete, so its position's index is z's
  }
  highest_ = n;
  base_ = std::max(base_, n - 2 * window_ + 1);
  while (base_ <= highest_ && at(base_).done) ++base_;
}

void ParameterServer::store(Entry& entry, const aggregate_header& header, Bytes payload) {  // P4
  const std::uint64_t workers = header.workers;
  const std::uint8_t* values = entry.flags & AGGREGATE_BOOT ? nullptr : payload.data();
  if (workers == mask()) {
    ++counters_.full;
    sums_.release(entry.parts);
    entry.parts = PartialSums::kNone;
  } else if ((workers & entry.have) == 0) {
    ++counters_.part;
    if (!options_.components && entry.parts != PartialSums::kNone && !(entry.flags & AGGREGATE_FLOATS)) {
      entry.have |= workers;
      if (sums_.add(entry.parts, workers, values, options_.saturate)) {
        entry.flags |= AGGREGATE_OVERFLOW;
        ++counters_.saturated;
      }
      return;
    }
  } else {
    bool covers = options_.components;
    for (std::uint32_t part = entry.parts; covers && part != PartialSums::kNone; part = sums_.next(part)) {
      const std::uint64_t theirs = sums_.workers(part);
      covers = (theirs & workers) == 0 || (theirs & ~workers) == 0;
    }
    if (!covers || (workers & ~entry.have) == 0) return ++counters_.overlap, void();
    ++counters_.superset;
    entry.parts = sums_.release_within(entry.parts, workers);
  }
  entry.have |= workers;
  entry.parts = sums_.take(workers, values, entry.parts);
}

void ParameterServer::complete(Entry& entry, const aggregate_header& last) {
  const bool whole = last.workers == mask();
  if (!whole) ++counters_.from_parts;
  const std::uint32_t first = entry.parts;
  if (entry.flags & AGGREGATE_FLOATS) {
    ++counters_.as_floats;
    sums_.add_floats(first);
  }
  std::uint64_t sum = sums_.workers(first);
  for (std::uint32_t part = sums_.next(first); part != PartialSums::kNone; part = sums_.next(part)) {
    assert((sum & sums_.workers(part)) == 0);
    sum |= sums_.workers(part);
    if (!(entry.flags & AGGREGATE_BOOT) &&
        sums_.add(first, sums_.workers(part), sums_.bytes(part), options_.saturate)) {
      entry.flags |= AGGREGATE_OVERFLOW;
      ++counters_.saturated;
    }
  }
  assert(sum == mask());
  sums_.keep_first(first, sum);
  entry.done = true;
  entry.nak = false;
  entry.next_hop = ~0u;
  completed_ = std::max(completed_, entry.number);
  entry.next_index = indices_.next(entry.number, entry.flags & AGGREGATE_COLLISION);
  if (entry.next_index != entry.index && options_.index_policy == IndexPolicy::rehash) ++counters_.rehash;
  while (base_ <= highest_ && at(base_).done) ++base_;
  if (last.type == AGGREGATE_RESULT) return;  // the root has sent it to the workers as well
  entry.multicast = true;
  queue(entry);
}

void ParameterServer::remind(Entry& entry, Picoseconds now) {
  ++entry.reminders;
  entry.next_hop = 0;
  entry.nak = entry.reminders >= options_.nak_from;
  queue(entry);
  const Picoseconds first = first_delay();
  entry.delay = std::min((entry.delay.count ? entry.delay : first) * 2, first * options_.remind_cap);
  start_timer(entry, now);
}

void ParameterServer::start_timer(Entry& entry, Picoseconds now) {
  if (entry.delay.count == 0) entry.delay = first_delay();
  entry.due = now + entry.delay;
  timers_.at_latest(static_cast<std::uint32_t>(place(entry.number)), entry.due);
}

void ParameterServer::on_deadline(Picoseconds now) {
  while (timers_.next() <= now) {
    const std::uint32_t owner = timers_.front();
    Entry& entry = ring_[owner];
    const bool due = entry.due <= now;
    timers_.set(owner, due ? kNever : entry.due);
    if (due && !entry.done) remind(entry, now);
  }
}

void ParameterServer::queue(const Entry& entry) {
  const std::size_t owner = place(entry.number);
  if (queued_[owner]) return;
  queued_[owner] = true;
  out_.push(static_cast<std::uint32_t>(owner));
}

std::optional<Outgoing> ParameterServer::pull(Picoseconds now) {
  while (!out_.empty()) {
    if (auto packet = pull(ring_[out_.front()], now)) return packet;
    queued_[out_.pop()] = false;
  }
  return std::nullopt;
}

std::optional<Outgoing> ParameterServer::pull(Entry& entry, Picoseconds now) {
  if (entry.done) {
    std::uint64_t to = entry.asked & (~entry.asked + 1);  // its lowest bit
    if (entry.multicast) to = mask();
    if (to == 0) return std::nullopt;
    entry.asked &= ~to;
    ++counters_.result_sent;
    Outgoing out = packet(entry, AGGREGATE_RESULT, to, now);
    if (!entry.multicast) out.header.flags |= AGGREGATE_UNICAST;
    entry.multicast = false;
    return out;
  }
  if (const auto& hops = hops_of(entry.number); entry.next_hop < hops.size()) {
    if (entry.next_hop == 0) entry.reminded = now, entry.timing = true;
    ++counters_.remind;
    Outgoing out = packet(entry, AGGREGATE_REMIND, 0, entry.reminded);
    out.header.hop = hops[entry.next_hop++];
    return out;
  }
  if (entry.nak) {
    entry.nak = false;
    ++counters_.nak;
    return packet(entry, AGGREGATE_NAK, mask() & ~entry.have, now);
  }
  return std::nullopt;
}

void ParameterServer::set_trees(std::vector<std::vector<std::uint16_t>> trees) {
  InaJob job = job_;
  job.trees = std::move(trees);
  check(job, options_);
  job_ = std::move(job);
}

const std::vector<std::uint16_t>& ParameterServer::hops_of(Sequence n) const {
  static const std::vector<std::uint16_t> none;
  if (job_.trees.empty()) return none;
  return job_.trees[static_cast<std::uint64_t>(n) % job_.trees.size()];
}

Outgoing ParameterServer::packet(const Entry& entry, std::uint32_t type, std::uint64_t to, Picoseconds now) const {
  Outgoing out;
  out.sequence = entry.number;
  out.header = header_of(options_, job_.job, type, entry.number, now);
  out.header.index = entry.index;
  out.header.source = AGGREGATE_FROM_SERVER;
  out.header.workers = to;
  if (type == AGGREGATE_RESULT) {
    out.header.flags = entry.flags;
    out.header.values = entry.values;
    out.header.exponent = static_cast<std::uint8_t>(entry.exponent);
    out.header.next_index = entry.next_index;
    if (entry.flags & AGGREGATE_BOOT) return out;
    out.values = {sums_.bytes(entry.parts), 4 * std::size_t{entry.values}};
  }
  if (type != AGGREGATE_NAK) out.wire_values = options_.values;  // a REMIND has the length of its answer
  return out;
}

std::vector<ParameterServer::Part> ParameterServer::parts(Sequence n) const {
  std::vector<Part> all;
  if (n > highest_ || n <= highest_ - 2 * window_ || n < first_) return all;
  for (std::uint32_t part = ring_[place(n)].parts; part != PartialSums::kNone; part = sums_.next(part)) {
    all.push_back({sums_.workers(part), {sums_.bytes(part), 4 * std::size_t{options_.values}}});
  }
  return all;
}

}  // namespace loomnet::ina
