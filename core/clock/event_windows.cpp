// The event queue by windows of a lookahead: each domain's events of a window together.
#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "clock/event_queue.hpp"

namespace loomnet {
namespace {
constexpr std::ptrdiff_t kFetchWindowFrom = 256;  // events of a window: less stays in the nearer caches
constexpr std::size_t kSparse = 8;          // domains per event: sorting beats going through them
}  // namespace

void EventQueue::refuse(std::uint64_t key) const {
  throw std::logic_error("event queue: domain " + std::to_string(domain_) + " schedules an event of domain " +
                         std::to_string(object_of(key).domain) + " within the lookahead of " +
                         std::to_string(lookahead_.count) + " ps");
}

void EventQueue::refuse_stop() const {
  throw std::logic_error("event queue: domain " + std::to_string(domain_) + " stops the run inside a window");
}

// All that is pending, in no order.
std::vector<Event> EventQueue::take_all() {
  std::vector<Event> all(next_, end_);
  next_ = end_ = run_.data();
  for (EventHeap* heap : {&early_, &late_, &shared_}) {
    all.insert(all.end(), heap->all().begin(), heap->all().end());
    heap->clear();
  }
  for (const std::uint32_t head : heads_) {
    for (std::uint32_t n = head; n != kNone; n = nodes_[n].next) all.push_back(nodes_[n].event);
  }
  nodes_.clear();
  std::fill(heads_.begin(), heads_.end(), kNone);
  std::fill(occupied_.begin(), occupied_.end(), 0);
  free_ = kNone;
  ring_count_ = 0;
  if (windows_) windows_->drain_all([&](const Event& event) { all.push_back(event); });
  return all;
}

void EventQueue::set_lookahead(Picoseconds lookahead, bool apart) {
  if (lookahead.count < 0) throw std::invalid_argument("event queue: lookahead must not be negative");
  apart = apart && lookahead.count > 0;
  if (lookahead == lookahead_ && apart == (windows_ != nullptr)) return;
  if (!apart && !windows_) {  // it only says from where on domains could be apart
    lookahead_ = lookahead;
    return;
  }
  leave_ = true;
  const std::vector<Event> all = take_all();
  lookahead_ = lookahead;
  domain_ = kAnybody;
  windows_ = apart ? std::make_unique<WindowRing>(lookahead) : nullptr;
  edge_ = floor_ = now_;
  cursor_ = apart ? windows_->window_of(now_) : bucket_of(now_);
  for (const Event& event : all) {
    apart ? schedule_in_window(event.at, event.key, event.what) : late_.push(event);
  }
}

// Lays a window's events into the run, by domain and then time, and empties it.
void EventQueue::gather(WindowRing::Window window) {
  std::size_t n = 0;
  windows_->each(window, [&](const Event&) { ++n; });
  while (run_.size() < n) enlarge_run();
  next_ = run_.data();
  end_ = next_ + n;
  fetch_ = end_ - next_ >= kFetchWindowFrom;
  if (n * kSparse < domains_) {
    Event* to = next_;
    windows_->drain(window, [&](const Event& event) { *to++ = event; });
    std::sort(next_, end_, [&](const Event& a, const Event& b) {
      const Domain x = domain_of(a), y = domain_of(b);
      return x != y ? x < y : a.before(b);
    });
    return;
  }
  places_.assign(domains_, 0);
  windows_->each(window, [&](const Event& event) { ++places_[domain_of(event)]; });
  std::uint32_t sum = 0;
  for (std::uint32_t& place : places_) sum += std::exchange(place, sum);
  windows_->drain(window, [&](const Event& event) { run_[places_[domain_of(event)]++] = event; });
  std::uint32_t begin = 0;
  for (const std::uint32_t end : places_) {
    if (end > begin + 1) sort_events(next_ + begin, next_ + end);
    begin = end;
  }
}

// Brings what comes next up to `end` into the run, serving kAnybody's events that come before;
// false if there is nothing left.
bool EventQueue::open_window(Picoseconds end) {
  const Picoseconds shared = shared_.empty() ? kNever : shared_.front().at;
  // Up to here, exclusive, domains may go on by themselves.
  const Picoseconds limit = shared <= end ? shared : end == kNever ? end : end + Picoseconds{1};
  if (windows_->empty() && !late_.empty() && late_.front().at < limit) {
    cursor_ = windows_->window_of(late_.front().at);
  }
  while (!late_.empty() && windows_->window_of(late_.front().at) - cursor_ < WindowRing::kHeld) {
    const Event event = late_.pop();
    windows_->insert(windows_->window_of(event.at), event);
  }
  if (!windows_->empty()) {
    const WindowRing::Window window = windows_->first(cursor_);
    const Picoseconds begin = windows_->begin_of(window), close = windows_->begin_of(window + 1);
    if (begin < limit) {
      floor_ = std::max(edge_, begin);
      if (close <= limit) {
        cursor_ = window + 1;
        edge_ = close;
        gather(window);
        return true;
      }
      // A part of it: the rest waits outside.
      std::vector<Event> now, later;
      windows_->drain(window, [&](const Event& event) { (event.at < limit ? now : later).push_back(event); });
      for (const Event& event : now) windows_->insert(window, event);
      cursor_ = window;
      edge_ = limit;
      gather(window);
      for (const Event& event : later) windows_->insert(window, event);
      if (next_ < end_) return true;
    }
  }
  if (shared_.empty() || shared > end) return false;
  edge_ = floor_ = shared;
  dispatch(shared_.pop());
  return true;
}

// Returns only at a window's boundary: inside a window the domains' clocks differ, and no caller
// may observe them.
bool EventQueue::run_windows(Picoseconds end) {
  while (open_window(end)) {
    if (leave_) return false;  // stopped by an event of kAnybody, which comes before the domains' events of its time
    while (next_ < end_ || !early_.empty()) {
      // The domain at work comes to its end before the next begins.
      if (next_ < end_ && (early_.empty() || (domain_of(*next_) == domain_ && next_->before(early_.front())))) {
        const Event event = *next_;
        if (fetch_) look_ahead();
        ++next_;
        domain_ = domain_of(event);
        dispatch(event);
      } else {
        dispatch(early_.pop());
      }
    }
    domain_ = kAnybody;
    now_ = edge_ - Picoseconds{1};
    if (processed_ >= enough_) return false;
  }
  if (end != kNever) {  // events posted between two runs are posted at the end of the first
    edge_ = floor_ = end;
    cursor_ = windows_->window_of(edge_);
  }
  return true;
}

Picoseconds EventQueue::next_in_windows() const {
  Picoseconds first = kNever;
  const auto look = [&](const Event& event) { first = std::min(first, event.at); };
  if (!shared_.empty()) look(shared_.front());
  if (!late_.empty()) look(late_.front());
  if (!windows_->empty()) windows_->each(windows_->first(cursor_), look);
  return first;
}

}  // namespace loomnet
