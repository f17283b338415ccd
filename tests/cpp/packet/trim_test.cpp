// What trimming leaves of a packet.
#include <gtest/gtest.h>

#include "packet/ethernet.hpp"
#include "packet/ipv6.hpp"
#include "packet/mrc_headers.hpp"
#include "packet/rdma.hpp"
#include "packet/trim.hpp"
#include "packet/udp.hpp"

namespace loomnet {
namespace {

constexpr std::uint32_t kPayload = 4096;
constexpr std::uint8_t kTrimmable = 4, kTrimmed = 12;  // DSCPs

PacketPtr data_packet(PacketPool& pool) {
  PacketPtr p = pool.allocate();
  ByteWriter out({p->header.data(), kMaxHeaderBytes});
  EthernetHeader{}.serialize(out);
  Ipv6Header outer;
  outer.set_class(kTrimmable, Ecn::ce);
  outer.flow_label = 0xabcde;
  outer.payload_length = 4238 - 54;
  outer.next_header = kNextHeaderIpv6;
  outer.serialize(out);
  Ipv6Header inner = outer;
  inner.payload_length = 4238 - 94;
  inner.next_header = kNextHeaderUdp;
  inner.serialize(out);
  UdpHeader{49291, kUdpPortMrc, 4238 - 94, 0}.serialize(out);
  Bth bth;
  bth.psn = 0x123456;
  bth.serialize(out);
  mrc::Meth{0, 7}.serialize(out);
  mrc::Tseth{0x4321}.serialize(out);
  Reth{1, 2, kPayload}.serialize(out);
  EXPECT_TRUE(out.ok());
  p->header_length = static_cast<std::uint16_t>(out.position());
  p->payload = {nullptr, kPayload, 0, PayloadKind::none};
  p->wire_length = p->header_length + kPayload + kIcrcBytes;
  p->queue = kDataClass;
  p->trimmable = p->ect = true;
  return p;
}

TEST(Trim, KeepsPsnAndTimestampAndFixesLengths) {
  PacketPool pool;
  PacketPtr p = data_packet(pool);
  ASSERT_EQ(p->wire_length, 4238u) << "3.3: frame of a 4,096 B payload";
  ASSERT_TRUE(trim(*p, {.dscp = kTrimmed}));
  EXPECT_EQ(p->wire_length, 128u);
  EXPECT_EQ(p->header_length, 128u);
  EXPECT_EQ(p->payload.length, 0u);
  EXPECT_EQ(p->queue, kControlClass);
  EXPECT_FALSE(p->trimmable);
  ByteReader in(p->header_bytes());
  EthernetHeader::parse(in);
  const Ipv6Header outer = Ipv6Header::parse(in);
  EXPECT_EQ(outer.dscp(), kTrimmed);
  EXPECT_EQ(outer.ecn(), Ecn::ce) << "a mark set earlier on the path survives";
  EXPECT_EQ(outer.flow_label, 0xabcdeu);
  EXPECT_EQ(outer.version, 6);
  EXPECT_EQ(outer.payload_length, 74);
  const Ipv6Header inner = Ipv6Header::parse(in);
  EXPECT_EQ(inner.dscp(), kTrimmable) << "only the outer header is rewritten";
  EXPECT_EQ(inner.payload_length, 34);
  EXPECT_EQ(UdpHeader::parse(in).length, 34);
  EXPECT_EQ(Bth::parse(in).psn, 0x123456u);
  EXPECT_EQ(mrc::Meth::parse(in).msn, 7);
  EXPECT_EQ(mrc::Tseth::parse(in).tx_ts, 0x4321);
  EXPECT_TRUE(in.ok());
}

TEST(Trim, LeavesLengthsWhereAsked) {
  PacketPool pool;
  PacketPtr p = data_packet(pool);
  ASSERT_TRUE(trim(*p, {.dscp = kTrimmed, .size = 128, .fix_lengths = false}));
  ByteReader in(p->header_bytes());
  EthernetHeader::parse(in);
  const Ipv6Header outer = Ipv6Header::parse(in);
  EXPECT_EQ(outer.payload_length, 4238 - 54) << "as hardware leaves it";
}

TEST(Trim, RefusesWhatItCannotCut) {
  PacketPool pool;
  PacketPtr p = data_packet(pool);
  EXPECT_FALSE(trim(*p, {.size = 5000}));
  p->header[12] = 0x08;  // not IPv6
  EXPECT_FALSE(trim(*p, {.dscp = kTrimmed}));
  EXPECT_EQ(p->wire_length, 4238u);
  PacketPtr bare = pool.allocate();
  bare->wire_length = 1500;
  EXPECT_FALSE(trim(*bare, {.dscp = kTrimmed}));
}

TEST(Trim, FrameGoesBackToItsOwner) {
  struct Owner : FrameOwner {
    int released = 0;
    void release_frame(std::uint32_t frame) noexcept override { released += frame == 77; }
  } owner;
  PacketPool pool;
  pool.set_frame_owner(&owner);
  {
    PacketPtr p = data_packet(pool);
    p->payload = {p->header.data(), kPayload, 77, PayloadKind::frame};
    ASSERT_TRUE(trim(*p, {.dscp = kTrimmed}));
    EXPECT_EQ(p->payload.data, nullptr);
  }
  EXPECT_EQ(owner.released, 1);
}

}  // namespace
}  // namespace loomnet
