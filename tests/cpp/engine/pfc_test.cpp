// Priority-based Flow Control in a fabric: nothing is lost under incast, the buffer's reserve is
// enough and just enough, pauses are renewed, run out and end, others are blocked behind them, and
// a circle of paused links is found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "engine/network.hpp"
#include "engine/pause_cycle.hpp"
#include "link/queue_disciplines.hpp"
#include "packet/pfc_frame.hpp"
#include "switch/program.hpp"

namespace loomnet {
namespace {

// Sends by a table (ingress port -> egress port); the first byte of the frame names the row.
class Table final : public SwitchProgram {
 public:
  explicit Table(std::vector<SwitchPort> out) : out_(std::move(out)) {}
  std::string_view name() const override { return "table"; }
  Verdict ingress(std::span<std::uint8_t> header, std::uint32_t, const SwitchMeta&) override {
    return Verdict::forward(out_.at(header[0]));
  }
  void set_tables(std::shared_ptr<const TableBatch>) override {}
  std::uint32_t generation() const override { return 0; }
  std::size_t ports() const override { return out_.size(); }
  void counters(std::vector<SwitchCounter>&) const override {}
  void counters(SwitchPort, std::vector<SwitchCounter>&) const override {}
  std::string_view reason(std::uint16_t) const override { return ""; }
  void reset() override {}
  std::uint16_t count(ln_host_counter, SwitchPort, std::uint64_t) override { return 0; }

 private:
  std::vector<SwitchPort> out_;
};

// Sends `left` frames to the row's destination as fast as its port lets it; counts what it gets.
class Blaster final : public Transport {
 public:
  Blaster(TransportSink& sink, std::uint32_t length) : sink_(sink), length_(length) {}
  std::string_view name() const override { return "blaster"; }
  void connect(const QpConfig&, Picoseconds) override {}
  void on_post(QpNumber, const WorkRequest& request, Picoseconds) override {
    row = request.attributes.tag;
    left += request.length;
    sink_.port_ready(0);
  }
  void on_packet(PlanePort, PacketPtr packet, Picoseconds now) override {
    ++received;
    last = now;
    (void)packet;
  }
  void on_port(PlanePort, bool, Picoseconds) override {}
  void on_deadline(Picoseconds) override {}
  Pulled pull(PlanePort, QueueClass queue, Picoseconds) override {
    if (queue == kControlClass || left == 0) return Pulled::idle();
    --left;
    ++sent;
    PacketPtr packet = sink_.allocate();
    packet->wire_length = length_;
    packet->header_length = 60;
    packet->header.fill(0);
    packet->header[0] = static_cast<std::uint8_t>(row);
    return Pulled::of(std::move(packet));
  }
  Picoseconds next_deadline() const override { return kNever; }
  bool outstanding() const override { return left > 0; }
  void counters(std::vector<TransportCounter>&) const override {}

  std::uint32_t row = 0, left = 0, sent = 0, received = 0;
  Picoseconds last{};

 private:
  TransportSink& sink_;
  std::uint32_t length_;
};

const LinkConfig kLink{.rate = gigabits(100), .delay = microseconds(1)};

class PfcTest : public ::testing::Test {
 protected:
  LinkConfig guarded(std::uint64_t xoff = 60'000, std::uint64_t xon = 52'000) const {
    LinkConfig link = kLink;
    link.pfc = {xoff, xon, pfc_headroom(kLink, kLink)};
    return link;
  }
  NodeId host() {
    const NodeId h = network.add_host(1);
    Nic& nic = network.nic(h);
    auto transport = std::make_unique<Blaster>(nic.sink(), length);
    blasters.push_back(transport.get());
    nic.set_transport(std::move(transport));
    return h;
  }
  NodeId table(std::vector<SwitchPort> out, std::uint64_t buffer = 0) {
    const std::size_t ports = out.size();
    return network.add_switch(8, std::make_unique<Table>(std::move(out)), {.buffer_bytes = buffer, .pfc = ports > 0});
  }
  void blast(NodeId h, std::uint32_t row, std::uint32_t packets) {
    WorkRequest request;
    request.attributes.tag = row;
    request.length = packets;
    network.nic(h).post(7, request, network.now());
  }
  std::uint64_t drops() {
    std::uint64_t sum = 0;
    for (LinkId l = 0; l < network.links(); ++l) {
      for (const bool forward : {true, false}) {
        sum += network.half(l, forward).counters().dropped();
      }
    }
    return sum;
  }
  void TearDown() override {
    EXPECT_EQ(network.pool().outstanding(), network.held());
    network.clear();
    EXPECT_EQ(network.pool().outstanding(), 0u);
  }

