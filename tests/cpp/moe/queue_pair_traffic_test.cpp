// Queue pairs on circuits: the port of their packets, their move to wires and back when circuits change, and the
// call that tells the controller that the circuits are empty.
#include "moe/queue_pair_traffic.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "region_bed.hpp"

namespace loomnet::moe {
namespace {

using circuits::kNoPeer;
using circuits::ServerPair;
using ::testing::ElementsAre;
using testing::Hot;
using ::testing::IsEmpty;
using testing::joined;
using testing::RegionBed;

constexpr Picoseconds kCrossing = microseconds(2), kFibre = nanoseconds(500);
constexpr std::uint32_t kServers = 3, kAlpha = 2;
constexpr PlanePort kWires = 0, kFirst = 1, kSecond = 2;  // ports of a host

// Port i * kAlpha + k of the panel is optical NIC k of server i, port 1 + k of its host.
struct Bed : testing::MoeBed {
  QueuePairTraffic traffic;
  std::vector<Picoseconds> drained;
  std::vector<std::unique_ptr<testing::Listener>> clients;
  std::vector<std::uint32_t> keys;

  explicit Bed(bool drains = true)
      : MoeBed(kServers, kAlpha, testing::dark_for("ideal"), true, 5, kFibre),
        traffic(network, kServers, kCrossing, drains, [this](Picoseconds now) { drained.push_back(now); }) {
    std::vector<NicPort> nics;
    for (std::uint32_t p = 0; p < kServers * kAlpha; ++p) {
      nics.push_back({p / kAlpha, static_cast<PlanePort>(1 + p % kAlpha)});
    }
    traffic.set_optical_nics(std::move(nics));
    for (NodeId host = 0; host < kServers; ++host) {
      clients.push_back(std::make_unique<testing::Listener>(network.nic(host), JobId{}));
      keys.push_back(network.nic(host).register_region(nullptr, 0, 1 << 20));
    }
    for (std::uint32_t a = 0; a < kServers; ++a) {
      for (std::uint32_t b = 0; b < kServers; ++b) {
        for (std::uint32_t number = 0; a != b && number < 2; ++number) {
          (void)connect(a, b, qp(a, b, number), kWires);
          traffic.add({a, b, a, qp(a, b, number), number, wires()});
        }
      }
    }
  }
  static QpNumber qp(std::uint32_t a, std::uint32_t b, std::uint32_t number) {
    return 0x100 + (std::min(a, b) * kServers + std::max(a, b)) * 2 + number;
  }
  static circuits::PortMap map(std::vector<std::int32_t> peer) { return {kServers, kAlpha, std::move(peer)}; }

