// Captures of a port: bytes, lengths, times in order, drops with their reason.
#include "trace/pcapng.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "blocks.hpp"
#include "trace/recorder.hpp"

namespace loomnet {
namespace {

using testing::CapturedPacket;
constexpr std::uint16_t kComment = 1, kFlags = 2, kPacketId = 5;

struct Far : LinkReceiver {
  void receive(std::uint16_t, PacketPtr packet, Picoseconds) override { last = std::move(packet); }
  PacketPtr last;
};

class PcapngTest : public ::testing::Test {
 protected:
  // A link out of port 3 of node 7 (half 10) and the one back in (half 11).
  void make(const LinkConfig& config) {
    out_ = std::make_unique<HalfLink>(events_, pool_, config, far_, 0, 1);
    in_ = std::make_unique<HalfLink>(events_, pool_, config, near_, 0, 1);
    out_->watch(&recorder_, 10);
    in_->watch(&recorder_, 11);
    capture_ =
        &recorder_.capture(10, 11, std::make_unique<PortCapture>(7, 3, *out_, port_address(8, 0), "s:3", "s->t"));
  }
  void TearDown() override {
    far_.last.reset();
    near_.last.reset();
    out_->clear();
    in_->clear();
    EXPECT_EQ(pool_.outstanding(), 0u);
  }
  // 60 header bytes 0, 1, 2, …
  PacketPtr packet(std::uint32_t length, QueueClass queue = kDataClass) {
    PacketPtr p = pool_.allocate();
    p->wire_length = length;
    p->queue = queue;
    p->header_length = 60;
    std::iota(p->header.begin(), p->header.begin() + 60, std::uint8_t{0});
    p->payload.length = length - 60;
    p->ideal = events_.now();
    return p;
  }
  std::vector<CapturedPacket> all() { return testing::packets(capture_->finish(events_.now())); }
  static std::uint64_t flags(const CapturedPacket& p) { return testing::number(p.options.at(kFlags), 0, 4); }

  EventQueue events_;
  PacketPool pool_;
  Far far_, near_;
  std::unique_ptr<HalfLink> out_, in_;
  Recorder recorder_{{.seed = 1}};
  PortCapture* capture_ = nullptr;
};

TEST_F(PcapngTest, BeginsWithSectionAndInterfaceAndEndsWithStatistics) {
  make({.rate = gigabits(100), .delay = microseconds(1)});
  const auto found = testing::blocks(capture_->finish(microseconds(5)));
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].type, 0x0a0d0d0au);
  EXPECT_EQ(testing::number(found[0].body, 0, 4), 0x1a2b3c4du);
  EXPECT_EQ(found[1].type, 1u);
  EXPECT_EQ(testing::number(found[1].body, 0, 2), 1u);  // Ethernet
  const auto interface = testing::options(found[1].body, 8);
  EXPECT_EQ(interface.at(2), "s:3");
  EXPECT_EQ(testing::number(interface.at(8), 0, 8), 100'000'000'000u);
  EXPECT_EQ(interface.at(9), std::string(1, 9));  // nanoseconds
  EXPECT_EQ(found[2].type, 5u);
  EXPECT_EQ(testing::number(found[2].body, 8, 4), 5'000u);
  EXPECT_EQ(testing::options(found[2].body, 12).at(2), std::string(8, '\0'));  // the engine's start
}

TEST_F(PcapngTest, ShowsWhatLeavesWhenItLeavesAndWhatComesWhenItArrives) {
  make({.rate = gigabits(100), .delay = microseconds(1)});
  out_->offer(packet(1476), {});
  out_->offer(packet(1476), {});  // leaves 120 ns later: 1,500 bytes at 100 Gb/s
  in_->offer(packet(476), {});    // 500 bytes: 40 ns, and 1 us on the way
  events_.run_until(microseconds(10));
  const auto found = all();
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].nanoseconds, 0u);
  EXPECT_EQ(found[1].nanoseconds, 120u);
  EXPECT_EQ(found[2].nanoseconds, 1'040u);
  EXPECT_EQ(flags(found[0]), 2u);
  EXPECT_EQ(flags(found[1]), 2u);
  EXPECT_EQ(flags(found[2]), 1u);
  EXPECT_EQ(testing::number(found[1].options.at(kPacketId), 0, 8), 2u);
  EXPECT_FALSE(found[0].options.contains(kComment));
}

TEST_F(PcapngTest, SnapsPacketsOfLengthsOnlyAndFillsWhatNoModelMakes) {
  make({.rate = gigabits(100)});
  out_->offer(packet(1000), {});
  std::vector<std::uint8_t> payload(500, 0xab);
  PacketPtr p = packet(564);  // 60 of headers, 500 of payload, 4 of invariant CRC
  p->payload = {payload.data(), 500, 0, PayloadKind::region};
  out_->offer(std::move(p), {});
  p = packet(64);
  p->payload.length = 0;
  out_->offer(std::move(p), {});
  events_.run_until(microseconds(1));
  const auto found = all();
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].bytes.size(), 60u);
  EXPECT_EQ(found[0].original, 1000u);
  EXPECT_EQ(found[0].bytes[59], 59);
  EXPECT_EQ(found[1].original, 564u);
  EXPECT_EQ(found[1].bytes.substr(60), std::string(500, '\xab') + std::string(4, '\0'));
  EXPECT_EQ(found[2].bytes.size(), 64u);
}

