// When the sender may send, segment by segment, where nothing is lost: its window and the
// receiver's, ECN, idle times, pacing.
#include "transport_tcp/sender_script.hpp"

namespace loomnet::tcp {
namespace {

TEST(Sending, InitialWindowIsTenSegmentsAndSlowStartDoublesIt) {
  SenderScript s;
  s.post(100);
  EXPECT_EQ(s.pump(), (Numbers{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  s.now += kRtt;
  s.ack(10);
  EXPECT_DOUBLE_EQ(s.cwnd(), 20);
  EXPECT_EQ(s.pump().size(), 20u);
}

TEST(Sending, WindowDoesNotGrowWhereItDoesNotLimit) {
  SenderScript s;
  for (int i = 0; i < 50; ++i) {
    s.post(2);
    s.pump();
    s.now += kRtt;
    s.ack(2 * (static_cast<std::uint64_t>(i) + 1));
  }
  EXPECT_DOUBLE_EQ(s.cwnd(), 10);
}

TEST(Sending, SegmentsNeverSpanTwoMessages) {
  SenderScript s;
  WorkRequest w;
  w.length = static_cast<std::uint32_t>(s.mss());  // with its frame header: one full segment and 32 bytes
  s.sender.post(w, s.now);
  s.sender.post(w, s.now);
  std::vector<std::uint32_t> lengths;
  while (s.sender.ready(s.now) == Sender::Ready::now) {
    const Transmission t = s.sender.send(s.now);
    lengths.push_back(t.length);
    EXPECT_EQ(t.push, t.length < s.mss());
  }
  const auto mss = static_cast<std::uint32_t>(s.mss());
  EXPECT_EQ(lengths, (std::vector<std::uint32_t>{mss, 32, mss, 32}));
}

TEST(Sending, ClosedWindowIsProbed) {
  SenderScript s;
  s.post(20);
  s.pump();
  s.now += kRtt;
  Acknowledgement a;
  a.end = 10 * s.mss();
  a.window = 0;
  s.chosen.receive_buffer = 0;
  s.sender.on_ack(a, s.now);
  // The right edge never moves left: what was offered at the start may still be sent.
  EXPECT_FALSE(s.pump().empty());
  TcpOptions small = SenderScript::options("reno");
  small.receive_buffer = static_cast<std::uint32_t>(10 * s.mss());
  SenderScript t(small);
  t.post(20);
  EXPECT_EQ(t.pump().size(), 10u);
  t.now += kRtt;
  a.end = 10 * t.mss();
  t.sender.on_ack(a, t.now);
  EXPECT_TRUE(t.pump().empty());
  ASSERT_NE(t.sender.deadline(), kNever);
  t.now = t.sender.deadline();
  ASSERT_TRUE(t.sender.on_deadline(t.now));
  EXPECT_EQ(t.pump(), Numbers{10});
  EXPECT_EQ(t.count.window_probes, 1u);
}

TEST(Ecn, OneReductionPerRoundTrip) {
  TcpOptions o = SenderScript::options("reno");
  o.ecn = true;
  SenderScript s(o);
  s.post(100);
  s.pump();
  s.now += kRtt;
  s.ack(4, {}, true);
  EXPECT_EQ(s.count.ecn_reductions, 1u);
  EXPECT_EQ(s.sender.state(), Sender::State::cwr);
  s.ack(6, {}, true);
  s.ack(8, {}, true);
  s.ack(10, {}, true);
  EXPECT_EQ(s.count.ecn_reductions, 1u);
  EXPECT_EQ(s.count.retransmitted, 0u);
  const auto threshold = s.sender.window().ssthresh;
  bool told = false;
  while (s.sender.ready(s.now) == Sender::Ready::now) told = s.sender.send(s.now).cwr || told;
  EXPECT_TRUE(told) << "the receiver is to stop echoing (CWR)";
  s.now += kRtt;
  s.ack(11);
  EXPECT_EQ(s.sender.state(), Sender::State::open);
  EXPECT_LE(s.sender.window().cwnd, threshold + s.mss());
}

TEST(Idle, WindowHalvesPerTimeoutOfSilenceDownToTheInitialOne) {
  SenderScript s;
  s.post(400);
  std::uint64_t acked = 0;
  while (s.cwnd() < 80) {
    s.pump();
    s.now += kRtt;
    s.ack(acked = s.sender.next() / s.mss());
  }
  while (acked < 400) {
    s.pump();
    s.now += kRtt;
    s.ack(acked = s.sender.next() / s.mss());
  }
  const double grown = s.cwnd();
  s.now += s.sender.rtt().rto() + milliseconds(1) - kRtt;
  s.post(200);
  EXPECT_EQ(s.pump().size(), static_cast<std::size_t>(grown / 2));
  EXPECT_EQ(s.count.idle_restarts, 1u);
  EXPECT_GE(s.sender.window().ssthresh, static_cast<std::uint64_t>(grown * 0.7) * s.mss());
}

// Linux's pacing lets a buffer of two segments or more go at once, then waits as long as it takes
// at the rate.
TEST(Pacing, SegmentsLeaveInBurstsOfTheirShareOfAMillisecond) {
  SenderScript s(SenderScript::options("bbr"));
  s.post(40);
  // Before an RTT is known: 2.885 windows of ten segments per 1 ms, 28 of them per 1024th second.
  EXPECT_EQ(s.pump({}).size(), 10u) << "the window ends the burst";
  s.now += milliseconds(20);
  s.ack(2);
  // Now 2.885 windows per 20 ms: a burst is two segments, and the next is due when they would have
  // been clocked out.
  std::vector<std::size_t> bursts;
  for (std::uint64_t acked = 4; acked <= 10; acked += 2) {
    s.ack(acked);
    bursts.push_back(s.pump({}).size());
    if (s.sender.ready(s.now) == Sender::Ready::paced) s.now = s.sender.paced_until();
  }
  EXPECT_EQ(bursts, (std::vector<std::size_t>{2, 2, 2, 2}));
  const double rate = static_cast<double>(s.sender.window().pacing_rate);
  const Picoseconds before = s.now;
  EXPECT_EQ(s.pump({}).size(), 2u);
  ASSERT_EQ(s.sender.ready(s.now), Sender::Ready::paced);
  EXPECT_NEAR((s.sender.paced_until() - before).seconds(), 2 * 8 * static_cast<double>(s.mss()) / rate, 1e-6);
}

}  // namespace
}  // namespace loomnet::tcp
