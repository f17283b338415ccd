// What a rank can make the engine keep: floods of marks are cut off by count, on both clocks, and what
// a rank claims about time stays in order.
#include "engine/rank_bridge.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace loomnet {
namespace {

using rank::MarkKind;

class Bridge : public ::testing::Test {
 protected:
  Bridge()
      : host(network.add_host(1)),
        bridge(network, host, geometry()),
        seen(rank::Memory::attach(bridge.memory_fd())),
        marks(seen.ring_words(rank::kMarks), seen.ring_entries(rank::kMarks), seen.geometry().marks) {}

  static rank::Geometry geometry() {
    rank::Geometry g;
    g.world = 2;
    g.staging_bytes = 8192;
    return g;
  }
  bool poll() { return bridge.poll(network.now(), wall_ns, 1.0); }  // wall_ns 0: the virtual clock
  // One mark, taken at once.
  void mark(MarkKind kind, std::uint64_t value, std::uint64_t a = 0, std::int64_t at_ns = 0) {
    ASSERT_TRUE(marks.push({.kind = static_cast<std::uint32_t>(kind), .at_ns = at_ns, .value = value, .a = a}));
    marks.publish();
    poll();
  }
  // Marks of `kind` until cut off, `most` at most; how many were taken. `between` after each thousand.
  template <typename Between>
  std::uint64_t flood(MarkKind kind, std::uint64_t most, Between between) {
    std::uint64_t made = 0;
    while (bridge.fault() == RankFault::none && made < most) {
      for (int i = 0; i < 1000; ++i, ++made) {
        marks.push({.kind = static_cast<std::uint32_t>(kind), .value = made % 1000});
      }
      marks.publish();
      while (poll()) {
      }
      bridge.take_marks();
      between();
    }
    return made;
  }

  Network network{1};
  NodeId host;
  RankBridge bridge;
  rank::Memory seen;
  rank::RingProducer<rank::MarkEntry> marks;
  std::int64_t wall_ns = 0;
};

class Floods : public Bridge, public ::testing::WithParamInterface<MarkKind> {};

TEST_P(Floods, AtOneInstantAreCutOff) {
  const std::uint64_t taken = flood(GetParam(), 10'000'000, [] {});
  EXPECT_EQ(bridge.fault(), RankFault::too_many_at_once) << taken;
  EXPECT_LE(taken, 2'200'000u);
}

TEST_P(Floods, AreCutOffLive) {
  wall_ns = 1'000'000'000;
  const std::uint64_t taken = flood(GetParam(), 1'000'000, [&] { wall_ns += 1'000'000; });
  EXPECT_EQ(bridge.fault(), RankFault::too_many_per_second) << taken;
}

INSTANTIATE_TEST_SUITE_P(Kinds, Floods,
                         ::testing::Values(MarkKind::step, MarkKind::hash, MarkKind::optimizer, MarkKind::failure,
                                           MarkKind::work_begin, MarkKind::work_end, MarkKind::ring_step));

TEST_F(Bridge, FloodsAreCutOffThoughTimePasses) {
  const std::uint64_t taken =
      flood(MarkKind::step, 50'000'000, [&] { network.run_until(network.now() + microseconds(1)); });
  EXPECT_EQ(bridge.fault(), RankFault::too_many_operations) << taken;
  EXPECT_LE(taken, 4'200'000u);
}

TEST_F(Bridge, RequestsForGroupsThatMakeNoSenseAreCutOff) {
  rank::Meetings meetings(2, 16);
  bridge.use_meetings(&meetings);
  mark(MarkKind::meet, 0);  // of no member
  EXPECT_EQ(bridge.fault(), RankFault::bad_mark);
}

// A script comes to it by itself: it makes a group in each step.
TEST_F(Bridge, GroupsBeyondTheirNumbersAreNamed) {
  rank::Meetings meetings(2, 0);
  bridge.use_meetings(&meetings);
  marks.push({.kind = static_cast<std::uint32_t>(MarkKind::meet), .status = 1});
  marks.publish();
  bridge.poll(network.now(), wall_ns, 1.0);
  EXPECT_EQ(bridge.fault(), RankFault::too_many_groups);
}

TEST_F(Bridge, ARankThatWaitsForAGroupSaysSo) {
  rank::Meetings meetings(4, 16);
  bridge.use_meetings(&meetings);
  marks.push({.kind = static_cast<std::uint32_t>(MarkKind::meet), .status = 4 | rank::kDefaultGroup});
  marks.publish();
  bridge.poll(network.now(), wall_ns, 1.0);
  EXPECT_EQ(bridge.under_way(), "init_process_group of 4 ranks");
}

// The job's time may count from there, so the virtual clock stops for a look.
TEST_F(Bridge, TheFirstWorkIsMarkedAndNoOther) {
  mark(MarkKind::work_begin, 1);
  mark(MarkKind::work_begin, 2);
  mark(MarkKind::work_end, 1);
  mark(MarkKind::work_end, 2);
  mark(MarkKind::work_begin, 3);
  const auto found = bridge.take_marks();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, MarkKind::work_begin);
  EXPECT_EQ(found[0].value, 1u);
  EXPECT_EQ(bridge.first_work(), found[0].at);
}

