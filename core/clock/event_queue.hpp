// The one event loop of both clocks: plain-data events ordered by (time, object id, sequence).
// The virtual clock runs it freely; the live clock lets it run up to the wall clock.
//
// A ring of buckets holds the near future, each an unsorted list; what comes next lies sorted in a
// short run, so that the memory of the next events can be fetched while this one is served.
//
// Where nothing passes between nodes in less than a lookahead (the shortest link's delay), each
// node's events of that long a window are served together, one node after the other: the node's
// memory is fetched once a window instead of once an event. Every node sees its own events in the
// order of time, so what it does, and with it the run, is the same as in the order of time.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "clock/event_heap.hpp"
#include "clock/time.hpp"
#include "clock/window_ring.hpp"

namespace loomnet {

using ObjectId = std::uint32_t;  // 24 bits are used in an event's key
// The node whose state a handler touches; kAnybody: any, so that it is served while all others wait.
using Domain = std::uint32_t;
inline constexpr Domain kAnybody = 0;

class EventHandler {
 public:
  virtual ~EventHandler() = default;
  // `what` is the number given to schedule(); a handler may get events it no longer needs.
  virtual void on_event(std::uint64_t what, Picoseconds now) = 0;
  // That event comes soon: fetch what it will touch, change nothing. Called for most events of a
  // large run, with stage 1, 2 and 3 as it comes nearer: what one stage has fetched, the next may
  // read. What `what` points at may be gone by then: stage 1 fetches it, none may read it.
  virtual void prepare(std::uint64_t what, int stage) const { (void)what, (void)stage; }
};

class EventQueue {
 public:
  // Handlers are not owned; ids count up and fix the order of equal times, kAnybody's before all.
  ObjectId add(EventHandler& handler, Domain domain = kAnybody);
  // How many objects there were with it, whatever their domains.
  static constexpr std::uint32_t number(ObjectId object) { return object & (kLocal - 1); }

  void schedule(Picoseconds at, ObjectId object, std::uint64_t what = 0) {
    if (at < now_) at = now_;
    const std::uint64_t key = key_of(object);
    if (windows_) return schedule_in_window(at, key, what);
    if (at < edge_) {
      early_.push({at, key, what});
    } else if (bucket_of(at) - cursor_ < buckets()) {
      insert(at, key, what);
    } else {
      late_.push({at, key, what});
    }
  }
  bool empty() const { return pending() == 0; }
  Picoseconds next();
  Picoseconds now() const { return now_; }
  std::uint64_t processed() const { return processed_; }
  std::size_t pending() const {
    return static_cast<std::size_t>(end_ - next_) + early_.size() + ring_count_ + late_.size() +
           (windows_ ? windows_->size() + shared_.size() : 0);
  }

  // Runs every event at or before `end`, then sets now to `end`; false if it was stopped or had run
  // `most` events before that (now stays). With windows the limit is checked at window ends only,
  // so it can be exceeded by one window's events.
  bool run_until(Picoseconds end, std::uint64_t most = ~0ull);
  // Runs the next event (by windows, the next window's); false if there is none.
  bool step();
  // Ends run_until after an event of kAnybody, or after all events of the time of another domain's event; cleared when
  // the next run begins. While domains are served apart, only an event of kAnybody may call it: inside a window the
  // domains' clocks differ, so the run would not end at one time.
  void stop() {
    if (windows_ && domain_ != kAnybody) [[unlikely]]
      refuse_stop();
    stopped_ = leave_ = true;
  }
  bool stopped() const { return stopped_; }
  // Ends run_until as if it had run `most` events.
  void run_no_more() { enough_ = 0; }

  // No domain's event leads to one of another domain, or of kAnybody, in less than `lookahead` (0:
  // nothing is known). `apart`: serve domains one after the other, by windows of that length.
  // May be called between events, from an event of domain kAnybody and, where domains are not apart, from any.
  void set_lookahead(Picoseconds lookahead, bool apart);
  Picoseconds lookahead() const { return lookahead_; }
  bool apart() const { return windows_ != nullptr; }
  // Apart: all before this has happened, whichever domain is at work.
  Picoseconds window_begin() const { return floor_; }

 private:
  static constexpr int kSequenceBits = 40;
  static constexpr std::uint32_t kNone = ~0u;
  static constexpr ObjectId kLocal = 1u << 23;  // in the id of an object of a domain
  struct Node {
    Event event;
    std::uint32_t next;
  };
  struct Object {
    EventHandler* handler = nullptr;
    Domain domain = kAnybody;
  };