  // Patches the panel, and releases these pairs to it.
  void patch(const std::vector<std::int32_t>& peer, const Hot& pairs) {
    network.operate(panel, [&](panel::PanelDevice& device, Picoseconds now) {
      std::vector<panel::CrossConnect> all;
      for (std::size_t port = 0; port < peer.size(); ++port) {
        if (peer[port] != kNoPeer)
          all.push_back({static_cast<panel::Port>(port), static_cast<panel::Port>(peer[port])});
      }
      device.connect(all, panel::Mode::overwrite, now);
    });
    traffic.release(pairs, map(peer), network.now());
  }
  std::uint64_t sent(NodeId host, PlanePort port) {
    const std::uint32_t half = network.egress_half(host, port);
    return network.half(half / 2, half % 2 == 0).counters().packets;
  }
  // Ports that a write of this queue pair leaves by, and what acknowledges it; it arrives.
  std::vector<PlanePort> ports_of(std::uint32_t a, std::uint32_t b, std::uint32_t number = 0) {
    std::vector<std::uint64_t> before;
    for (const NodeId host : {a, b}) {
      for (PlanePort port = 0; port <= kAlpha; ++port) before.push_back(sent(host, port));
    }
    const std::size_t done = clients[a]->completions.size();
    network.nic(a).post(qp(a, b, number), {.id = 1, .remote_key = keys[b], .length = 65'536}, network.now());
    network.run_until(network.now() + microseconds(100));
    EXPECT_EQ(clients[a]->completions.size(), done + 1) << a << " to " << b;
    std::vector<PlanePort> found;
    std::size_t at = 0;
    for (const NodeId host : {a, b}) {
      for (PlanePort port = 0; port <= kAlpha; ++port) {
        if (sent(host, port) > before[at++]) found.push_back(port);
      }
    }
    return found;
  }
};

const Hot kAll{{0, 1}, {0, 2}, {1, 2}};
// 0 and 1 by a circuit of their first NICs, 1 and 2 by one of their second.
const std::vector<std::int32_t> kChain{2, kNoPeer, 0, 5, kNoPeer, 3};
const std::vector<std::int32_t> kNone(6, kNoPeer);

TEST(QueuePairTraffic, BeginsByWires) {
  Bed bed;
  EXPECT_THAT(bed.ports_of(0, 1), ElementsAre(kWires, kWires));
}

TEST(QueuePairTraffic, ReleasedPairsGoByTheirCircuitsAndOthersByWires) {
  Bed bed;
  bed.patch(kChain, kAll);
  EXPECT_THAT(bed.ports_of(0, 1), ElementsAre(kFirst, kFirst));
  EXPECT_THAT(bed.ports_of(1, 0, 1), ElementsAre(kFirst, kFirst)) << "one circuit has all of them";
  EXPECT_THAT(bed.ports_of(1, 2), ElementsAre(kSecond, kSecond));
  EXPECT_THAT(bed.ports_of(0, 2), ElementsAre(kWires, kWires));
  bed.patch(kNone, kAll);
  EXPECT_THAT(bed.ports_of(0, 1), ElementsAre(kWires, kWires));
}

TEST(QueuePairTraffic, PairsThatAreNotReleasedStayWhereTheyAre) {
  Bed bed;
  bed.patch(kChain, {{0, 1}});
  EXPECT_THAT(bed.ports_of(1, 2), ElementsAre(kWires, kWires));
  bed.patch(kChain, {{1, 2}});
  EXPECT_THAT(bed.ports_of(1, 2), ElementsAre(kSecond, kSecond));
}

// Circuits cross: the first NIC of 0 is joined to the second of 1. Both ends of a queue pair take the same circuit.
TEST(QueuePairTraffic, NumbersChooseAmongParallelCircuitsAlikeAtBothEnds) {
  Bed bed;
  bed.patch({3, 2, 1, 0, kNoPeer, kNoPeer}, kAll);
  EXPECT_THAT(bed.ports_of(0, 1, 0), ElementsAre(kFirst, kSecond));
  EXPECT_THAT(bed.ports_of(0, 1, 1), ElementsAre(kSecond, kFirst));
  EXPECT_THAT(bed.ports_of(1, 0, 0), ElementsAre(kSecond, kFirst));
  EXPECT_THAT(bed.ports_of(1, 0, 1), ElementsAre(kFirst, kSecond));
}

TEST(QueuePairTraffic, AHoldMovesBothDirectionsOfItsPairsToWires) {
  Bed bed;
  bed.patch(kChain, kAll);
  bed.traffic.hold(Hot{{0, 1}}, bed.network.now());
  EXPECT_THAT(bed.ports_of(0, 1), ElementsAre(kWires, kWires));
  EXPECT_THAT(bed.ports_of(1, 0), ElementsAre(kWires, kWires));
  EXPECT_THAT(bed.ports_of(1, 2), ElementsAre(kSecond, kSecond)) << "another pair";
}

TEST(QueuePairTraffic, CircuitsAreEmptyAfterTheCrossing) {
  Bed bed;
  bed.patch(kChain, kAll);
  EXPECT_FALSE(bed.traffic.in_flight(kAll));
  const Picoseconds start = bed.network.now();
  bed.traffic.hold(Hot{{0, 1}}, start);
  EXPECT_TRUE(bed.traffic.in_flight(kAll));
  bed.network.run_until(start + kCrossing - nanoseconds(1));
  EXPECT_TRUE(bed.traffic.in_flight(kAll));
  EXPECT_THAT(bed.drained, IsEmpty());
  bed.network.run_until(start + milliseconds(1));
  EXPECT_FALSE(bed.traffic.in_flight(kAll));
  EXPECT_THAT(bed.drained, ElementsAre(start + kCrossing));
}

TEST(QueuePairTraffic, ASecondHoldWaitsForItsOwnCrossing) {
  Bed bed;
  bed.patch(kChain, kAll);
  const Picoseconds start = bed.network.now();
  bed.traffic.hold(Hot{{0, 1}}, start);
  bed.network.run_until(start + microseconds(1));
  bed.traffic.hold(Hot{{1, 2}}, bed.network.now());
  bed.network.run_until(start + milliseconds(1));
  EXPECT_THAT(bed.drained, ElementsAre(start + microseconds(1) + kCrossing));
}

TEST(QueuePairTraffic, WithoutADrainAHoldChangesNothing) {
  Bed bed(false);
  bed.patch(kChain, kAll);
  bed.traffic.hold(Hot{{0, 1}}, bed.network.now());
  EXPECT_FALSE(bed.traffic.in_flight(kAll));
  EXPECT_THAT(bed.ports_of(0, 1), ElementsAre(kFirst, kFirst));
  EXPECT_THAT(bed.drained, IsEmpty());
}

TEST(QueuePairTraffic, RefusesQueuePairsThatAreNotBetweenTwoServersOfTheRegion) {
  Bed bed;
  EXPECT_THROW(bed.traffic.add({1, 1, 0, 0x100, 0, {}}), std::invalid_argument);
  EXPECT_THROW(bed.traffic.add({0, kServers, 0, 0x100, 0, {}}), std::invalid_argument);
  EXPECT_THROW(bed.traffic.add({kServers, 0, 0, 0x100, 0, {}}), std::invalid_argument);
}

// A write lasts while its region is patched to other circuits and back.
class WritesUnderPatches : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(QueuePairTraffic, WritesUnderPatches, ::testing::Bool());

TEST_P(WritesUnderPatches, LoseNothingWhereCircuitsAreDrained) {
  const bool drains = GetParam();
  RegionBed bed(4, 1, "infocus128", {}, 1, true, kFibre);
  std::vector<LightQueuePair> pairs;
  for (const auto& [a, b] : {ServerPair{0, 1}, ServerPair{1, 0}}) {
    (void)bed.connect(a, b, 0x200, 0);
    pairs.push_back({a, b, a, 0x200, 0, bed.wires()});
  }
  circuits::RegionOptions options;
  if (!drains) options.drain_limit = {};
  bed.use_circuits(options, std::move(pairs));
  testing::Listener near(bed.network.nic(0), JobId{}), far(bed.network.nic(1), JobId{});
  bed.network.nic(0).clients().own(0x200, {JobId{}, near.id});
  bed.network.nic(1).clients().own(0x200, {JobId{}, far.id});
  const std::uint32_t key = bed.network.nic(1).register_region(nullptr, 0, 1 << 28);
  const Hot straight{{0, 1}, {2, 3}}, crossed{{0, 2}, {1, 3}};
  bed.report(0, 0, 0, straight);
  bed.wait(microseconds(100));
  ASSERT_EQ(joined(bed.answer()), straight);
  bed.network.nic(0).post(0x200, {.id = 1, .remote_key = key, .length = 1 << 28}, bed.network.now());  // 3 ms by wires
  for (std::uint16_t layer = 1; layer <= 8; ++layer) {
    bed.report(layer, 0, 0, layer % 2 ? crossed : straight);
    bed.wait(microseconds(200));
    EXPECT_EQ(joined(bed.answer()), layer % 2 ? crossed : straight);
  }
  EXPECT_THAT(near.completions, IsEmpty()) << "it has ended before the circuits changed";
  bed.wait(milliseconds(20));
  ASSERT_EQ(near.completions.size(), 1u);
  EXPECT_EQ(near.completions[0].status, Status::ok);
  EXPECT_EQ(bed.network.lost_in_panels() == 0, drains) << bed.network.lost_in_panels();
  const std::uint32_t half = bed.network.egress_half(0, 1);
  EXPECT_GT(bed.network.half(half / 2, half % 2 == 0).counters().packets, 1000u) << "by light in between";
}

}  // namespace
}  // namespace loomnet::moe
