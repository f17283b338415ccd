// Two NICs, whole messages: what a queue pair promises, under each fault.
#include "mrc_bed.hpp"
#include "mrc_stream.hpp"

namespace loomnet::mrc {
namespace {

constexpr std::uint64_t kBase = Stream::kBase;
constexpr std::uint32_t kKey = Stream::kKey;

TEST(Pair, OneWriteArrivesWholeAndCompletesOnce) {
  Mrc m({.hosts = 2, .planes = 4}, quick_options());
  auto& region = m.bed.nic(1).add_region(kKey, kBase, 1 << 20);
  m.bed.connect(0, 100, 1, 200);
  const auto data = pattern(300'001, 1);
  m.bed.post_write(0, 100, data, kBase + 5, kKey, 77);
  ASSERT_TRUE(m.bed.run_until_idle(milliseconds(10))) << m.bed;
  ASSERT_EQ(m.bed.nic(0).completions.size(), 1u);
  EXPECT_EQ(m.bed.nic(0).completions[0].completion.status, Status::ok);
  ASSERT_EQ(m.bed.nic(1).arrivals.size(), 1u);
  EXPECT_EQ(m.bed.nic(1).arrivals[0].arrival.immediate, 77u);
  EXPECT_EQ(m.bed.nic(1).arrivals[0].arrival.length, data.size());
  EXPECT_EQ(m.bed.nic(1).arrivals[0].arrival.address, kBase + 5);
  EXPECT_TRUE(std::equal(data.begin(), data.end(), region.bytes.begin() + 5));
  EXPECT_EQ(m.count(0, Count::data_retransmitted), 0u) << m.bed;
  EXPECT_EQ(m.count(0, Count::ev_condemned), 0u);
  m.bed.run_until(m.bed.now() + microseconds(100));
  EXPECT_EQ(m.bed.leaked(), 0u);
}

// 32 KB writes, 4 queue pairs, 0.96 of line.
TEST(Pair, FillsTheLine) {
  Mrc m({.hosts = 2, .planes = 4}, line_options());
  Stream stream(m, 32'768, 4, 32);
  stream.goodput(microseconds(300), 4);
  EXPECT_NEAR(stream.goodput(microseconds(500), 4), 0.961, 0.01);
  EXPECT_EQ(m.count(0, Count::data_retransmitted), 0u);
}

std::uint64_t gauge(Mrc& m, std::string_view name) {
  std::vector<TransportCounter> all;
  m.nic(0).counters(all);
  for (const TransportCounter& c : all) {
    if (c.name == name) return c.value;
  }
  ADD_FAILURE() << "no counter " << name;
  return 0;
}

// With k of P ports down, (P - k)/P of line; and back.
TEST(Pair, PortsDownAndUp) {
  Mrc m({.hosts = 2, .planes = 4}, line_options());
  Stream stream(m, 32'768, 4, 32);
  stream.goodput(microseconds(300), 4);
  for (PlanePort p = 0; p < 3; ++p) {
    m.bed.set_link(p % 2, p, false);  // own side and the peer's
    stream.goodput(microseconds(800), 4);
    EXPECT_NEAR(stream.goodput(microseconds(400), static_cast<std::size_t>(3 - p)), 0.961, 0.03)
        << int{p} << m.bed.transcript(60);
    EXPECT_EQ(gauge(m, "paths_good") * 4, gauge(m, "paths_total") * (3u - p));
  }
  for (PlanePort p = 0; p < 3; ++p) m.bed.set_link(p % 2, p, true);
  stream.goodput(milliseconds(2), 4);
  EXPECT_NEAR(stream.goodput(microseconds(500), 4), 0.961, 0.02) << m.bed.transcript(60);
  EXPECT_EQ(gauge(m, "paths_good"), gauge(m, "paths_total"));
  EXPECT_EQ(m.count(0, Count::qp_errors), 0u);
}

// One path loses everything in silence; it is out of rotation within tens of microseconds.
TEST(Pair, SilentPathIsBypassed) {
  Mrc m({.hosts = 2, .planes = 4}, line_options(), 8);
  m.options.evs_per_qp = 16;
  Picoseconds first_loss{-1};
  bool broken = true;
  const EntropyValue dead(1, 3);
  Stream stream(m, 32'768, 2, 32);
  stream.goodput(microseconds(300), 4);
  m.bed.filter = [&](HostId from, PlanePort, Packet& p) -> std::optional<Picoseconds> {
    if (from != 0 || !broken) return Picoseconds{};
    const std::uint16_t sport = static_cast<std::uint16_t>(p.header[94] << 8 | p.header[95]);
    if (sport != dead.value) return Picoseconds{};
    if (first_loss.count < 0) first_loss = m.bed.now();
    return std::nullopt;
  };
  EXPECT_GT(stream.goodput(milliseconds(1), 4), 0.93) << m.bed.transcript(60);
  ASSERT_GE(first_loss.count, 0);
  for (const QpNumber q : {100u, 101u}) {
    const EvSet& evs = m.nic(0).sender(q).evs();
    EXPECT_EQ(evs.state(evs.find(dead)), EvState::assumed_bad);
  }
  Picoseconds out = kNever;
  for (const TransportEvent& e : m.bed.nic(0).events) {
    if (e.kind == EventKind::ev_assumed_bad && e.value == dead.value) out = std::min(out, e.at);
  }
  EXPECT_LT(out - first_loss, microseconds(50));
  broken = false;
  stream.goodput(milliseconds(20), 4);
  const EvSet& evs = m.nic(0).sender(100).evs();
  EXPECT_EQ(evs.state(evs.find(dead)), EvState::good) << "probed back";
}

// Incast at the last hop: trims, no path blamed, everything arrives.
TEST(Pair, LastHopTrimsAreRepaired) {
  Mrc m({.hosts = 3, .planes = 2, .down_rate = gigabits(100)}, line_options());
  for (std::size_t p = 0; p < 2; ++p) m.bed.down(2, p).queue_limit = 60'000;
  m.bed.nic(2).add_region(kKey, kBase, 4 << 20);
  m.bed.connect(0, 100, 2, 200), m.bed.connect(1, 100, 2, 201);
  const auto data = pattern(1 << 20, 4);
  m.bed.post_write(0, 100, data, kBase, kKey);
  m.bed.post_write(1, 100, data, kBase + (2 << 20), kKey);
  ASSERT_TRUE(m.bed.run_until_idle(milliseconds(20))) << m.bed;
  EXPECT_GT(m.count(2, Count::trimmed_received), 0u);
  EXPECT_EQ(m.count(0, Count::ev_condemned) + m.count(1, Count::ev_condemned), 0u);
  EXPECT_EQ(m.bed.nic(2).placed_bytes, 2u << 20);
}

TEST(Pair, DeadPeerIsANamedError) {
  MrcOptions o = line_options();
  o.peer_timeout = milliseconds(30);
  Mrc m({.hosts = 2, .planes = 4}, o);
  m.bed.nic(1).add_region(kKey, kBase, 1 << 20);
  m.bed.connect(0, 100, 1, 200);
  const auto data = pattern(100'000, 1);
  for (PlanePort p = 0; p < 4; ++p) m.bed.set_silent(1, p, true);
  m.bed.post_write(0, 100, data, kBase, kKey);
  ASSERT_TRUE(m.bed.run_until_idle(milliseconds(100))) << m.bed;
  EXPECT_EQ(m.bed.nic(0).completions.at(0).completion.status, Status::retry_exceeded);
}

TEST(Pair, RemoteAccessErrorEndsBothEnds) {
  Mrc m({.hosts = 2, .planes = 4}, line_options());
  m.bed.nic(1).add_region(kKey, kBase, 1000);
  m.bed.connect(0, 100, 1, 200);
  const auto data = pattern(500, 1);
  m.bed.post_write(0, 100, data, kBase, kKey);
  m.bed.post_write(0, 100, data, kBase + 900, kKey);  // runs over the end
  m.bed.post_write(0, 100, data, kBase, kKey);
  ASSERT_TRUE(m.bed.run_until_idle(milliseconds(10))) << m.bed;
  const auto& done = m.bed.nic(0).completions;
  ASSERT_EQ(done.size(), 3u);
  EXPECT_EQ(done[1].completion.status, Status::remote_access_error) << m.bed;
  EXPECT_EQ(done[2].completion.status, Status::flushed);
  EXPECT_TRUE(m.nic(1).sender(200).failed());
  m.bed.run_until(m.bed.now() + microseconds(100));
  EXPECT_EQ(m.bed.leaked(), 0u);
}

TEST(Pair, IdleQueuePairsAreSmall) {
  Mrc m({.hosts = 2, .planes = 8}, quick_options(), 32);
  const auto used = [] {
    std::FILE* f = std::fopen("/proc/self/statm", "r");
    long size = 0, resident = 0;
    if (!f || std::fscanf(f, "%ld %ld", &size, &resident) != 2) resident = 0;
    if (f) std::fclose(f);
    return resident * 4096;
  };
  for (QpNumber q = 10; q < 110; ++q) m.bed.connect(0, q, 1, q);
  const long before = used();
  constexpr int kPairs = 2'000;
  for (QpNumber q = 1'000; q < 1'000 + kPairs; ++q) m.bed.connect(0, q, 1, q);
  const long each = (used() - before) / (2 * kPairs);
  RecordProperty("bytes_per_idle_queue_pair", static_cast<int>(each));
  std::printf("%ld bytes per idle queue pair of 256 EVs\n", each);
#if !defined(LOOMNET_SANITIZES_ADDRESS)
  EXPECT_LT(each, 4'096);
#endif
}

}  // namespace
}  // namespace loomnet::mrc