// A job's own pace: 100,000 steps of eight operations each, a millisecond apart.
TEST_F(Bridge, LongJobsAreNotFloods) {
  for (std::uint64_t step = 1; step <= 100'000; ++step) {
    for (std::uint64_t work = 0; work < 8; ++work) {
      marks.push({.kind = static_cast<std::uint32_t>(MarkKind::work_begin), .value = work});
      marks.push({.kind = static_cast<std::uint32_t>(MarkKind::work_end), .value = work});
    }
    marks.push({.kind = static_cast<std::uint32_t>(MarkKind::step), .value = step});
    marks.publish();
    while (poll()) {
    }
    ASSERT_EQ(bridge.take_marks().size(), step == 1 ? 2u : 1u);  // the first work is a mark as well
    network.run_until(network.now() + milliseconds(1));
  }
  EXPECT_EQ(bridge.fault(), RankFault::none);
}

// Ring steps go into their log, which is bounded, and stop no run loop as marks do.
TEST_F(Bridge, RingStepsAreLogged) {
  network.run_until(microseconds(5));
  mark(MarkKind::ring_step, 13, 7);
  ASSERT_EQ(bridge.steps().rows().size(), 1u);
  const StepRow& row = bridge.steps().rows().front();
  EXPECT_EQ(row.rank, 0u);
  EXPECT_EQ(row.channel, 7u);
  EXPECT_EQ(row.step, 13u);
  EXPECT_EQ(row.at, microseconds(5));
  EXPECT_FALSE(bridge.has_marks());
}

TEST_F(Bridge, RingStepsOfALongJobAreNoFlood) {
  const std::uint64_t taken =
      flood(MarkKind::ring_step, 5'000'000, [&] { network.run_until(network.now() + microseconds(1)); });
  EXPECT_EQ(bridge.fault(), RankFault::none) << taken;
  EXPECT_EQ(bridge.steps().rows().size(), StepLog::kMost);
  EXPECT_EQ(bridge.steps().unlogged(), taken - StepLog::kMost);
}

// Live, a mark's time is the rank's word.
TEST_F(Bridge, TimesOfMarksNeverRunBackwards) {
  network.run_until(seconds(10));
  wall_ns = 1'000'000'000'000;
  constexpr auto kMin = std::numeric_limits<std::int64_t>::min(), kMax = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t at : {wall_ns - 5, kMin, kMax, std::int64_t{0}, wall_ns - 1'000'000'000, kMax}) {
    mark(MarkKind::work_begin, 1, 0, at);
    mark(MarkKind::work_end, 1, static_cast<std::uint64_t>(kMin), at);
    mark(MarkKind::work_begin, 2, 0, at);
    mark(MarkKind::work_end, 2, static_cast<std::uint64_t>(kMax), at);
    mark(MarkKind::step, 3, 0, at);
  }
  Picoseconds before{};
  for (const RankMark& m : bridge.take_marks()) {
    EXPECT_GE(m.at, before);
    EXPECT_LE(m.at, network.now());
    before = m.at;
  }
  for (const auto& work : network.nic(host).meter().work()) EXPECT_LE(work.begin, work.end);
  for (const auto& busy : network.nic(host).meter().busy()) EXPECT_LE(busy.begin, busy.end);
  EXPECT_EQ(bridge.fault(), RankFault::none);
}

}  // namespace
}  // namespace loomnet
