// The oracle that serves a ring's rearmost sender first: the order of packets, what others get, and the
// limits, marks and pauses that it shares with the default discipline.
#include "link/laggard_queue.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "link/half_link.hpp"
#include "link/queue_disciplines.hpp"
#include "packet/pfc_frame.hpp"

namespace loomnet {
namespace {

struct Far : LinkReceiver {
  std::vector<std::uint32_t> flows;
  std::size_t marked = 0;
  void receive(std::uint16_t, PacketPtr p, Picoseconds) override {
    if (p->queue == kMacControlClass) return;
    flows.push_back(p->flow);
    marked += (p->header[15] & 0x30) == 0x30;
  }
};

class LaggardFirst : public ::testing::Test {
 protected:
  HalfLink& make(LinkConfig config, std::int64_t parts = 1, std::string_view name = "laggard_first") {
    using Options = std::vector<std::pair<std::string, std::int64_t>>;
    if (name == "laggard_first") config.queue = choose_queue(name, Options{{"parts", parts}});
    if (name == "fifo") config.queue = choose_queue(name, {});
    config.rate = gigabits(1);
    if (link_) link_->clear();
    far_ = Far{};
    link_ = std::make_unique<HalfLink>(events_, pool_, config, far_, 0, 1, 42);  // one random stream for all
    return *link_;
  }
  PacketPtr packet(std::uint32_t flow, std::uint32_t length = 1000) {
    PacketPtr p = pool_.allocate();
    p->wire_length = length;
    p->header_length = 62;
    p->header.fill(0);
    p->header[12] = 0x86;
    p->header[13] = 0xdd;
    p->header[14] = 0x60;
    p->flow = flow;
    return p;
  }
  // Of ring `ring`, in the given step of it.
  PacketPtr in_step(std::uint32_t flow, std::uint32_t ring, std::uint32_t step, std::uint64_t offset = 0) {
    PacketPtr p = packet(flow);
    p->attributes.communicator = ring;
    p->attributes.ring_step = step;
    p->attributes.step_offset = offset;
    p->attributes.step_bytes = 1'000'000;
    return p;
  }
  PacketPtr ecn_capable(PacketPtr p) {
    p->ect = true;
    p->header[15] = 0x20;
    return p;
  }
  // Behind a packet that holds the wire, so that all that follow wait.
  void hold() { link_->offer(packet(999), events_.now()); }
  void offer(PacketPtr p) { EXPECT_EQ(link_->offer(std::move(p), events_.now()), Offer::accepted); }
  std::vector<std::uint32_t> order() {
    events_.run_until(events_.now() + seconds(1));
    std::vector<std::uint32_t> flows = far_.flows;
    if (!flows.empty() && flows.front() == 999) flows.erase(flows.begin());
    far_.flows.clear();
    return flows;
  }
  void TearDown() override {
    if (link_) link_->clear();
    EXPECT_EQ(pool_.outstanding(), 0u);
  }

