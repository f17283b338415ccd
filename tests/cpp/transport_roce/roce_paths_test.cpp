// RoCE queue pairs whose paths change. Messages of a queue pair with one path have one part, and that part is
// taken from whichever port it comes by: packets that left before the change are still on the path before.
#include <gmock/gmock.h>

#include "transport_roce/roce_bed.hpp"

namespace loomnet::testbed {
namespace {

using ::testing::ElementsAre;

constexpr QpNumber kNear = 300, kFar = 400;
constexpr std::size_t kPorts = 3;
constexpr std::size_t kBytes = 64 << 10;

// Paths of a host with kPorts ports: by these of them.
std::vector<PlanePaths> by(std::initializer_list<PlanePort> ports, HostId to) {
  std::vector<PlanePaths> planes = Testbed::local_paths(kPorts, to);
  for (PlanePort port = 0; port < kPorts; ++port) {
    if (std::find(ports.begin(), ports.end(), port) == ports.end()) planes[port].uplinks.clear();
  }
  return planes;
}

// Two hosts with kPorts ports each, and a queue pair between them by `first`.
struct PathBed : RoceBed {
  explicit PathBed(std::initializer_list<PlanePort> first) : RoceBed({.planes = kPorts}) {
    paths = [first](HostId, HostId to) { return by(first, to); };
    connect(0, kNear, 1, kFar);
  }
  void go_by(HostId host, std::initializer_list<PlanePort> ports) {
    transport(host).on_paths(host == 0 ? kNear : kFar, by(ports, 1 - host), now());
  }
  std::uint64_t send() { return post_write(0, kNear, std::span(source).first(kBytes), kBase, kKey, 7); }
  // The write is whole, and no packet of it was dropped or sent a second time.
  void expect_one_copy(std::uint64_t id) {
    EXPECT_THAT(completed_ids(), ElementsAre(id));
    EXPECT_EQ(nic(0).completions.at(0).completion.status, Status::ok);
    EXPECT_THAT(arrived_immediates(), ElementsAre(7));
    EXPECT_TRUE(same(0, kBytes));
    for (const HostId host : {0u, 1u}) {
      EXPECT_EQ(nic(host).counter("wrong_port_dropped"), 0u) << "host " << host << "\n" << *this;
    }
    EXPECT_EQ(nic(0).counter("retransmitted"), 0u) << *this;
  }
};

// All ports have the same delay, so the packets of the old path come before those of the new one.
TEST(RocePathChange, WhatLeftByThePathBeforeIsTaken) {
  PathBed bed({0});
  const auto id = bed.send();
  bed.at(microseconds(3), [&] {  // about half of the write has left
    bed.go_by(0, {1});
    bed.go_by(1, {1});
  });
  ASSERT_TRUE(bed.run_until_idle(milliseconds(1))) << bed;
  bed.expect_one_copy(id);
  EXPECT_GT(bed.up(0, 0).sent, 20u);
  EXPECT_GT(bed.up(0, 1).sent, 20u);
  EXPECT_GT(bed.up(1, 0).sent, 0u) << "acknowledgements from before the change";
  EXPECT_GT(bed.up(1, 1).sent, 0u);
}

TEST(RocePathChange, AnEndThatHasNotChangedYetTakesThePacketsOfTheOther) {
  PathBed bed({0});
  bed.go_by(0, {2});
  const auto id = bed.send();
  ASSERT_TRUE(bed.run_until_idle(milliseconds(1))) << bed;
  bed.expect_one_copy(id);
  EXPECT_EQ(bed.up(0, 0).sent, 0u);
  EXPECT_GT(bed.up(0, 2).sent, 0u);
  EXPECT_GT(bed.up(1, 0).sent, 0u) << "its acknowledgements go by its own path";
  EXPECT_EQ(bed.up(1, 2).sent, 0u);
}

TEST(RocePathChange, AnEndWithoutAPathTakesPacketsAndAnswersWhenItHasOne) {
  PathBed bed({0});
  bed.go_by(1, {});
  const auto id = bed.send();
  bed.run_until(microseconds(50));
  EXPECT_TRUE(bed.same(0, kBytes));
  EXPECT_TRUE(bed.nic(0).completions.empty());
  bed.go_by(1, {1});
  ASSERT_TRUE(bed.run_until_idle(milliseconds(1))) << bed;
  bed.expect_one_copy(id);
  EXPECT_LT(bed.now(), microseconds(60)) << "not only when the timer asks again";
}

TEST(RocePathChange, ASenderWithoutAPathKeepsItsPackets) {
  PathBed bed({0});
  bed.go_by(0, {});
  const auto id = bed.send();
  bed.run_until(microseconds(100));
  EXPECT_EQ(bed.up(0, 0).sent + bed.up(0, 1).sent + bed.up(0, 2).sent, 0u);
  bed.go_by(0, {2});
  ASSERT_TRUE(bed.run_until_idle(milliseconds(1))) << bed;
  bed.expect_one_copy(id);
}

// A part is known by its port where messages have several parts, so the rule above does not hold for them.
TEST(RocePathChange, OfTwoPartsOneByAPortOfNeitherIsDroppedByName) {
  PathBed bed({0, 1});
  PacketPtr seen;
  bed.filter = [&](HostId, PlanePort port, Packet& packet) -> std::optional<Picoseconds> {
    if (port == 0 && !seen) seen = bed.pool().duplicate(packet);
    return Picoseconds{};
  };
  const auto id = bed.send();
  ASSERT_TRUE(bed.run_until_idle(milliseconds(1))) << bed;
  bed.expect_one_copy(id);
  ASSERT_TRUE(seen);
  const std::uint64_t placed = bed.nic(1).placed_bytes;
  bed.inject(1, 2, std::move(seen));
  EXPECT_EQ(bed.nic(1).counter("wrong_port_dropped"), 1u);
  EXPECT_EQ(bed.nic(1).placed_bytes, placed);
  EXPECT_THROW(bed.go_by(0, {2}), std::invalid_argument) << "stripes over two ports";
}

}  // namespace
}  // namespace loomnet::testbed
