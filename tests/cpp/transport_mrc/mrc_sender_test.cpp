// The sending side as protocol transcripts: spraying, marks, windows, ports, base RTT and what is
// forged (OCP MRC 1.0). Loss is in mrc_recovery_test.
#include <set>

#include "mrc_script.hpp"

namespace loomnet::mrc {
namespace {

TEST(Sender, PacketHasTheGoldenShape) {
  Script s(quick_options());
  s.post(2 * kMtu + 100, true);
  const auto out = s.pull_all();
  ASSERT_EQ(out.size(), 3u) HISTORY;
  EXPECT_EQ(out[0].in.op, Op::write_first);
  EXPECT_EQ(out[1].in.op, Op::write_middle);
  EXPECT_EQ(out[2].in.op, Op::write_last_immediate);
  EXPECT_EQ(out[0].wire, 4238u) << "frame of 4,096 B payload with TSETH (3.3)";
  EXPECT_EQ(out[2].payload, 100u);
  EXPECT_EQ(out[2].immediate, 1u);
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(out[i].bth.psn, i);
    EXPECT_EQ(out[i].bth.destination_qp, kRemote);
    EXPECT_TRUE(out[i].bth.timestamp);
    EXPECT_FALSE(out[i].bth.retransmission);
    EXPECT_EQ(out[i].reth.address, 0x1000 + i * kMtu) << "va advances by the MTU";
    EXPECT_EQ(out[i].reth.dma_length, 2 * kMtu + 100);
    EXPECT_EQ(out[i].dscp, dscp::kTrimmable);
    EXPECT_EQ(out[i].ev.plane(), out[i].port) << "the EV names the port it left by";
    EXPECT_EQ(out[i].meth.rqmsn, 1);
  }
  EXPECT_FALSE(out[1].bth.ack_request);
  EXPECT_TRUE(out[2].bth.ack_request) << "it empties the queue";
}

TEST(Sender, ABareImmediateIsOnePacket) {
  Script s(quick_options());
  s.post(0, true);
  const auto out = s.pull_all();
  ASSERT_EQ(out.size(), 1u) HISTORY;
  EXPECT_EQ(out[0].in.op, Op::write_only_immediate);
  EXPECT_EQ(out[0].payload, 0u);
  s.sack(out[0], 0);
  ASSERT_EQ(s.completions.size(), 1u) HISTORY;
}

TEST(Sender, RotatesOverPlanesAndPaths) {
  Script s(quick_options(), 4, 4);
  s.post(16 * kMtu);
  const auto out = s.pull_all();
  ASSERT_EQ(out.size(), 16u) HISTORY;
  std::set<std::uint32_t> evs;
  int per_plane[4] = {};
  for (const Left& l : out) evs.insert(l.ev.value), ++per_plane[l.port];
  EXPECT_EQ(evs.size(), 16u) << "each path once before any twice" HISTORY;
  for (const int n : per_plane) EXPECT_EQ(n, 4);
}

TEST(Sender, SparseTrafficAlsoTakesTurns) {
  Script s(quick_options(), 4, 4);
  int per_plane[4] = {};
  for (std::uint32_t i = 0; i < 16; ++i) {
    s.post(10);
    const auto out = s.pull_all();
    ASSERT_EQ(out.size(), 1u) HISTORY;
    ++per_plane[out[0].port];
    s.sack(out[0], i);
  }
  for (const int n : per_plane) EXPECT_EQ(n, 4) HISTORY;
}

TEST(Sender, CompletesInOrderWhenAllBeforeHasArrived) {
  Script s(quick_options());
  s.post(kMtu), s.post(kMtu), s.post(kMtu);
  const auto out = s.pull_all();
  s.sack(out[2], 0xffffff, 0b110);  // 1 and 2 arrived, 0 did not
  EXPECT_TRUE(s.completions.empty()) HISTORY;
  s.sack(out[0], 2);
  ASSERT_EQ(s.completions.size(), 3u) HISTORY;
  for (std::uint64_t i = 0; i < 3; ++i) EXPECT_EQ(s.completions[i].id, i + 1);
  EXPECT_FALSE(s.nic.outstanding());
  EXPECT_EQ(s.pull_all().size(), 0u);
}

TEST(Sender, PsnWraps) {
  MrcOptions o = quick_options();
  o.first_psn = 0xfffffe;
  Script s(o);
  s.post(4 * kMtu);
  const auto out = s.pull_all();
  ASSERT_EQ(out.size(), 4u);
  EXPECT_EQ(out[1].bth.psn, 0xffffffu);
  EXPECT_EQ(out[2].bth.psn, 0u);
  s.sack(out[3], 0xfffffe, 0b110);
  EXPECT_TRUE(s.completions.empty());
  s.sack(out[1], 1);
  EXPECT_EQ(s.completions.size(), 1u) HISTORY;
}

TEST(Sender, MarkSkipsThePathOnce) {
  Script s(quick_options(), 1, 4);
  s.post(12 * kMtu);
  auto out = s.pull_all(4);
  ASSERT_EQ(out.size(), 4u);
  s.advance(microseconds(5));
  s.sack(out[3], 3, 0, Mark::skip_once);
  EXPECT_EQ(s.ev_state(out[3].ev), EvState::skip) HISTORY;
  const EntropyValue marked = out[3].ev;
  out = s.pull_all(7);
  ASSERT_EQ(out.size(), 7u) HISTORY;
  for (std::size_t i = 0; i < 6; ++i) EXPECT_NE(out[i].ev, marked) << i HISTORY;
  EXPECT_EQ(out[6].ev, marked) << "back in the second rotation";
  EXPECT_EQ(s.count(Count::ev_skipped), 1u);
  EXPECT_EQ(s.count(Count::ev_skipped_marked), 1u);
}

TEST(Sender, AMarkThatTheWindowTakesMovesNoPath) {
  MrcOptions o = quick_options();
  o.ecn_reaction = EcnReaction::window;
  Script s(o, 1, 4);
  s.post(12 * kMtu);
  auto out = s.pull_all(4);
  ASSERT_EQ(out.size(), 4u);
  s.advance(microseconds(5));
  s.sack(out[3], 3, 0, Mark::skip_once);
  EXPECT_NE(s.ev_state(out[3].ev), EvState::skip) HISTORY;
  const EntropyValue marked = out[3].ev;
  out = s.pull_all(4);
  ASSERT_EQ(out.size(), 4u) HISTORY;
  EXPECT_EQ(out[3].ev, marked) << "it has its turn";
  EXPECT_EQ(s.count(Count::ev_skipped), 0u);
}

TEST(Sender, AlwaysSkipIsObeyed) {
  Script s(quick_options(), 1, 4);
  s.post(4 * kMtu);
  const auto out = s.pull_all();
  s.sack(out[3], 3, 0, Mark::always_skip);
  EXPECT_EQ(s.ev_state(out[3].ev), EvState::assumed_bad) HISTORY;
}

// Only the window of PSNs holds the sender back.
MrcOptions psn_window_only() {
  MrcOptions o = quick_options();
  o.mpr = 1;
  o.congestion = "fixed_window";
  o.congestion_options = {{"fixed_window", std::uint64_t{1ull << 30}}};
  return o;
}

TEST(Sender, WindowEdges) {
  Script s(psn_window_only());
  s.post(1000 * kMtu);
  const auto out = s.pull_all();
  ASSERT_EQ(out.size(), 128u) << "128 PSNs, upper edge inclusive" HISTORY;
  EXPECT_TRUE(out.back().bth.ack_request) << "it fills the window";
  s.sack(out[0], 0);
  EXPECT_EQ(s.pull_all().size(), 1u);
}

TEST(Sender, AHeldPacketIsCountedOnce) {
  Script s(psn_window_only());
  s.post(1000 * kMtu);
  const auto out = s.pull_all();
  EXPECT_EQ(s.count(Count::psn_window_full), 1u) << "PSN 128" HISTORY;
  for (int i = 0; i < 3; ++i) s.nic.on_limits(kLocal, 0, {}, s.now);
  EXPECT_EQ(s.count(Count::psn_window_full), 1u) << "limits that are stated change nothing" HISTORY;
  s.sack(out[0], 0);
  s.pull_all();
  EXPECT_EQ(s.count(Count::psn_window_full), 2u) << "PSN 129" HISTORY;
}

TEST(Sender, DynamicMprReplacesTheWindow) {
  Script s(psn_window_only());
  s.post(1000 * kMtu);
  const auto out = s.pull_all();
  Seth seth;
  seth.cack_psn = 0xffffff;
  seth.ack_psn_offset = 1;
  seth.sack_offset = 1;
  seth.mpr = 2;
  s.receive(0, Op::sack, 0, kLocal, dscp::kControl, Ecn::not_ect, out[0].ev, nullptr, 0, seth, CcState{});
  EXPECT_EQ(s.pull_all().size(), 128u) HISTORY;
}

TEST(Sender, PsnWindowHoldsTwoBandwidthDelayProducts) {
  MrcOptions o = quick_options();
  EXPECT_EQ(o.window_for(4), 8u) << "250,000 B are far fewer packets";
  o = MrcOptions::sim(microseconds(8), gigabits(400));
  o.mtu = 2048;
  EXPECT_EQ(o.window_for(8), 25u) << "2 x 3.2 MB in units of 128 packets of 2,048 B";
  o.port_rate = gigabits(10'000);
  EXPECT_EQ(o.window_for(8), 255u) << "the field is 8 bits";
}

// A plane with a quarter of the paths holds a quarter of what the others do in flight, although its
// port is free.
TEST(Sender, AShareOfTheWindowGoesByPaths) {
  MrcOptions o = quick_options();
  o.congestion = "fixed_window";
  o.congestion_options = {{"fixed_window", std::uint64_t{26 * (4096 + 80)}}};
  for (const PlaneTurns turns : {PlaneTurns::paths, PlaneTurns::equal}) {
    o.plane_turns = turns;
    Script s(o, 4, 4);
    for (const unsigned uplink : {0u, 1u, 2u}) s.nic.deny(kLocal, EntropyValue(0, uplink), true, s.now);
    s.post(100 * kMtu);
    int of_plane[4] = {};
    for (const Left& l : s.pull_all()) ++of_plane[l.port];
    EXPECT_NEAR(of_plane[0], turns == PlaneTurns::paths ? 2 : 6, 1) HISTORY;
    for (int p = 1; p < 4; ++p) EXPECT_NEAR(of_plane[p], turns == PlaneTurns::paths ? 8 : 6, 1) HISTORY;
    EXPECT_EQ(of_plane[0] + of_plane[1] + of_plane[2] + of_plane[3], 26);
  }
}

// Stop-and-wait by windows would leave a short path idle: each quarter of the window asks.
TEST(Sender, AWindowBelowWhatTheReceiverAnswersByItselfAsksByQuarters) {
  MrcOptions o = quick_options();
  o.congestion = "fixed_window";
  for (const std::uint64_t packets : {3, 8, 40}) {
    o.congestion_options = {{"fixed_window", std::uint64_t{packets * (4096 + 80)}}};
    Script s(o);
    s.post(100 * kMtu);
    std::size_t asked = 0;
    const auto out = s.pull_all();
    ASSERT_EQ(out.size(), packets) HISTORY;
    for (const Left& l : out) asked += l.bth.ack_request;
    EXPECT_EQ(asked, packets == 3 ? 3u : packets == 8 ? 4u : 1u) << packets HISTORY;
  }
}

// The packet that follows a message's short last one is a whole one, for which the window has no room.
TEST(Sender, AShortPacketAsksWhereTheNextIsTooLargeForTheWindow) {
  MrcOptions o = quick_options();
  o.congestion = "fixed_window";
  o.congestion_options = {{"fixed_window", std::uint64_t{4096 + 80}}};
  Script s(o);
  s.post(100);
  s.post(2 * kMtu);
  const auto out = s.pull_all();
  ASSERT_EQ(out.size(), 1u) HISTORY;
  EXPECT_TRUE(out[0].bth.ack_request) HISTORY;
}

TEST(Sender, TheMarkOfAPlanesOnlyPathSwapsInABackup) {
  MrcOptions o = quick_options();
  o.evs_per_qp = 4;
  Script s(o, 4, 8);
  s.post(100 * kMtu);
  const auto out = s.pull_all(4);
  ASSERT_EQ(out.size(), 4u) HISTORY;
  s.advance(microseconds(5));
  s.sack(out[1], 1, 0, Mark::skip_once);
  std::set<std::uint32_t> now;
  for (const Left& l : s.pull_all(8)) now.insert(l.ev.value);
  EXPECT_EQ(now.size(), 4u) HISTORY;
  EXPECT_FALSE(now.contains(out[1].ev.value)) HISTORY;
  EXPECT_EQ(s.count(Count::ev_swapped), 1u);
  ASSERT_FALSE(s.events.empty());
  EXPECT_EQ(s.events.back().kind, EventKind::ev_swapped);
}

TEST(Sender, CongestionWindowHoldsBack) {
  MrcOptions o = quick_options();
  o.congestion = "fixed_window";
  o.congestion_options = {{"fixed_window", std::uint64_t{3 * (4096 + 80)}}};
  Script s(o);
  s.post(100 * kMtu);
  const auto out = s.pull_all();
  EXPECT_EQ(out.size(), 3u) HISTORY;
  s.sack(out[0], 0);
  EXPECT_EQ(s.pull_all().size(), 1u);
}

TEST(Sender, ImmediatesInFlightAreLimited) {
  MrcOptions o = quick_options();
  o.max_wimm = 2;
  Script s(o);
  for (int i = 0; i < 5; ++i) s.post(10, true);
  auto out = s.pull_all();
  EXPECT_EQ(out.size(), 2u) HISTORY;
  s.nic.on_limits(kLocal, 0, {}, s.now);
  EXPECT_EQ(s.count(Count::wimm_stalled), 1u) << "the third, once";
  s.sack(out[0], 0);
  EXPECT_EQ(s.pull_all().size(), 1u) HISTORY;
}

TEST(Sender, OwnPortDownTellsEveryLivePlaneUntilAnswered) {
  Script s(quick_options());
  s.nic.on_port(2, false, s.now);
  auto told = s.pull_all();
  ASSERT_EQ(told.size(), 3u) HISTORY;
  for (const Left& l : told) {
    EXPECT_EQ(l.in.op, Op::endpoint_request);
    EXPECT_EQ(l.bth.destination_qp, kEndpointQp);
    EXPECT_EQ(l.erth.port_status_mask, 0b1011u);
    EXPECT_NE(l.port, 2);
  }
  s.advance(microseconds(30));
  EXPECT_EQ(s.pull_all().size(), 3u) << "repeated" HISTORY;
  s.answer_endpoint(told[0]);
  s.advance(milliseconds(5));
  EXPECT_EQ(s.pull_all().size(), 0u) << "answered" HISTORY;
  s.post(64 * kMtu);
  for (const Left& l : s.pull_all()) EXPECT_NE(l.port, 2);
}

TEST(Sender, OwnPortUpNeedsThreeAnsweredProbes) {
  Script s(quick_options());
  const std::uint64_t most = s.nic.sender(kLocal).limits().cwnd_most;
  s.nic.on_port(2, false, s.now);
  for (const Left& l : s.pull_all()) s.answer_endpoint(l);
  s.nic.on_port(2, true, s.now);
  s.post(400 * kMtu);
  int answered = 0;
  for (int i = 0; i < 10 && answered < 3; ++i) {
    for (const Left& l : s.pull_all(20)) {
      EXPECT_FALSE(is_data(l.in.op) && l.port == 2) << "too early" HISTORY;
      if (l.in.op != Op::endpoint_request || l.erth.op != 1) continue;
      EXPECT_EQ(l.port, 2);
      EXPECT_EQ(l.dscp, dscp::kNoTrim);
      s.answer_endpoint(l);
      ++answered;
    }
    s.advance(microseconds(1));
  }
  EXPECT_EQ(answered, 3) HISTORY;
  EXPECT_EQ(s.nic.sender(kLocal).limits().cwnd_most, most) << "maxwnd is back";
}

TEST(Sender, PeerPortDownLeavesThatPlane) {
  Script s(quick_options());
  Erth down;
  down.port_status_mask = 0b1101;
  s.receive(0, Op::endpoint_request, 5, kEndpointQp, dscp::kControl, Ecn::not_ect, EntropyValue(0, 1), nullptr, 0,
            down);
  auto out = s.pull_all();
  ASSERT_EQ(out.size(), 1u) << "answered" HISTORY;
  EXPECT_EQ(out[0].in.op, Op::endpoint_response);
  EXPECT_EQ(out[0].bth.psn, 5u) << "the request's id";
  s.post(64 * kMtu);
  for (const Left& l : s.pull_all()) EXPECT_NE(l.port, 1);
  // An older update must not bring it back.
  Erth up;
  up.port_status_mask = 0b1111;
  s.receive(0, Op::endpoint_request, 4, kEndpointQp, dscp::kControl, Ecn::not_ect, EntropyValue(0, 1), nullptr, 0, up);
  EXPECT_EQ(s.count(Count::port_status_stale), 1u);
  EXPECT_EQ(s.pull_all().size(), 0u) HISTORY;
}

TEST(Sender, BaseRttIsTheMinimumOfSixteenProbes) {
  MrcOptions o = quick_options();
  o.base_rtt = {};
  Script s(o);
  s.post(kMtu);
  std::vector<Left> data;
  std::size_t probes = 0;
  for (int round = 0; round < 8; ++round) {
    std::size_t sent = 0;
    const auto out = s.pull_all();
    // The answer of one probe of the second round is the soonest.
    s.advance(microseconds(round == 1 ? 4 : 6));
    for (const Left& l : out) {
      if (is_data(l.in.op)) {
        data.push_back(l);
        EXPECT_GT(round, 0) << "data waits for the first answers" HISTORY;
        continue;
      }
      if (l.in.op != Op::endpoint_request) continue;  // asks for the data, which nobody answers
      if (sent++ == 1 && round == 1) s.advance(microseconds(2));
      s.answer_endpoint(l);
    }
    EXPECT_LE(sent, 4u) << "one of each plane at a time" HISTORY;
    probes += sent;
  }
  EXPECT_EQ(probes, 16u) HISTORY;
  ASSERT_EQ(data.size(), 1u) HISTORY;
  EXPECT_EQ(data[0].in.op, Op::write_only);
}

// A whole packet takes longer over each of the five links of the path than a probe, and so does its
// SACK: 4,124 B at 100 Gb/s.
TEST(Sender, BaseRttIsOfWholePackets) {
  MrcOptions o = quick_options();
  o.base_rtt = {};
  Script s(o);
  auto probes = s.pull_all();
  s.advance(microseconds(4));
  for (const Left& l : probes) s.answer_endpoint(l);
  EXPECT_NEAR(s.nic.sender(kLocal).delay().base_rtt().microseconds(), 4 + 5 * 0.33, 0.2);
  s.post(kMtu);
  s.post(64);
  std::vector<Left> data;
  for (const Left& l : s.pull_all()) {
    if (is_data(l.in.op)) data.push_back(l);
  }
  ASSERT_EQ(data.size(), 2u) HISTORY;
  s.advance(nanoseconds(4'320));  // the short one: nothing was queued before either
  s.sack(data[1], 0xffffff, 0b10);
  s.advance(nanoseconds(1'330));
  s.sack(data[0], 1);
  EXPECT_LE(s.nic.sender(kLocal).delay().average(), nanoseconds(128)) HISTORY;
  EXPECT_NEAR(s.nic.sender(kLocal).delay().base_rtt().microseconds(), 5.65, 0.2);
}

TEST(Sender, MeasurementThatNobodyAnswersGivesUp) {
  MrcOptions o = quick_options();
  o.base_rtt = {};
  Script s(o);
  s.post(kMtu);
  bool data = false;
  for (int i = 0; i < 100 && !data; ++i) {
    for (const Left& l : s.pull_all()) data |= is_data(l.in.op);
    s.advance(microseconds(10));
  }
  EXPECT_TRUE(data) << "network_rtt is taken" HISTORY;
}

TEST(Sender, DeniedPathIsNotUsed) {
  Script s(quick_options(), 1, 4);
  EXPECT_TRUE(s.nic.deny(kLocal, EntropyValue(0, 2), true, s.now));
  s.post(32 * kMtu);
  for (const Left& l : s.pull_all()) EXPECT_NE(l.ev.uplink(), 2u);
}

// A queue pair without a path would stand until its peer is given up.
TEST(Sender, TheLastPathsAreNotDenied) {
  Script s(quick_options(), 1, 4);
  unsigned denied = 0;
  for (unsigned uplink = 0; uplink < 4; ++uplink) {
    denied += s.nic.deny(kLocal, EntropyValue(0, uplink), true, s.now);
  }
  EXPECT_EQ(denied, 3u);
  EXPECT_FALSE(s.nic.deny(kLocal, EntropyValue(0, 9), true, s.now)) << "no such path";
  s.post(kMtu);
  EXPECT_EQ(s.pull_all().size(), 1u) HISTORY;
}

TEST(Sender, TimestampsWrap) {
  Script s(quick_options());
  s.advance(nanoseconds(128) * 65'500);
  s.post(kMtu);
  const auto out = s.pull_all();
  s.advance(microseconds(6));  // the 16-bit clock passes zero
  ASSERT_GT(out[0].stamp.tx_ts, s.options.timestamp(s.now));
  const auto window = s.nic.sender(kLocal).limits().cwnd;
  s.sack(out[0], 0);
  EXPECT_GE(s.nic.sender(kLocal).limits().cwnd, window);
  EXPECT_LT(s.nic.sender(kLocal).delay().average(), microseconds(1)) HISTORY;
}

TEST(Sender, ForgedAcknowledgementsAreCountedAndIgnored) {
  Script s(quick_options());
  s.post(4 * kMtu);
  const auto out = s.pull_all();
  s.sack(out[0], 4);  // never sent
  EXPECT_EQ(s.count(Count::drop_ack_beyond_sent), 1u);
  s.sack(out[0], 0xffffff, ~0ull << 4);  // bits beyond what was sent
  EXPECT_EQ(s.count(Count::drop_ack_beyond_sent), 2u);
  EXPECT_TRUE(s.completions.empty());
  s.sack(out[0], 0x7fffff);
  EXPECT_TRUE(s.completions.empty()) HISTORY;
  Neth n;
  n.reason = 0x55;
  s.receive(0, Op::nack, 0, kLocal, dscp::kControl, Ecn::not_ect, out[0].ev, nullptr, 0, n);
  EXPECT_EQ(s.count(Count::drop_bad_reason), 1u);
  s.sack(out[3], 3);
  EXPECT_EQ(s.completions.size(), 1u) << "the real one still counts" HISTORY;
}

}  // namespace
}  // namespace loomnet::mrc