  EventQueue events_;
  PacketPool pool_;
  Far far_;
  std::unique_ptr<HalfLink> link_;
};

using Flows = std::vector<std::uint32_t>;

TEST_F(LaggardFirst, TheRearmostSenderGoesFirstAndEqualsInTurn) {
  make({});
  hold();
  offer(in_step(1, 7, 5));
  offer(in_step(2, 7, 3));
  offer(in_step(3, 7, 3));
  offer(in_step(4, 7, 4));
  offer(in_step(2, 7, 3, 500'000));  // the fraction of a step is not looked at
  offer(in_step(5, 7, 2));
  EXPECT_EQ(order(), (Flows{5, 2, 3, 2, 4, 1}));
}

TEST_F(LaggardFirst, PartsOfAStepMayCount) {
  make({}, 4);
  hold();
  offer(in_step(1, 7, 3, 740'000));
  offer(in_step(2, 7, 3, 400'000));
  offer(in_step(3, 7, 3, 260'000));  // the same quarter
  offer(in_step(4, 7, 3, 10'000'000));  // beyond the step's end: its last quarter
  offer(in_step(5, 7, 4));
  EXPECT_EQ(order(), (Flows{2, 3, 1, 4, 5}));
}

TEST_F(LaggardFirst, OtherRingsAndOtherTrafficKeepTheirPlaces) {
  make({});
  hold();
  offer(packet(10));
  offer(in_step(1, 7, 5));
  offer(in_step(2, 8, 90));
  offer(in_step(3, 7, 3));
  offer(packet(11));
  offer(in_step(4, 8, 80));
  // Places: other, ring 7, ring 8, ring 7, other, ring 8.
  EXPECT_EQ(order(), (Flows{10, 3, 4, 1, 11, 2}));
}

TEST_F(LaggardFirst, JobsOfOneCommunicatorNumberAreApart) {
  make({});
  hold();
  PacketPtr other = in_step(2, 7, 0);
  other->attributes.job = 1;
  offer(in_step(1, 7, 5));
  offer(std::move(other));
  EXPECT_EQ(order(), (Flows{1, 2}));
}

// A sender that claims to be last, for ever, takes its own ring's places and no others.
TEST_F(LaggardFirst, NothingStarvesBehindASenderThatSaysItIsLast) {
  make({});
  hold();
  offer(in_step(1, 7, 100));
  offer(packet(2));
  for (std::uint32_t i = 0; i < 50; ++i) {
    offer(in_step(3, 7, 0));
    events_.run_until(events_.now() + microseconds(8));
  }
  const Flows sent = order();
  EXPECT_EQ(sent[0], 3u);  // in flow 1's place
  EXPECT_EQ(sent[1], 2u);
  EXPECT_EQ(sent.back(), 1u);
  EXPECT_EQ(sent.size(), 52u);
}

TEST_F(LaggardFirst, ControlGoesBeforeDataWithinItsShare) {
  make({.control_share = 0.25});
  hold();
  offer(in_step(1, 7, 1));
  offer(packet(2));
  PacketPtr control = packet(3, 64);
  control->queue = kControlClass;
  offer(std::move(control));
  EXPECT_EQ(order(), (Flows{3, 1, 2}));
}

TEST_F(LaggardFirst, MarksAsManyAsFifoAndAtTheSameDepths) {
  std::size_t marks[2];
  for (const bool fifo : {false, true}) {
    HalfLink& link = make({.ecn_low = 5'000, .ecn_high = 20'000, .ecn_share = 0.5}, 1, fifo ? "fifo" : "laggard_first");
    hold();
    for (std::uint32_t i = 0; i < 30; ++i) offer(ecn_capable(in_step(i % 3, 7, i % 3)));
    order();
    marks[fifo] = link.counters().marked;
    EXPECT_EQ(link.counters().max_queue, 30'000u);
  }
  EXPECT_GE(marks[0], 11u);  // all that left 20 kB or more
  EXPECT_LT(marks[0], 26u);
  EXPECT_EQ(marks[0], marks[1]);
}

TEST_F(LaggardFirst, DropsWhatDoesNotFitByName) {
  HalfLink& link = make({.data_limit = 3'000, .control_limit = 100});
  hold();
  for (std::uint32_t step : {5, 4, 3}) offer(in_step(step, 7, step));
  // The arriving packet is dropped, the rearmost too: buffers are as FIFO's.
  EXPECT_EQ(link.offer(in_step(1, 7, 1), {}), Offer::dropped);
  PacketPtr control = packet(3, 101);
  control->queue = kControlClass;
  EXPECT_EQ(link.offer(std::move(control), {}), Offer::dropped);
  EXPECT_EQ(link.counters().drops("queue_full"), 1u);
  EXPECT_EQ(link.counters().drops("control_full"), 1u);
  EXPECT_EQ(order(), (Flows{3, 4, 5}));
}

TEST_F(LaggardFirst, MoreRingsThanItTellsApartWaitAsOtherTraffic) {
  make({});
  hold();
  for (std::uint32_t ring = 0; ring < 300; ++ring) {
    offer(in_step(2 * ring, ring, 2));
    offer(in_step(2 * ring + 1, ring, 1));
  }
  const Flows sent = order();
  ASSERT_EQ(sent.size(), 600u);
  EXPECT_EQ((Flows{sent[0], sent[1]}), (Flows{1, 0}));
  EXPECT_EQ((Flows{sent[598], sent[599]}), (Flows{598, 599}));
}

// --- under PFC --------------------------------------------------------------------------------------
PacketPtr pause_frame(PacketPool& pool, std::uint16_t quanta) {
  PacketPtr p = pool.allocate();
  p->header_length = kMinFrameBytes;
  p->header.fill(0);
  PfcFrame frame;
  frame.enabled = 1u << kDataClass;
  frame.quanta[kDataClass] = quanta;
  ByteWriter out({p->header.data(), kMinFrameBytes});
  frame.serialize(out);
  p->wire_length = kMinFrameBytes;
  p->queue = kMacControlClass;
  return p;
}

TEST_F(LaggardFirst, APauseHoldsDataAndLetsControlPass) {
  HalfLink& link = make({});
  hold();
  offer(in_step(1, 7, 5));
  offer(in_step(2, 7, 4));
  link.obey_pause(*pause_frame(pool_, 0xffff), events_.now());
  EXPECT_TRUE(link.paused());
  PacketPtr control = packet(3, 64);
  control->queue = kControlClass;
  offer(std::move(control));
  events_.run_until(events_.now() + microseconds(30));
  EXPECT_EQ(far_.flows, (Flows{999, 3}));
  EXPECT_TRUE(link.holds_from(0));
  EXPECT_FALSE(link.holds_from(1));
  offer(in_step(4, 7, 3));  // comes during the pause, and is the rearmost when it ends
  link.obey_pause(*pause_frame(pool_, 0), events_.now());
  far_.flows.clear();
  EXPECT_EQ(order(), (Flows{4, 2, 1}));
}

TEST_F(LaggardFirst, APortThatPausesItsSendersLosesNothing) {
  SharedBuffer buffer(1'000'000, 1.0);
  buffer.use_pauses(events_, pool_, 2);
  Far sender;
  HalfLink back(events_, pool_, {.rate = gigabits(1)}, sender, 0, 1);
  HalfLink& link = make({.data_limit = 2'000});
  buffer.pauses()->guard(0, {.xoff = 4'000, .xon = 2'000, .headroom = 8'000}, gigabits(1), back);
  link.share(buffer);
  hold();
  for (std::uint32_t i = 0; i < 12; ++i) offer(in_step(i, 7, 20 - i));  // xoff and headroom, above the limit
  EXPECT_TRUE(buffer.pauses()->paused(0));
  EXPECT_EQ(link.offer(in_step(12, 7, 0), events_.now()), Offer::dropped);
  EXPECT_EQ(link.counters().drops("pfc_headroom"), 1u);
  EXPECT_EQ(order(), (Flows{11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0}));
  EXPECT_FALSE(buffer.pauses()->paused(0));
  EXPECT_EQ(buffer.pauses()->bytes(0), 0u);
  back.clear();
}

}  // namespace
}  // namespace loomnet
