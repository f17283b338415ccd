// What RoCE measures for a congestion control: marks that acknowledgements echo, and round trips.
#include <gmock/gmock.h>

#include "clock/random.hpp"
#include "packet/ecn.hpp"
#include "transport_roce/roce_bed.hpp"

namespace loomnet {
namespace {

using testbed::RoceBed;

// A control that notes what it is told and limits nothing.
struct Heard {
  std::vector<AckSample> samples;
  std::uint64_t marked = 0, delivered = 0;
  int notified = 0;
} heard;

struct Listener final : CongestionControl {
  explicit Listener(FlowLimits& limits) : CongestionControl(limits, {.owns_window = true}) { limits_.cwnd = kNoLimit; }
  std::string_view name() const override { return "listener"; }
  void on_ack(const AckSample& s) override {
    heard.samples.push_back(s);
    heard.marked += s.ce_delivered;
    heard.delivered += s.delivered;
  }
  void on_congestion(const CongestionEvent& e) override { heard.notified += e.kind == Congestion::notified; }
};

roce::RoceOptions listening(Signals needs, std::uint32_t ack_interval) {
  CongestionKind kind;
  kind.name = "listener";
  kind.needs = needs;
  kind.choose = [](const OptionValues&) -> CongestionMake {
    return [](FlowLimits& limits, const FlowContext&) { return std::make_unique<Listener>(limits); };
  };
  register_congestion_control(kind);
  heard = {};
  roce::RoceOptions o = testbed::quick();
  o.congestion_control = "listener";
  o.line_rate = 100'000'000'000;
  o.ack_interval = ack_interval;
  return o;
}

// Marks data with this chance, and loses answers with that one.
RoceBed::Filter mark_and_lose(int marks_of_100, int lost_of_100, int& marked) {
  return [=, &marked, random = RandomStream(3, 1, 1)](HostId from, PlanePort,
                                                      Packet& p) mutable -> std::optional<Picoseconds> {
    const Bth bth = testbed::bth_of(p);
    if (bth.opcode == 0x11) {
      if (static_cast<int>(random.below(100)) < lost_of_100) return std::nullopt;
    } else if (from == 0 && bth.opcode != 0x81 && static_cast<int>(random.below(100)) < marks_of_100) {
      mark_ce(p);
      ++marked;
    }
    return Picoseconds{};
  };
}

TEST(RoceFeedback, EveryMarkIsEchoedOnceHoweverAcknowledgementsAreBundledOrLost) {
  for (const std::uint32_t interval : {1u, 4u, 16u}) {
    RoceBed bed({}, listening(signal::marks, interval));
    int marked = 0;
    bed.filter = mark_and_lose(20, 10, marked);
    for (int i = 0; i < 8; ++i) bed.write(0, 256 * 100);
    ASSERT_TRUE(bed.run_until_idle(seconds(1))) << bed;
    ASSERT_EQ(bed.nic(0).counter("retransmitted"), 0u);
    EXPECT_GT(marked, 100);
    EXPECT_EQ(heard.marked, static_cast<std::uint64_t>(marked) * 256) << interval;
    EXPECT_EQ(heard.delivered, 800u * 256);
  }
}

TEST(RoceFeedback, TheEchoIsFourBytesBehindTheAethOfAnAnswerWithBecn) {
  RoceBed bed({}, listening(signal::marks, 1));
  std::vector<std::vector<std::uint8_t>> answers;
  bed.filter = [&](HostId from, PlanePort, Packet& p) -> std::optional<Picoseconds> {
    if (testbed::bth_of(p).opcode == 0x11) {
      answers.emplace_back(p.header.begin(), p.header.begin() + p.header_length);
    } else if (from == 0) {
      mark_ce(p);
    }
    return Picoseconds{};
  };
  bed.write(0, 256 * 3);
  ASSERT_TRUE(bed.run_until_idle(milliseconds(2))) << bed;
  ASSERT_GE(answers.size(), 1u);
  const auto& last = answers.back();
  ASSERT_EQ(last.size(), roce::kFrontBytes + 12 + 4 + 4);
  EXPECT_EQ(last[roce::kFrontBytes + 4], 0x40) << "BECN";
  EXPECT_THAT(std::vector<std::uint8_t>(last.end() - 4, last.end()), ::testing::ElementsAre(0, 0, 0, 3));
}

TEST(RoceFeedback, AControlThatNeedsNoMarksGetsPlainAnswers) {
  RoceBed bed({}, listening(signal::rtt, 1));
  int marked = 0;
  bool becn = false;
  bed.filter = [&, inner = mark_and_lose(100, 0, marked)](HostId from, PlanePort plane, Packet& p) mutable {
    becn |= testbed::bth_of(p).opcode == 0x11 && testbed::bth_of(p).becn;
    return inner(from, plane, p);
  };
  bed.write(0, 256 * 100);
  ASSERT_TRUE(bed.run_until_idle(milliseconds(2))) << bed;
  EXPECT_FALSE(becn);
  EXPECT_EQ(heard.marked, 0u);
  EXPECT_GT(heard.notified, 0);
}

// A peer that claims more marks than packets, or fewer than before.
TEST(RoceFeedback, AForgedEchoIsNeverMoreThanWhatIsAcknowledged) {
  RoceBed bed({}, listening(signal::marks, 1));
  bed.filter = [n = 0](HostId, PlanePort, Packet& p) mutable -> std::optional<Picoseconds> {
    if (testbed::bth_of(p).opcode == 0x11) {
      const std::uint8_t claim = n++ % 2 ? 0x7f : 0x01;
      std::fill_n(p.header.begin() + p.header_length - 4, 4, claim);
    }
    return Picoseconds{};
  };
  bed.write(0, 256 * 200);
  ASSERT_TRUE(bed.run_until_idle(milliseconds(5))) << bed;
  for (const AckSample& s : heard.samples) EXPECT_LE(s.ce_delivered, s.delivered);
  EXPECT_TRUE(bed.same(0, 256 * 200));
}

TEST(RoceFeedback, AnAnswerCutBeforeItsEchoIsMalformed) {
  RoceBed bed({}, listening(signal::marks, 16));
  bed.filter = [n = 0](HostId, PlanePort, Packet& p) mutable -> std::optional<Picoseconds> {
    if (testbed::bth_of(p).opcode == 0x11 && n++ == 0) p.header_length -= 4;
    return Picoseconds{};
  };
  bed.write(0, 256 * 32);
  ASSERT_TRUE(bed.run_until_idle(milliseconds(5))) << bed;
  EXPECT_EQ(bed.nic(0).counter("malformed_dropped"), 1u);
}

// Two pipes of a microsecond each way, and what the bed's ports take to send.
TEST(RoceFeedback, EachAnswerThatWasAskedForGivesARoundTripOfThePath) {
  RoceBed bed({}, listening(signal::rtt, 4));
  Picoseconds extra{};
  bed.filter = [&](HostId from, PlanePort, Packet&) -> std::optional<Picoseconds> {
    return from == 0 ? extra : Picoseconds{};
  };
  bed.write(0, 256 * 64);
  ASSERT_TRUE(bed.run_until_idle(milliseconds(1))) << bed;
  std::size_t timed = 0;
  for (const AckSample& s : heard.samples) {
    if (s.rtt == kNever) continue;
    ++timed;
    EXPECT_GE(s.rtt, microseconds(4));
    EXPECT_LT(s.rtt, microseconds(4) + nanoseconds(300));
  }
  // 64 packets of about 30 ns: 16 answers were asked for within one round trip, of which eight are timed.
  EXPECT_GE(timed, 8u);
  EXPECT_LE(timed, 16u);
  heard = {};
  extra = microseconds(30);
  bed.write(0, 256 * 4);
  ASSERT_TRUE(bed.run_until_idle(milliseconds(1))) << bed;
  ASSERT_FALSE(heard.samples.empty());
  EXPECT_NEAR(heard.samples.back().rtt.microseconds(), 34, 0.4);
}

TEST(RoceFeedback, APacketThatIsSentAgainTimesNothing) {
  RoceBed bed({}, listening(signal::rtt, 1));
  bed.filter = [lost = false](HostId from, PlanePort, Packet& p) mutable -> std::optional<Picoseconds> {
    if (from == 0 && testbed::bth_of(p).psn == 5 && !lost) return lost = true, std::nullopt;
    return Picoseconds{};
  };
  bed.write(0, 256 * 10);
  ASSERT_TRUE(bed.run_until_idle(milliseconds(2))) << bed;
  ASSERT_GT(bed.nic(0).counter("retransmitted"), 0u);
  for (const AckSample& s : heard.samples) {
    if (s.rtt != kNever) {
      EXPECT_LT(s.rtt, microseconds(5));
    }
  }
}

TEST(RoceFeedback, AWindowInBandwidthDelayProductsBoundsWhatIsInFlight) {
  roce::RoceOptions o = testbed::quick();
  o.window_bdps = 1;
  EXPECT_THROW(o.check(), std::invalid_argument) << "without a rate and a round trip";
  o.line_rate = 100'000'000'000;
  o.network_rtt = microseconds(4);  // 50,000 bytes, 195 packets
  RoceBed bed({}, o);
  std::uint64_t sent = 0;
  bed.filter = [&](HostId from, PlanePort, Packet&) -> std::optional<Picoseconds> {
    if (from == 1) return std::nullopt;  // no answer comes back
    ++sent;
    return Picoseconds{};
  };
  bed.write(0, 256 * 1'000);
  bed.run_until_idle(microseconds(400));
  EXPECT_EQ(sent, 195u);
}

// 20 packets of a window of 64 leave, the 16th of which asks. Its ACK leaves four that have not asked, and the
// window is two: one packet more leaves and asks, and no other before its ACK.
TEST(RoceFeedback, ACutBelowPacketsThatHaveNotAskedLetsOneMoreLeaveThatAsks) {
  roce::RoceOptions o = testbed::quick();
  roce::Requester r;
  r.post(0, 0, o.payload_mtu * 100, o.payload_mtu);
  std::uint64_t asked = 0;
  for (int i = 0; i < 20; ++i) asked += r.send(o, 64).ack_request;
  EXPECT_EQ(asked, 1u);
  EXPECT_FALSE(r.can_send(2)) << "an ACK is to come";
  ASSERT_TRUE(r.acknowledge(16, [](std::uint64_t) {}));
  ASSERT_TRUE(r.can_send(2));
  EXPECT_TRUE(r.send(o, 2).ack_request);
  EXPECT_FALSE(r.can_send(2));
  ASSERT_TRUE(r.acknowledge(21, [](std::uint64_t) {}));
  EXPECT_FALSE(r.send(o, 2).ack_request);
  EXPECT_TRUE(r.send(o, 2).ack_request) << "the last that the window lets go";
  EXPECT_FALSE(r.can_send(2));
  EXPECT_EQ(r.sent_bytes(), 23u * o.payload_mtu);
  EXPECT_EQ(r.acked_bytes(o.payload_mtu), 21u * o.payload_mtu);
}

}  // namespace
}  // namespace loomnet
