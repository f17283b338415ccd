// The receiving side as protocol transcripts (OCP MRC 1.0), and what it
// refuses.
#include <set>

#include "mrc_script.hpp"

namespace loomnet::mrc {
namespace {

std::vector<Left> of(const std::vector<Left>& all, Op op) {
  std::vector<Left> out;
  for (const Left& l : all) {
    if (l.in.op == op) out.push_back(l);
  }
  return out;
}

TEST(Receiver, PlacesAtOnceAndAnswersWhenAsked) {
  Script s(quick_options());
  s.data({.psn = 1, .op = Op::write_last, .dma_length = 8192, .ask = true});
  EXPECT_EQ(s.placed, 4096u) << "out of order, at once";
  const auto out = of(s.pull_all(), Op::sack);
  ASSERT_EQ(out.size(), 1u) HISTORY;
  EXPECT_EQ(out[0].wire, 154u) << "frame of a SACK (3.3)";
  EXPECT_EQ(out[0].dscp, dscp::kControl);
  EXPECT_EQ(out[0].bth.destination_qp, kRemote);
  EXPECT_EQ(out[0].bth.psn, 0xffffffu) << "BTH.psn of a SACK is cack_psn";
  EXPECT_EQ(out[0].seth.cack_psn, 0xffffffu);
  EXPECT_EQ(out[0].seth.ack_psn_offset, 2);
  EXPECT_EQ(out[0].seth.sack_offset, 1);
  EXPECT_EQ(out[0].seth.bitmap, 0b10u);
  EXPECT_EQ(out[0].seth.entropy, EntropyValue(0, 1).value) << "the trigger's";
  EXPECT_EQ(out[0].seth.mpr, 8);
  EXPECT_EQ(out[0].cc.tx_ts, 0x1234);
  EXPECT_EQ(out[0].cc.ooo, 1);
  EXPECT_EQ(out[0].cc.rcvd_bytes, (4096u + 80 + 255) / 256);
}

TEST(Receiver, WhatAnAskOvertookIsToldOnceItIsThere) {
  Script s(quick_options());
  s.data({.psn = 0});
  s.data({.psn = 3, .op = Op::write_last, .dma_length = 16'384, .ask = true});
  ASSERT_EQ(of(s.pull_all(), Op::sack).size(), 1u) << "at once, with holes" HISTORY;
  s.data({.psn = 2});
  EXPECT_EQ(of(s.pull_all(), Op::sack).size(), 0u) << "a hole is left" HISTORY;
  s.data({.psn = 1});
  const auto out = of(s.pull_all(), Op::sack);
  ASSERT_EQ(out.size(), 1u) << "the last hole is closed: no wait for a tail probe" HISTORY;
  EXPECT_EQ(out[0].seth.cack_psn, 3u);
  s.data({.psn = 4});
  EXPECT_EQ(of(s.pull_all(), Op::sack).size(), 0u) << "nothing is owed any more" HISTORY;
}

TEST(Receiver, SackEverySixteenKilobytes) {
  Script s(quick_options());
  for (std::uint32_t n = 0; n < 16; ++n) s.data({.psn = n});
  EXPECT_EQ(of(s.pull_all(), Op::sack).size(), 4u) HISTORY;
  for (std::uint32_t n = 16; n < 32; ++n) s.data({.psn = n, .payload = 10});
  EXPECT_EQ(of(s.pull_all(), Op::sack).size(), 1u) << "small packets are charged 1,024 B" HISTORY;
}

TEST(Receiver, MarkAndRetransmissionAreAnsweredAtOnce) {
  Script s(quick_options());
  s.data({.psn = 0, .ecn = Ecn::ce});
  s.data({.psn = 1, .retransmission = true});
  const auto out = of(s.pull_all(), Op::sack);
  ASSERT_EQ(out.size(), 2u) HISTORY;
  EXPECT_EQ(out[0].seth.mark, 1);
  EXPECT_EQ(out[1].seth.mark, 0);
  EXPECT_TRUE(out[1].bth.retransmission) << "RTX is echoed";
}

TEST(Receiver, DuplicateIsAnsweredAndNotCounted) {
  Script s(quick_options());
  s.data({.psn = 0, .ask = true});
  s.data({.psn = 0});
  const auto out = of(s.pull_all(), Op::sack);
  ASSERT_EQ(out.size(), 2u) HISTORY;
  EXPECT_EQ(out[1].cc.rcvd_bytes, out[0].cc.rcvd_bytes);
  EXPECT_EQ(s.placed, 4096u);
  EXPECT_EQ(s.count(Count::data_duplicate), 1u);
}

TEST(Receiver, TrimmedIsRefusedByReason) {
  Script s(quick_options());
  s.data({.psn = 3, .dscp = dscp::kTrimmed});
  s.data({.psn = 4, .dscp = dscp::kTrimmedLastHop});
  auto out = of(s.pull_all(), Op::nack);
  ASSERT_EQ(out.size(), 2u) HISTORY;
  EXPECT_EQ(out[0].wire, 138u) << "frame of a NACK (3.3)";
  EXPECT_EQ(out[0].neth.reason, 1);
  EXPECT_EQ(out[0].neth.nack_psn, 3u);
  EXPECT_EQ(out[0].neth.entropy, EntropyValue(0, 1).value);
  EXPECT_EQ(out[1].neth.reason, 2);
  EXPECT_EQ(s.placed, 0u);
  // A trimmed duplicate is answered by SACK.
  s.data({.psn = 3});
  s.data({.psn = 3, .dscp = dscp::kTrimmed});
  const auto after = s.pull_all();
  EXPECT_EQ(of(after, Op::nack).size(), 0u) HISTORY;
  EXPECT_EQ(of(after, Op::sack).size(), 1u);
}

// Where the packet that asks is cut, what it asked about would wait for a tail probe.
TEST(Receiver, TheAskOfATrimmedPacketHolds) {
  Script s(quick_options());
  s.data({.psn = 0});
  s.data({.psn = 1, .ask = true, .dscp = dscp::kTrimmedLastHop});
  auto out = of(s.pull_all(), Op::sack);
  ASSERT_EQ(out.size(), 1u) HISTORY;
  EXPECT_EQ(out[0].seth.cack_psn, 0u);
  EXPECT_EQ(out[0].seth.ack_psn_offset, 0) << "the trimmed one has not arrived";
  // It overtakes those that it asks about, on a longer queue.
  s.data({.psn = 3, .ask = true, .dscp = dscp::kTrimmed});
  EXPECT_EQ(of(s.pull_all(), Op::sack).size(), 0u) << "nothing to tell yet" HISTORY;
  s.data({.psn = 2});
  EXPECT_EQ(of(s.pull_all(), Op::sack).size(), 0u) << "a hole is left" HISTORY;
  s.data({.psn = 1, .retransmission = true});
  EXPECT_EQ(of(s.pull_all(), Op::sack).size(), 1u) HISTORY;
}

TEST(Receiver, ReallyTrimmedBytesAreUnderstood) {
  Script s(quick_options());
  static const auto back = cross_paths(4, 8, kSelf);
  PacketPtr p = s.pool.allocate();
  Bth bth;
  bth.opcode = static_cast<std::uint8_t>(Op::write_middle);
  bth.destination_qp = kLocal;
  bth.timestamp = true;
  bth.psn = 9;
  ByteWriter w = begin(*p, s.options, {kFar, kSelf, &back[0], EntropyValue(0, 1), dscp::kTrimmable, Ecn::ect0}, bth);
  Meth{}.serialize(w), Tseth{0x77}.serialize(w), Reth{}.serialize(w);
  finish(*p, w, {nullptr, 4096, 0, PayloadKind::none});
  ASSERT_TRUE(trim(*p, {.dscp = dscp::kTrimmed}));
  ASSERT_EQ(p->wire_length, 128u);
  s.nic.on_packet(0, std::move(p), s.now);
  const auto out = of(s.pull_all(), Op::nack);
  ASSERT_EQ(out.size(), 1u) HISTORY;
  EXPECT_EQ(out[0].neth.nack_psn, 9u);
  EXPECT_EQ(out[0].neth.tx_ts, 0x77);
}

TEST(Receiver, BeyondTheWindowIsRefused) {
  Script s(quick_options());
  s.data({.psn = 1023});
  EXPECT_EQ(s.placed, 4096u) << "the edge is inside";
  s.data({.psn = 1024});
  const auto out = of(s.pull_all(), Op::nack);
  ASSERT_EQ(out.size(), 1u) HISTORY;
  EXPECT_EQ(out[0].neth.reason, 0x0b);
  EXPECT_EQ(s.placed, 4096u);
}

TEST(Receiver, ImmediatesInOrderUnderReorder) {
  Script s(quick_options());
  const auto imm = [&](std::uint32_t psn, std::uint16_t rqmsn, std::uint32_t value) {
    s.data({.psn = psn,
            .op = Op::write_only_immediate,
            .payload = 8,
            .dma_length = 8,
            .rqmsn = rqmsn,
            .immediate = value});
  };
  imm(3, 3, 33);
  imm(2, 2, 22);
  EXPECT_TRUE(s.arrivals.empty()) HISTORY;
  s.data({.psn = 0, .op = Op::write_only, .payload = 8, .dma_length = 8});
  EXPECT_TRUE(s.arrivals.empty()) << "1 is missing";
  imm(1, 1, 11);
  ASSERT_EQ(s.arrivals.size(), 3u) HISTORY;
  EXPECT_EQ(s.arrivals[0].immediate, 11u);
  EXPECT_EQ(s.arrivals[1].immediate, 22u);
  EXPECT_EQ(s.arrivals[2].immediate, 33u);
  imm(3, 3, 33);
  EXPECT_EQ(s.arrivals.size(), 3u) << "once";
}

TEST(Receiver, ArrivalNamesTheWholeMessage) {
  Script s(quick_options());
  s.data({.psn = 0, .op = Op::write_first, .dma_length = 5000, .address = 0x1000});
  s.data({.psn = 1,
          .op = Op::write_last_immediate,
          .payload = 904,
          .dma_length = 5000,
          .rqmsn = 1,
          .immediate = 5,
          .address = 0x2000});
  ASSERT_EQ(s.arrivals.size(), 1u) HISTORY;
  EXPECT_EQ(s.arrivals[0].address, 0x1000u);
  EXPECT_EQ(s.arrivals[0].length, 5000u);
}

TEST(Receiver, TooManyImmediatesAreAnInvalidRequest) {
  MrcOptions o = quick_options();
  o.max_wimm = 2;
  Script s(o);
  for (std::uint16_t n = 1; n <= 3; ++n) {
    s.data({.psn = n, .op = Op::write_only_immediate, .payload = 8, .dma_length = 8, .rqmsn = n, .msn = n});
  }
  const auto out = of(s.pull_all(), Op::transport_ack);
  ASSERT_EQ(out.size(), 1u) HISTORY;
  EXPECT_EQ(out[0].aeth.syndrome, Aeth::kNakInvalidRequest);
  EXPECT_EQ(out[0].aeth.msn, 3u);
}

TEST(Receiver, RefusedPlacementIsAccessErrorAndEndsTheQueuePair) {
  Script s(quick_options());
  s.data({.psn = 0, .op = Op::write_only, .dma_length = 4096, .msn = 4, .key = 0xbad});
  auto out = of(s.pull_all(), Op::transport_ack);
  ASSERT_EQ(out.size(), 1u) HISTORY;
  EXPECT_EQ(out[0].aeth.syndrome, Aeth::kNakRemoteAccess);
  EXPECT_EQ(out[0].aeth.msn, 4u);
  s.data({.psn = 1});
  const auto later = of(s.pull_all(), Op::nack);
  ASSERT_EQ(later.size(), 1u) << "a lost NAK is not a hang" HISTORY;
  EXPECT_EQ(later[0].neth.reason, 0x19);
}

TEST(Receiver, ProbeAnswerTellsEverythingFirst) {
  Script s(quick_options());
  for (std::uint32_t n = 1; n < 200; ++n) s.data({.psn = n, .payload = 100});
  s.pull_all();
  Peth peth;
  peth.probe_id = 0x7788;
  peth.stamp.tx_ts = 0x55;
  s.receive(1, Op::reliability_probe, 0, kLocal, dscp::kNoTrim, Ecn::ce, EntropyValue(1, 2), nullptr, 0, peth);
  const auto out = of(s.pull_all(), Op::sack);
  ASSERT_EQ(out.size(), 4u) << "199 PSNs need four bitmaps" HISTORY;
  std::set<std::uint32_t> told;
  for (const Left& l : out) {
    const Psn base = Psn(l.seth.cack_psn) + l.seth.sack_offset;
    for (int i = 0; i < 64; ++i) {
      if (l.seth.bitmap >> i & 1) told.insert((base + i).raw());
    }
    EXPECT_EQ(l.port, out[0].port) << "one plane, so that the order holds";
    EXPECT_EQ(l.seth.probe_reply, &l == &out.back());
  }
  EXPECT_EQ(told.size(), 199u);
  EXPECT_FALSE(told.contains(0));
  EXPECT_EQ(static_cast<std::uint16_t>(out.back().seth.ack_psn_offset), 0x7788);
  EXPECT_EQ(out.back().cc.tx_ts, 0x55);
  EXPECT_EQ(out.back().seth.mark, 1) << "the probe was marked";
}

// A probe asks about its path: what was refused of it is refused again, ahead of the answer.
TEST(Receiver, AProbeHasTheRefusalsOfItsPathRepeated) {
  Script s(quick_options());
  s.data({.psn = 3, .dscp = dscp::kTrimmed, .port = 0});
  s.data({.psn = 4, .dscp = dscp::kTrimmedLastHop, .port = 1});
  s.data({.psn = 5, .dscp = dscp::kTrimmed, .port = 0});
  EXPECT_EQ(of(s.pull_all(), Op::nack).size(), 3u) HISTORY;
  s.data({.psn = 3, .retransmission = true, .port = 1});
  s.pull_all();
  Peth peth;
  peth.probe_id = 7;
  s.receive(0, Op::reliability_probe, 0, kLocal, dscp::kNoTrim, Ecn::ect0, EntropyValue(0, 1), nullptr, 0, peth);
  const auto out = s.pull_all();
  ASSERT_EQ(of(out, Op::nack).size(), 2u) << "also of what has come since" HISTORY;
  EXPECT_EQ(of(out, Op::nack)[0].neth.nack_psn, 3u);
  EXPECT_EQ(of(out, Op::nack)[1].neth.nack_psn, 5u);
  EXPECT_EQ(of(out, Op::nack)[0].port, of(out, Op::sack).back().port) << "in order";
  EXPECT_TRUE(of(out, Op::sack).back().seth.probe_reply);
  // Probes may be many: what has come since is told of once.
  ++peth.probe_id;
  s.receive(0, Op::reliability_probe, 0, kLocal, dscp::kNoTrim, Ecn::ect0, EntropyValue(0, 1), nullptr, 0, peth);
  const auto second = of(s.pull_all(), Op::nack);
  ASSERT_EQ(second.size(), 1u) HISTORY;
  EXPECT_EQ(second[0].neth.nack_psn, 5u) << "still missing";
}

TEST(Receiver, ControlTakesTurnsOverPlanes) {
  Script s(quick_options());
  int per_plane[4] = {};
  for (std::uint32_t n = 0; n < 16; ++n) {
    s.data({.psn = n, .ask = true});
    for (const Left& l : of(s.pull_all(), Op::sack)) ++per_plane[l.port];
  }
  for (const int n : per_plane) EXPECT_EQ(n, 4) HISTORY;
}

TEST(Receiver, WaitingAnswersLeaveByAnotherPort) {
  Script s(quick_options(), 2);
  for (std::uint32_t n = 0; n < 4; ++n) s.data({.psn = n, .ask = true});
  s.nic.on_port(0, false, s.now);
  const auto out = of(s.pull_all(), Op::sack);
  EXPECT_EQ(out.size(), 4u) HISTORY;
  for (const Left& l : out) EXPECT_EQ(l.port, 1);
}

TEST(Receiver, InboundDataRefreshesTheReversePath) {
  Script s(quick_options());
  std::vector<Left> probes;
  std::uint32_t psn = 0;
  for (int i = 0; i < 40; ++i) {
    s.data({.psn = psn++, .payload = 10});
    s.advance(microseconds(2));
    for (const Left& l : of(s.pull_all(), Op::endpoint_request)) probes.push_back(l);
  }
  ASSERT_GE(probes.size(), 8u) << "one per RTT of inbound data without outbound" HISTORY;
  s.answer_endpoint(probes.back());
  EXPECT_EQ(s.count(Count::ev_probe_answered), 1u);
  EXPECT_EQ(probes.back().erth.op, 1);
  s.advance(milliseconds(1));
  EXPECT_LE(s.pull_all().size(), 2u) << "no traffic, no probes";
}

// Three of four uplinks of the only plane may be dead: by the paths that data comes, answers arrive.
TEST(Receiver, AnswersGoTheWayOfDataUntilAProbeHasFoundAPath) {
  Script s(quick_options(), 1, 8);
  std::uint32_t psn = 0;
  const auto answered_by = [&](std::uint32_t number, std::uint16_t uplink) {
    s.data({.psn = number, .payload = 10, .ask = true, .uplink = uplink});
    const auto out = of(s.pull_all(), Op::sack);
    return out.size() == 1 ? out[0].ev.uplink() : ~0u;
  };
  EXPECT_EQ(answered_by(psn++, 5), 5u) HISTORY;
  EXPECT_EQ(answered_by(psn++, 2), 2u) HISTORY;
  const auto probe = [&] {
    for (int i = 0; i < 100; ++i) {
      s.data({.psn = psn++, .payload = 10, .uplink = 3});
      s.advance(microseconds(2));
      const auto out = of(s.pull_all(), Op::endpoint_request);
      if (!out.empty()) return out[0];
    }
    ADD_FAILURE() << "no probe" HISTORY;
    return Left{};
  };
  const Left found = probe();
  s.answer_endpoint(found);
  EXPECT_EQ(answered_by(psn++, 6), found.ev.uplink()) << "proven" HISTORY;
  Left other = probe();
  while (other.ev == found.ev) s.answer_endpoint(other), other = probe();
  EXPECT_EQ(probe().ev, found.ev) << "the silence of another path has the one in use asked";
  EXPECT_EQ(answered_by(psn++, 6), found.ev.uplink());
  EXPECT_EQ(answered_by(psn - 1, 4), 4u) << "again the same packet: its answer did not arrive";
}

TEST(Receiver, EvProbeIsAnsweredTheWayItCame) {
  Script s(quick_options());
  Erth probe;
  probe.op = 1;
  probe.stamp.tx_ts = 0x4321;
  s.receive(2, Op::endpoint_request, 0x99, kEndpointQp, dscp::kNoTrim, Ecn::not_ect, EntropyValue(2, 3), nullptr, 0,
            probe);
  const auto out = s.pull_all();
  ASSERT_EQ(out.size(), 1u) HISTORY;
  EXPECT_EQ(out[0].in.op, Op::endpoint_response);
  EXPECT_EQ(out[0].wire, 154u) << "frame of an endpoint response (3.3)";
  EXPECT_EQ(out[0].ev, EntropyValue(2, 3));
  EXPECT_EQ(out[0].eeth.tx_ts, 0x4321);
  EXPECT_EQ(out[0].bth.psn, 0x99u);
}

TEST(Receiver, WhatItRefusesIsNamed) {
  Script s(quick_options());
  const auto expect = [&](Count c, const std::function<void()>& action) {
    const auto before = s.count(c);
    action();
    EXPECT_EQ(s.count(c), before + 1) << to_string(c) HISTORY;
  };
  const EntropyValue ev(0, 1);
  const auto stamped = [](Bth& b) { b.timestamp = true; };
  expect(Count::drop_unknown_qp, [&] {
    s.receive(0, Op::write_only, 0, 999, dscp::kTrimmable, Ecn::ect0, ev, stamped, 0, Meth{}, Tseth{}, Reth{});
  });
  expect(Count::drop_no_timestamp, [&] {
    s.receive(0, Op::write_only, 0, kLocal, dscp::kTrimmable, Ecn::ect0, ev, nullptr, 0, Meth{}, Tseth{}, Reth{});
  });
  expect(Count::drop_bad_message, [&] { s.data({.psn = 0, .op = Op::write_only, .payload = 100, .dma_length = 99}); });
  expect(Count::drop_bad_message, [&] { s.data({.psn = 0, .payload = 0}); });
  expect(Count::drop_length, [&] {
    s.receive(0, Op::write_only, 0, kLocal, dscp::kTrimmable, Ecn::ect0, ev, stamped, 0, Meth{}, Tseth{});
  });
  expect(Count::drop_length,
         [&] { s.receive(0, Op::sack, 0, kLocal, dscp::kControl, Ecn::not_ect, ev, nullptr, 50, Seth{}, CcState{}); });
  expect(Count::drop_opcode,
         [&] { s.receive(0, static_cast<Op>(0x0a), 0, kLocal, dscp::kTrimmable, Ecn::ect0, ev, nullptr, 0, Meth{}); });
  expect(Count::drop_opcode, [&] {
    s.receive(0, Op::sack, 0, kEndpointQp, dscp::kControl, Ecn::not_ect, ev, nullptr, 0, Seth{}, CcState{});
  });
  expect(Count::drop_opcode,
         [&] { s.receive(0, Op::endpoint_request, 0, kLocal, dscp::kControl, Ecn::not_ect, ev, nullptr, 0, Erth{}); });
  expect(Count::drop_unasked_answer, [&] {
    s.receive(0, Op::endpoint_response, 77, kEndpointQp, dscp::kControl, Ecn::not_ect, ev, nullptr, 0, Eeth{});
  });
  expect(Count::drop_bad_endpoint_op, [&] {
    Erth e;
    e.op = 3;
    s.receive(0, Op::endpoint_request, 0, kEndpointQp, dscp::kControl, Ecn::not_ect, ev, nullptr, 0, e);
  });
  EXPECT_EQ(s.placed, 0u);
  EXPECT_EQ(s.pull_all().size(), 0u) << "and none is answered" HISTORY;
}

TEST(Receiver, RandomBytesAndFlippedBitsNeverHarm) {
  Script s(quick_options());
  RandomStream random(3, 1, 1);
  static const auto back = cross_paths(4, 8, kSelf);
  std::uint64_t given = 0;
  for (int i = 0; i < 20'000; ++i, ++given) {
    PacketPtr p = s.pool.allocate();
    if (i % 2) {
      p->header_length = static_cast<std::uint16_t>(random.below(kMaxHeaderBytes + 1));
      for (auto& b : p->header) b = static_cast<std::uint8_t>(random());
      p->wire_length = random.below(9000);
    } else {
      Bth bth;
      bth.opcode = static_cast<std::uint8_t>(0xc6 + random.below(25));
      bth.destination_qp = random.below(4) ? kLocal : kEndpointQp;
      bth.timestamp = true;
      ByteWriter w =
          begin(*p, s.options, {kFar, kSelf, &back[0], EntropyValue(0, 1), dscp::kTrimmable, Ecn::ect0}, bth);
      for (std::uint32_t k = random.below(50); k > 0; --k) w.u8(static_cast<std::uint8_t>(random()));
      finish(*p, w, {nullptr, random.below(2) * 64, 0, PayloadKind::none});
      if (random.below(2))
        p->header[random.below(p->header_length)] ^= static_cast<std::uint8_t>(1u << random.below(8));
    }
    s.nic.on_packet(static_cast<PlanePort>(random.below(4)), std::move(p), s.now);
    if (i % 64 == 0) {
      s.advance(microseconds(1));
      s.pull_all();
    }
  }
  EXPECT_EQ(s.pool.outstanding(), 0u);
}

}  // namespace
}  // namespace loomnet::mrc