  std::uint64_t key_of(ObjectId object) {
    return static_cast<std::uint64_t>(object) << kSequenceBits | (sequence_++ & ((1ull << kSequenceBits) - 1));
  }
  const Object& object_of(std::uint64_t key) const {
    return handlers_[number(static_cast<ObjectId>(key >> kSequenceBits))];
  }
  EventHandler* handler_of(const Event& event) const { return object_of(event.key).handler; }
  Domain domain_of(const Event& event) const { return object_of(event.key).domain; }
  std::uint64_t bucket_of(Picoseconds at) const { return static_cast<std::uint64_t>(at.count) >> shift_; }
  std::uint64_t buckets() const { return mask_ + 1; }
  void insert(Picoseconds at, std::uint64_t key, std::uint64_t what) {
    const std::uint64_t b = bucket_of(at) & mask_;
    std::uint32_t n = free_;
    if (n == kNone) n = grow();
    Node& node = nodes_[n];
    free_ = node.next;
    node.event.at = at;  // field by field: a copy of an event just written would wait for it
    node.event.key = key;
    node.event.what = what;
    node.next = heads_[b];
    heads_[b] = n;
    occupied_[b / 64] |= 1ull << b % 64;
    ++ring_count_;
  }
  std::uint32_t grow();
  bool wants_refill() const {
    return end_ - next_ < run_low_ && (ring_count_ > 0 || (next_ == end_ && early_.empty() && !late_.empty()));
  }
  const Event* front();
  Event pop(const Event* front);
  void look_ahead() const;
  void refill();
  void enlarge_run();
  void extract(std::uint64_t bucket);
  void tune();
  void shape(int shift, std::size_t buckets);
  void dispatch(const Event& event) {
    now_ = event.at;
    ++processed_;
    handler_of(event)->on_event(event.what, event.at);
  }
  // These two end early once enough_ events have been processed in all, or when leave_ is set.
  bool run_in_order(Picoseconds end);

  // event_windows.cpp
  void schedule_in_window(Picoseconds at, std::uint64_t key, std::uint64_t what) {
    if (!(key >> kSequenceBits & kLocal)) {
      if (domain_ != kAnybody && at < edge_) [[unlikely]]
        refuse(key);
      shared_.push({at, key, what});
    } else if (at < edge_) {
      if (object_of(key).domain != domain_) [[unlikely]]
        refuse(key);
      early_.push({at, key, what});
    } else if (const auto w = windows_->window_of(at); w - cursor_ < WindowRing::kHeld) {
      windows_->insert(w, {at, key, what});
    } else {
      late_.push({at, key, what});
    }
  }
  [[noreturn]] void refuse(std::uint64_t key) const;
  [[noreturn]] void refuse_stop() const;
  bool run_windows(Picoseconds end);
  bool open_window(Picoseconds end);
  void gather(WindowRing::Window window);
  Picoseconds next_in_windows() const;
  std::vector<Event> take_all();

  // Sorted events before edge_, next_ to end_ in run_; what was scheduled before edge_ since is in
  // early_, at or after it in the ring, beyond the ring in late_.
  std::vector<Event> run_;
  Event* next_ = nullptr;
  Event* end_ = nullptr;
  std::ptrdiff_t run_low_ = 1;  // filled up when shorter than this …
  std::size_t run_high_ = 32;  // … to this
  Picoseconds edge_{};
  EventHeap early_, late_;
  // The ring: bucket b of time (at >> shift_) is at b & mask_; cursor_ is the first not yet taken.
  std::vector<Node> nodes_;
  std::vector<std::uint32_t> heads_;
  std::vector<std::uint64_t> occupied_;  // bit per bucket
  std::uint64_t cursor_ = 0, mask_ = 0;
  std::size_t ring_count_ = 0;
  std::uint32_t free_ = kNone;
  int shift_ = 0;
  bool fetch_ = false;  // the run is large: memory is worth fetching ahead
  std::uint64_t tuned_events_ = 0, tune_at_ = 0;
  Picoseconds tuned_time_{};

  // By windows: run_ is the current one's, by domain and time, early_ what the domain at work has
  // scheduled in it. All before floor_ has happened, all before edge_ when both are empty.
  std::unique_ptr<WindowRing> windows_;
  EventHeap shared_;  // kAnybody's
  Picoseconds lookahead_{}, floor_{};
  Domain domain_ = kAnybody;  // at work
  std::vector<std::uint32_t> places_;  // by domain, see gather()

  std::vector<Object> handlers_{1};
  Domain domains_ = 1;
  Picoseconds now_{};
  std::uint64_t sequence_ = 0;
  std::uint64_t processed_ = 0, enough_ = 0;
  bool stopped_ = false;
  bool leave_ = false;  // the loop at work ends: the run was stopped, or events are served another way now

 public:
  EventQueue() {
    enlarge_run();
    shape(17, 256);  // 131 ns: a hop's time; tune() measures what it should be
  }
  EventQueue(const EventQueue&) = delete;
};

}  // namespace loomnet
