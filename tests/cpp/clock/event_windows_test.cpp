// Served by windows of a lookahead: each domain's events in order of time, all domains and what is
// anybody's in the order of windows, the same as in order of time.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "clock/event_queue.hpp"
#include "clock/random.hpp"

namespace loomnet {
namespace {

constexpr Picoseconds kLookahead = nanoseconds(1'000);

struct Seen {
  Domain domain;
  Picoseconds at;
  std::uint64_t what;
  bool operator==(const Seen&) const = default;
};

struct Recorder : EventHandler {
  Domain domain = kAnybody;
  std::vector<Seen>* log = nullptr;
  EventQueue* queue = nullptr;
  void on_event(std::uint64_t what, Picoseconds now) override {
    EXPECT_EQ(queue->now(), now);
    log->push_back({domain, now, what});
  }
};

class EventWindows : public ::testing::Test {
 protected:
  ObjectId object(Domain domain) {
    Recorder& r = recorders_.emplace_back();
    r.domain = domain;
    r.log = &log_;
    r.queue = &queue_;
    return queue_.add(r, domain);
  }
  EventQueue queue_;
  std::vector<Seen> log_;
  std::deque<Recorder> recorders_;
};

TEST_F(EventWindows, OneDomainAfterTheOtherWithinAWindow) {
  const ObjectId a = object(1), b = object(2), all = object(kAnybody);
  queue_.set_lookahead(kLookahead, true);
  queue_.schedule(nanoseconds(100), b, 1);
  queue_.schedule(nanoseconds(900), a, 2);
  queue_.schedule(nanoseconds(300), a, 3);
  queue_.schedule(nanoseconds(1'100), a, 4);  // the next window
  queue_.schedule(nanoseconds(950), b, 5);
  queue_.schedule(nanoseconds(900), all, 6);  // before all of its time, though planned last
  EXPECT_EQ(queue_.pending(), 6u);
  EXPECT_EQ(queue_.next(), nanoseconds(100));
  EXPECT_TRUE(queue_.run_until(nanoseconds(2'000)));
  const std::vector<Seen> expected{{1, nanoseconds(300), 3}, {2, nanoseconds(100), 1}, {kAnybody, nanoseconds(900), 6},
                                   {1, nanoseconds(900), 2}, {2, nanoseconds(950), 5}, {1, nanoseconds(1'100), 4}};
  EXPECT_EQ(log_, expected);
  EXPECT_EQ(queue_.now(), nanoseconds(2'000));
  EXPECT_TRUE(queue_.empty());
  EXPECT_EQ(queue_.next(), kNever);
}

TEST_F(EventWindows, ARunEndsWithinAWindowAndTakesWhatComesAtItsEnd) {
  const ObjectId a = object(1), b = object(2);
  queue_.set_lookahead(kLookahead, true);
  queue_.schedule(nanoseconds(500), a, 1);
  queue_.schedule(nanoseconds(501), a, 2);
  EXPECT_TRUE(queue_.run_until(nanoseconds(500)));
  ASSERT_EQ(log_.size(), 1u);
  queue_.schedule(nanoseconds(400), b, 3);  // the past: now
  queue_.schedule(nanoseconds(500), b, 4);
  EXPECT_EQ(queue_.next(), nanoseconds(500));
  EXPECT_TRUE(queue_.run_until(nanoseconds(500)));
  EXPECT_EQ(log_.size(), 3u);
  EXPECT_EQ(log_.back(), (Seen{2, nanoseconds(500), 4}));
  EXPECT_TRUE(queue_.run_until(nanoseconds(999)));
  EXPECT_EQ(log_.back(), (Seen{1, nanoseconds(501), 2}));
  queue_.schedule(nanoseconds(999), a, 5);  // the last instant of the window
  EXPECT_TRUE(queue_.run_until(nanoseconds(1'000)));
  EXPECT_EQ(log_.back(), (Seen{1, nanoseconds(999), 5}));
  queue_.schedule(seconds(3), a, 6);  // far beyond the ring
  EXPECT_TRUE(queue_.run_until(seconds(2)));
  queue_.schedule(seconds(2), b, 7);
  EXPECT_TRUE(queue_.run_until(seconds(4)));
  EXPECT_EQ(log_[log_.size() - 2], (Seen{2, seconds(2), 7}));
  EXPECT_EQ(log_.back(), (Seen{1, seconds(3), 6}));
}

struct Crossing : EventHandler {
  EventQueue* queue = nullptr;
  ObjectId to = 0;
  Picoseconds after{};
  void on_event(std::uint64_t, Picoseconds now) override { queue->schedule(now + after, to); }
};

// An event that reaches another domain too soon is an error of the caller's lookahead, never late.
TEST_F(EventWindows, WhatCrossesDomainsWithinTheLookaheadIsRefused) {
  for (const Domain domain : {Domain{2}, kAnybody}) {
    EventQueue queue;
    Recorder far;
    std::vector<Seen> log;
    far.log = &log;
    far.queue = &queue;
    Crossing crossing;
    crossing.queue = &queue;
    crossing.to = queue.add(far, domain);
    const ObjectId from = queue.add(crossing, 1);
    queue.set_lookahead(kLookahead, true);
    crossing.after = kLookahead;
    queue.schedule(nanoseconds(300), from);
    EXPECT_NO_THROW(queue.run_until(nanoseconds(5'000)));
    EXPECT_EQ(log.size(), 1u);
    crossing.after = nanoseconds(100);
    queue.schedule(nanoseconds(5'300), from);
    EXPECT_THROW(queue.run_until(nanoseconds(9'000)), std::logic_error) << domain;
  }
}

TEST_F(EventWindows, AStepIsAWindow) {
  const ObjectId a = object(1), b = object(2);
  queue_.set_lookahead(kLookahead, true);
  queue_.schedule(nanoseconds(100), a, 1);
  queue_.schedule(nanoseconds(900), b, 2);
  queue_.schedule(nanoseconds(7'500), a, 3);
  EXPECT_TRUE(queue_.step());
  EXPECT_EQ(log_.size(), 2u);
  EXPECT_TRUE(queue_.step());
  EXPECT_EQ(log_.size(), 3u);
  EXPECT_FALSE(queue_.step());
}

// Stopped by an event of anybody's, a run ends with this event: all before it has happened, nothing of its time
// and after it, however events are served.
TEST_F(EventWindows, AStopTakesEffectAtOnce) {
  struct Stopper : EventHandler {
    EventQueue* queue = nullptr;
    void on_event(std::uint64_t, Picoseconds) override { queue->stop(); }
  } stopper;
  stopper.queue = &queue_;
  const ObjectId stop = queue_.add(stopper), a = object(1), b = object(4);
  for (const bool apart : {true, false, true}) {
    log_.clear();
    queue_.set_lookahead(kLookahead, apart);
    const Picoseconds base = queue_.now();
    queue_.schedule(base + nanoseconds(1'400), stop);
    for (const ObjectId o : {a, b}) {
      queue_.schedule(base + nanoseconds(1'399), o, 1);
      queue_.schedule(base + nanoseconds(1'400), o, 2);
      queue_.schedule(base + nanoseconds(1'401), o, 3);
    }
    EXPECT_FALSE(queue_.run_until(base + nanoseconds(9'000)));
    EXPECT_TRUE(queue_.stopped());
    EXPECT_EQ(log_.size(), 2u) << apart;
    EXPECT_EQ(queue_.now(), base + nanoseconds(1'400));
    EXPECT_EQ(queue_.pending(), 4u);
    queue_.schedule(base + nanoseconds(1'400), a, 4);  // posted between two runs
    EXPECT_TRUE(queue_.run_until(base + nanoseconds(1'400)));
    EXPECT_FALSE(queue_.stopped());
    EXPECT_EQ(log_.size(), 5u);
    EXPECT_TRUE(queue_.run_until(base + nanoseconds(3'700)));
    EXPECT_EQ(log_.size(), 7u);
  }
}

// Inside a window the domains' clocks differ: a stop there would be at no one time.
TEST_F(EventWindows, AStopByADomainIsRefused) {
  struct Stopper : EventHandler {
    EventQueue* queue = nullptr;
    void on_event(std::uint64_t, Picoseconds) override { queue->stop(); }
  } stopper;
  stopper.queue = &queue_;
  queue_.set_lookahead(kLookahead, true);
  queue_.schedule(nanoseconds(300), queue_.add(stopper, 3));
  EXPECT_THROW(queue_.run_until(nanoseconds(9'000)), std::logic_error);
}

// Events that change how the following ones are served, in the middle of one run.
TEST_F(EventWindows, ARunGoesOnWhenTheWayOfServingChanges) {
  struct Changer : EventHandler {
    EventQueue* queue = nullptr;
    void on_event(std::uint64_t apart, Picoseconds) override { queue->set_lookahead(kLookahead, apart != 0); }
  } changer;
  changer.queue = &queue_;
  const ObjectId change = queue_.add(changer), a = object(1), b = object(2);
  for (std::uint64_t i = 0; i < 40; ++i)
    queue_.schedule(nanoseconds(1'250) * static_cast<std::int64_t>(i), change, i % 2);
  for (std::int64_t i = 0; i < 500; ++i)
    queue_.schedule(nanoseconds(100) * i, i % 3 ? a : b, static_cast<std::uint64_t>(i));
  EXPECT_TRUE(queue_.run_until(nanoseconds(60'000)));
  EXPECT_EQ(log_.size(), 500u);
  for (const Domain domain : {1u, 2u}) {
    Picoseconds last{-1};
    for (const Seen& each : log_) {
      if (each.domain != domain) continue;
      EXPECT_LT(last, each.at);
      last = each.at;
    }
  }
  EXPECT_EQ(queue_.now(), nanoseconds(60'000));
}

// Domains that wake themselves at once and others a lookahead later, over twelve orders of
// magnitude, few and many pending, with anybody's events in between that shorten the lookahead,
// in runs of all lengths: every domain sees what it sees in order of time. What an event leads to
// follows from the event, for two that reach one object at one time have no order of their own.
std::vector<std::vector<Seen>> chaos(std::uint64_t seed, Domain domains, unsigned depth, bool apart) {
  struct Node : EventHandler {
    EventQueue* queue = nullptr;
    std::vector<ObjectId>* ids = nullptr;
    std::vector<Seen>* log = nullptr;
    Domain domain = 0;
    unsigned depth = 0;
    void on_event(std::uint64_t what, Picoseconds now) override {
      log->push_back({domain, now, what});
      if (what % 256 >= depth) return;
      RandomStream random(what, domain, 0);
      for (std::uint32_t i = random.below(4); i > 0; --i) {
        const std::int64_t scale = std::int64_t{1} << random.below(random.below(8) ? 21 : 40);
        const Picoseconds later{static_cast<std::int64_t>(random() % scale)};
        const std::uint64_t next = random() / 256 * 256 + what % 256 + 1;
        if (random.below(2)) {
          queue->schedule(now + later, (*ids)[domain], next);
        } else {  // the longest lookahead that was: a shorter one changes nothing
          const Domain to = random.below(static_cast<std::uint32_t>(ids->size()));
          queue->schedule(now + kLookahead + later, (*ids)[to], next);
        }
      }
    }
  };
  struct Shortener : EventHandler {
    EventQueue* queue = nullptr;
    bool apart = false;
    void on_event(std::uint64_t, Picoseconds) override { queue->set_lookahead(queue->lookahead() / 2, apart); }
  } shortener;
  EventQueue queue;
  std::vector<ObjectId> ids;
  std::vector<std::vector<Seen>> logs(domains);
  std::deque<Node> nodes(domains);
  for (Domain d = 0; d < domains; ++d) {  // domain 0: anybody's
    nodes[d].queue = &queue;
    nodes[d].ids = &ids;
    nodes[d].log = &logs[d];
    nodes[d].domain = d;
    nodes[d].depth = depth;
    ids.push_back(queue.add(nodes[d], d));
  }
  shortener.queue = &queue;
  shortener.apart = apart;
  const ObjectId shorten = queue.add(shortener);
  RandomStream random(seed, 0, 2);
  // Some is pending before the lookahead is known.
  for (const ObjectId id : ids) {
    queue.schedule(Picoseconds{random.below(5'000'000)}, id, random() / 256 * 256);
  }
  queue.run_until(nanoseconds(100));
  queue.set_lookahead(kLookahead, apart);
  for (int i = 0; i < 3; ++i) queue.schedule(microseconds(random.below(200)), shorten);
  while (!queue.empty()) {
    const Picoseconds next = queue.next();
    EXPECT_GE(next, queue.now());
    const std::int64_t scale = std::int64_t{1} << random.below(32);
    queue.run_until(next + Picoseconds{static_cast<std::int64_t>(random() % scale)});
  }
  for (std::vector<Seen>& log : logs) {
    const auto earlier = [](const Seen& a, const Seen& b) { return a.at < b.at; };
    EXPECT_TRUE(std::is_sorted(log.begin(), log.end(), earlier));
    std::sort(log.begin(), log.end(),
              [](const Seen& a, const Seen& b) { return a.at != b.at ? a.at < b.at : a.what < b.what; });
  }
  return logs;
}

TEST(EventWindowsChaos, EveryDomainSeesTheSameAsInOrderOfTime) {
  for (const auto& [domains, depth] : {std::pair{3u, 16u}, {40u, 12u}, {3'000u, 3u}}) {
    std::size_t events = 0;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      const auto by_time = chaos(seed, domains, depth, false);
      const auto by_domain = chaos(seed, domains, depth, true);
      ASSERT_TRUE(by_time == by_domain) << domains << " domains, seed " << seed;
      for (const auto& log : by_domain) events += log.size();
    }
    EXPECT_GT(events, 100'000u);
  }
}

}  // namespace
}  // namespace loomnet
