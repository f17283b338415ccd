// Ranks of one host reach each other by its local link: exact times, order, refusals, and no frame.
#include "engine/nic_bed.hpp"
#include "traffic/collective_traffic.hpp"
#include "traffic/flow_traffic.hpp"

namespace loomnet {
namespace {

using testing::Clos;

constexpr JobId kOne{1}, kTwo{2};
const BitsPerSecond kRate = gigabits(400);
constexpr Picoseconds kDelay = microseconds(3);

// One host without a port in use, and a client of each of two jobs that notes times.
class LocalLinkTest : public ::testing::Test {
 protected:
  struct Ear final : NicClient {
    std::vector<std::pair<Completion, Picoseconds>> completions;
    std::vector<std::pair<Arrival, Picoseconds>> arrivals;
    void on_completion(const Completion& c, Picoseconds now) override { completions.emplace_back(c, now); }
    void on_arrival(const Arrival& a, Picoseconds now) override { arrivals.emplace_back(a, now); }
  };
  LocalLinkTest() : nic(network.nic(network.add_host(1))) {
    nic.set_local_link({kRate, kDelay});
    nic.clients().add(one, kOne, "test");
    nic.clients().add(two, kTwo, "test");
  }
  void pair(QpNumber a, QpNumber b, JobId job = kOne) {
    nic.connect({.local = a, .remote = b}, network.now(), {job});
    nic.connect({.local = b, .remote = a}, network.now(), {job});
  }
  void write(QpNumber qp, std::uint64_t id, std::uint32_t key, std::span<const std::uint8_t> from) {
    nic.post(qp,
             {.id = id,
              .local = from.data(),
              .remote_address = 0x1000,
              .remote_key = key,
              .length = static_cast<std::uint32_t>(from.size()),
              .immediate = 7,
              .opcode = Opcode::write_with_immediate},
             network.now());
  }
  Network network{1};
  Nic& nic;
  Ear one, two;
};

TEST_F(LocalLinkTest, AWriteTakesItsLengthOverTheRateAndADelayEachWay) {
  pair(10, 11);
  std::vector<std::uint8_t> to(200'000), from(200'000, 5);
  const auto key = nic.register_region(to.data(), 0x1000, to.size(), kOne);
  write(10, 1, key, from);
  network.run_until(milliseconds(1));
  const Picoseconds there = serialization_time(65'536, kRate) * 3 + serialization_time(200'000 - 3 * 65'536, kRate);
  ASSERT_EQ(one.arrivals.size(), 1u);
  EXPECT_EQ(one.arrivals[0].second, there + kDelay);
  EXPECT_EQ(one.arrivals[0].first.qp, 11u);
  EXPECT_EQ(one.arrivals[0].first.length, 200'000u);
  ASSERT_EQ(one.completions.size(), 1u);
  EXPECT_EQ(one.completions[0].second, there + kDelay * 2);
  EXPECT_EQ(one.completions[0].first.status, Status::ok);
  EXPECT_EQ(to, from);
  EXPECT_EQ(nic.meter(kOne).bytes(), 200'000u);
  EXPECT_EQ(network.pool().last_uid(), 0u);  // no packet was made
}

TEST_F(LocalLinkTest, QueuePairsTakeTurns) {
  pair(10, 11), pair(12, 13, kTwo);
  const std::vector<std::uint8_t> from(1 << 20, 5);
  const auto first = nic.register_region(nullptr, 0x1000, from.size(), kOne);
  const auto second = nic.register_region(nullptr, 0x1000, from.size(), kTwo);
  write(10, 1, first, from);
  write(12, 2, second, from);
  write(10, 3, first, {});  // a bare immediate waits for what was posted before
  network.run_until(milliseconds(1));
  ASSERT_EQ(one.completions.size(), 2u);
  ASSERT_EQ(two.completions.size(), 1u);
  EXPECT_EQ(one.completions[0].first.id, 1u);
  // The first had sent a piece, and was next, when the second was posted.
  EXPECT_EQ(two.completions[0].second - one.completions[0].second, serialization_time(65'536, kRate) * 2);
  EXPECT_LE(one.completions[1].second, two.completions[0].second);
}

TEST_F(LocalLinkTest, AnotherJobsMemoryIsRefusedAndWhatWasBehindIsFlushed) {
  pair(10, 11), pair(12, 13, kTwo);
  std::vector<std::uint8_t> memory(100'000, 0xee);
  const std::vector<std::uint8_t> forged(90'000, 0x66);
  const auto mine = nic.register_region(nullptr, 0x1000, 100'000, kTwo);
  const auto key = nic.register_region(memory.data(), 0x1000, memory.size(), kOne);
  write(12, 1, mine, forged);
  write(12, 2, key, forged);
  write(12, 3, mine, forged);
  network.run_until(milliseconds(1));
  write(12, 4, mine, forged);
  network.run_until(milliseconds(2));
  std::vector<Status> seen;
  for (std::size_t i = 0; i < two.completions.size(); ++i) {
    EXPECT_EQ(two.completions[i].first.id, i + 1);
    seen.push_back(two.completions[i].first.status);
  }
  EXPECT_EQ(seen, (std::vector{Status::ok, Status::remote_access_error, Status::flushed, Status::flushed}));
  EXPECT_EQ(memory, std::vector<std::uint8_t>(100'000, 0xee));
  EXPECT_EQ(nic.counters().foreign_key_refused, 1u);
  EXPECT_EQ(two.arrivals.size(), 1u);
  EXPECT_FALSE(nic.local_link()->outstanding());
  write(10, 1, key, forged);
  network.run_until(milliseconds(3));
  EXPECT_EQ(one.completions.at(0).first.status, Status::ok);
}

TEST_F(LocalLinkTest, SettingsAndPeersThatMakeNoSenseAreRefused) {
  EXPECT_THROW(nic.set_local_link({{}, kDelay}), std::invalid_argument);
  EXPECT_THROW(nic.set_local_link({kRate, Picoseconds{-1}}), std::invalid_argument);
  EXPECT_THROW(nic.connect({.local = 10, .remote = 10}, {}, {kOne}), std::invalid_argument);
  nic.connect({.local = 14, .remote = 99}, {}, {kOne});
  EXPECT_THROW(nic.connect({.local = 14, .remote = 98}, {}, {kOne}), std::invalid_argument);
  EXPECT_THROW(nic.set_local_link({kRate, kDelay}), std::invalid_argument);  // it is in use
  write(14, 1, 1, std::vector<std::uint8_t>(10));
  network.run_until(milliseconds(1));
  EXPECT_EQ(one.completions.at(0).first.status, Status::remote_operational);
}

// Four ranks on two hosts: a queue pair of one host is local, the others go over the fabric.
class MixedHosts : public ::testing::TestWithParam<std::string_view> {};
INSTANTIATE_TEST_SUITE_P(Transports, MixedHosts, ::testing::Values("mrc", "roce", "tcp"));

TEST_P(MixedHosts, ACollectiveOverLocalLinksAndTheFabricIsRight) {
  Network network(1);
  Clos clos(network, {.planes = 2});
  testing::equip(network, 2, gigabits(100), {GetParam()});
  const std::vector<NodeId> hosts{0, 0, 1, 1};
  CollectiveTraffic ring(network, {.hosts = hosts, .bytes = 3 << 20, .repeat = 3, .payload = true});
  for (JobRank a = 0; a < 4; ++a) {
    for (JobRank b = 0; b < a; ++b) {
      const QpNumber at_a = network.nic(hosts[a]).clients().reserve(1),
                     at_b = network.nic(hosts[b]).clients().reserve(1);
      clos.connect(hosts[a], at_a, hosts[b], at_b);
      ring.set_queue_pair(a, b, at_a);
      ring.set_queue_pair(b, a, at_b);
    }
  }
  ring.start();
  for (int i = 0; i < 100 && !ring.done(); ++i) network.run_until(milliseconds(100));
  ASSERT_TRUE(ring.done());
  EXPECT_EQ(ring.errors() + ring.wrong(), 0u) << ring.first_error();
  network.run_until(network.now() + milliseconds(50));
  EXPECT_EQ(network.pool().outstanding(), network.held());
  std::uint64_t local = 0, placed = 0;
  for (const NodeId h : {0u, 1u}) {
    local += testing::counter(*network.nic(h).local_link(), "local_bytes");
    placed += network.nic(h).meter().bytes();
  }
  // Of the ring's four edges two are local.
  EXPECT_NEAR(static_cast<double>(local) / static_cast<double>(placed), 0.5, 0.01);
}

}  // namespace
}  // namespace loomnet
