// The receiving half: order, acknowledgement rules, SACK and DSACK blocks, ECN echo, and what a
// hostile segment cannot do.
#include "transport/tcp/reassembly.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "transport/tcp/stream_reader.hpp"

namespace loomnet::tcp {
namespace {

constexpr std::uint32_t kMss = 1280 - kHeaderBytes;

struct Receiving {
  explicit Receiving(TcpOptions o = {}, bool accurate = false)
      : chosen(prepared(o)), receiver(chosen, count, accurate) {}
  static TcpOptions prepared(TcpOptions o) {
    o.mtu = 1280;
    o.quick_acks = 0;
    return o;
  }
  // Segment number `n` of kMss bytes; its bytes are n.
  void take(double n, bool push = false, bool ce = false, bool cwr = false) {
    PacketPtr p = pool.allocate();
    bytes.push_back(std::vector<std::uint8_t>(kMss, static_cast<std::uint8_t>(n)));
    p->payload = {bytes.back().data(), kMss, 0, PayloadKind::region};
    Arriving a;
    a.begin = static_cast<std::int64_t>(n * kMss);
    a.length = kMss;
    a.push = push, a.ce = ce, a.cwr = cwr;
    a.timestamps = true;
    a.ts_value = ++clock;
    receiver.take(a, std::move(p), now, [&](const Packet& packet, std::uint16_t, std::uint32_t skip, std::uint32_t n) {
      out.insert(out.end(), packet.payload.data + skip, packet.payload.data + skip + n);
      return true;
    });
  }
  std::vector<SackRange> blocks() {
    const AckContent c = receiver.content(3);
    std::vector<SackRange> found(c.sack.begin(), c.sack.begin() + c.sack_count);
    for (SackRange& r : found) r = {r.begin / kMss, r.end / kMss};
    return found;
  }

