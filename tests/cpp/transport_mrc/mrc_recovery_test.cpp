// Loss as protocol transcripts: refused, silent and tail loss, what becomes of the path, and when a
// queue pair gives up (OCP MRC 1.0).
#include <algorithm>

#include "mrc_script.hpp"

namespace loomnet::mrc {
namespace {

TEST(Recovery, TrimmedIsSentAgainAtOnceOnAnotherPath) {
  Script s(quick_options());
  s.post(8 * kMtu);
  const auto out = s.pull_all();
  const auto window = s.nic.sender(kLocal).limits().cwnd;
  s.nack(out[2], NackReason::trimmed);
  EXPECT_EQ(s.ev_state(out[2].ev), EvState::skip);
  EXPECT_LT(s.nic.sender(kLocal).limits().cwnd, window) << "one packet less";
  const auto again = s.pull_all();
  ASSERT_EQ(again.size(), 1u) HISTORY;
  EXPECT_EQ(again[0].bth.psn, 2u);
  EXPECT_TRUE(again[0].bth.retransmission);
  EXPECT_EQ(again[0].dscp, dscp::kTrimmableRetransmission);
  EXPECT_NE(again[0].ev, out[2].ev) << "never the path of the copy that was refused" HISTORY;
  EXPECT_EQ(s.count(Count::ev_condemned), 0u);
}

TEST(Recovery, LastHopTrimBlamesNoPath) {
  Script s(quick_options());
  s.post(8 * kMtu);
  const auto out = s.pull_all();
  s.nack(out[2], NackReason::trimmed_last_hop);
  EXPECT_EQ(s.ev_state(out[2].ev), EvState::good) HISTORY;
  EXPECT_EQ(s.pull_all().size(), 1u);
}

TEST(Recovery, NackOfAnOlderCopyIsNotAnotherRetransmission) {
  Script s(quick_options());
  s.post(4 * kMtu);
  const auto out = s.pull_all();
  s.nack(out[1], NackReason::trimmed);
  ASSERT_EQ(s.pull_all().size(), 1u);
  s.nack(out[1], NackReason::trimmed);  // duplicated on the way
  EXPECT_EQ(s.pull_all().size(), 0u) HISTORY;
}

// With one path both copies bear the same entropy value: only the echoed time tells them apart.
TEST(Recovery, ALateRefusalOnTheSamePathIsNotTheNewestCopys) {
  Script s(quick_options(), 1, 1);
  s.post(kMtu);
  const auto first = s.pull_all();
  s.nack(first[0], NackReason::trimmed_last_hop);
  s.advance(microseconds(2));
  const auto second = s.pull_all();
  ASSERT_EQ(second.size(), 1u);
  const auto window = s.nic.sender(kLocal).limits().cwnd;
  s.nack(first[0], NackReason::trimmed_last_hop);
  EXPECT_EQ(s.pull_all().size(), 0u) HISTORY;
  EXPECT_EQ(s.nic.sender(kLocal).limits().cwnd, window) << "charged once";
  s.nack(second[0], NackReason::trimmed_last_hop);
  EXPECT_EQ(s.pull_all().size(), 1u) HISTORY;
}

// A mark of a path that is not in rotation, or marked already, skips nothing.
TEST(Recovery, OnlyWhatSkipsIsCountedAsSkipped) {
  Script s(quick_options());
  s.post(8 * kMtu);
  const auto out = s.pull_all();
  s.nack(out[2], NackReason::trimmed);
  s.nack(out[2], NackReason::trimmed);
  EXPECT_EQ(s.count(Count::ev_skipped), 1u) HISTORY;
  EXPECT_EQ(s.count(Count::ev_skipped_marked), 0u) << "a trimmed packet is no mark";
}

// The refusal was on its way when the timer or a probe declared the packet lost: its path delivered.
TEST(Recovery, ARefusalAfterTheVerdictGivesThePathBack) {
  MrcOptions o = quick_options();
  o.loss_infer = LossInference::rto_only;
  o.rto_refused_drains = 0;
  Script s(o);
  s.post(kMtu);
  const auto out = s.pull_all();
  s.advance(microseconds(101));
  ASSERT_EQ(s.ev_state(out[0].ev), EvState::assumed_bad) HISTORY;
  s.nack(out[0], NackReason::trimmed);
  EXPECT_NE(s.ev_state(out[0].ev), EvState::assumed_bad) HISTORY;
  EXPECT_EQ(s.count(Count::spurious_loss), 1u);
  EXPECT_EQ(s.pull_all().size(), 1u) << "one copy, no more";
}

// The retransmission has arrived and is acknowledged; then the original's own SACK comes.
TEST(Recovery, TheOriginalBehindItsRetransmissionGivesThePathBack) {
  MrcOptions o = quick_options();
  o.loss_infer = LossInference::rto_only;
  o.rto_refused_drains = 0;
  Script s(o);
  s.post(kMtu), s.post(kMtu);
  const auto out = s.pull_all();
  s.advance(microseconds(101));
  ASSERT_EQ(s.ev_state(out[1].ev), EvState::assumed_bad) HISTORY;
  const auto again = s.pull_all();
  ASSERT_EQ(again.size(), 2u) HISTORY;
  const Left& second = again[0].bth.psn == 1 ? again[0] : again[1];
  s.sack(second, 0xffffff, 0b10);
  EXPECT_EQ(s.ev_state(out[1].ev), EvState::assumed_bad);
  s.sack(out[1], 0xffffff, 0b10);
  EXPECT_EQ(s.ev_state(out[1].ev), EvState::good) HISTORY;
}

TEST(Recovery, OnlyPlaneLeftMayReuseThePath) {
  Script s(quick_options(), 1, 1);
  s.post(kMtu);
  const auto out = s.pull_all();
  s.nack(out[0], NackReason::trimmed_last_hop);
  EXPECT_EQ(s.pull_all().size(), 1u) << "there is no other path at all" HISTORY;
}

// Silent loss: condemned after one, replaced from the same plane, probed, taken back.
TEST(Recovery, SilentLossCondemnsAndProbesBringBack) {
  MrcOptions o = quick_options();
  o.evs_per_qp = 8;  // 2 active, 1 backup per plane
  o.congestion = "fixed_window";
  o.congestion_options = {{"fixed_window", std::uint64_t{60'000}}};
  Script s(o, 4, 8);
  s.post(200 * kMtu);
  auto out = s.pull_all();
  ASSERT_GT(out.size(), 10u);
  const Left lost = out[0];
  // Everything sent later arrives, round after round; packet 0 never does.
  std::uint32_t highest = 0;
  for (int round = 0; round < 6 && s.count(Count::lost_inferred) == 0; ++round) {
    for (const Left& l : out) highest = std::max(highest, l.bth.psn);
    s.advance(microseconds(6));
    for (std::uint32_t n = 1; n <= highest; n += 32) {
      s.sack(out.back(), 0xffffff, ~0ull << 1);
    }
    out = s.pull_all();
  }
  EXPECT_EQ(s.count(Count::lost_inferred), 1u) HISTORY;
  EXPECT_EQ(s.ev_state(lost.ev), EvState::assumed_bad);
  EXPECT_EQ(s.count(Count::ev_swapped), 1u) << "a backup took its slot";
  const auto again =
      std::find_if(out.begin(), out.end(), [](const Left& l) { return l.bth.psn == 0 && is_data(l.in.op); });
  ASSERT_NE(again, out.end()) HISTORY;
  EXPECT_TRUE(again->bth.retransmission);
  EXPECT_NE(again->ev, lost.ev);

  // Reliability probes on that very path; three answers re-admit it.
  int probes = 0;
  for (int i = 0; i < 200 && s.ev_state(lost.ev) == EvState::assumed_bad; ++i) {
    s.advance(microseconds(5));
    for (const Left& l : s.pull_all()) {
      if (l.in.op != Op::reliability_probe || l.ev != lost.ev) continue;
      EXPECT_EQ(l.dscp, dscp::kNoTrim);
      ++probes;
      s.answer_probe(l, 0xffffff);
    }
  }
  EXPECT_EQ(s.ev_state(lost.ev), EvState::good) HISTORY;
  EXPECT_EQ(probes, 3);
  EXPECT_EQ(s.count(Count::ev_readmitted), 1u);
}

// A path that loses in silence answers most probes: each failure doubles what is asked of it, until
// it has served for long.
TEST(Recovery, EveryFailureAsksForTwiceTheAnswers) {
  MrcOptions o = quick_options();
  o.congestion = "fixed_window";
  o.congestion_options = {{"fixed_window", std::uint64_t{60'000}}};
  o.loss_infer = LossInference::same_ev;
  Script s(o, 1, 2);
  EntropyValue bad;
  std::uint32_t next = 0;  // PSN
  // Packets 0 to 3 take both paths in turn; 0 never arrives the first time.
  const auto fail = [&] {
    s.post(4 * kMtu);
    auto out = s.pull_all(2);
    s.advance(microseconds(1));
    for (const Left& l : s.pull_all()) out.push_back(l);
    ASSERT_EQ(out.size(), 4u) HISTORY;
    ASSERT_EQ(out[0].ev, out[2].ev) HISTORY;
    bad = out[0].ev;
    s.advance(microseconds(5));
    s.sack(out[2], (next + 0xffffff) & 0xffffff, 0b1110);
    ASSERT_EQ(s.ev_state(bad), EvState::assumed_bad) HISTORY;
    const auto again = s.pull_all();
    ASSERT_EQ(again.size(), 1u) HISTORY;
    s.advance(microseconds(5));
    s.sack(again[0], next + 3);
    next += 4;
  };
  const auto answers = [&] {
    int probes = 0;
    for (int i = 0; i < 2000 && s.ev_state(bad) == EvState::assumed_bad; ++i) {
      s.advance(microseconds(5));
      for (const Left& l : s.pull_all()) {
        if (l.in.op != Op::reliability_probe || l.ev != bad) continue;
        ++probes;
        s.answer_probe(l, next - 1);
      }
    }
    return probes;
  };
  for (const int expected : {3, 5, 10, 20, 40, 64, 64}) {
    fail();
    if (HasFatalFailure()) return;
    EXPECT_EQ(answers(), expected) HISTORY;
  }
  s.advance(o.probe_cap * o.readmit_forget_caps + microseconds(1));
  fail();
  if (HasFatalFailure()) return;
  EXPECT_EQ(answers(), 3) << "forgotten" HISTORY;
}

TEST(Recovery, SpuriousLossGivesThePathBack) {
  MrcOptions o = quick_options();
  o.loss_infer = LossInference::same_ev;
  Script s(o, 1, 2);
  s.post(8 * kMtu);
  auto out = s.pull_all(2);
  s.advance(microseconds(1));
  for (const Left& l : s.pull_all()) out.push_back(l);
  ASSERT_EQ(out.size(), 8u);
  s.advance(microseconds(5));
  // PSN 2 used the path of PSN 0 and arrives before it.
  ASSERT_EQ(out[0].ev, out[2].ev);
  s.sack(out[2], 0xffffff, 0b110);
  ASSERT_EQ(s.ev_state(out[0].ev), EvState::assumed_bad) HISTORY;
  s.sack(out[0], 2);  // it was only late
  EXPECT_EQ(s.ev_state(out[0].ev), EvState::good) HISTORY;
  EXPECT_EQ(s.count(Count::spurious_loss), 1u);
  EXPECT_EQ(s.pull_all().size(), 0u) << "nothing to send again";
}

TEST(Recovery, TailLossIsFoundByAProbe) {
  Script s(quick_options());
  s.post(3 * kMtu);
  const auto out = s.pull_all();
  s.advance(microseconds(5));
  s.sack(out[1], 1);
  std::vector<Left> probes;
  for (int i = 0; i < 20 && probes.empty(); ++i) s.advance(microseconds(1)), probes = s.pull_all();
  ASSERT_EQ(probes.size(), 2u) << "the first may be lost where the packet was" HISTORY;
  for (const Left& probe : probes) {
    ASSERT_EQ(probe.in.op, Op::reliability_probe);
    EXPECT_EQ(probe.ev.value, out[2].ev.value);
  }
  s.advance(microseconds(5));
  s.answer_probe(probes[1], 1);
  EXPECT_EQ(s.count(Count::lost_probe), 1u) HISTORY;
  const auto again = s.pull_all();
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].bth.psn, 2u);
}

// Two planes with a packet each: the calm one's answer says nothing of the other.
TEST(Recovery, AProbesAnswerTellsOfItsOwnPathAlone) {
  Script s(quick_options(), 2, 1);
  s.post(2 * kMtu);
  const auto out = s.pull_all();
  ASSERT_EQ(out.size(), 2u);
  std::vector<Left> probes;
  for (int i = 0; i < 40 && probes.empty(); ++i) s.advance(microseconds(1)), probes = s.pull_all();
  ASSERT_EQ(probes.size(), 3u) << "one on each path, a second on the oldest packet's" HISTORY;
  s.advance(microseconds(5));
  s.answer_probe(probes[0].port == 0 ? probes[0] : probes[1], 0xffffff);
  EXPECT_EQ(s.count(Count::lost_probe), 1u) HISTORY;
  for (const Left& l : out) {
    EXPECT_EQ(s.nic.sender(kLocal).evs().failures(s.nic.sender(kLocal).evs().find(l.ev)), l.port == 0 ? 1u : 0u)
    HISTORY;
  }
}

// The answer to an earlier probe comes behind a later probe: it is an answer all the same.
TEST(Recovery, ALateAnswerIsAnAnswer) {
  Script s(quick_options(), 1, 1);
  s.post(kMtu);
  s.pull_all();
  std::vector<Left> probes;
  for (int i = 0; i < 200 && probes.size() < 4; ++i) {
    s.advance(microseconds(1));
    for (const Left& l : s.pull_all()) probes.push_back(l);
  }
  ASSERT_EQ(probes.size(), 4u) << "two rounds of two" HISTORY;
  s.answer_probe(probes[0], 0xffffff);
  EXPECT_EQ(s.count(Count::drop_unasked_answer), 0u) HISTORY;
  EXPECT_EQ(s.count(Count::probe_answered), 1u);
}

// The receiver holds 60 packets beyond the hole but was heard of 59: one SACK was lost, and the packet
// that it told of is not. A probe has the receiver tell again.
TEST(Recovery, AMissingReportIsAskedForAndBlamesNoPath) {
  MrcOptions o = quick_options();
  o.congestion = "fixed_window";
  o.congestion_options = {{"fixed_window", std::uint64_t{60'000}}};
  Script s(o);
  s.advance(microseconds(100));
  s.post(100 * kMtu);
  std::vector<Left> out;
  const auto tell = [&](std::uint64_t bits, std::uint16_t beyond) {
    Seth seth;
    seth.cack_psn = 0xffffff;
    seth.ack_psn_offset = static_cast<std::int16_t>(out.back().bth.psn + 1);
    seth.sack_offset = 1;
    seth.bitmap = bits;
    seth.entropy = out.back().ev.value;
    CcState cc;
    cc.tx_ts = out.back().stamp.tx_ts;
    cc.ooo = beyond;
    s.receive(0, Op::sack, 0xffffff, kLocal, dscp::kControl, Ecn::not_ect, out.back().ev, nullptr, 0, seth, cc);
  };
  for (int round = 0; round < 4; ++round) {
    for (const Left& l : s.pull_all()) {
      if (is_data(l.in.op)) out.push_back(l);
    }
    s.advance(microseconds(5));
    const std::uint32_t last = out.back().bth.psn;
    tell((~0ull >> (63 - last)) & ~1ull & ~2ull, static_cast<std::uint16_t>(last));
  }
  EXPECT_EQ(s.count(Count::lost_inferred), 0u) HISTORY;
  EXPECT_EQ(s.count(Count::ev_condemned), 0u);
  EXPECT_GT(s.count(Count::probe_sent), 0u) << "it asks" HISTORY;
  const std::uint32_t last = out.back().bth.psn;
  tell((~0ull >> (63 - last)) & ~1ull, static_cast<std::uint16_t>(last));
  EXPECT_EQ(s.count(Count::lost_inferred), 1u) << "packet 0, of which nothing is missing" HISTORY;
}

// A PSN window below 1.5 times the congestion window: the loss is found before the window runs dry.
TEST(Recovery, LossIsInferredWithinThePsnWindow) {
  MrcOptions o = quick_options();
  o.congestion = "fixed_window";
  o.congestion_options = {{"fixed_window", std::uint64_t{100 * (4096 + 80)}}};
  o.mpr = 1;
  Script s(o, 4, 4);
  s.post(400 * kMtu);
  const auto out = s.pull_all();
  ASSERT_EQ(out.size(), 100u) HISTORY;
  for (std::uint32_t psn = 1; psn < 100; ++psn) {
    s.sack(out[psn], 0xffffff, psn < 64 ? 1ull << psn : 0);
    s.pull_all();
  }
  EXPECT_EQ(s.count(Count::lost_inferred), 1u) HISTORY;
}

TEST(Recovery, TimeoutSendsAgainOnAnotherPath) {
  MrcOptions o = quick_options();
  o.loss_infer = LossInference::rto_only;
  o.rto_refused_drains = 0;
  Script s(o);
  s.post(kMtu);
  const auto out = s.pull_all();
  s.advance(microseconds(99));
  EXPECT_EQ(s.count(Count::lost_rto), 0u);
  s.advance(microseconds(2));
  EXPECT_EQ(s.count(Count::lost_rto), 1u) HISTORY;
  EXPECT_EQ(s.ev_state(out[0].ev), EvState::assumed_bad) << "no trim seen";
  const auto again = s.pull_all();
  ASSERT_EQ(again.size(), 1u);
  EXPECT_NE(again[0].ev, out[0].ev);
}

// A header may wait for as long as a full control queue takes at its share of the link: 24 RTT.
TEST(Recovery, TheTimeoutIsLongerWherePacketsAreRefusedOrMayBe) {
  MrcOptions o = quick_options();
  o.loss_infer = LossInference::rto_only;
  const auto timeout = [&](bool answered, bool refused) {
    Script s(o);
    s.post(kMtu);
    if (answered || refused) {
      const auto out = s.pull_all();
      s.advance(microseconds(6));
      if (refused) s.nack(out[0], NackReason::trimmed);
      if (answered) s.sack(out[0], 0);
      s.post(kMtu);
    }
    s.pull_all();
    int waited = 0;
    for (; s.count(Count::lost_rto) == 0 && waited < 300; ++waited) s.advance(microseconds(1));
    return waited;
  };
  // Two drains for each of the script's four switches, and 24 of the control queue.
  EXPECT_NEAR(timeout(false, false), 5 + 32 * 5, 1) << "the first packets";
  EXPECT_NEAR(timeout(true, false), 100, 1);
  EXPECT_NEAR(timeout(false, true), 5 + 32 * 5, 1);
}

// The header of a trimmed packet waits in a queue of its own, and packets behind it overtake it.
TEST(Recovery, SilenceIsNoLossYetWhereRefusalsTakeLonger) {
  MrcOptions o = quick_options();
  o.congestion = "fixed_window";
  o.congestion_options = {{"fixed_window", std::uint64_t{26 * (4096 + 80)}}};
  for (const int refusal_us : {0, 40}) {
    Script s(o);
    s.post(400 * kMtu);
    auto out = s.pull_all();
    ASSERT_GT(out.size(), 20u);
    s.advance(microseconds(std::max(refusal_us, 6)));
    if (refusal_us > 0) s.nack(out[0], NackReason::trimmed_last_hop);
    // All but the second are told of, which SLEEK's threshold of bytes takes for lost.
    out.erase(out.begin() + 1);
    if (refusal_us > 0) out.erase(out.begin());
    for (int round = 0; round < 2; ++round) {
      for (const Left& l : out) s.sack(l, refusal_us > 0 ? 0xffffff : 0);
      out = s.pull_all();
    }
    EXPECT_EQ(s.count(Count::lost_inferred), refusal_us > 0 ? 0u : 1u) HISTORY;
  }
}

// Where packets are refused, the missing one may have been refused as well and its refusal lost: it is
// sent again at once, and its path is asked before it is blamed.
TEST(Recovery, APathIsAskedBeforeItIsBlamedWherePacketsAreRefused) {
  MrcOptions o = quick_options();
  o.congestion = "fixed_window";
  o.congestion_options = {{"fixed_window", std::uint64_t{26 * (4096 + 80)}}};
  for (const bool refused : {true, false}) {
    Script s(o);
    s.post(400 * kMtu);
    auto out = s.pull_all();
    s.advance(microseconds(6));
    s.nack(out[0], NackReason::trimmed_last_hop);
    s.advance(microseconds(14));  // longer than refusals take: SLEEK may judge
    const Left missing = out[1];
    out.erase(out.begin(), out.begin() + 2);
    Left probe;
    bool again = false;
    for (int round = 0; round < 5; ++round) {
      for (const Left& l : out) s.sack(l, 0xffffff);
      out.clear();
      s.advance(microseconds(6));
      for (const Left& l : s.pull_all()) {
        if (l.in.op == Op::reliability_probe && l.ev == missing.ev && s.count(Count::lost_inferred)) probe = l;
        if (is_data(l.in.op) && l.bth.psn == missing.bth.psn) again = true;
        if (is_data(l.in.op) && l.bth.psn > 1) out.push_back(l);
      }
    }
    EXPECT_EQ(s.count(Count::lost_inferred), 1u) HISTORY;
    EXPECT_TRUE(again) << "sent again at once" HISTORY;
    EXPECT_EQ(s.ev_state(missing.ev), EvState::good) HISTORY;
    ASSERT_EQ(probe.in.op, Op::reliability_probe) HISTORY;
    EXPECT_EQ(probe.ev, missing.ev) << "the path is asked";
    if (refused) s.nack(missing, NackReason::trimmed_last_hop);
    s.answer_probe(probe, 0xffffff);
    EXPECT_EQ(s.ev_state(missing.ev), refused ? EvState::good : EvState::assumed_bad) HISTORY;
    EXPECT_EQ(s.count(Count::spurious_loss), refused ? 1u : 0u);
  }
}

TEST(Recovery, RetriesEndInANamedError) {
  MrcOptions o = quick_options();
  o.retries_linear = 3;
  o.retries_exponential = 2;
  Script s(o);
  s.post(kMtu), s.post(kMtu);
  for (int i = 0; i < 20'000 && s.completions.empty(); ++i) s.pull_all(), s.advance(microseconds(1));
  ASSERT_EQ(s.completions.size(), 2u) HISTORY;
  EXPECT_EQ(s.completions[0].status, Status::retry_exceeded);
  EXPECT_EQ(s.completions[1].status, Status::flushed);
  EXPECT_FALSE(s.nic.outstanding());
  EXPECT_EQ(s.events.back().kind, EventKind::qp_error);
  s.post(1);
  EXPECT_EQ(s.completions.back().status, Status::flushed) << "a queue pair in ERROR takes nothing";
}

TEST(Recovery, DeadPeerIsAnErrorEvenWithoutRetryLimit) {
  MrcOptions o = quick_options();
  ASSERT_EQ(o.retries_exponential, 25u) << "for ever";
  o.peer_timeout = milliseconds(20);
  Script s(o);
  s.post(kMtu);
  for (int i = 0; i < 400 && s.completions.empty(); ++i) s.pull_all(), s.advance(microseconds(100));
  ASSERT_EQ(s.completions.size(), 1u) HISTORY;
  EXPECT_EQ(s.completions[0].status, Status::retry_exceeded);
}

TEST(Recovery, NoPortAtAllIsAnErrorToo) {
  MrcOptions o = quick_options();
  o.peer_timeout = milliseconds(1);
  Script s(o);
  for (PlanePort p = 0; p < 4; ++p) s.nic.on_port(p, false, s.now);
  s.post(kMtu);
  EXPECT_EQ(s.pull_all().size(), 0u);
  s.advance(milliseconds(2));
  ASSERT_EQ(s.completions.size(), 1u) HISTORY;
  EXPECT_EQ(s.completions[0].status, Status::retry_exceeded);
}

TEST(Recovery, RemoteErrorsNameTheRequest) {
  struct Case {
    std::uint8_t syndrome;
    Status status;
  };
  for (const Case c : {Case{Aeth::kNakInvalidRequest, Status::remote_invalid_request},
                       Case{Aeth::kNakRemoteAccess, Status::remote_access_error},
                       Case{Aeth::kNakRemoteOperational, Status::remote_operational}}) {
    Script s(quick_options());
    s.post(kMtu), s.post(kMtu), s.post(kMtu);
    const auto out = s.pull_all();
    s.receive(0, Op::transport_ack, 0, kLocal, dscp::kControl, Ecn::not_ect, out[0].ev, nullptr, 0,
              Aeth{c.syndrome, 1});
    ASSERT_EQ(s.completions.size(), 3u) HISTORY;
    EXPECT_EQ(s.completions[0].status, Status::flushed);
    EXPECT_EQ(s.completions[1].status, c.status);
    EXPECT_EQ(s.completions[2].status, Status::flushed);
  }
}

TEST(Recovery, UnexpectedEventEndsTheQueuePair) {
  Script s(quick_options());
  s.post(kMtu);
  const auto out = s.pull_all();
  s.nack(out[0], NackReason::unexpected_event);
  ASSERT_EQ(s.completions.size(), 1u);
  EXPECT_EQ(s.completions[0].status, Status::remote_operational) HISTORY;
}

}  // namespace
}  // namespace loomnet::mrc
