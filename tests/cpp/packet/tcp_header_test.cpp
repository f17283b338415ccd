// TCP header and options: golden vectors, round trips, and what a hostile option list cannot do.
#include <gtest/gtest.h>

#include <vector>

#include "clock/random.hpp"
#include "golden_bytes.hpp"
#include "packet/tcp.hpp"

namespace loomnet {
namespace {

TEST(TcpHeader, Golden) {
  TcpHeader h;
  h.source_port = 33'024;
  h.destination_port = 0x5678;
  h.sequence = 0x01020304;
  h.acknowledgement = 0xa0b0c0d0;
  h.data_offset = 8;
  h.flags = tcp_flag::kAck | tcp_flag::kPsh | tcp_flag::kEce;
  h.window = 0xc000;
  const auto raw = bytes("8100 5678 01020304 a0b0c0d0 8058 c000 0000 0000");
  std::vector<std::uint8_t> room(TcpHeader::kSize);
  ByteWriter out(room);
  h.serialize(out);
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(room, raw);
  ByteReader in(raw);
  EXPECT_EQ(TcpHeader::parse(in), h);
}

TEST(TcpHeader, BytesSurvive) {
  RandomStream random(5, 1, 2);
  for (int i = 0; i < 1'000; ++i) {
    std::vector<std::uint8_t> raw(TcpHeader::kSize), again(TcpHeader::kSize);
    for (auto& b : raw) b = static_cast<std::uint8_t>(random());
    ByteReader in(raw);
    ByteWriter out(again);
    TcpHeader::parse(in).serialize(out);
    ASSERT_EQ(again, raw);
  }
}

// As Linux writes them: two NOPs in front of each, timestamps first (RFC 7323 appendix A).
TEST(TcpOptionFields, GoldenTimestampsAndTwoSackBlocks) {
  TcpOptionFields o;
  o.timestamps = true;
  o.ts_value = 0x11223344;
  o.ts_echo = 0x55667788;
  o.sack_count = 2;
  o.sack[0] = {0x100, 0x200};
  o.sack[1] = {0x300, 0x400};
  const auto raw = bytes("0101 080a 11223344 55667788  0101 0512 00000100 00000200 00000300 00000400");
  ASSERT_EQ(o.size(), raw.size());
  std::vector<std::uint8_t> room(raw.size());
  ByteWriter out(room);
  o.serialize(out);
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(room, raw);
  ByteReader in(raw);
  EXPECT_EQ(TcpOptionFields::parse(in, raw.size()), o);
  EXPECT_TRUE(in.ok());
}

TEST(TcpOptionFields, UnknownOptionsAreSkippedAndTheEndEnds) {
  // MSS, window scale, an experimental option, timestamps, end, garbage behind it.
  const auto raw = bytes("02040594 030307 fd04beef 080a 00000001 00000002 00 ffffff");
  ByteReader in(raw);
  const TcpOptionFields o = TcpOptionFields::parse(in, raw.size());
  EXPECT_TRUE(in.ok());
  EXPECT_EQ(in.remaining(), 0u);
  EXPECT_TRUE(o.timestamps);
  EXPECT_EQ(o.ts_echo, 2u);
  EXPECT_EQ(o.sack_count, 0u);
}

TEST(TcpOptionFields, MalformedListsFailTheReader) {
  for (const char* hex :
       {"08", "0800", "0801", "080a0000", "0809 00000001 000000", "0503 00", "0502", "0526 00000001 00000002",
        "020a0594", "fd01", "fd00", "080a 00000001 00000002 080a 00000001 00000002"}) {
    const auto raw = bytes(hex);
    ByteReader in(raw);
    TcpOptionFields::parse(in, raw.size());
    EXPECT_FALSE(in.ok()) << hex;
  }
  const auto raw = bytes("0101");
  ByteReader in(raw);
  TcpOptionFields::parse(in, 3);
  EXPECT_FALSE(in.ok()) << "longer than the header";
}

TEST(TcpOptionFields, ParsedFieldsSurviveARoundTrip) {
  RandomStream random(6, 1, 2);
  int parsed = 0;
  for (int i = 0; i < 200'000; ++i) {
    std::vector<std::uint8_t> raw(random.below(41));
    static constexpr std::uint8_t kLikely[] = {0, 1, 1, 5, 8, 10, 10, 18, 26, 34, 2, 4};
    for (auto& b : raw) b = random.below(2) ? kLikely[random.below(12)] : static_cast<std::uint8_t>(random());
    ByteReader in(raw);
    const TcpOptionFields o = TcpOptionFields::parse(in, raw.size());
    if (!in.ok()) continue;
    parsed += o.sack_count > 0 || o.timestamps;
    std::vector<std::uint8_t> room(o.size());
    ByteWriter out(room);
    o.serialize(out);
    ByteReader again(room);
    ASSERT_EQ(TcpOptionFields::parse(again, room.size()), o);
  }
  EXPECT_GT(parsed, 100);
}

}  // namespace
}  // namespace loomnet
