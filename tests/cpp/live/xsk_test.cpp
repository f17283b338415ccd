// AF_XDP over veth and through a real XDP forward switch: bytes, metadata, counters, and what is
// left behind.
#include <thread>

#include "ebpf/metadata.h"
#include "live/live_fabric.hpp"
#include "live_fixture.hpp"
#include "raw_socket.hpp"
#include "switch/forward/forward_batch.hpp"

namespace loomnet {
namespace {

using live_test::RawSocket;

std::vector<std::uint8_t> test_frame(std::size_t size, std::uint8_t salt) {
  std::vector<std::uint8_t> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::uint8_t>(i * 7 + salt);
  bytes[0] = 0x06, bytes[12] = 0x88, bytes[13] = 0xb5;  // local experimental EtherType
  return bytes;
}

bool receive_within(XskSocket& socket, ReceivedFrame& frame, int milliseconds = 2000) {
  for (int i = 0; i < milliseconds * 10; ++i) {
    if (socket.receive({&frame, 1}) == 1) return true;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return false;
}

std::uint64_t counter(const XdpSwitch& s, std::string_view name) {
  std::vector<SwitchCounter> all;
  s.program().counters(all);
  for (const SwitchCounter& c : all) {
    if (c.name == name) return c.value;
  }
  ADD_FAILURE() << "no counter " << name;
  return 0;
}

class XskTest : public live_test::LiveTest {};

TEST_F(XskTest, BytesGoBothWaysUnchangedAndAFrameIsHandedOverWithoutCopying) {
  const Netns h0 = Netns::create("lnlv h0"), h1 = Netns::create("lnlv h1");
  LiveFabric fabric({{.node = 0, .kind = PortKind::host, .netns = &h0, .interface = "lnlv-h0"},
                     {.node = 1, .kind = PortKind::host, .netns = &h1, .interface = "lnlv-h1"}},
                    {}, {.frames_per_umem = 512});
  RawSocket left(h0, "lnlv-h0"), right(h1, "lnlv-h1");
  for (const std::size_t size : {60u, 1514u, 2190u, 3414u}) {
    const auto sent = test_frame(size, static_cast<std::uint8_t>(size));
    ASSERT_TRUE(left.send(sent));
    ReceivedFrame frame;
    ASSERT_TRUE(receive_within(fabric.socket(0), frame)) << size;
    ASSERT_EQ(frame.length, size);
    EXPECT_TRUE(std::equal(sent.begin(), sent.end(), frame.data));
    // The very frame that port 0 received leaves by port 1.
    Umem& umem = fabric.socket(1).umem();
    const auto offset = static_cast<std::uint32_t>(frame.data - umem.base(frame.handle));
    ASSERT_TRUE(fabric.socket(1).transmit(frame.handle, offset, frame.length));
    EXPECT_TRUE(fabric.socket(1).flush());
    EXPECT_EQ(right.receive(), sent) << size;
  }
  const auto losses = fabric.losses();
  EXPECT_EQ(losses[0].total() + losses[1].total(), 0u);
}

TEST_F(XskTest, EveryFrameComesBackToItsUmem) {
  const Netns h0 = Netns::create("lnlv h0");
  LiveFabric fabric({{.node = 0, .kind = PortKind::host, .netns = &h0, .interface = "lnlv-h0"}}, {},
                    {.frames_per_umem = 512});
  XskSocket& socket = fabric.socket(0);
  const std::size_t at_rest = socket.umem().free_frames();
  EXPECT_EQ(at_rest, 512u - 128u);  // the fill ring holds the others
  const auto bytes = test_frame(200, 1);
  for (int round = 0; round < 5000; ++round) {
    std::uint32_t handle = 0;
    ASSERT_TRUE(socket.umem().take(handle));
    std::memcpy(socket.umem().base(handle) + kFrameHeadroom, bytes.data(), bytes.size());
    ASSERT_TRUE(socket.transmit(handle, kFrameHeadroom, 200));
    if (round % 50 == 49) socket.flush();
  }
  for (int i = 0; i < 1000 && socket.umem().free_frames() < at_rest; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    socket.flush();
  }
  EXPECT_EQ(socket.umem().free_frames(), at_rest);
}

// One switch of three ports: uA fc00:0:e801 leaves by port 1, /48 of uSID 0x2002 by port 2.
struct SwitchBed {
  Netns netns = Netns::create("lnlv s0");
  std::unique_ptr<LiveFabric> fabric;

  SwitchBed() {
    std::vector<LivePort> ports;
    for (std::uint16_t p = 0; p < 3; ++p) {
      ports.push_back({.node = 7, .port = p, .netns = &netns, .interface = "lnlv-p" + std::to_string(p)});
    }
    ForwardBatch tables;
    tables.generation = 5;
    tables.own_ua.push_back({{usid_block(0), 0xe801}, 1});
    tables.fib.push_back({{usid_block(0), 0x2002}, 2});
    fabric = std::make_unique<LiveFabric>(
        ports, std::vector<LiveSwitch>{{.node = 7, .netns = &netns, .tables = tables.pack()}},
        LiveFabricConfig{.frames_per_umem = 1024});
  }
  // Ethernet + IPv6 with a destination of two uSIDs and 64 payload bytes.
  std::vector<std::uint8_t> frame(std::uint64_t uid, std::uint16_t first, std::uint16_t second,
                                  std::uint8_t hop_limit = 64) const {
    std::vector<std::uint8_t> f(14 + 40 + 64, 0xab);
    f[0] = 0x06;
    ln_uid_to_mac(uid, &f[6]);
    f[12] = 0x86, f[13] = 0xdd;
    std::uint8_t* ip = &f[14];
    std::memset(ip, 0, 40);
    ip[0] = 0x60, ip[5] = 64, ip[6] = 17, ip[7] = hop_limit;
    ip[8] = 0xfd, ip[23] = 1;
    ip[24] = 0xfc;  // block fc00:0000
    ip[28] = static_cast<std::uint8_t>(first >> 8), ip[29] = static_cast<std::uint8_t>(first);
    ip[30] = static_cast<std::uint8_t>(second >> 8), ip[31] = static_cast<std::uint8_t>(second);
    return f;
  }
  void send(std::size_t port, const std::vector<std::uint8_t>& bytes) {
    XskSocket& s = fabric->socket(port);
    std::uint32_t handle = 0;
    ASSERT_TRUE(s.umem().take(handle));
    std::memcpy(s.umem().base(handle) + kFrameHeadroom, bytes.data(), bytes.size());
    ASSERT_TRUE(s.transmit(handle, kFrameHeadroom, static_cast<std::uint32_t>(bytes.size())));
    ASSERT_TRUE(s.flush());
  }
};

TEST_F(XskTest, AnXdpSwitchShiftsForwardsAndReportsItsVerdict) {
  SwitchBed bed;
  const auto sent = bed.frame(0x123456789a, 0xe801, 0x4001);
  bed.send(0, sent);
  ReceivedFrame f;
  ASSERT_TRUE(receive_within(bed.fabric->socket(1), f));
  ASSERT_EQ(f.length, sent.size());
  EXPECT_EQ(ln_uid_from_mac(f.data + 6), 0x123456789au);
  EXPECT_EQ(f.data[14 + 7], 63);                                      // hop limit
  EXPECT_EQ(f.data[14 + 24 + 4] << 8 | f.data[14 + 24 + 5], 0x4001);  // shifted
  EXPECT_TRUE(std::equal(sent.begin() + 54, sent.end(), f.data + 54));
  ln_metadata metadata;
  std::memcpy(&metadata, f.data - sizeof metadata, sizeof metadata);
  EXPECT_EQ(metadata.magic, LN_METADATA_MAGIC);
  EXPECT_EQ(metadata.ingress, 0);
  EXPECT_EQ(metadata.action, LN_FORWARD);
  EXPECT_EQ(metadata.value, 1);
  EXPECT_EQ(metadata.generation, 5u);
}

TEST_F(XskTest, DropsOfTheSwitchAreCountedByReason) {
  SwitchBed bed;
  XdpSwitch& s = bed.fabric->xdp_switch(0);
  for (int i = 0; i < 10; ++i) bed.send(0, bed.frame(i + 1, 0x7777, 0x4001));    // unknown uSID
  for (int i = 0; i < 5; ++i) bed.send(1, bed.frame(i + 1, 0xe801, 0x4001, 1));  // hop limit 1
  for (int i = 0; i < 3; ++i) bed.send(2, bed.frame(i + 1, 0xe801, 0));          // nothing behind
  bed.send(0, bed.frame(99, 0x2002, 0));
  ReceivedFrame f;
  ASSERT_TRUE(receive_within(bed.fabric->socket(2), f));
  EXPECT_EQ(ln_uid_from_mac(f.data + 6), 99u);
  EXPECT_EQ(counter(s, "received"), 19u);
  EXPECT_EQ(counter(s, "drop_no_route"), 10u);
  EXPECT_EQ(counter(s, "drop_hop_limit"), 5u);
  EXPECT_EQ(counter(s, "drop_exhausted"), 3u);
  EXPECT_EQ(s.program().drops(), 18u);
  // What the switch drops on purpose is no loss of ours.
  for (const auto& l : bed.fabric->losses()) EXPECT_EQ(l.total(), 0u);
}

TEST_F(XskTest, AFullSocketShowsInTheLosses) {
  SwitchBed bed;
  // Nobody takes frames out of port 1: its fill ring runs dry after 128 frames.
  for (std::uint64_t i = 1; i <= 300; ++i) bed.send(0, bed.frame(i, 0xe801, 0x4001));
  const auto losses = bed.fabric->losses();
  EXPECT_EQ(losses[1].total(), 300u - 128u);
  EXPECT_EQ(losses[0].total() + losses[2].total(), 0u);
  EXPECT_EQ(losses[1].xsk.fill_ring_empty, 300u - 128u);
}

TEST_F(XskTest, CarrierOfTheNodesInterfaceFollows) {
  SwitchBed bed;
  bed.fabric->set_carrier(1, false);
  EXPECT_FALSE(Rtnetlink(bed.netns).link("lnlv-p1").carrier);
  bed.fabric->set_carrier(1, true);
  EXPECT_TRUE(Rtnetlink(bed.netns).link("lnlv-p1").carrier);
  bed.send(0, bed.frame(7, 0xe801, 0x4001));  // and it still works
  ReceivedFrame f;
  EXPECT_TRUE(receive_within(bed.fabric->socket(1), f));
}

TEST_F(XskTest, ErrorsNameTheObjectAndLeaveNothing) {
  const Netns s0 = Netns::create("lnlv s0");
  const std::size_t before = live_test::open_descriptors();
  try {
    LiveFabric fabric({{.node = 1, .port = 1, .netns = &s0, .interface = "lnlv-p1"}}, {{.node = 1, .netns = &s0}},
                      {.frames_per_umem = 256});
    FAIL() << "a switch without port 0 was accepted";
  } catch (const std::invalid_argument& e) {
    EXPECT_NE(std::string(e.what()).find("switch lnlv s0 has no port 0"), std::string::npos) << e.what();
  }
  EXPECT_EQ(Rtnetlink(s0).links().size(), 1u) << "an interface stayed";
  EXPECT_EQ(live_test::open_descriptors(), before);
  EXPECT_THROW(LiveFabric({}, {}, {.mtu = 9000}), std::invalid_argument);
}

}  // namespace
}  // namespace loomnet
