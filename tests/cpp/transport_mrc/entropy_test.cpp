// EV rotation, SKIP, replacement, floor and re-admission (OCP MRC 1.0).
#include "transport/mrc/entropy.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace loomnet::mrc {
namespace {

std::vector<PlanePaths> planes(std::size_t count, std::size_t uplinks) {
  PlanePaths p;
  p.row.count = 4;
  p.row.uplink_slot = 1;
  for (std::size_t u = 0; u < uplinks; ++u) p.uplinks.push_back(static_cast<std::uint16_t>(u));
  return std::vector<PlanePaths>(count, p);
}

MrcOptions with_evs(std::uint32_t e) {
  MrcOptions o;
  o.evs_per_qp = e;
  return o;
}

std::set<EvIndex> rotation(EvSet& set, PlanePort plane, std::size_t picks) {
  std::set<EvIndex> seen;
  for (std::size_t i = 0; i < picks; ++i) seen.insert(set.pick(plane));
  return seen;
}

TEST(EvSet, SameNumberPerPlaneAndABackupQuarter) {
  EvSet set(with_evs(32), planes(4, 16), 1);
  EXPECT_EQ(set.slots(), 32u);
  EXPECT_EQ(set.size(), 32u + 4 * 2) << "8 active and 2 backups per plane";
  EXPECT_EQ(set.floor(0xff), 8u);
  for (PlanePort p = 0; p < 4; ++p) EXPECT_EQ(rotation(set, p, 8).size(), 8u) << "each one once";
}

TEST(EvSet, AllPathsLeaveNoBackups) {
  EvSet set(with_evs(256), planes(4, 16), 1);
  EXPECT_EQ(set.slots(), 64u);
  EXPECT_EQ(set.size(), 64u);
}

TEST(EvSet, LocalDestinationHasOnePathPerPlane) {
  auto local = planes(8, 1);
  EvSet set(with_evs(256), local, 1);
  EXPECT_EQ(set.slots(), 8u);
  EXPECT_EQ(set.size(), 8u);
  EXPECT_EQ(set.value(set.pick(3)).value, 0xc003u) << "uplink bits are 0";
}

TEST(EvSet, DrawsDifferPerQueuePairAndRepeatPerSeed) {
  EvSet a(with_evs(16), planes(4, 64), 1), again(with_evs(16), planes(4, 64), 1);
  EvSet b(with_evs(16), planes(4, 64), 2);
  std::vector<std::uint32_t> va, vagain, vb;
  for (int i = 0; i < 4; ++i) {
    va.push_back(a.value(a.pick(0)).value);
    vagain.push_back(again.value(again.pick(0)).value);
    vb.push_back(b.value(b.pick(0)).value);
  }
  EXPECT_EQ(va, vagain);
  EXPECT_NE(va, vb);
}

TEST(EvSet, PlanesTakeTurns) {
  EvSet set(with_evs(16), planes(4, 16), 1);
  std::map<int, int> seen;
  for (int i = 0; i < 40; ++i) {
    const int p = set.preferred_plane(0xf);
    ++seen[p];
    set.advance_plane(static_cast<PlanePort>(p));
  }
  for (int p = 0; p < 4; ++p) EXPECT_EQ(seen[p], 10);
  EXPECT_EQ(set.preferred_plane(0b0100), 2) << "only what is free";
  EXPECT_EQ(set.preferred_plane(0), -1);
}

// A marked path passes its turn to another plane: marks steer load away from a congested plane.
TEST(EvSet, MarkedPathPassesItsTurnToAnotherPlane) {
  EvSet set(with_evs(256), planes(2, 1), 1);
  int sent[2] = {};
  for (int i = 0; i < 60; ++i) {
    const int p = set.preferred_plane(0b11);
    const EvIndex ev = set.pick(static_cast<PlanePort>(p));
    set.advance_plane(static_cast<PlanePort>(p));
    ++sent[p];
    if (p == 1) set.skip(ev);
  }
  EXPECT_NEAR(sent[0], 40, 1) << "every second turn of plane 1 is passed over";
  set.skip(set.pick(0)), set.skip(set.pick(1));
  EXPECT_GE(set.preferred_plane(0b11), 0) << "all marked: still sends";
}

// The rotation as a sender drives it: turns of planes, then values.
EvIndex sent(EvSet& set, PlaneMask allowed = 0xff) {
  const auto p = static_cast<PlanePort>(set.preferred_plane(allowed));
  const EvIndex ev = set.pick(p);
  set.advance_plane(p);
  return ev;
}

// The plane's only path is marked, and the next turn of the plane meets the mark.
TEST(EvSet, AMarkOfAllPathsOfAPlaneSwapsWithinThePlane) {
  EvSet set(with_evs(4), planes(4, 8), 1);  // one slot and one backup per plane
  std::set<EvIndex> before;
  for (int i = 0; i < 4; ++i) before.insert(sent(set));
  EXPECT_EQ(before.size(), 4u);
  const EvIndex marked = *before.begin();
  EXPECT_TRUE(set.skip(marked));
  std::map<PlanePort, int> turns;
  for (int i = 0; i < 40; ++i) {
    const EvIndex ev = sent(set);
    EXPECT_NE(ev, marked);
    ++turns[set.value(ev).plane()];
  }
  for (PlanePort p = 0; p < 4; ++p) EXPECT_EQ(turns[p], 10) << "the other planes take no more";
  const EvIndex fresh = set.take_swapped();
  ASSERT_NE(fresh, kNoEv);
  EXPECT_EQ(set.value(fresh).plane(), set.value(marked).plane());
  EXPECT_EQ(set.take_swapped(), kNoEv);
  EXPECT_EQ(set.state(marked), EvState::good);
}

// Of sets marked at the same moment about half move; those that stay do so for two round trips.
TEST(EvSet, SetsThatAreMarkedTogetherDoNotMoveTogether) {
  int moved = 0;
  for (std::uint64_t object = 1; object <= 64; ++object) {
    EvSet set(with_evs(1), planes(1, 2), object);
    const EvIndex first = sent(set);
    for (int mark = 0; mark < 4; ++mark) {
      set.skip(first);
      sent(set);
    }
    moved += set.take_swapped() != kNoEv;
  }
  EXPECT_GT(moved, 20);
  EXPECT_LT(moved, 44);
}

TEST(EvSet, TurnsGoByPathsOrEquallyToPlanes) {
  for (const PlaneTurns turns : {PlaneTurns::paths, PlaneTurns::equal}) {
    MrcOptions o = with_evs(256);
    o.plane_turns = turns;
    EvSet set(o, planes(4, 2), 1);
    const EvIndex dead = set.pick(0);
    set.condemn(dead, 0xff);
    int of_plane[4] = {};
    for (int i = 0; i < 700; ++i) ++of_plane[set.value(sent(set)).plane()];
    const int first = turns == PlaneTurns::paths ? 100 : 175, others = turns == PlaneTurns::paths ? 200 : 175;
    EXPECT_NEAR(of_plane[0], first, 1);
    for (int p = 1; p < 4; ++p) EXPECT_NEAR(of_plane[p], others, 1);
    EXPECT_EQ(set.weight_in(0), 512u) << "of 1,024: one path of two";
    EXPECT_EQ(set.weight_in(1), 1024u);
  }
}

TEST(EvSet, APlaneThatWasBusyForLongTakesNoMoreThanItsTurns) {
  EvSet set(with_evs(256), planes(2, 2), 1);
  for (int i = 0; i < 1000; ++i) sent(set, 0b10);
  int first = 0;
  for (int i = 0; i < 20; ++i) first += set.value(sent(set)).plane() == 0;
  EXPECT_NEAR(first, 10, 2);
}

TEST(EvSet, EqualTurnsStayWhenAPathIsMarked) {
  MrcOptions o = with_evs(256);
  o.plane_turns = PlaneTurns::equal;
  EvSet set(o, planes(2, 2), 1);
  int of_plane[2] = {};
  for (int i = 0; i < 60; ++i) {
    const EvIndex ev = sent(set);
    ++of_plane[set.value(ev).plane()];
    if (set.value(ev).plane() == 1) set.skip(ev);
  }
  EXPECT_EQ(of_plane[0], 30);
}

TEST(EvSet, SkipIsOnePassAndDoesNotStack) {
  EvSet set(with_evs(4), planes(1, 4), 1);
  const EvIndex first = set.pick(0);
  set.pick(0), set.pick(0), set.pick(0);
  set.skip(first);
  set.skip(first);
  EXPECT_EQ(set.state(first), EvState::skip);
  EXPECT_FALSE(rotation(set, 0, 3).contains(first)) << "passed over once";
  EXPECT_EQ(set.state(first), EvState::good);
  EXPECT_TRUE(rotation(set, 0, 4).contains(first));
}

TEST(EvSet, AllMarkedTriesABackup) {
  EvSet set(with_evs(1), planes(1, 8), 1);  // one slot, one backup
  const EvIndex marked = set.pick(0);
  set.skip(marked);
  const EvIndex next = set.pick(0);
  EXPECT_NE(next, marked);
  EXPECT_NE(next, kNoEv);
  EXPECT_FALSE(set.in_rotation(marked));
  EXPECT_EQ(set.state(marked), EvState::good) << "it waits as a backup";
}

TEST(EvSet, AllMarkedWithoutBackupStillSends) {
  EvSet set(with_evs(256), planes(1, 2), 1);
  set.skip(set.pick(0)), set.skip(set.pick(0));
  EXPECT_NE(set.pick(0), kNoEv);
}

TEST(EvSet, NeverTheAvoidedOne) {
  EvSet set(with_evs(256), planes(2, 1), 1);
  const EvIndex ev = set.pick(0);
  EXPECT_EQ(set.pick(0, ev), kNoEv);
  EXPECT_FALSE(set.usable(0, ev));
  EXPECT_EQ(set.preferred_plane(0b11, ev), 1);
}

TEST(EvSet, LossReplacesFromTheSamePlane) {
  EvSet set(with_evs(16), planes(4, 8), 1);  // 4 active, 1 backup per plane
  const EvIndex bad = set.pick(2);
  const EvChange change = set.lost(bad, 0xf);
  ASSERT_TRUE(change.condemned);
  ASSERT_NE(change.swapped_in, kNoEv);
  EXPECT_EQ(set.value(change.swapped_in).plane(), 2u);
  EXPECT_EQ(set.active(), 16u);
  EXPECT_FALSE(rotation(set, 2, 20).contains(bad));
  const EvIndex second = set.pick(2);
  EXPECT_EQ(set.lost(second, 0xf).swapped_in, kNoEv) << "no backup left on that plane";
  EXPECT_EQ(set.active(), 15u);
  set.readmit(bad);
  EXPECT_TRUE(set.in_rotation(bad)) << "its plane is short of one";
  EXPECT_EQ(set.active(), 16u);
  set.readmit(second);
  EXPECT_FALSE(set.in_rotation(second)) << "to the backups";
  EXPECT_EQ(set.state(second), EvState::good);
}

TEST(EvSet, FloorGivesTheOldestBack) {
  EvSet set(with_evs(256), planes(4, 1), 1);  // 4 slots, floor 1
  EvIndex ev[4];
  for (PlanePort p = 0; p < 4; ++p) ev[p] = set.pick(p);
  EXPECT_EQ(set.lost(ev[0], 0xf).returned, kNoEv);
  EXPECT_EQ(set.lost(ev[1], 0xf).returned, kNoEv);
  EXPECT_EQ(set.lost(ev[2], 0xf).returned, kNoEv);
  EXPECT_EQ(set.lost(ev[3], 0xf).returned, ev[0]);
  EXPECT_EQ(set.active(), 1u);
  EXPECT_EQ(set.state(ev[3]), EvState::assumed_bad);
}

TEST(EvSet, FloorCountsLivePlanesOnly) {
  EvSet set(with_evs(256), planes(2, 1), 1);
  const EvIndex a = set.pick(0);
  set.lost(a, 0b11);
  EXPECT_EQ(set.keep_floor(0b01), a) << "the other plane is down: the bad one must serve";
  EXPECT_EQ(set.state(a), EvState::good);
}

TEST(EvSet, MoreLossesToCondemn) {
  MrcOptions o = with_evs(16);
  o.losses_to_bad = 3;
  EvSet set(o, planes(4, 8), 1);
  const EvIndex ev = set.pick(0);
  EXPECT_FALSE(set.lost(ev, 0xf).condemned);
  EXPECT_FALSE(set.lost(ev, 0xf).condemned);
  EXPECT_TRUE(set.lost(ev, 0xf).condemned);
  EXPECT_EQ(set.failures(ev), 1u);
  set.readmit(ev);
  set.condemn(ev, 0xf);
  EXPECT_EQ(set.failures(ev), 2u);
}

// A plane whose leaf has twice the uplinks that its hosts fill loses half of them for nothing.
TEST(EvSet, APlaneWithPathsToSpareLosesNoWeightWithSome) {
  for (const double capacity : {0.5, 1.0, 2.0}) {
    auto ways = planes(4, 8);
    for (PlanePaths& each : ways) each.capacity = capacity;
    EvSet set(with_evs(32), ways, 1);
    const std::uint32_t whole = capacity < 1 ? 512 : 1024;
    for (unsigned lost = 0; lost < 6; ++lost) {
      const double left = std::min(1.0, capacity * (8 - lost) / 8);
      EXPECT_EQ(set.weight_in(0), static_cast<std::uint32_t>(left * 1024)) << capacity << " " << lost;
      EXPECT_EQ(set.weight_in(1), whole);
      const EvIndex ev = set.pick(0);
      ASSERT_NE(ev, kNoEv);
      set.condemn(ev, 0xf);
    }
  }
}

TEST(EvSet, DeniedIsForTheControllerOnly) {
  EvSet set(with_evs(16), planes(4, 8), 1);
  const EvIndex ev = set.pick(1);
  set.deny(ev, true);
  EXPECT_EQ(set.state(ev), EvState::denied);
  set.readmit(ev);
  EXPECT_EQ(set.state(ev), EvState::denied) << "probes do not undo it";
  EXPECT_FALSE(set.lost(ev, 0xf).condemned);
  set.deny(ev, false);
  EXPECT_EQ(set.state(ev), EvState::good);
}

TEST(EvSet, FindsByValueAndRefusesNonsense) {
  EvSet set(with_evs(256), planes(4, 16), 1);
  for (EvIndex i = 0; i < set.size(); ++i) EXPECT_EQ(set.find(set.value(i)), i);
  for (const std::uint32_t v : {0u, 0xffffffffu, 0xc007u, 0xc000u | 16u << 3, 0x1c000u}) {
    EXPECT_EQ(set.find(EntropyValue(v)), kNoEv) << std::hex << v;
  }
}

}  // namespace
}  // namespace loomnet::mrc
