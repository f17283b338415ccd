// The one event loop of both clocks: plain-data events ordered by (time, object id, sequence).
// The virtual clock runs it freely; the live clock lets it run up to the wall clock.
//
// A ring of buckets holds the near future, each an unsorted list; what comes next lies sorted in a
// short run, so that the memory of the next events can be fetched while this one is served.
#pragma once

#include <cstdint>
#include <vector>

#include "clock/event_heap.hpp"
#include "clock/time.hpp"

namespace loomnet {

using ObjectId = std::uint32_t;  // 24 bits are used in an event's key

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
  // Handlers are not owned; ids count up from 1 and fix the order of equal times.
  ObjectId add(EventHandler& handler);

  void schedule(Picoseconds at, ObjectId object, std::uint64_t what = 0) {
    if (at < now_) at = now_;
    const std::uint64_t key = key_of(object);
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
    return static_cast<std::size_t>(end_ - next_) + early_.size() + ring_count_ + late_.size();
  }

  // Runs every event at or before `end`, then sets now to `end`; false if it was stopped or had run
  // `most` events before that (now stays).
  bool run_until(Picoseconds end, std::uint64_t most = ~0ull);
  // Runs the next event; false if there is none.
  bool step();
  // Ends run_until after the current event; cleared when the next run begins.
  void stop() { stopped_ = true; }
  bool stopped() const { return stopped_; }

 private:
  static constexpr int kSequenceBits = 40;
  static constexpr std::uint32_t kNone = ~0u;
  struct Node {
    Event event;
    std::uint32_t next;
  };

  std::uint64_t key_of(ObjectId object) {
    return static_cast<std::uint64_t>(object) << kSequenceBits |
           (sequence_++ & ((1ull << kSequenceBits) - 1));
  }
  EventHandler* handler_of(const Event& event) const {
    return handlers_[event.key >> kSequenceBits];
  }
  std::uint64_t bucket_of(Picoseconds at) const {
    return static_cast<std::uint64_t>(at.count) >> shift_;
  }
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
    return end_ - next_ < run_low_ &&
           (ring_count_ > 0 || (next_ == end_ && early_.empty() && !late_.empty()));
  }
  const Event* front();
  Event pop(const Event* front);
  void look_ahead() const;
  void refill();
  void enlarge_run();
  void extract(std::uint64_t bucket);
  void tune();
  void shape(int shift, std::size_t buckets);
  void dispatch(const Event& event);

  // Sorted events before edge_, next_ to end_ in run_; what was scheduled before edge_ since is in
  // early_, at or after it in the ring, beyond the ring in late_.
  std::vector<Event> run_;
  Event* next_ = nullptr;
  Event* end_ = nullptr;
  std::ptrdiff_t run_low_ = 1;  // filled up when shorter than this …
  std::size_t run_high_ = 32;   // … to this
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

  std::vector<EventHandler*> handlers_{nullptr};
  Picoseconds now_{};
  std::uint64_t sequence_ = 0;
  std::uint64_t processed_ = 0;
  bool stopped_ = false;

 public:
  EventQueue() {
    enlarge_run();
    shape(17, 256);  // 131 ns: a hop's time; tune() measures what it should be
  }
  EventQueue(const EventQueue&) = delete;
};

}  // namespace loomnet
