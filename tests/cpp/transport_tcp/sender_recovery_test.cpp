// The sender's loss recovery, segment by segment: SACK scoreboard, RACK's reordering window, tail
// loss probes, timeouts, PRR, undo.
#include <algorithm>
#include <cmath>

#include "transport_tcp/sender_script.hpp"

namespace loomnet::tcp {
namespace {

TEST(Scoreboard, SackedSegmentsLeaveTheFlightOnce) {
  SenderScript s;
  s.post(100);
  s.pump();
  s.now += kRtt;
  s.ack(0, {{7, 8}});
  EXPECT_DOUBLE_EQ(s.in_flight(), 9);
  s.ack(0, {{7, 8}});  // the same again
  EXPECT_DOUBLE_EQ(s.in_flight(), 9);
  EXPECT_EQ(s.sender.board().sacked(), s.mss());
  s.ack(0, {{7, 9}});
  EXPECT_EQ(s.sender.board().sacked(), 2 * s.mss());
  EXPECT_EQ(s.count.marked_lost, 0u) << "two SACKed segments are no reason";
  s.ack(0, {{7, 10}});  // the third: everything sent before is lost (RFC 8985 6.2, DupThresh)
  EXPECT_EQ(s.count.marked_lost, 7u);
  EXPECT_EQ(s.sender.state(), Sender::State::recovery);
  EXPECT_EQ(s.sender.board().lost(), 7 * s.mss());
}

TEST(Scoreboard, ForgedBlocksChangeNothing) {
  SenderScript s;
  s.post(100);
  s.pump();
  s.now += kRtt;
  s.ack(0, {{5, 500}});
  s.ack(0, {{12, 11}});
  s.ack(11);
  EXPECT_EQ(s.count.sack_blocks_invalid, 2u);
  EXPECT_EQ(s.count.acks_out_of_range, 1u);
  EXPECT_EQ(s.sender.board().sacked(), 0u);
  EXPECT_DOUBLE_EQ(s.in_flight(), 10);
  // Half a segment is not delivered by a block that covers the other half.
  Acknowledgement a;
  a.sack[0] = {4 * s.mss() + 1, 6 * s.mss()};
  a.sack_count = 1;
  s.sender.on_ack(a, s.now);
  EXPECT_EQ(s.sender.board().sacked(), s.mss());
}

// A control that asks for it hears of each packet taken for lost, and of what was in flight when it
// was sent; every control hears the same of the packet delivered last.
struct Hears final : CongestionControl {
  explicit Hears(FlowLimits& limits) : CongestionControl(limits, {.sees_losses = true}) {}
  std::string_view name() const override { return "hears"; }
  void on_ack(const AckSample& s) override { samples.push_back(s); }
  void on_congestion(const CongestionEvent&) override { limits_.ssthresh = limits_.cwnd / 2; }
  void on_lost(const LostPacket& p) override { lost.push_back(p); }
  std::vector<LostPacket> lost;
  std::vector<AckSample> samples;
};

TEST(Losses, AreNamedWithWhatWasInFlight) {
  Hears* control = nullptr;
  Counters count;
  const TcpOptions options = SenderScript::options("reno");
  Sender sender(
      options,
      [&](FlowLimits& limits, const FlowContext&) {
        auto made = std::make_unique<Hears>(limits);
        control = made.get();
        return made;
      },
      count, 1);
  const std::uint64_t mss = sender.window().mss;
  WorkRequest w;
  w.length = static_cast<std::uint32_t>(100 * mss - FrameHeader::kSize);
  Picoseconds now = milliseconds(1);
  sender.post(w, now);
  for (; sender.ready(now) == Sender::Ready::now; now += microseconds(10)) sender.send(now);
  now += kRtt;
  Acknowledgement ack;
  ack.window = 1 << 20;
  ack.sack[0] = {2 * mss, 5 * mss};
  ack.sack_count = 1;
  sender.on_ack(ack, now);
  ASSERT_EQ(control->lost.size(), 2u);
  EXPECT_EQ(control->lost[0].bytes, mss);
  EXPECT_EQ(control->lost[0].in_flight, mss) << "the first packet of all";
  EXPECT_EQ(control->lost[0].lost, mss);
  EXPECT_EQ(control->lost[1].in_flight, 2 * mss);
  EXPECT_EQ(control->lost[1].lost, 2 * mss);
  EXPECT_EQ(control->lost[1].delivered_total, 3 * mss);
  ASSERT_EQ(control->samples.size(), 1u);
  EXPECT_EQ(control->samples[0].sent_in_flight, 5 * mss);
  EXPECT_EQ(control->samples[0].prior_lost, 0u);
  EXPECT_EQ(control->samples[0].lost_total, 2 * mss);
}

TEST(Rack, OneHoleWaitsForAQuarterOfTheSmallestRtt) {
  SenderScript s;
  s.measure(kRtt);
  s.post(6);
  s.pump();
  s.now += kRtt;
  const Picoseconds sent_first = milliseconds(1) + kRtt;  // of segment 1
  s.ack(1, {{2, 3}});
  EXPECT_EQ(s.count.marked_lost, 0u);
  // RACK.rtt is that of segment 2: its ACK came one round trip and five gaps after it left.
  const Picoseconds rack_rtt = s.now - (sent_first + microseconds(10));
  EXPECT_EQ(s.sender.deadline(), sent_first + rack_rtt + kRtt / 4);
  s.now = s.sender.deadline();
  ASSERT_TRUE(s.sender.on_deadline(s.now));
  EXPECT_EQ(s.count.rack_timeouts, 1u);
  EXPECT_EQ(s.count.marked_lost, 1u);
  EXPECT_EQ(s.pump(), Numbers{1});
  EXPECT_EQ(s.sender.state(), Sender::State::recovery);
}

TEST(Rack, ReorderingOnceSeenKeepsTheWindowOpen) {
  SenderScript s;
  s.measure(kRtt);
  s.post(9);
  s.pump();
  s.now += kRtt;
  s.ack(1, {{3, 4}});
  s.ack(1, {{3, 4}, {2, 3}});  // segment 2 after segment 3, both sent once
  EXPECT_TRUE(s.sender.rack().reordering_seen());
  s.ack(1, {{2, 7}});
  EXPECT_EQ(s.count.marked_lost, 0u) << "five SACKed segments, but reordering is known";
  s.ack(7);
  EXPECT_EQ(s.sender.state(), Sender::State::open);
  EXPECT_EQ(s.count.retransmitted, 0u);
}

TEST(Rack, DuplicateReportsWidenTheWindowOncePerRoundTrip) {
  SenderScript s;
  s.measure(kRtt);
  s.post(9);
  s.pump();
  s.now += kRtt;
  EXPECT_EQ(s.sender.rack().multiplier(), 1u);
  s.ack(3, {{1, 2}});  // below the ACK: a DSACK (RFC 2883)
  s.ack(3, {{1, 2}});
  EXPECT_EQ(s.count.dsack_received, 2u);
  EXPECT_EQ(s.sender.rack().multiplier(), 2u);
}

TEST(Rack, ALostRetransmissionIsSentAgainWithoutATimeout) {
  SenderScript s;
  s.measure(kRtt);
  s.post(60);
  s.pump();
  s.now += kRtt;
  s.ack(1, {{2, 6}});
  EXPECT_EQ(s.pump().front(), 1u);
  const Picoseconds resent = s.now;
  s.now = resent + kRtt + microseconds(1);
  s.ack(1, {{2, 11}});  // what was sent first, and then:
  EXPECT_EQ(s.count.marked_lost, 1u) << "nothing sent after the repair has been delivered yet";
  s.pump();
  s.now += kRtt;
  s.ack(1, {{2, 15}});
  EXPECT_EQ(s.count.marked_lost, 2u);
  EXPECT_EQ(s.pump().front(), 1u);
  EXPECT_EQ(s.count.rto, 0u);
}

TEST(TailLossProbe, RepeatsTheLastSegmentAfterTwoRoundTrips) {
  SenderScript s;
  s.measure(kRtt);
  s.post(4);
  s.pump();
  const Picoseconds last_sent = s.now - microseconds(10);
  EXPECT_EQ(s.sender.deadline(), last_sent + kRtt * 2);
  s.now = s.sender.deadline();
  ASSERT_TRUE(s.sender.on_deadline(s.now));
  EXPECT_EQ(s.pump(), Numbers{4});
  EXPECT_EQ(s.count.tlp, 1u);
  EXPECT_EQ(s.sender.state(), Sender::State::open);
  // The probe's SACK shows the hole before it: repaired by RACK, no timeout.
  s.now += kRtt;
  s.ack(3, {{4, 5}});
  s.now = s.sender.deadline();
  ASSERT_TRUE(s.sender.on_deadline(s.now));
  EXPECT_EQ(s.pump(), Numbers{3});
  EXPECT_EQ(s.count.rto, 0u);
}

TEST(TailLossProbe, SendsNewDataWhereThereIsSome) {
  SenderScript s;
  s.measure(kRtt);
  s.post(30);
  s.pump();
  const double cwnd = s.cwnd();
  s.now = s.sender.deadline();
  ASSERT_TRUE(s.sender.on_deadline(s.now));
  EXPECT_EQ(s.pump(), Numbers{1 + static_cast<std::uint64_t>(cwnd)});
  EXPECT_EQ(s.count.retransmitted, 0u);
}

TEST(TailLossProbe, ALossThatOnlyTheProbeRepairedHalvesTheWindow) {
  SenderScript s;
  s.measure(kRtt);
  s.post(8);
  s.pump();
  const double before = s.cwnd();
  s.now = s.sender.deadline();
  ASSERT_TRUE(s.sender.on_deadline(s.now));
  EXPECT_EQ(s.pump(), Numbers{8});
  s.now += kRtt;
  s.ack(9);  // no DSACK: the original had been lost; this ACK says so once it is passed
  s.post(2);
  s.pump();
  s.now += kRtt;
  s.ack(11);
  EXPECT_EQ(s.count.tlp_recoveries, 1u);
  EXPECT_LT(s.cwnd(), before * 0.75);
  EXPECT_EQ(s.sender.state(), Sender::State::open) << "nothing is left to repair";
}

// The same without the news of it: the ACK covers the probe's end and no more.
TEST(TailLossProbe, AnAckUpToTheProbesEndSaysNothingOfALoss) {
  SenderScript s;
  s.measure(kRtt);
  s.post(8);
  s.pump();
  const double before = s.cwnd();
  s.now = s.sender.deadline();
  ASSERT_TRUE(s.sender.on_deadline(s.now));
  EXPECT_EQ(s.pump(), Numbers{8});
  s.now += kRtt;
  s.ack(9);
  EXPECT_EQ(s.count.tlp_recoveries, 0u);
  EXPECT_GE(s.cwnd(), before);
}

TEST(TailLossProbe, BothCopiesArrivedIsNoLoss) {
  SenderScript s;
  s.measure(kRtt);
  s.post(8);
  s.pump();
  s.now = s.sender.deadline();
  ASSERT_TRUE(s.sender.on_deadline(s.now));
  s.pump();
  s.now += microseconds(10);
  s.ack(9);
  s.ack(9, {{8, 9}});  // DSACK of the probe
  s.post(2);
  s.pump();
  s.now += kRtt;
  s.ack(11);
  EXPECT_EQ(s.count.tlp_recoveries, 0u);
  EXPECT_DOUBLE_EQ(s.cwnd(), 10);
}

TEST(Timeout, BacksOffByDoublingAndIsForgottenWithProgress) {
  SenderScript s;
  s.post(30);
  EXPECT_EQ(s.pump({}).size(), 10u);
  const Picoseconds start = s.now;
  Picoseconds due = start + seconds(1);  // no RTT yet: RFC 6298 2.1
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(s.sender.deadline(), due) << i;
    s.now = due;
    ASSERT_TRUE(s.sender.on_deadline(s.now));
    EXPECT_EQ(s.sender.state(), Sender::State::loss);
    EXPECT_DOUBLE_EQ(s.cwnd(), 1);
    EXPECT_EQ(s.pump({}), Numbers{0});
    due = s.now + seconds(2 << i);
  }
  EXPECT_EQ(s.count.rto, 4u);
  EXPECT_EQ(s.sender.window().ssthresh, 5 * s.mss()) << "halved once, not at each timeout";
  s.now += kRtt;
  s.ack(1);
  EXPECT_EQ(s.pump({}), (Numbers{1, 2})) << "slow start again";
  EXPECT_GT(s.sender.deadline(), s.now);
  EXPECT_LE(s.sender.deadline(), s.now + seconds(1));
}

TEST(Timeout, LinuxFloorUnderTheVariance) {
  SenderScript s;
  for (std::uint64_t i = 0; i < 50; ++i) {
    s.post(1);
    s.pump({});
    s.now += kRtt;
    s.ack(i + 1);
  }
  EXPECT_EQ(s.sender.rtt().srtt(), kRtt);
  EXPECT_EQ(s.sender.rtt().rto(), kRtt + milliseconds(200));
  EXPECT_EQ(s.sender.rtt().rto(3), (kRtt + milliseconds(200)) * 8);
  EXPECT_EQ(s.sender.rtt().rto(30), seconds(120));
}

TEST(Timeout, GivesUpAfterTheTimeAllRetriesTake) {
  TcpOptions o = SenderScript::options("cubic");
  o.retries = 3;
  SenderScript s(o);
  s.post(1);
  s.pump();
  int timeouts = 0;
  while (s.sender.on_deadline(s.now = s.sender.deadline())) {
    ASSERT_LT(++timeouts, 20);
    s.pump();
  }
  // 1 + 2 + 4 + 8 s.
  EXPECT_GE(s.now, seconds(15));
  EXPECT_LE(s.now, seconds(16));
}

TEST(Timeout, AReceiverThatForgotWhatItSackedGetsItAgain) {
  SenderScript s;
  s.measure(kRtt);
  s.post(5);
  s.pump();
  s.now += kRtt;
  s.ack(1, {{1, 6}});  // a block right at the ACK: it claims to hold what it does not acknowledge
  EXPECT_DOUBLE_EQ(s.in_flight(), 0);
  s.now = s.sender.deadline();
  ASSERT_TRUE(s.sender.on_deadline(s.now));
  EXPECT_EQ(s.count.sack_reneged, 1u);
  EXPECT_EQ(s.pump(), Numbers{1});
}

// RFC 6937: after the first repair, the window follows what is delivered in proportion to the
// target.
TEST(ProportionalRateReduction, SendsHalfOfWhatArrivesThenStopsAtSsthresh) {
  SenderScript s;
  s.measure(kRtt);
  s.post(200);
  while (s.cwnd() < 40) {
    s.pump();
    s.now += kRtt;
    s.ack(s.sender.next() / s.mss());
  }
  s.pump();
  const std::uint64_t una = s.sender.acked() / s.mss(), next = s.sender.next() / s.mss();
  const auto flight = static_cast<double>(next - una);
  s.now += kRtt;
  s.ack(una, {{una + 1, una + 4}});
  ASSERT_EQ(s.sender.state(), Sender::State::recovery);
  const double target = static_cast<double>(s.sender.window().ssthresh) / static_cast<double>(s.mss());
  EXPECT_DOUBLE_EQ(target, std::floor(flight / 2));
  std::uint64_t sent = s.pump().size();
  EXPECT_GE(sent, 1u);
  for (std::uint64_t i = una + 5; i <= next; ++i) {  // one SACK at a time
    s.now += microseconds(100);
    s.ack(una, {{una + 1, i}});
    sent += s.pump().size();
    const double delivered = static_cast<double>(i - una - 1);
    if (s.in_flight() > target) {
      ASSERT_LE(static_cast<double>(sent), std::ceil(delivered * target / flight) + 1) << i;
    }
    ASSERT_LE(s.in_flight(), std::max(target, flight - delivered * (1 - target / flight)) + 1) << i;
  }
  EXPECT_NEAR(s.in_flight(), target, 1.5);
  s.now += kRtt;
  s.ack(next);
  EXPECT_EQ(s.sender.state(), Sender::State::open);
  EXPECT_NEAR(s.cwnd(), target, 0.1);
}

// RFC 6675 5 ends a recovery at the highest segment sent before it; what was sent after that and
// lost begins another, and the window falls again, even if it has been repaired by then.
TEST(Recovery, ALossBehindItsEndBeginsAnother) {
  SenderScript s;
  s.post(100);
  EXPECT_EQ(s.pump().size(), 10u);
  s.now += kRtt;
  s.ack(0, {{1, 4}});
  EXPECT_EQ(s.count.fast_recoveries, 1u);
  EXPECT_EQ(s.pump(), (Numbers{0}));
  s.ack(0, {{1, 8}});
  EXPECT_EQ(s.pump(), (Numbers{10, 11})) << "beyond the recovery's end at 10";
  s.ack(0, {{9, 10}, {1, 8}});
  s.ack(0, {{9, 10}, {1, 8}});
  EXPECT_EQ(s.pump(), (Numbers{8, 12}));
  s.now += kRtt;
  s.ack(8, {{9, 10}});
  s.ack(8, {{11, 12}, {9, 10}});
  EXPECT_EQ(s.pump().front(), 10u) << "lost behind the end, and repaired within the recovery";
  EXPECT_EQ(s.count.fast_recoveries, 1u);
  const std::uint64_t threshold = s.sender.window().ssthresh;
  s.ack(10, {{11, 12}});
  EXPECT_EQ(s.sender.board().lost(), 0u);
  EXPECT_EQ(s.sender.board().lost_out(), 1u);
  EXPECT_EQ(s.count.fast_recoveries, 2u);
  EXPECT_LT(s.sender.window().ssthresh, threshold);
  s.now += kRtt;
  s.ack(s.sender.board().end());
  EXPECT_EQ(s.sender.board().lost_out(), 0u);
  EXPECT_EQ(s.count.fast_recoveries, 2u);
}

TEST(Undo, AnAckOfTheOriginalTakesASpuriousRecoveryBack) {
  SenderScript s;
  s.measure(kRtt);
  s.post(60);
  s.pump();
  const double before = s.cwnd();
  const std::uint32_t original = timestamp(milliseconds(1) + kRtt);
  s.now += kRtt;
  s.ack(1, {{2, 6}});
  EXPECT_EQ(s.sender.state(), Sender::State::recovery);
  EXPECT_EQ(s.pump().front(), 1u);
  s.now += microseconds(50);
  s.ack(7, {}, false, original);  // echoes the first transmission's timestamp (RFC 3522)
  EXPECT_EQ(s.count.spurious_recoveries, 1u);
  EXPECT_EQ(s.sender.state(), Sender::State::open);
  EXPECT_GE(s.cwnd(), before);
  EXPECT_EQ(s.sender.window().ssthresh, kNoLimit);
}

TEST(Undo, ASpuriousTimeoutIsTakenBackAndNothingMoreIsRepeated) {
  SenderScript s;
  s.measure(kRtt);
  s.post(10);
  s.pump();
  const std::uint32_t original = timestamp(milliseconds(1) + kRtt);
  while (s.count.rto == 0) {
    s.now = s.sender.deadline();
    ASSERT_TRUE(s.sender.on_deadline(s.now));
    s.pump();
  }
  const std::uint64_t repeated = s.count.retransmitted;
  s.ack(3, {}, false, original);
  EXPECT_EQ(s.count.spurious_rto, 1u);
  EXPECT_TRUE(s.pump().empty());
  s.ack(11);
  EXPECT_EQ(s.count.retransmitted, repeated);
  EXPECT_FALSE(s.sender.board().packets());
}

// One recovery follows another while a repair of the first is still on its way: the ACK of that
// repair echoes a time before the second recovery's first retransmission, and is no sign of a
// mistake.
TEST(Undo, ARepairOfTheRecoveryBeforeIsNoOriginal) {
  SenderScript s;
  s.measure(kRtt);
  s.post(200);
  s.pump();  // 1 to 10
  s.now += kRtt;
  s.ack(1, {{2, 11}});
  ASSERT_EQ(s.sender.state(), Sender::State::recovery);
  s.pump();  // 1 again, and new segments as PRR allows: 11 and on
  const std::uint64_t sent = s.sender.next() / s.mss();
  ASSERT_GE(sent, 15u);
  s.now += kRtt;
  s.ack(1, {{2, 11}, {12, 13}, {14, sent}});  // 11 and 13 are missing too
  for (const std::uint64_t n : {1, 11}) {  // 1's repair was lost as well
    ASSERT_EQ(s.sender.ready(s.now), Sender::Ready::now);
    ASSERT_EQ(s.sender.send(s.now).begin, n * s.mss());
  }
  const std::uint32_t repaired = timestamp(s.now);
  s.now += milliseconds(1);
  s.ack(11, {{12, 13}, {14, sent}});  // the first recovery is over and the next begins, for 13
  ASSERT_EQ(s.sender.state(), Sender::State::recovery);
  ASSERT_EQ(s.count.fast_recoveries, 2u);
  EXPECT_EQ(s.pump().front(), 13u);
  s.now += kRtt - milliseconds(1);
  s.ack(13, {{14, sent}}, false, repaired);
  EXPECT_EQ(s.count.spurious_recoveries, 0u);
  EXPECT_EQ(s.sender.state(), Sender::State::recovery);
}

}  // namespace
}  // namespace loomnet::tcp
