// The example programs in the kernel, behind real veths and the live loop: absorbed + returned + dropped
// = given, one by one; copies, answers, rewritten bytes and labels come back as they are.
#include <gtest/gtest.h>

#include <thread>

#include "live/live_loop.hpp"
#include "live_bed.hpp"
#include "live_fixture.hpp"
#include "switch_registry/echo_frames.hpp"
#include "trace/blocks.hpp"
#include "trace/recorder.hpp"

namespace loomnet {
namespace {

using test::host_tables;
using test::udp_frame;

constexpr std::uint16_t kHosts = 3;

// Three hosts around one switch in the kernel.
struct StarBed {
  Netns netns = Netns::create("lnsh switch");
  Network network{1};
  NodeId node = 0;
  std::vector<live_test::Recorder*> hosts;
  std::vector<std::unique_ptr<std::vector<std::uint8_t>>> memory;  // the senders'
  std::unique_ptr<LiveFabric> fabric;
  std::unique_ptr<LiveLoop> loop;

  explicit StarBed(std::string program, ProgramOptions options = {}) {
    const LinkConfig link{.rate = gigabits(1), .delay = microseconds(100)};
    for (int h = 0; h < kHosts; ++h) network.add_host(1);
    node = network.add_switch(kHosts, nullptr);
    std::vector<LivePort> ports;
    for (std::uint16_t h = 0; h < kHosts; ++h) {
      network.connect({h, 0}, {node, h}, link, link);
      auto recorder = std::make_unique<live_test::Recorder>();
      hosts.push_back(recorder.get());
      network.nic(h).set_transport(std::move(recorder));
      ports.push_back({.node = node, .port = h, .netns = &netns, .interface = "lnsh-p" + std::to_string(h)});
    }
    fabric = std::make_unique<LiveFabric>(ports,
                                          std::vector<LiveSwitch>{{.node = node,
                                                                   .netns = &netns,
                                                                   .program = std::move(program),
                                                                   .options = std::move(options),
                                                                   .tables = host_tables(kHosts, 1, {{0, 1, 2}})}},
                                          LiveFabricConfig{.frames_per_umem = 2048});
    loop =
        std::make_unique<LiveLoop>(network, *fabric, LiveLoopConfig{.realtime = false, .lateness_bound = seconds(10)});
  }
  ~StarBed() {
    loop.reset();
    network.set_tap(nullptr, true);
    network.clear();
    fabric.reset();
  }
  void send(NodeId host, const std::vector<std::uint8_t>& frame, std::uint32_t flow = 1, bool bytes = true) {
    memory.push_back(std::make_unique<std::vector<std::uint8_t>>(frame.begin() + 62, frame.end()));
    loop->call([&] {
      PacketPtr p = network.pool().allocate();
      std::copy_n(frame.begin(), 62, p->header.begin());
      p->header_length = 62;
      p->wire_length = static_cast<std::uint32_t>(frame.size());
      p->payload = {bytes ? memory.back()->data() : nullptr, static_cast<std::uint32_t>(memory.back()->size()), 0,
                    bytes ? PayloadKind::region : PayloadKind::none};
      p->flow = flow, p->message = flow + 1000;
      network.egress(host, 0)->offer(std::move(p), network.now());
    });
  }
  bool wait_for(NodeId host, std::uint64_t count) {
    for (int i = 0; i < 2000; ++i) {
      if (loop->call([&] { return hosts[host]->packets; }) >= count) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
  std::uint64_t count(std::string_view name) {
    std::vector<SwitchCounter> all;
    fabric->xdp_switch(0).program().counters(all);
    for (const SwitchCounter& c : all) {
      if (c.name == name) return c.value;
    }
    ADD_FAILURE() << "no counter " << name;
    return 0;
  }
};

std::uint64_t count_of(const Fidelity& f, std::string_view name) {
  for (const NamedCount& c : f.counters) {
    if (c.name == name) return c.value;
  }
  ADD_FAILURE() << "no counter " << name;
  return 0;
}

class SwitchHostLiveTest : public live_test::LiveTest {};

TEST_F(SwitchHostLiveTest, SumIsAccountedForOneByOne) {
  StarBed bed("sum");
  Recorder recorder{RecorderConfig{}};
  bed.network.set_tap(&recorder, true);
  PortCapture& in = recorder.capture(
      bed.network.egress_half(bed.node, 0), bed.network.egress_half(bed.node, 0) ^ 1,
      std::make_unique<PortCapture>(bed.node, 0, *bed.network.egress(bed.node, 0), MacAddress{}, "p0", ""));
  bed.loop->start();
  constexpr int kSums = 100;
  for (int i = 0; i < 4 * kSums; ++i) {
    bed.send(0, udp_frame("fd00::2", SUM_PORT + 3, 100, 1, static_cast<std::uint8_t>(i % 4 + 1)),
             static_cast<std::uint32_t>(i));
  }
  for (int i = 0; i < 30; ++i) bed.send(0, udp_frame("fd00::2", SUM_PORT, 10));  // too short
  for (int i = 0; i < 20; ++i) bed.send(0, udp_frame("fd00::2", 9, 10));         // forwarded
  ASSERT_TRUE(bed.wait_for(1, kSums + 20));
  for (const auto& sent : bed.memory) {
    for (const std::uint8_t byte : *sent) ASSERT_EQ(byte, sent->front()) << "a sender's memory";
  }
  bed.loop->stop();
  const Fidelity f = bed.loop->fidelity();
  EXPECT_EQ(f.given, 4u * kSums + 50);
  EXPECT_EQ(f.absorbed, 3u * kSums);
  EXPECT_EQ(f.switch_drops, 30u);
  EXPECT_EQ(f.returned, kSums + 20u);
  EXPECT_EQ(f.absorbed + f.returned + f.switch_drops, f.given);
  EXPECT_EQ(f.unexplained, 0u);
  EXPECT_EQ(f.verdict, LiveVerdict::kept_up) << f.reason;
  EXPECT_EQ(count_of(f, "reported"), 3u * kSums + 30);
  EXPECT_EQ(count_of(f, "unknown_report") + count_of(f, "swept") + count_of(f, "foreign"), 0u);
  EXPECT_EQ(bed.network.pool().outstanding(), 0u);
  int sums = 0;
  for (const auto& seen : bed.hosts[1]->seen) {
    if (ln_load_be16(seen.bytes.data() + 56) != SUM_PORT + 3) continue;
    ++sums;
    ASSERT_EQ(seen.bytes.size(), 162u);
    for (int i = 0; i < 64; ++i) ASSERT_EQ(seen.bytes[62 + i], 10) << i;  // 1 + 2 + 3 + 4
    ASSERT_EQ(seen.bytes[161], 4);
    ASSERT_EQ(seen.flow % 4, 0u);  // the first packet's label, through the kernel
    ASSERT_EQ(seen.message, seen.flow + 1000);
  }
  EXPECT_EQ(sums, kSums);
  int absorbed = 0, dropped = 0;
  for (const auto& p : testing::packets(in.finish(bed.network.now()))) {
    if (!p.options.contains(1)) continue;
    absorbed += p.options.at(1) == "absorbed by the switch program";
    dropped += p.options.at(1) == "dropped by the switch program: drop_sum_short";
  }
  EXPECT_EQ(absorbed, 3 * kSums);
  EXPECT_EQ(dropped, 30);
}

TEST_F(SwitchHostLiveTest, MirrorsCopiesAndAnswersComeBack) {
  StarBed bed("mirror", {{"snap", std::int64_t{120}}});
  Recorder recorder{RecorderConfig{}};
  bed.network.set_tap(&recorder, true);
  std::vector<PortCapture*> captures;
  for (std::uint16_t port = 0; port < kHosts; ++port) {
    const std::uint32_t half = bed.network.egress_half(bed.node, port);
    captures.push_back(&recorder.capture(
        half, half ^ 1,
        std::make_unique<PortCapture>(bed.node, port, *bed.network.egress(bed.node, port), MacAddress{}, "p", "")));
  }
  bed.loop->start();
  for (int i = 0; i < 50; ++i) bed.send(0, udp_frame("ff05::", 9, 200), 5);   // to all three
  for (int i = 0; i < 40; ++i) bed.send(2, udp_frame("fd00::1", 7, 300), 6);  // answered, cut
  for (int i = 0; i < 10; ++i) bed.send(2, udp_frame("ff05::7", 9, 50), 7);   // no such group
  std::vector<std::uint8_t> expired = udp_frame("ff05::", 9, 80);
  expired[21] = 1;
  for (int i = 0; i < 15; ++i) bed.send(1, expired, 9);  // to the namespace's network stack
  for (int i = 0; i < 5; ++i) bed.send(1, udp_frame("fd00::1", 9, 50, 1), 8, false);  // lengths only
  ASSERT_TRUE(bed.wait_for(0, 55));
  ASSERT_TRUE(bed.wait_for(1, 50));
  ASSERT_TRUE(bed.wait_for(2, 90));
  bed.loop->stop();
  const Fidelity f = bed.loop->fidelity();
  EXPECT_EQ(f.given, 120u);
  EXPECT_EQ(f.returned, 105u);  // a replicated packet comes back once, under its one uid
  EXPECT_EQ(f.passed, 15u);
  EXPECT_EQ(f.own_losses, 0u);
  EXPECT_EQ(f.unexplained, 0u);
  EXPECT_EQ(f.verdict, LiveVerdict::kept_up) << f.reason;
  EXPECT_EQ(count_of(f, "metadata_mismatch") + count_of(f, "no_metadata"), 0u);
  EXPECT_EQ(bed.count("replicated"), 60u);
  EXPECT_EQ(bed.count("copies"), 150u);
  EXPECT_EQ(bed.count("drop_no_group"), 10u);
  EXPECT_EQ(bed.count("replied"), 40u);
  EXPECT_EQ(bed.hosts[0]->packets, 55u);
  EXPECT_EQ(bed.hosts[1]->packets, 50u);
  EXPECT_EQ(bed.hosts[2]->packets, 90u);
  for (const auto& seen : bed.hosts[1]->seen) {
    ASSERT_EQ(seen.bytes.size(), 262u);
    EXPECT_EQ(seen.bytes[261], 0x11);
    EXPECT_EQ(seen.bytes[21], 63);
    EXPECT_EQ(seen.flow, 5u);
  }
  int answers = 0;
  for (const auto& seen : bed.hosts[2]->seen) {
    if (seen.flow != 6) continue;
    ++answers;
    EXPECT_EQ(seen.bytes.size(), 120u);
    EXPECT_EQ(seen.bytes[14 + 8 + 15], 1);  // from fd00::1
  }
  EXPECT_EQ(answers, 40);
  EXPECT_EQ(bed.network.pool().outstanding(), 0u);
  int copies = 0;
  for (PortCapture* capture : captures) {
    for (const auto& p : testing::packets(capture->finish(bed.network.now()))) {
      const auto direction = testing::number(p.options.at(2), 0, 4) & 3;
      copies += direction == 2 && static_cast<std::uint8_t>(p.bytes[38]) == 0xff && p.original == 262;
    }
  }
  EXPECT_EQ(copies, 150);
}

TEST_F(SwitchHostLiveTest, ARebootForgetsAndASnapshotShowsWhatIsHeld) {
  StarBed bed("sum");
  bed.loop->start();
  for (int i = 0; i < 2; ++i) bed.send(0, udp_frame("fd00::2", SUM_PORT + 4, 64, 1, 3), 77);
  bed.send(0, udp_frame("fd00::2", 9, 64));
  ASSERT_TRUE(bed.wait_for(1, 1));
  const auto row = [&] {
    const StateSnapshot snapshot = bed.fabric->snapshot(bed.node);
    sum_row out{};
    std::memcpy(&out, snapshot.bytes.data() + 4 * sizeof out, sizeof out);
    return out;
  };
  EXPECT_EQ(row().count, 2u);
  EXPECT_EQ(row().flow, 77u);
  EXPECT_EQ(row().bytes[63], 6);
  // The kernel's clock is the run's.
  const Picoseconds since{static_cast<std::int64_t>(row().since)};
  EXPECT_GT(since, Picoseconds{});
  EXPECT_LT(since, bed.loop->clock().now());
  bed.fabric->reset(bed.node);
  EXPECT_EQ(row().count, 0u);
  bed.send(0, udp_frame("fd00::2", SUM_PORT + 4, 64));  // no tables: dropped
  bed.fabric->set_tables(bed.node, *host_tables(kHosts, 1));
  for (int i = 0; i < 4; ++i) bed.send(0, udp_frame("fd00::2", SUM_PORT + 4, 64));
  ASSERT_TRUE(bed.wait_for(1, 2));
  bed.loop->stop();
  const Fidelity f = bed.loop->fidelity();
  EXPECT_EQ(f.given, 8u);
  EXPECT_EQ(f.absorbed + f.returned + f.switch_drops, f.given);
  EXPECT_EQ(f.unexplained, 0u);
}

TEST_F(SwitchHostLiveTest, AWrongProgramOrOptionIsRefusedBeforeAnythingStands) {
  const auto refusal = [](std::string program, ProgramOptions options) {
    try {
      StarBed bed(std::move(program), std::move(options));
    } catch (const std::invalid_argument& e) {
      return std::string(e.what());
    }
    return std::string("not refused");
  };
  EXPECT_EQ(refusal("sums", {}), "no switch program \"sums\"; there are aggregate, forward, mirror, sum and symphony");
  EXPECT_EQ(refusal("sum", {{"pool", std::int64_t{1}}}),
            "switch program \"sum\" has no option \"pool\"; it has check_addresses and "
            "allow_stale_length");
}

}  // namespace
}  // namespace loomnet
