// VirtualRanks: when the clock moves, how far, and which ranks it names when it cannot. The test plays the
// ranks, through the memory that a rank's process shares with the engine.
#include "engine/virtual_ranks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

namespace loomnet {
namespace {

using rank::MarkKind;
using rank::NoticeKind;
using rank::State;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Stop = VirtualRanks::Stop;

constexpr int kWallMs = 20'000;  // far longer than any of these runs takes
constexpr Picoseconds kFar = seconds(1000);

// The process of one rank.
class Hand {
 public:
  Hand(Network& network, NodeId host, std::uint32_t number, std::uint32_t world)
      : bridge(network, host, geometry(number, world)),
        seen_(rank::Memory::attach(bridge.memory_fd())),
        engine_wake_(::dup(bridge.engine_event_fd())),
        marks_(seen_.ring_words(rank::kMarks), seen_.ring_entries(rank::kMarks), seen_.geometry().marks),
        notices_(seen_.ring_words(rank::kNotices), seen_.ring_entries(rank::kNotices), seen_.geometry().notices) {}

  static rank::Geometry geometry(std::uint32_t number, std::uint32_t world) {
    rank::Geometry g;
    g.rank = number;
    g.world = world;
    g.notices = rank::notices_for(world);
    g.staging_bytes = 8192;
    return g;
  }
  void rests(State state, Picoseconds asked = kNever, Picoseconds limit = kNever) {
    words().alarm_ps = asked.count;
    words().limit_ps = limit.count;
    show(state);
  }
  void computes() { show(State::computing); }
  void mark(MarkKind kind, std::uint64_t value, std::uint64_t a = 0, std::uint32_t status = 0) {
    ASSERT_TRUE(marks_.push({.kind = static_cast<std::uint32_t>(kind), .status = status, .value = value, .a = a}));
    marks_.publish();
  }
  // Kinds of the notices since the last call.
  std::vector<NoticeKind> told() {
    std::vector<NoticeKind> kinds;
    std::array<rank::NoticeEntry, 64> out;
    for (std::size_t n; (n = notices_.pop(out)) != 0;) {
      for (std::size_t i = 0; i < n; ++i) kinds.push_back(static_cast<NoticeKind>(out[i].kind));
    }
    return kinds;
  }
  bool has_notice() { return !notices_.empty(); }
  Picoseconds now() const { return {seen_.engine_words().now_ps.load()}; }
  rank::RankWords& words() { return seen_.rank_words(); }

  RankBridge bridge;

 private:
  // As RankClient does it: the state, then the engine's wake if the engine sleeps.
  void show(State state) {
    words().state.store(rank::state_word(++epoch_, state));
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (seen_.engine_words().sleeping.load() != 0) engine_wake_.raise();
  }

  rank::Memory seen_;
  rank::EventFd engine_wake_;
  rank::RingProducer<rank::MarkEntry> marks_;
  rank::RingConsumer<rank::NoticeEntry> notices_;
  std::atomic<std::uint64_t> epoch_ = 0;
};

class Clock : public ::testing::Test, public EventHandler {
 protected:
  void use(std::uint32_t world) {
    for (std::uint32_t r = 0; r < world; ++r) {
      hands.push_back(std::make_unique<Hand>(network, network.add_host(1), r, world));
      clock.add(hands.back()->bridge);
    }
    object = network.events().add(*this);
  }
  Hand& hand(std::size_t rank) { return *hands[rank]; }
  void all_rest(State state = State::waiting) {
    for (auto& each : hands) each->rests(state);
  }
  void at(Picoseconds when) { network.events().schedule(when, object); }
  void on_event(std::uint64_t, Picoseconds now) override { events.push_back(now); }
  Stop run(Picoseconds end = kFar, int wall_ms = kWallMs) { return clock.run(end, wall_ms); }
  // Until the clock has gone with the machine's for more than 1 us: a busy machine may not run this process
  // for longer than one of these runs takes.
  void race() {
    for (int i = 0; i < 500 && clock.wall_paced() <= microseconds(1); ++i) ASSERT_EQ(run(kFar, 20), Stop::waiting);
  }