  std::uint32_t length = 4238;
  Network network{1};
  std::vector<Blaster*> blasters;
};

// Hosts 0 and 1 send to host 2 and, when all of that has left, to host 3. No frame has arrived by then, so nothing
// has looked at the queue towards host 2 since the last one joined it.
TEST_F(PfcTest, TheMostThatHasWaitedCountsNoFrameThatHadLeft) {
  for (int h = 0; h < 4; ++h) host();
  const NodeId hub = table({2, 3});
  LinkConfig far = kLink;
  far.delay = microseconds(30);
  for (const std::uint16_t h : {0, 1}) network.connect({h, 0}, {hub, h}, guarded(), kLink);
  for (const std::uint16_t h : {2, 3}) network.connect({h, 0}, {hub, h}, kLink, far);
  const auto most = [&] { return network.pauses(hub)->counters(0).max_bytes; };
  for (const NodeId h : {0u, 1u}) blast(h, 0, 8);
  network.run_until(microseconds(10));
  const std::uint64_t first = most();
  EXPECT_GE(first, 3 * length);
  for (const NodeId h : {0u, 1u}) blast(h, 1, 8);
  network.run_until(microseconds(20));
  EXPECT_EQ(most(), first);
  network.run_until(microseconds(100));
  EXPECT_EQ(blasters[2]->received + blasters[3]->received, 32u);
}

// Hosts 0 and 1 send to host 2 over one switch, whose row 0 leads to port 2.
class Incast : public PfcTest {
 protected:
  void build(const LinkConfig& up, std::uint64_t buffer = 0) {
    for (int h = 0; h < 3; ++h) host();
    hub = table({2, 2, 2}, buffer);
    for (std::uint16_t h = 0; h < 3; ++h) network.connect({h, 0}, {hub, h}, up, kLink);
  }
  void run_until_paused() {
    while (!network.half(0, true).paused() && network.now() < milliseconds(1)) {
      network.run_until(network.now() + nanoseconds(100));
    }
    ASSERT_TRUE(network.half(0, true).paused());
  }
  NodeId hub = 0;
};

TEST_F(Incast, LosesNothingAndKeepsTheBottleneckBusy) {
  build(guarded());
  for (const NodeId h : {0u, 1u}) blast(h, 0, 2'000);
  network.run_until(milliseconds(5));
  EXPECT_EQ(blasters[2]->received, 4'000u);
  EXPECT_EQ(drops(), 0u);
  // Two links' worth through one, without a gap: first bit at 0, two hops.
  const Picoseconds clocked = serialization_time(length + 24, kLink.rate);
  EXPECT_EQ(blasters[2]->last, clocked * 4'001 + microseconds(2));
  const LinkCounters& up = network.half(0, true).counters();
  EXPECT_GT(up.pauses, 10u);
  EXPECT_GT(up.paused, microseconds(100));
  EXPECT_EQ(up.pause_expiries, 0u);
  EXPECT_EQ(network.pauses(hub)->bytes(0), 0u);
  EXPECT_EQ(network.pauses(hub)->counters(0).pauses, up.pauses);
}

TEST_F(Incast, TheReserveIsUsedButNeverExceeded) {
  build(guarded());
  network.apply({.link = 2, .forward = false, .rate = megabits(1)});  // nearly nothing leaves
  for (const NodeId h : {0u, 1u}) blast(h, 0, 2'000);
  network.run_until(milliseconds(5));
  EXPECT_EQ(drops(), 0u);
  const auto limit = 60'000 + pfc_headroom(kLink, kLink);
  for (const std::uint16_t port : {0, 1}) {
    const std::uint64_t most = network.pauses(hub)->counters(port).max_bytes;
    EXPECT_GT(most, 60'000u + 2 * 12'500u) << "a round trip at 100 Gb/s is 25,000 B";
    EXPECT_LE(most, limit);
  }
}

TEST_F(Incast, WithoutItTheSameQueueOverflows) {
  LinkConfig down = kLink;
  down.data_limit = 60'000;
  for (int h = 0; h < 3; ++h) host();
  hub = table({2, 2, 2});
  for (std::uint16_t h = 0; h < 3; ++h) network.connect({h, 0}, {hub, h}, kLink, down);
  for (const NodeId h : {0u, 1u}) blast(h, 0, 2'000);
  network.run_until(milliseconds(5));
  EXPECT_GT(drops(), 1'000u);
}

TEST_F(Incast, APauseIsRenewedForAsLongAsItTakes) {
  build(guarded());
  network.run_until(microseconds(1));
  for (const NodeId h : {0u, 1u}) blast(h, 0, 200);
  network.run_until(microseconds(20));
  // The way out becomes 100 times slower: pauses last longer than one frame's 336 us.
  network.apply({.link = 2, .forward = false, .rate = gigabits(1)});
  network.run_until(milliseconds(30));
  const LinkCounters& up = network.half(0, true).counters();
  EXPECT_EQ(blasters[2]->received, 400u);
  EXPECT_EQ(drops(), 0u);
  EXPECT_EQ(up.pause_expiries, 0u);
  EXPECT_GT(network.pauses(hub)->counters(0).frames, 2 * up.pauses + 1);
}

TEST_F(Incast, LostPauseFramesCostReservedBytesAndAreCounted) {
  build(guarded());
  network.apply({.link = 0, .forward = false, .impairment = Impairment{.loss = 1.0}});
  for (const NodeId h : {0u, 1u}) blast(h, 0, 2'000);
  network.run_until(milliseconds(5));
  const auto at = [&](LinkId link, bool forward, std::string_view reason) {
    return network.half(link, forward).counters().drops(reason);
  };
  EXPECT_GT(at(0, false, "loss"), 0u);           // what should have paused host 0
  EXPECT_GT(at(2, false, "pfc_headroom"), 0u);   // and what it sent all the same
  EXPECT_EQ(blasters[2]->received + at(2, false, "pfc_headroom"), 4'000u);
}

TEST_F(Incast, ALostEndOfAPauseRunsOutByItself) {
  build(guarded());
  for (const NodeId h : {0u, 1u}) blast(h, 0, 200);
  run_until_paused();
  network.apply({.link = 0, .forward = false, .impairment = Impairment{.loss = 1.0}});
  network.run_until(milliseconds(2));
  EXPECT_GE(network.half(0, true).counters().pause_expiries, 1u);
  EXPECT_FALSE(network.half(0, true).paused());
  EXPECT_EQ(blasters[0]->left, 0u);
}

TEST_F(Incast, CarrierLossEndsAPauseAndItsReturnSaysItAgain) {
  build(guarded());
  for (const NodeId h : {0u, 1u}) blast(h, 0, 2'000);
  run_until_paused();
  network.apply({.link = 2, .up = false});  // nothing leaves any more, and what waited is lost
  network.apply({.link = 0, .up = false});
  EXPECT_FALSE(network.half(0, true).paused());
  network.run_until(microseconds(30));
  network.apply({.link = 0, .up = true});
  network.apply({.link = 2, .up = true});
  network.run_until(milliseconds(5));
  EXPECT_EQ(blasters[0]->left + blasters[1]->left, 0u);
  EXPECT_EQ(network.pauses(hub)->bytes(0) + network.pauses(hub)->bytes(1), 0u);
  EXPECT_FALSE(network.half(0, true).paused() || network.half(1, true).paused());
}

TEST_F(Incast, ControlPassesAPausedLink) {
  build(guarded());
  for (const NodeId h : {0u, 1u}) blast(h, 0, 200);
  run_until_paused();
  HalfLink& up = network.half(0, true);
  // Data that waits in the link itself, and control behind it.
  const auto frame = [&](QueueClass queue) {
    PacketPtr p = network.pool().allocate();
    p->wire_length = 100;
    p->header_length = 60;
    p->header.fill(0);
    p->queue = queue;
    return p;
  };
  const Picoseconds now = network.now();
  up.offer(frame(kDataClass), now);
  EXPECT_EQ(up.queued_bytes(now), 100u);
  up.offer(frame(kControlClass), now);
  EXPECT_EQ(up.queued_bytes(now), 100u);  // on the wire at once
  network.run_until(milliseconds(2));
  EXPECT_EQ(blasters[2]->received, 402u);
  EXPECT_EQ(drops(), 0u);
}

TEST_F(Incast, BytesThatAreNoPfcFrameAreIgnored) {
  build(guarded());
  PacketPtr p = network.pool().allocate();
  p->queue = kMacControlClass;
  p->wire_length = 60;
  p->header_length = 20;
  p->header.fill(0xff);
  network.nic(0).receive(0, std::move(p), network.now());
  EXPECT_FALSE(network.half(0, true).paused());
}

TEST_F(PfcTest, WhatIsBuiltWrongIsRefusedByName) {
  const auto refusal = [&](auto&& call) -> std::string {
    try {
      call();
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  host();
  const NodeId with = table({0}), without = network.add_switch(4, std::make_unique<Table>(std::vector<SwitchPort>{0}));
  const NodeId small = table({0}, 50'000);
  LinkConfig tight = guarded();
  tight.pfc.headroom -= 1;
  EXPECT_THAT(refusal([&] { network.connect({0, 0}, {with, 0}, tight, kLink); }),
              ::testing::HasSubstr("may arrive until a pause holds"));
  EXPECT_THAT(refusal([&] { network.connect({with, 1}, {without, 0}, guarded(), kLink); }),
              ::testing::HasSubstr("no switch with PFC"));
  EXPECT_THAT(refusal([&] { network.connect({with, 2}, {small, 0}, guarded(), kLink); }),
              ::testing::HasSubstr("the switch's buffer has 50000 B left"));
  EXPECT_THAT(refusal([&] { network.connect({with, 3}, {small, 1}, guarded(9'000, 9'000), kLink); }),
              ::testing::HasSubstr("xon"));
  // Headroom is for the largest frame of the run.
  LinkConfig longer = guarded();
  longer.largest_frame = 9'014;
  EXPECT_THAT(refusal([&] { network.connect({without, 1}, {with, 4}, longer, kLink); }),
              ::testing::HasSubstr("may arrive until a pause holds"));
  longer.pfc.headroom = pfc_headroom(longer, longer);
  EXPECT_EQ(longer.pfc.headroom, pfc_headroom(kLink, kLink) + 3 * (9'014 - kMaxFrameBytes));
  EXPECT_EQ(refusal([&] { network.connect({without, 2}, {with, 5}, longer, longer); }),
            "network: PFC at port 2 of node 2: the node is no switch with PFC");
  LinkConfig other = guarded();
  other.queue = choose_queue("codel", {});
  EXPECT_THAT(refusal([&] { network.connect({without, 3}, {with, 6}, other, kLink); }),
              ::testing::HasSubstr("discipline of a port under PFC is priority or laggard_first"));
  EXPECT_THAT(refusal([&] { network.connect({with, 7}, {small, 2}, other, kLink); }),
              ::testing::HasSubstr("queues by priority or laggard_first"));
  EXPECT_THAT(refusal([&] { network.add_switch(4, nullptr, {.pfc = true}); }), ::testing::HasSubstr("kernel"));
}

// Host 0 and 1 on switch A, 2 and 3 on switch B, one link between. Host 0 floods host 2 behind a
// slow link; host 1's packets to idle host 3 are stopped with them.
TEST_F(PfcTest, AVictimIsBlockedBehindAPausedLink) {
  for (int h = 0; h < 4; ++h) host();
  const NodeId a = table({2, 2}), b = table({0, 1});
  network.connect({0, 0}, {a, 0}, guarded(), kLink);
  network.connect({1, 0}, {a, 1}, guarded(), kLink);
  LinkConfig slow = kLink;
  slow.rate = gigabits(10);
  network.connect({b, 0}, {2, 0}, slow, kLink);
  network.connect({b, 1}, {3, 0}, kLink, kLink);
  network.connect({a, 2}, {b, 2}, guarded(), guarded());
  blast(0, 0, 1'000);
  blast(1, 1, 1'000);
  network.run_until(microseconds(400));  // 1,000 packets alone would take 341 us
  EXPECT_GT(network.half(4, true).counters().pauses, 0u);
  EXPECT_LT(blasters[3]->received, 500u) << "the victim";
  network.run_until(milliseconds(10));
  EXPECT_EQ(blasters[2]->received, 1'000u);
  EXPECT_EQ(blasters[3]->received, 1'000u);
  EXPECT_EQ(drops(), 0u);
  EXPECT_EQ(network.pfc_deadlocks(), 0u);
}

// Four switches in a ring, each with a host that sends to the host two switches on, clockwise: the
// textbook cyclic buffer dependency.
TEST_F(PfcTest, ACircleOfPausedLinksIsADeadlockAndIsNamed) {
  constexpr std::uint16_t kHost = 0, kNext = 1, kBefore = 2;
  for (int h = 0; h < 4; ++h) host();
  // Row r: the packet is for host r.
  std::vector<NodeId> ring;
  for (std::uint32_t s = 0; s < 4; ++s) {
    std::vector<SwitchPort> rows(4, kNext);
    rows[s] = kHost;
    ring.push_back(table(rows));
  }
  for (std::uint32_t s = 0; s < 4; ++s) {
    network.connect({s, 0}, {ring[s], kHost}, guarded(), kLink);
    network.connect({ring[s], kNext}, {ring[(s + 1) % 4], kBefore}, guarded(), guarded());
  }
  for (std::uint32_t h = 0; h < 4; ++h) blast(h, (h + 2) % 4, 100'000);
  network.run_until(milliseconds(5));
  const std::uint32_t before = blasters[0]->received;
  network.run_until(milliseconds(20));
  EXPECT_EQ(blasters[0]->received, before);
  EXPECT_EQ(network.pfc_deadlocks(), 1u);
  const std::vector<HalfId> circle = pause_cycle(network);
  ASSERT_EQ(circle.size(), 4u);
  for (const HalfId half : circle) EXPECT_EQ(half % 4, 2u) << "links 1, 3, 5, 7, forward";
  EXPECT_EQ(drops(), 0u);
  // A link that goes down loses what it holds, and that breaks the circle.
  network.apply({.link = 1, .up = false});
  network.apply({.link = 1, .up = true});
  network.run_until(milliseconds(21));
  EXPECT_GT(blasters[0]->received + blasters[1]->received + blasters[2]->received, before * 3);
}

}  // namespace
}  // namespace loomnet
