// A queue pair that another one takes the place of: its packets name another number and count from another
// PSN in each direction, the receiver's notifications and marks begin anew, and what is late of the one
// before finds no queue pair.
#include <gmock/gmock.h>

#include <set>

#include "packet/ecn.hpp"
#include "transport_roce/roce_bed.hpp"

namespace loomnet::testbed {
namespace {

using ::testing::ElementsAre;

struct RenewBed : RoceBed {
  explicit RenewBed(roce::RoceOptions options = quick()) : RoceBed({}, options) {}
  void renew() { nic(0).transport->on_renew(kQpA, now()); }
  void sent(std::size_t at, std::uint32_t immediate) {
    write(at, 700, immediate);
    ASSERT_TRUE(run_until_idle(now() + milliseconds(20))) << *this;
  }
};

struct Named {
  std::set<std::uint32_t> data, answers;  // queue pairs that packets name
  std::uint32_t first_psn = 0;            // of data
};

// Of each life of the queue pair.
struct Lives {
  std::vector<Named> all{{}};
  RoceBed::Filter watch() {
    return [this](HostId from, PlanePort, Packet& p) -> std::optional<Picoseconds> {
      Named& life = all.back();
      const Bth bth = bth_of(p);
      if (from == 0) {
        if (life.data.empty()) life.first_psn = bth.psn;
        life.data.insert(bth.destination_qp);
      } else {
        life.answers.insert(bth.destination_qp);
      }
      return Picoseconds{};
    };
  }
};

TEST(RoceRenew, TheNextQueuePairHasAnotherNumberAndFirstPsnAtBothEnds) {
  RenewBed bed;
  Lives lives;
  bed.filter = lives.watch();
  std::vector<std::uint32_t> immediates;
  for (std::uint32_t i = 0; i < 300; ++i) {  // more lives than eight bits count
    if (i > 0) {
      bed.renew();
      lives.all.emplace_back();
    }
    bed.sent(1000 * i, i);
    immediates.push_back(i);
  }
  EXPECT_EQ(bed.arrived_immediates(), immediates);
  for (std::uint32_t i = 0; i < 300; ++i) ASSERT_TRUE(bed.same(1000 * i, 700)) << i;
  EXPECT_THAT(lives.all[0].data, ElementsAre(kQpB));
  EXPECT_EQ(lives.all[0].first_psn, 0u);
  std::set<std::uint32_t> numbers, firsts;
  for (std::size_t i = 0; i < 256; ++i) {
    ASSERT_EQ(lives.all[i].data.size(), 1u);
    ASSERT_EQ(lives.all[i].answers.size(), 1u);
    numbers.insert(lives.all[i].data.begin(), lives.all[i].data.end());
  }
  for (const Named& each : lives.all) firsts.insert(each.first_psn);
  EXPECT_EQ(numbers.size(), 256u);
  EXPECT_GE(firsts.size(), 299u);
  for (const HostId host : {0u, 1u}) {
    EXPECT_EQ(bed.nic(host).counter("unknown_qp_dropped"), 0u);
    EXPECT_EQ(bed.nic(host).counter("acks_stale"), 0u);
  }
  EXPECT_EQ(bed.nic(0).counter("retransmitted"), 0u);
  EXPECT_EQ(bed.leaked(), 0u);
}

TEST(RoceRenew, LossIsRepairedInEveryLife) {
  RenewBed bed;
  bed.filter = [random = RandomStream(7, 1, 1)](HostId, PlanePort, Packet&) mutable -> std::optional<Picoseconds> {
    if (random.below(10) == 0) return std::nullopt;
    return Picoseconds{};
  };
  for (std::uint32_t i = 0; i < 200; ++i) {
    bed.sent(1000 * i, i);
    bed.renew();
  }
  for (std::uint32_t i = 0; i < 200; ++i) ASSERT_TRUE(bed.same(1000 * i, 700)) << i;
  EXPECT_EQ(bed.arrived_immediates().size(), 200u);
  EXPECT_GT(bed.nic(0).counter("retransmitted"), 20u);
}

TEST(RoceRenew, WhatIsLateOfTheQueuePairBeforeFindsNone) {
  RenewBed bed;
  int late_data = 0, late_answers = 0;
  bed.filter = [&](HostId from, PlanePort, Packet& p) -> std::optional<Picoseconds> {
    // The first life's repeated request and last answer arrive in the second one.
    const bool first = bth_of(p).destination_qp == (from == 0 ? kQpB : kQpA);
    if (first && from == 0 && bth_of(p).psn == 0 && late_data++ == 0) return microseconds(600);
    if (first && from == 1 && bed.now() > microseconds(500)) return ++late_answers, microseconds(200);
    return Picoseconds{};
  };
  bed.sent(0, 1);  // by a repetition, after the timeout of 524 us
  bed.renew();
  bed.sent(1000, 2);
  bed.run_until_idle(bed.now() + milliseconds(2));
  bed.sent(2000, 3);
  EXPECT_THAT(bed.arrived_immediates(), ElementsAre(1, 2, 3));
  EXPECT_TRUE(bed.same(0, 700) && bed.same(1000, 700) && bed.same(2000, 700));
  EXPECT_GE(bed.nic(1).counter("unknown_qp_dropped") + bed.nic(0).counter("unknown_qp_dropped"), 1u) << bed;
}

TEST(RoceRenew, TheReceiversNotificationsBeginAnew) {
  roce::RoceOptions options = quick();
  options.dcqcn = true;
  options.line_rate = 100'000'000'000;
  options.cnp_gap = milliseconds(50);
  RenewBed bed(options);
  bed.filter = [](HostId from, PlanePort, Packet& p) -> std::optional<Picoseconds> {
    if (from == 0) mark_ce(p);
    return Picoseconds{};
  };
  bed.sent(0, 1);
  bed.sent(1000, 2);
  EXPECT_EQ(bed.nic(1).counter("cnps_sent"), 1u) << "one per gap";
  bed.renew();
  bed.sent(2000, 3);
  EXPECT_EQ(bed.nic(1).counter("cnps_sent"), 2u);
  EXPECT_EQ(bed.nic(0).counter("cnps_received"), 2u);
}

TEST(RoceRenew, ANumberThatLeavesNoneForLaterLivesIsRefused) {
  RoceBed bed;
  bed.connect(0, 70'000, 1, 300);
  try {
    bed.nic(0).transport->on_renew(kQpA, {});
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("numbers above 65,535 none can begin anew"));
  }
}

TEST(RoceRenew, ALargeNumberIsItsOwnQueuePairs) {
  RoceBed bed;
  const QpNumber large = kQpB + (1u << 16);  // as the second life of kQpB has it
  bed.connect(0, 300, 1, large);
  const auto at = bed.post_write(0, 300, std::span(bed.source).subspan(0, 600), kBase, kKey, 9);
  ASSERT_TRUE(bed.run_until_idle(milliseconds(5))) << bed;
  EXPECT_THAT(bed.completed_ids(), ElementsAre(at));
  EXPECT_TRUE(bed.same(0, 600));
}

}  // namespace
}  // namespace loomnet::testbed
