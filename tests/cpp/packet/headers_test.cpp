// Golden vectors of every header (RFC 9800), round trips, and
// what the bounds checks refuse.
#include <gtest/gtest.h>

#include <vector>

#include "clock/random.hpp"
#include "golden_bytes.hpp"
#include "packet/ethernet.hpp"
#include "packet/host_address.hpp"
#include "packet/ipv6.hpp"
#include "packet/mrc_headers.hpp"
#include "packet/rdma.hpp"
#include "packet/udp.hpp"
#include "packet/usid.hpp"

namespace loomnet {
namespace {

template <typename Header>
std::vector<std::uint8_t> serialized(const Header& header) {
  std::vector<std::uint8_t> out(Header::kSize);
  ByteWriter writer(out);
  header.serialize(writer);
  EXPECT_TRUE(writer.ok());
  EXPECT_EQ(writer.position(), Header::kSize);
  return out;
}

template <typename Header>
void expect_golden(const Header& header, const std::string& hex) {
  const auto golden = bytes(hex);
  ASSERT_EQ(golden.size(), Header::kSize);
  EXPECT_EQ(serialized(header), golden);
  ByteReader reader(golden);
  const Header parsed = Header::parse(reader);
  EXPECT_TRUE(reader.ok());
  EXPECT_EQ(reader.remaining(), 0u);
  EXPECT_TRUE(parsed == header);
  ByteReader shorter({golden.data(), golden.size() - 1});
  Header::parse(shorter);
  EXPECT_FALSE(shorter.ok()) << "a header one byte short must fail";
}

TEST(Golden, Bth) {
  Bth h;
  h.opcode = static_cast<std::uint8_t>(mrc::Op::write_only);
  h.destination_qp = 0x123456;
  h.ack_request = h.timestamp = true;
  h.psn = 0x100;
  expect_golden(h, "ca00ffff 00123456 90000100");
  h.retransmission = true;
  expect_golden(h, "ca00ffff 00123456 b0000100");
}

TEST(Golden, Meth) { expect_golden(mrc::Meth{0, 7}, "00000007"); }
TEST(Golden, Tseth) { expect_golden(mrc::Tseth{0x1234}, "12340001"); }
TEST(Golden, TsethCoarse) { expect_golden(mrc::Tseth{0x1234, true}, "12348001"); }
TEST(Golden, Reth) { expect_golden(Reth{0x00007f0000010000, 0xdeadbeef, 8192}, "00007f0000010000 deadbeef 00002000"); }
TEST(Golden, ImmDt) { expect_golden(ImmDt{0xcafef00d}, "cafef00d"); }
TEST(Golden, Aeth) { expect_golden(Aeth{Aeth::kNakInvalidRequest, 0x000102}, "61000102"); }

TEST(Golden, Seth) {
  mrc::Seth h;
  h.mark = 1;
  h.ack_psn_offset = 5;
  h.entropy = 0xc08b;
  h.source_pdc = 0x3456;
  h.destination_pdc = 0x6543;
  h.cack_psn = 0xfb;
  h.mpr = 8;
  h.sack_offset = 1;
  h.bitmap = 0x76;
  expect_golden(h, "00200005 0000c08b 34566543 000000fb 00080001 0000000000000076");
}

TEST(Golden, CcState) {
  mrc::CcState h;
  h.tx_ts = 0x1234;
  h.ooo = 5;
  h.rcvd_bytes = 0x420;
  expect_golden(h, "12340005 00000420");
  EXPECT_EQ(h.rcvd_bytes * 256, 270'336u);
}

TEST(Golden, Neth) {
  mrc::Neth h;
  h.reason = 1;
  h.entropy = 0xc08b;
  h.source_pdc = 0x3456;
  h.destination_pdc = 0x6543;
  h.nack_psn = 0xfc;
  h.tx_ts = 0x1234;
  expect_golden(h, "00000100 0000c08b 34566543 000000fc 20001234");
}

TEST(Golden, Peth) {
  mrc::Peth h;
  h.probe_id = 0x7788;
  h.source_pdc = 0x3456;
  h.destination_pdc = 0x6543;
  h.stamp.tx_ts = 0x9abc;
  expect_golden(h, "00000000 77880000 34566543 9abc0001");
}

TEST(Golden, Erth) {
  mrc::Erth h;
  h.op = static_cast<std::uint8_t>(mrc::EndpointOp::port_status_update);
  h.port_status_mask = 0xf7;
  h.stamp.tx_ts = 0x1234;
  expect_golden(h, "00000000 000000f7 00000000 12340001");
}

TEST(Golden, Eeth) {
  mrc::Eeth h;
  h.op = static_cast<std::uint8_t>(mrc::EndpointOp::ev_probe);
  h.tx_ts = 0x1234;
  expect_golden(h, "0010" + std::string(52, '0') + "1234" + std::string(12, '0'));
}

TEST(Golden, EthernetIpv6Udp) {
  EthernetHeader eth;
  eth.destination = local_mac(1);
  eth.source = local_mac(0x0102030405);
  expect_golden(eth, "020000000001 020102030405 86dd");
  Ipv6Header ip;
  ip.set_class(46, Ecn::ect0);
  ip.flow_label = 0xabcde;
  ip.payload_length = 56;
  ip.next_header = kNextHeaderIpv6;
  ip.source = host_address(0x12);
  ip.destination = host_address(0x01020304);
  EXPECT_EQ(ip.dscp(), 46);
  EXPECT_EQ(ip.ecn(), Ecn::ect0);
  expect_golden(ip,
                "6baabcde 0038 29 40 fd000000000000000000000000000012"
                "fd000000000000000000000001020304");
  expect_golden(UdpHeader{49291, kUdpPortMrc, 100, 0}, "c08b 136b 0064 0000");
}

// Plane 3, T0 5 -> T1 0x11 -> T0 9, downlink 2.
TEST(Golden, EntropyValueAndAddress) {
  const EntropyValue ev(3, 0x11);
  EXPECT_EQ(ev.value, 0x0000c08bu);
  EXPECT_EQ(ev.plane(), 3u);
  EXPECT_EQ(ev.uplink(), 0x11u);
  EXPECT_EQ(ev_source_port(ev, EvOrder::flow_label_then_port), 49291);
  EXPECT_EQ(ev_flow_label(ev, EvOrder::flow_label_then_port), 0);
  EXPECT_EQ(ev_flow_label(ev, EvOrder::port_then_flow_label), 49291);
  EXPECT_EQ(entropy_of(0, 49291, EvOrder::flow_label_then_port), ev);
  EXPECT_EQ(entropy_of(49291, 0, EvOrder::port_then_flow_label), ev);
  const std::uint16_t usids[] = {usid_t0(5), usid_t1(0x11), usid_t0(9), usid_host(2)};
  const auto golden = bytes("fc000003 2005 1011 2009 4002 0000 0000");
  const Ipv6Address address = usid_address(3, usids);
  EXPECT_TRUE(std::equal(address.begin(), address.end(), golden.begin()));
}

TEST(Golden, HostAddress) { EXPECT_EQ(host_of(host_address(0xdeadbeef)), 0xdeadbeefu); }

// parse(serialize(parse(x))) == parse(x): no field is lost or invented, for random bytes.
template <typename Header>
void expect_symmetry(std::uint64_t seed) {
  RandomStream random(seed, Header::kSize, 1);
  for (int i = 0; i < 2'000; ++i) {
    std::vector<std::uint8_t> raw(Header::kSize);
    for (auto& b : raw) b = static_cast<std::uint8_t>(random());
    ByteReader first(raw);
    const Header a = Header::parse(first);
    const auto again = serialized(a);
    ByteReader second(again);
    ASSERT_TRUE(Header::parse(second) == a) << "round " << i;
  }
}

TEST(Symmetry, EveryHeader) {
  expect_symmetry<EthernetHeader>(1);
  expect_symmetry<Ipv6Header>(2);
  expect_symmetry<UdpHeader>(3);
  expect_symmetry<Bth>(4);
  expect_symmetry<Reth>(5);
  expect_symmetry<ImmDt>(6);
  expect_symmetry<Aeth>(7);
  expect_symmetry<mrc::Meth>(8);
  expect_symmetry<mrc::Tseth>(9);
  expect_symmetry<mrc::Seth>(10);
  expect_symmetry<mrc::CcState>(11);
  expect_symmetry<mrc::Neth>(12);
  expect_symmetry<mrc::Peth>(13);
  expect_symmetry<mrc::Erth>(14);
  expect_symmetry<mrc::Eeth>(15);
}

// Ethernet, IPv6 and UDP have no reserved bits: their bytes survive exactly.
TEST(Symmetry, BytesSurvive) {
  RandomStream random(5, 1, 1);
  for (int i = 0; i < 1'000; ++i) {
    std::vector<std::uint8_t> raw(Ipv6Header::kSize);
    for (auto& b : raw) b = static_cast<std::uint8_t>(random());
    ByteReader in(raw);
    ASSERT_EQ(serialized(Ipv6Header::parse(in)), raw);
  }
}

TEST(Bounds, WriterStopsAtTheEnd) {
  std::array<std::uint8_t, 10> room{};
  ByteWriter out(room);
  Bth{}.serialize(out);
  EXPECT_FALSE(out.ok());
  EXPECT_LE(out.position(), room.size());
}

TEST(Bounds, ReaderStaysFailed) {
  const std::array<std::uint8_t, 3> three{1, 2, 3};
  ByteReader in(three);
  EXPECT_EQ(in.u32(), 0u);
  EXPECT_FALSE(in.ok());
  EXPECT_EQ(in.u8(), 0u) << "no value after a failure";
}

}  // namespace
}  // namespace loomnet