  PacketPool pool;
  std::vector<std::vector<std::uint8_t>> bytes;
  TcpOptions chosen;
  Counters count;
  Reassembly receiver;
  Picoseconds now = milliseconds(5);
  std::vector<std::uint8_t> out;
  std::uint32_t clock = 100;
};

TEST(DelayedAck, EverySecondFullSegmentElseAfterFortyMilliseconds) {
  Receiving r;
  r.take(0);
  EXPECT_FALSE(r.receiver.ack_due());
  EXPECT_EQ(r.receiver.deadline(), r.now + milliseconds(40));
  r.take(1);
  EXPECT_TRUE(r.receiver.ack_due());
  EXPECT_EQ(r.receiver.content(3).end, 2u * kMss);
  EXPECT_EQ(r.receiver.deadline(), kNever);
  r.take(2);
  r.receiver.on_deadline(r.now + milliseconds(39));
  EXPECT_FALSE(r.receiver.ack_due());
  r.receiver.on_deadline(r.now + milliseconds(40));
  EXPECT_TRUE(r.receiver.ack_due());
  EXPECT_EQ(r.count.delayed_acks, 1u);
}

TEST(DelayedAck, AMessagesLastSegmentAndTheFirstOnesAreAcknowledgedAtOnce) {
  Receiving r;
  r.take(0, true);
  EXPECT_TRUE(r.receiver.ack_due());
  TcpOptions o;
  Receiving fresh(o);
  Counters count;
  o.mtu = 1280;
  o.quick_acks = 2;
  Reassembly quick(o, count, false);
  for (int i = 0; i < 3; ++i) {
    Arriving a;
    a.begin = i * std::int64_t{kMss};
    a.length = kMss;
    quick.take(a, fresh.pool.allocate(), {}, [](auto&&...) { return true; });
    EXPECT_EQ(quick.ack_due(), i < 2) << i;
    quick.content(0);
  }
}

TEST(DelayedAck, ASenderThatStartsAgainIsAnsweredAtOnce) {
  TcpOptions o;
  o.mtu = 1280;
  o.quick_acks = 2;
  Receiving source;
  Counters count;
  Reassembly receiver(o, count, false);
  Picoseconds now = milliseconds(1);
  const auto immediate = [&](std::int64_t n) {
    Arriving a;
    a.begin = n * kMss;
    a.length = kMss;
    receiver.take(a, source.pool.allocate(), now, [](auto&&...) { return true; });
    const bool due = receiver.ack_due();
    receiver.content(3);
    return due;
  };
  EXPECT_TRUE(immediate(0) && immediate(1));
  EXPECT_FALSE(immediate(2));
  now += milliseconds(201);
  EXPECT_TRUE(immediate(3)) << "longer than a timeout";
  EXPECT_TRUE(immediate(4));
  EXPECT_FALSE(immediate(5));
  EXPECT_TRUE(immediate(5)) << "a duplicate";
  EXPECT_TRUE(immediate(6));
}

// RFC 2018 4: the block that holds the newest segment first, then the most recent others.
TEST(Sack, NewestBlockFirstAndThreeAtMost) {
  Receiving r;
  r.take(2);
  EXPECT_TRUE(r.receiver.ack_due()) << "something is missing: at once";
  EXPECT_EQ(r.blocks(), (std::vector<SackRange>{{2, 3}}));
  r.take(6);
  r.take(4);
  EXPECT_EQ(r.blocks(), (std::vector<SackRange>{{4, 5}, {6, 7}, {2, 3}}));
  r.take(8);
  EXPECT_EQ(r.blocks(), (std::vector<SackRange>{{8, 9}, {4, 5}, {6, 7}}));
  r.take(3);  // joins 2 and 4
  EXPECT_EQ(r.blocks(), (std::vector<SackRange>{{2, 5}, {8, 9}, {6, 7}}));
  r.take(0);
  EXPECT_TRUE(r.out.size() == kMss && r.out[0] == 0);
  r.take(1);
  EXPECT_EQ(r.receiver.next(), 5u * kMss);
  EXPECT_EQ(r.blocks(), (std::vector<SackRange>{{8, 9}, {6, 7}}));
  r.take(5);
  r.take(7);
  EXPECT_EQ(r.receiver.next(), 9u * kMss);
  EXPECT_EQ(r.receiver.held(), 0u);
  for (std::size_t i = 0; i < r.out.size(); ++i) ASSERT_EQ(r.out[i], i / kMss);
  EXPECT_EQ(r.pool.outstanding(), 0u);
}

TEST(Sack, DuplicatesAreReportedOnceInFront) {
  Receiving r;
  r.take(0);
  r.take(1);
  r.receiver.content(3);
  r.take(0);
  EXPECT_TRUE(r.receiver.ack_due());
  const AckContent c = r.receiver.content(3);
  EXPECT_TRUE(c.dsack);
  EXPECT_EQ(c.sack[0].begin, 0u);
  EXPECT_EQ(c.sack[0].end, kMss);
  EXPECT_EQ(r.receiver.content(3).sack_count, 0u);
  r.take(5);
  r.take(5);
  EXPECT_EQ(r.blocks(), (std::vector<SackRange>{{5, 6}, {5, 6}}));
  EXPECT_EQ(r.count.duplicates_dropped, 2u);
}

TEST(Order, OverlapsAreCutToWhatIsNew) {
  Receiving r;
  r.take(0);
  r.take(0.5);
  EXPECT_EQ(r.receiver.next(), kMss + kMss / 2);
  EXPECT_EQ(r.out.size(), r.receiver.next());
  r.take(3);
  r.take(2.5);
  r.take(1.5);
  EXPECT_EQ(r.receiver.next(), 4u * kMss);
  EXPECT_EQ(r.out.size(), 4u * kMss);
}

TEST(Order, NothingBeyondTheWindowOrTheMemoryIsKept) {
  TcpOptions o;
  o.receive_buffer = 20 * kMss;
  Receiving r(o);
  r.take(20);
  EXPECT_EQ(r.count.beyond_window_dropped, 1u);
  r.take(19);
  EXPECT_EQ(r.receiver.held(), 1u);
  // Overlapping rubbish from a hostile sender: kept only up to twice the window.
  for (int i = 0; i < 5000; ++i) r.take(1 + 0.0005 * i);
  EXPECT_GT(r.count.reassembly_full_dropped, 0u);
  EXPECT_LE(r.receiver.held(), 2u * 20 * kMss / (kMss + 256) + 1);
  r.receiver.release();
  EXPECT_EQ(r.pool.outstanding(), 0u);
}

TEST(EcnEcho, ClassicStaysUntilCwr) {
  Receiving r;
  r.take(0, false, true);
  r.take(1);
  EXPECT_TRUE(r.receiver.content(3).ece);
  r.take(2);
  EXPECT_TRUE(r.receiver.content(3).ece);
  r.take(3, false, false, true);
  EXPECT_FALSE(r.receiver.content(3).ece);
}

// RFC 8257 3.2, figure 1: a change of CE sends what is owed with the old mark, then goes on.
TEST(EcnEcho, AccurateAcknowledgesAtEveryChange) {
  Receiving r({}, true);
  r.take(0);
  EXPECT_FALSE(r.receiver.ack_due());
  r.take(1, false, true);
  ASSERT_TRUE(r.receiver.early());
  AckContent c = r.receiver.content(3);
  EXPECT_EQ(c.end, kMss);
  EXPECT_FALSE(c.ece);
  ASSERT_TRUE(r.receiver.ack_due());
  c = r.receiver.content(3);
  EXPECT_EQ(c.end, 2u * kMss);
  EXPECT_TRUE(c.ece);
  r.take(2, false, true);
  r.take(3, false, true);
  c = r.receiver.content(3);
  EXPECT_TRUE(c.ece);
  EXPECT_EQ(c.end, 4u * kMss);
}

// RFC 7323 4.3: a delayed ACK echoes the oldest segment's timestamp, so that the delay counts.
TEST(Timestamps, EchoTheFirstSegmentNotYetAcknowledged) {
  Receiving r;
  r.take(0);
  const std::uint32_t first = r.clock;
  r.take(1);
  EXPECT_EQ(r.receiver.content(3).ts_echo, first);
}

struct Memory final : TransportSink {
  std::vector<std::uint8_t> bytes = std::vector<std::uint8_t>(1000);
  std::vector<Arrival> arrivals;
  PacketPtr allocate() override { return nullptr; }
  bool place(QpNumber, std::uint32_t key, std::uint64_t address, const Payload& p) override {
    if (key != 5 || address > bytes.size() || p.length > bytes.size() - address) return false;
    if (p.data) std::memcpy(bytes.data() + address, p.data, p.length);
    return true;
  }
  void complete(const Completion&) override {}
  void arrived(const Arrival& a) override { arrivals.push_back(a); }
  void event(const TransportEvent&) override {}
  void port_ready(PlanePort) override {}
};

std::vector<std::uint8_t> frame(const FrameHeader& h) {
  std::vector<std::uint8_t> out(FrameHeader::kSize);
  ByteWriter writer(out);
  h.serialize(writer);
  return out;
}

TEST(Frames, AreReadHoweverTheStreamIsCut) {
  std::vector<std::uint8_t> stream;
  for (std::uint64_t i = 0; i < 5; ++i) {
    FrameHeader h;
    h.number = i;
    h.operation = i % 2 ? FrameHeader::kWrite : FrameHeader::kWriteWithImmediate;
    h.length = i == 2 ? 0 : 50;
    h.address = 100 * i;
    h.key = 5;
    h.immediate = static_cast<std::uint32_t>(70 + i);
    const auto head = frame(h);
    stream.insert(stream.end(), head.begin(), head.end());
    stream.insert(stream.end(), h.length, static_cast<std::uint8_t>(i + 1));
  }
  for (std::uint32_t cut = 1; cut <= 90; ++cut) {
    Memory memory;
    Counters count;
    StreamReader reader;
    for (std::size_t at = 0; at < stream.size(); at += cut) {
      const auto n = static_cast<std::uint32_t>(std::min<std::size_t>(cut, stream.size() - at));
      ASSERT_EQ(reader.take({stream.data() + at, n, 0, PayloadKind::region}, 1, memory, count),
                StreamReader::Result::ok);
    }
    ASSERT_EQ(memory.arrivals.size(), 3u);
    EXPECT_EQ(memory.arrivals[1].immediate, 72u);
    EXPECT_EQ(memory.arrivals[1].length, 0u);
    EXPECT_EQ(memory.bytes[349], 4);
    EXPECT_EQ(memory.bytes[350], 0);
    EXPECT_EQ(count.bytes_placed, 200u);
  }
}

TEST(Frames, WhatIsNoFrameIsAnErrorNotAWrite) {
  const auto result = [](FrameHeader h, bool with_bytes = true) {
    Memory memory;
    Counters count;
    StreamReader reader;
    const auto bytes = frame(h);
    return reader.take({with_bytes ? bytes.data() : nullptr, FrameHeader::kSize, 0, PayloadKind::none}, 1, memory,
                       count);
  };
  FrameHeader h;
  EXPECT_EQ(result(h), StreamReader::Result::ok);
  EXPECT_EQ(result(h, false), StreamReader::Result::framing_error);
  h.magic = 1;
  EXPECT_EQ(result(h), StreamReader::Result::framing_error);
  h = {};
  h.operation = 9;
  EXPECT_EQ(result(h), StreamReader::Result::framing_error);
  h = {};
  h.number = 1;  // not the next one
  EXPECT_EQ(result(h), StreamReader::Result::framing_error);
  h = {};
  h.address = ~0ull;
  h.length = 10;
  EXPECT_EQ(result(h), StreamReader::Result::framing_error);
}

}  // namespace
}  // namespace loomnet::tcp
