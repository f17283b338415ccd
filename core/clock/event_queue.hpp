// The one event loop of both clocks: plain-data events ordered by (time, object id, sequence).
// The virtual clock runs it freely; the live clock lets it run up to the wall clock.
#pragma once

#include <cstdint>
#include <vector>

#include "clock/time.hpp"

namespace loomnet {

using ObjectId = std::uint32_t;  // 24 bits are used in an event's key

class EventHandler {
 public:
  virtual ~EventHandler() = default;
  // `what` is the number given to schedule(); a handler may get events it no longer needs.
  virtual void on_event(std::uint64_t what, Picoseconds now) = 0;
};

class EventQueue {
 public:
  // Handlers are not owned; ids count up from 1 and fix the order of equal times.
  ObjectId add(EventHandler& handler);

  void schedule(Picoseconds at, ObjectId object, std::uint64_t what = 0) {
    push({at < now_ ? now_ : at, key_of(object), what});
  }
  bool empty() const { return heap_.empty(); }
  Picoseconds next() const { return heap_.empty() ? kNever : heap_.front().at; }
  Picoseconds now() const { return now_; }
  std::uint64_t processed() const { return processed_; }

  // Runs every event at or before `end`, then sets now to `end`; false if it was stopped or had run
  // `most` events before that (now stays).
  bool run_until(Picoseconds end, std::uint64_t most = ~0ull);
  // Runs the next event; false if there is none.
  bool step();
  // Ends run_until after the current event; cleared when the next run begins.
  void stop() { stopped_ = true; }
  bool stopped() const { return stopped_; }

 private:
  struct Event {
    Picoseconds at;
    std::uint64_t key;  // object id << 40 | sequence
    std::uint64_t what;
    bool before(const Event& o) const { return at != o.at ? at < o.at : key < o.key; }
  };
  static constexpr int kSequenceBits = 40;

  std::uint64_t key_of(ObjectId object) {
    return static_cast<std::uint64_t>(object) << kSequenceBits |
           (sequence_++ & ((1ull << kSequenceBits) - 1));
  }
  void push(const Event& event);
  Event pop();
  void dispatch(const Event& event);

  std::vector<Event> heap_;  // 4-ary: half the depth of a binary heap, children in one cache line
  std::vector<EventHandler*> handlers_{nullptr};
  Picoseconds now_{};
  std::uint64_t sequence_ = 0;
  std::uint64_t processed_ = 0;
  bool stopped_ = false;
};

}  // namespace loomnet