TEST_F(PcapngTest, GivesAModelsFramesTheAddressesOfTheirLinksPorts) {
  make({.rate = gigabits(100)});
  const auto bytes = [](const MacAddress& a) { return std::string(a.begin(), a.end()); };
  const std::string near = bytes(port_address(7, 3)), far = bytes(port_address(8, 0));
  EXPECT_EQ(near, std::string("\x02\x00\x00\x07\x00\x03", 6));
  const auto blank = [&](std::uint8_t source) {
    PacketPtr p = packet(476);
    std::fill_n(p->header.begin(), 12, std::uint8_t{0});
    if (source) p->header[6] = 2, p->header[11] = source;  // its uid, as a switch in the kernel has it
    return p;
  };
  out_->offer(blank(0), {});
  out_->offer(packet(476), {});  // a frame with addresses of its own
  events_.run_until(microseconds(1));
  in_->offer(blank(9), {});
  events_.run_until(microseconds(2));
  const auto found = all();
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].bytes.substr(0, 12), far + near);
  EXPECT_EQ(found[1].bytes.substr(0, 3), std::string("\0\1\2", 3));
  EXPECT_EQ(found[2].bytes.substr(0, 12), near + far);
}

TEST_F(PcapngTest, CountsFromAZeroThatBecomesKnownLater) {
  make({.rate = gigabits(100)});
  capture_->set_zero(kNever);
  out_->offer(packet(976), {});
  events_.run_until(microseconds(1));
  out_->offer(packet(976), events_.now());
  events_.run_until(microseconds(2));
  std::string file = capture_->take(events_.now());
  EXPECT_EQ(testing::blocks(file).size(), 2u);  // section and interface; packets wait
  capture_->set_zero(nanoseconds(400));
  file += capture_->finish(events_.now());
  const auto interface = testing::options(testing::blocks(file)[1].body, 8);
  EXPECT_EQ(static_cast<std::int64_t>(testing::number(interface.at(14), 0, 8)), -1'000'000);
  const auto found = testing::packets(file);
  ASSERT_EQ(found.size(), 2u);
  constexpr std::uint64_t kZero = 1'000'000'000'000'000;  // 10^6 s in ns
  EXPECT_EQ(found[0].nanoseconds, kZero - 400);
  EXPECT_EQ(found[1].nanoseconds, kZero + 600);
  const std::string started = testing::options(testing::blocks(file).back().body, 12).at(2);
  EXPECT_EQ(testing::number(started, 0, 4) << 32 | testing::number(started, 4, 4), kZero - 400);
}

TEST_F(PcapngTest, NamesWhyPacketsWereDropped) {
  make({.rate = gigabits(1), .delay = microseconds(1), .data_limit = 1000});
  in_->set_impairment({.corrupt = 1}, {});
  in_->offer(packet(476), {});
  out_->offer(packet(976), {});  // 8 us on the wire
  out_->offer(packet(976), {});  // waits
  out_->offer(packet(976), {});  // finds the queue full
  events_.run_until(microseconds(7));
  out_->set_up(false, microseconds(7));  // one in flight, one waiting
  const auto found = all();
  ASSERT_EQ(found.size(), 4u);
  EXPECT_FALSE(found[0].options.contains(kComment));  // it did leave
  EXPECT_EQ(found[1].options.at(kComment), "dropped before sending: queue_full");
  EXPECT_EQ(flags(found[1]), 2u);
  EXPECT_EQ(found[2].options.at(kComment), "never received, lost on the link: fcs");
  EXPECT_EQ(flags(found[2]), 1u | 1u << 24);
  EXPECT_EQ(found[3].options.at(kComment), "dropped before sending: link_down");
}

TEST_F(PcapngTest, ASwitchProgramsVerdictStandsOnThePacketItReceived) {
  make({.rate = gigabits(100)});
  in_->offer(packet(476), {});
  events_.run_until(microseconds(1));
  ASSERT_TRUE(near_.last);
  recorder_.refused(7, *near_.last, "drop_no_route", microseconds(1));
  recorder_.refused(8, *near_.last, "drop_hop_limit", microseconds(1));  // another switch
  const auto found = all();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].options.at(kComment), "dropped by the switch program: drop_no_route");
}

TEST_F(PcapngTest, PiecesAreInOrderOfTimeThoughQueuesAreLookedAtLate) {
  make({.rate = gigabits(1), .delay = microseconds(50)});
  for (int i = 0; i < 6; ++i) out_->offer(packet(976), {});  // 8 us each, looked at every 50 us
  in_->offer(packet(976), {});
  std::string file;
  for (int i = 1; i <= 20; ++i) {
    events_.run_until(microseconds(10) * i);
    file += capture_->take(events_.now());
  }
  file += capture_->finish(events_.now());
  const auto found = testing::packets(file);
  ASSERT_EQ(found.size(), 7u);
  for (std::size_t i = 1; i < found.size(); ++i) {
    EXPECT_GE(found[i].nanoseconds, found[i - 1].nanoseconds) << i;
  }
  EXPECT_EQ(found.back().nanoseconds, 58'000u);  // the one that came in
}

}  // namespace
}  // namespace loomnet
