// The event queue's ring: taking buckets out in order, and fitting their width to the events' rate.
#include "clock/event_queue.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "clock/fetch.hpp"

namespace loomnet {
namespace {

// Events that lie ready, sorted: enough to look ahead, few enough of all that hardly any new event
// has to go before them.
constexpr std::size_t kRunLeast = 32, kRunMost = 128, kRunShare = 24;
constexpr std::ptrdiff_t kRunMove = 128;
constexpr std::ptrdiff_t kRunLow = 16;       // of a run that is looked ahead in
constexpr std::ptrdiff_t kFetchObject = 13;  // events ahead
constexpr std::ptrdiff_t kFetchStage[] = {10, 6, 3};
// Below this many pending events what they touch stays in the nearer caches by itself.
constexpr std::size_t kFetchFrom = 2048;
constexpr std::size_t kFewestBuckets = 256, kMostBuckets = 1 << 17;
constexpr std::uint64_t kTuneEvery = 16'384;

}  // namespace

ObjectId EventQueue::add(EventHandler& handler, Domain domain) {
  if (handlers_.size() >= kLocal) throw std::length_error("event queue: more than 2^23 objects");
  handlers_.push_back({&handler, domain});
  domains_ = std::max(domains_, domain + 1);
  return static_cast<ObjectId>(handlers_.size() - 1) | (domain == kAnybody ? 0 : kLocal);
}

std::uint32_t EventQueue::grow() {
  const std::size_t old = nodes_.size();
  const std::size_t size = old ? old * 2 : 64;
  nodes_.resize(size);
  for (std::size_t i = old; i < size; ++i) {
    nodes_[i].next = i + 1 < size ? static_cast<std::uint32_t>(i + 1) : kNone;
  }
  return static_cast<std::uint32_t>(old);
}

const Event* EventQueue::front() {
  if (wants_refill()) refill();
  const Event* run = next_ < end_ ? next_ : nullptr;
  if (early_.empty()) return run;
  return run && run->before(early_.front()) ? run : &early_.front();
}

Event EventQueue::pop(const Event* front) {
  if (front != next_) return early_.pop();
  const Event event = *front;
  if (fetch_) look_ahead();
  ++next_;
  return event;
}

void EventQueue::look_ahead() const {
  // A run is filled up again before it is shorter than this, but where little is pending.
  if (end_ - next_ <= kFetchObject) return;
  fetch(handler_of(next_[kFetchObject]), 256);
  for (int stage = 1; stage <= 3; ++stage) {
    const Event& event = next_[kFetchStage[stage - 1]];
    handler_of(event)->prepare(event.what, stage);
  }
}

// Moves the next buckets to the run. The ring's last event may be far off: nothing behind it is
// taken while anything is left to serve, or all that comes to be scheduled would be early.
void EventQueue::refill() {
  if (processed_ >= tune_at_) tune();
  // Only now and then: the rest of a run is moved once for many refills.
  if (next_ == end_ || next_ - run_.data() > kRunMove) {
    end_ = std::copy(next_, end_, run_.data());
    next_ = run_.data();
  }
  while (static_cast<std::size_t>(end_ - next_) < run_high_) {
    if (ring_count_ == 0) {
      if (late_.empty() || next_ != end_ || !early_.empty()) break;
      cursor_ = bucket_of(late_.front().at);
    }
    while (!late_.empty() && bucket_of(late_.front().at) - cursor_ < buckets()) {
      const Event event = late_.pop();
      insert(event.at, event.key, event.what);
    }
    // The first occupied bucket at or after the cursor, round the ring.
    std::uint64_t word = (cursor_ & mask_) / 64;
    std::uint64_t bits = occupied_[word] & ~0ull << cursor_ % 64;
    while (!bits) bits = occupied_[word = (word + 1) & (mask_ / 64)];
    const std::uint64_t b = word * 64 + static_cast<std::uint64_t>(std::countr_zero(bits));
    cursor_ += (b - cursor_) & mask_;
    extract(b);
    ++cursor_;
  }
  edge_ = cursor_ <= bucket_of(kNever) ? Picoseconds{static_cast<std::int64_t>(cursor_ << shift_)} : kNever;
}

void EventQueue::enlarge_run() {
  const auto begin = next_ - run_.data(), end = end_ - run_.data();
  const bool fresh = run_.empty();
  run_.resize(fresh ? 4 * kRunMost : 2 * run_.size());
  next_ = run_.data() + (fresh ? 0 : begin);
  end_ = run_.data() + (fresh ? 0 : end);
}

void EventQueue::extract(std::uint64_t b) {
  // Prefetch one node of the buckets 32, 24, 16 and 8 ahead: the nearer the bucket, the deeper into
  // its list (0 to 3).
  if (fetch_) {
    std::uint64_t ahead = 32;
    for (int depth = 0; depth < 4; ++depth, ahead -= 8) {
      std::uint32_t n = heads_[(b + ahead) & mask_];
      for (int i = 0; i < depth && n != kNone; ++i) n = nodes_[n].next;
      if (n != kNone) fetch(&nodes_[n]);
    }
  }
  std::size_t count = 0;
  std::uint32_t last = heads_[b];
  for (std::uint32_t n = last; n != kNone; n = nodes_[n].next, ++count) {
    if (end_ == run_.data() + run_.size()) enlarge_run();
    *end_++ = nodes_[n].event;
    last = n;
  }
  nodes_[last].next = free_;
  free_ = heads_[b];
  heads_[b] = kNone;
  occupied_[b / 64] &= ~(1ull << b % 64);
  ring_count_ -= count;
  if (count > 1) sort_events(end_ - count, end_);
}

// A few events per bucket; the ring spans several times the mean time from schedule to event, which
// by Little's law is the number of pending events times the gap between events.
void EventQueue::tune() {
  const std::uint64_t events = processed_ - tuned_events_;
  const std::int64_t passed = (now_ - tuned_time_).count;
  tuned_events_ = processed_;
  tuned_time_ = now_;
  tune_at_ = processed_ + kTuneEvery;
  if (events == 0 || passed <= 0) return;
  fetch_ = pending() >= kFetchFrom;
  run_low_ = fetch_ ? kRunLow : 1;
  run_high_ = std::clamp(pending() / kRunShare, kRunLeast, kRunMost);
  const std::uint64_t width = static_cast<std::uint64_t>(passed) * 4 / events + 1;
  const int shift = std::bit_width(width) - 1;
  const std::size_t count = std::clamp(std::bit_ceil(pending()), kFewestBuckets, kMostBuckets);
  if (shift == shift_ && count <= buckets() && count * 4 >= buckets()) return;
  shape(shift, count);
}

void EventQueue::shape(int shift, std::size_t count) {
  std::vector<Event> all = late_.all();
  late_.clear();
  for (const std::uint32_t head : heads_) {
    for (std::uint32_t n = head; n != kNone; n = nodes_[n].next) all.push_back(nodes_[n].event);
  }
  nodes_.clear();
  free_ = kNone;
  ring_count_ = 0;
  heads_.assign(count, kNone);
  occupied_.assign(count / 64, 0);
  shift_ = shift;
  mask_ = count - 1;
  cursor_ = bucket_of(edge_);
  for (const Event& event : all) {
    if (bucket_of(event.at) - cursor_ < count) {
      insert(event.at, event.key, event.what);
    } else {
      late_.push(event);
    }
  }
}

Picoseconds EventQueue::next() {
  if (windows_) return next_in_windows();
  const Event* event = front();
  return event ? event->at : kNever;
}

bool EventQueue::step() {
  const std::uint64_t before = processed_;
  run_until(kNever, 1);
  return processed_ > before;
}

bool EventQueue::run_until(Picoseconds end, std::uint64_t most) {
  enough_ = most > ~0ull - processed_ ? ~0ull : processed_ + most;
  stopped_ = false;
  while (!stopped_) {
    leave_ = false;
    const bool ended = windows_ ? run_windows(end) : run_in_order(end);
    if (leave_) continue;
    if (ended && end != kNever) now_ = std::max(now_, end);
    return ended;
  }
  return false;
}

bool EventQueue::run_in_order(Picoseconds end) {
  const std::uint64_t asked = enough_;  // which run_no_more(), a matter of wall time, does not change
  for (;;) {
    const Event* event;
    if (early_.empty() && end_ - next_ >= run_low_) [[likely]] {
      event = next_;
    } else if (event = front(); !event) {
      break;
    }
    if (event->at > end) break;
    if (processed_ >= enough_) return false;
    const Event served = pop(event);
    dispatch(served);
    if (leave_) [[unlikely]] {
      // Events of one time are served in the order of their objects' numbers. A stop must not depend on that order, so
      // the other events of its time are served first. Those of kAnybody precede all others of their time.
      while (stopped_ && !windows_ && domain_of(served) != kAnybody) {
        const Event* other = front();
        if (!other || other->at > now_ || processed_ >= asked) break;
        dispatch(pop(other));
      }
      return false;
    }
  }
  return true;
}

}  // namespace loomnet