  Network network{1};
  std::vector<std::unique_ptr<Hand>> hands;
  VirtualRanks clock{network};
  ObjectId object = 0;
  std::vector<Picoseconds> events;
};

TEST_F(Clock, StandsWhileOneRankComputes) {
  use(2);
  at(microseconds(1));
  hand(0).rests(State::waiting);
  hand(1).computes();
  EXPECT_EQ(run(kFar, 30), Stop::waiting);
  EXPECT_EQ(network.now(), Picoseconds{});
  hand(1).rests(State::waiting);
  EXPECT_EQ(run(), Stop::stuck);
  EXPECT_THAT(events, ElementsAre(microseconds(1)));
}

TEST_F(Clock, GoesToItsEndAndNoFurther) {
  use(1);
  all_rest();
  for (int i = 1; i <= 5; ++i) at(microseconds(i));
  EXPECT_EQ(run(microseconds(3)), Stop::reached);
  EXPECT_EQ(network.now(), microseconds(3));
  EXPECT_EQ(events.size(), 3u);
}

// Time stands at the last event: a deadlock has not used up the horizon.
TEST_F(Clock, IsStuckWhereNothingIsLeftToHappen) {
  use(2);
  all_rest();
  at(microseconds(1));
  EXPECT_EQ(run(), Stop::stuck);
  EXPECT_EQ(network.now(), microseconds(1));
}

TEST_F(Clock, StopsAtAMark) {
  use(2);
  all_rest();
  at(microseconds(1));
  hand(1).mark(MarkKind::step, 1);
  EXPECT_EQ(run(), Stop::marked);
  EXPECT_EQ(network.now(), Picoseconds{});
  EXPECT_EQ(hand(1).bridge.take_marks().size(), 1u);
  EXPECT_EQ(run(), Stop::stuck);
}

TEST_F(Clock, DoesNotStandForARankThatHasLeftOrWasCutOff) {
  use(3);
  all_rest();
  hand(1).rests(State::gone);
  at(microseconds(1));
  EXPECT_EQ(run(kFar, 30), Stop::waiting) << "nobody has said that its process is gone";
  clock.leave(1);
  hand(2).words().state = rank::state_word(9, static_cast<State>(99));
  EXPECT_EQ(run(), Stop::stuck);
  EXPECT_EQ(network.now(), microseconds(1));
  EXPECT_EQ(hand(2).bridge.fault(), RankFault::bad_state);
}

TEST_F(Clock, RingsTheEarliestAlarmAtItsTime) {
  use(3);
  hand(0).rests(State::waiting, microseconds(7));
  hand(1).rests(State::waiting, microseconds(5));
  hand(2).rests(State::waiting);
  EXPECT_EQ(run(kFar, 30), Stop::waiting) << "rank 1 has not read its notice";
  EXPECT_EQ(network.now(), microseconds(5));
  EXPECT_EQ(hand(1).now(), microseconds(5));
  EXPECT_THAT(hand(1).told(), ElementsAre(NoticeKind::alarm));
  EXPECT_THAT(hand(0).told(), IsEmpty());
  hand(1).computes();
  hand(1).rests(State::waiting);
  EXPECT_EQ(run(kFar, 30), Stop::waiting);
  EXPECT_EQ(network.now(), microseconds(7));
  EXPECT_THAT(hand(0).told(), ElementsAre(NoticeKind::alarm));
}

TEST_F(Clock, EventsAtTheTimeOfAnAlarmComeFirst) {
  use(1);
  hand(0).rests(State::waiting, microseconds(5));
  at(microseconds(5));
  run(kFar, 30);
  EXPECT_THAT(events, ElementsAre(microseconds(5)));
  EXPECT_TRUE(hand(0).has_notice());
}

// Of a rank that reads the notice and stays as it is, the alarm is a word that nothing backs.
TEST_F(Clock, AnAlarmThatMovesNobodyRingsOnce) {
  use(1);
  hand(0).rests(State::waiting, microseconds(5));
  EXPECT_EQ(run(kFar, 30), Stop::waiting);
  EXPECT_THAT(hand(0).told(), ElementsAre(NoticeKind::alarm));
  EXPECT_EQ(run(), Stop::stuck);
  EXPECT_FALSE(hand(0).has_notice());
}

TEST_F(Clock, ALimitThatTheScriptDidNotChooseHidesNoDeadlock) {
  use(1);
  hand(0).rests(State::waiting, kNever, microseconds(5));
  EXPECT_EQ(run(), Stop::stuck);
  EXPECT_EQ(network.now(), Picoseconds{});
  at(microseconds(9));
  EXPECT_EQ(run(kFar, 30), Stop::waiting);
  EXPECT_EQ(network.now(), microseconds(5)) << "it ends what takes longer";
  EXPECT_THAT(hand(0).told(), ElementsAre(NoticeKind::alarm));
}

TEST_F(Clock, WordsOfARankAboutTimeAreBounded) {
  use(2);
  hand(0).rests(State::waiting, {std::numeric_limits<std::int64_t>::min()});
  hand(1).rests(State::waiting, {kNever.count - 1}, {kNever.count / 2 + 1});
  EXPECT_EQ(run(kFar, 30), Stop::waiting);
  EXPECT_EQ(network.now(), Picoseconds{}) << "an alarm in the past rings now";
  EXPECT_THAT(hand(0).told(), ElementsAre(NoticeKind::alarm));
  EXPECT_EQ(run(), Stop::stuck) << "one at the end of time is none";
  EXPECT_FALSE(hand(1).has_notice());
}

// A rank sleeps in what cannot be seen: emulated time is no faster than the machine's until it moves.
TEST_F(Clock, RacesTheMachinesClockWhileARankIsOutside) {
  use(2);
  hand(0).rests(State::waiting);
  hand(1).rests(State::outside);
  at(microseconds(1));
  at(seconds(100));
  const std::int64_t began = rank::monotonic_ns();
  race();
  const std::int64_t took = rank::monotonic_ns() - began;
  EXPECT_EQ(events.size(), 1u);
  EXPECT_GT(network.now(), microseconds(1));
  EXPECT_LE(network.now(), nanoseconds(took));
  EXPECT_EQ(clock.wall_paced(), network.now());
  EXPECT_THAT(clock.waited_for(), ElementsAre(1u));
  hand(1).rests(State::waiting);
  const Picoseconds raced = clock.wall_paced();
  EXPECT_EQ(run(), Stop::stuck);
  EXPECT_EQ(network.now(), seconds(100)) << "all wait: the clock is free again";
  EXPECT_EQ(clock.wall_paced(), raced);
}

TEST_F(Clock, ARaceEndsAtTheEndOfTheRun) {
  use(1);
  all_rest(State::outside);
  EXPECT_EQ(run(milliseconds(5)), Stop::reached);
  EXPECT_EQ(network.now(), milliseconds(5));
}

// What passed while the ranks computed is not made up for.
TEST_F(Clock, ARaceBeginsAnewAfterARankHasMoved) {
  use(1);
  all_rest(State::outside);
  EXPECT_EQ(run(kFar, 10), Stop::waiting);
  hand(0).computes();
  EXPECT_EQ(run(kFar, 200), Stop::waiting);
  hand(0).rests(State::outside);
  const Picoseconds before = network.now();
  const std::int64_t began = rank::monotonic_ns();
  EXPECT_EQ(run(kFar, 10), Stop::waiting);
  EXPECT_LE(network.now() - before, nanoseconds(rank::monotonic_ns() - began));
}

TEST_F(Clock, DoubtRacesWhereItWouldBeStuckAndNowhereElse) {
  use(2);
  all_rest();
  at(seconds(1));
  clock.may_yet_communicate({1});
  race();
  EXPECT_GE(network.now(), seconds(1)) << "an event is left: no doubt about what comes next";
  EXPECT_LT(network.now(), seconds(20));
  EXPECT_GT(clock.wall_paced(), Picoseconds{});
  EXPECT_THAT(clock.waited_for(), ElementsAre(1u));
  clock.may_yet_communicate({});
  EXPECT_EQ(run(), Stop::stuck);
}

TEST_F(Clock, ARankThatIsInDoubtAndOutsideIsNamedOnce) {
  use(2);
  hand(0).rests(State::waiting);
  hand(1).rests(State::outside);
  clock.may_yet_communicate({0, 1});
  run(kFar, 10);
  EXPECT_THAT(clock.waited_for(), ElementsAre(0u, 1u));
}

TEST_F(Clock, StrandIsToldToRanksThatAreThere) {
  use(2);
  all_rest();
  clock.leave(1);
  clock.strand();
  EXPECT_EQ(run(kFar, 20), Stop::waiting) << "the notice is unread";
  EXPECT_THAT(hand(0).told(), ElementsAre(NoticeKind::stranded));
  EXPECT_FALSE(hand(1).has_notice());
  EXPECT_EQ(run(), Stop::stuck);
}

TEST_F(Clock, OthersWaitLeavesOutWhomItIsTold) {
  use(3);
  all_rest();
  EXPECT_TRUE(clock.others_wait({}));
  hand(1).computes();
  EXPECT_FALSE(clock.others_wait({}));
  EXPECT_TRUE(clock.others_wait({1}));
  hand(2).rests(State::outside);
  EXPECT_TRUE(clock.others_wait({1})) << "one outside rests as well";
  hand(0).mark(MarkKind::step, 1);
  EXPECT_FALSE(clock.others_wait({1})) << "a mark is unread";
}

// Groups get their numbers at one instant, when all ranks rest.
TEST_F(Clock, GroupsAreMadeOnceAllRest) {
  use(2);
  hand(0).mark(MarkKind::meet, 0, 7, 2);
  hand(0).rests(State::waiting);
  hand(1).computes();
  EXPECT_EQ(run(kFar, 30), Stop::waiting);
  EXPECT_FALSE(hand(0).has_notice());
  hand(1).mark(MarkKind::meet, 1ull << 32, 7, 2);
  hand(1).rests(State::waiting);
  EXPECT_EQ(run(kFar, 30), Stop::waiting);
  for (auto& each : hands) EXPECT_THAT(each->told(), ElementsAre(NoticeKind::came, NoticeKind::came));
}

TEST_F(Clock, AGroupOfVeryManyRanksIsMadeAtOnce) {
  constexpr std::uint32_t kRanks = 300;
  use(kRanks);
  for (std::uint32_t r = 0; r < kRanks; ++r) hand(r).mark(MarkKind::meet, std::uint64_t{r} << 32, 7, kRanks);
  all_rest();
  EXPECT_EQ(run(kFar, 100), Stop::waiting);
  for (auto& each : hands) {
    EXPECT_EQ(each->bridge.fault(), RankFault::none) << to_string(each->bridge.fault());
    EXPECT_EQ(each->told().size(), kRanks);
  }
}

// The last of many ranks comes to rest at any moment of the engine's way to sleep.
TEST_F(Clock, NoRankComesToRestUnseen) {
  constexpr std::uint32_t kRanks = 64;
  use(kRanks);
  all_rest();
  std::atomic<int> turn{0};
  std::atomic<bool> over{false};
  constexpr int kTurns = 4000;
  hand(kRanks - 1).computes();
  std::thread last([&] {
    for (int done = 0; done < kTurns; ++done) {
      while (turn == done && !over) {
      }
      const std::int64_t until = rank::monotonic_ns() + done * 7919 % 150'000;
      while (rank::monotonic_ns() < until) {
      }
      hand(kRanks - 1).rests(State::waiting);
    }
  });
  int overslept = 0;
  for (int i = 0; i < kTurns && overslept == 0; ++i) {
    turn = i + 1;
    overslept += run(kFar, 500) != Stop::stuck;
    hand(kRanks - 1).computes();
  }
  over = true;
  last.join();
  EXPECT_EQ(overslept, 0) << "the engine slept although all ranks waited";
}

}  // namespace
}  // namespace loomnet
