// The live loop over a real XDP switch: bytes, timing, conservation, threads and clean ends.
#include "live/live_loop.hpp"

#include <bpf/bpf.h>
#include <sys/wait.h>

#include <csignal>
#include <thread>

#include "live_bed.hpp"
#include "live_fixture.hpp"
#include "raw_socket.hpp"

namespace loomnet {
namespace {

using live_test::kHeader;
using live_test::kKnownUsid;
using live_test::kUnknownUsid;
using live_test::LineBed;

class LiveLoopTest : public live_test::LiveTest {};

std::vector<std::uint8_t> pattern(std::size_t size) {
  std::vector<std::uint8_t> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::uint8_t>(i * 31 + 7);
  return bytes;
}

const std::vector<std::uint8_t> kPayload = pattern(1000);  // outlives every packet

std::uint64_t count_of(const Fidelity& f, std::string_view name) {
  for (const NamedCount& c : f.counters) {
    if (c.name == name) return c.value;
  }
  ADD_FAILURE() << "no counter " << name;
  return 0;
}

TEST_F(LiveLoopTest, PacketsCrossTheKernelSwitchWithTheirBytesAndTheirIdealTime) {
  LineBed bed;
  const auto payload = pattern(2048);
  bed.loop->start();
  bed.send(20, kKnownUsid, payload);
  ASSERT_TRUE(bed.wait_for(20));
  bed.loop->stop();
  Picoseconds last{};
  for (const auto& seen : bed.at_b->seen) {
    ASSERT_EQ(seen.bytes.size(), kHeader + payload.size());
    EXPECT_TRUE(std::equal(payload.begin(), payload.end(), seen.bytes.begin() + kHeader));
    EXPECT_EQ(seen.bytes[14 + 7], 63);                                  // hop limit
    EXPECT_EQ(seen.bytes[14 + 28] << 8 | seen.bytes[14 + 29], 0x4001);  // shifted
    EXPECT_GE(seen.now, seen.ideal);                                    // never early
    if (last.count) {
      // The ideal time is the models' alone: exactly one serialisation apart, however late we were.
      EXPECT_EQ(seen.ideal - last, serialization_time(kHeader + 2048 + kFramingOverhead, gigabits(1)));
    }
    last = seen.ideal;
  }
  const Fidelity f = bed.loop->fidelity();
  EXPECT_EQ(f.verdict, LiveVerdict::kept_up) << f.reason;
  EXPECT_EQ(f.given, 20u);
  EXPECT_EQ(f.returned, 20u);
  EXPECT_EQ(f.stages[Stage::packet].count(), 20u);
  EXPECT_EQ(count_of(f, "no_metadata") + count_of(f, "metadata_mismatch"), 0u);
}

TEST_F(LiveLoopTest, LengthsAloneAreTimedTheSameAndHoldNoFrames) {
  LineBed bed;
  const std::size_t free = bed.fabric->socket(0).umem().free_frames();
  bed.loop->start();
  bed.loop->call([&] {
    for (int i = 0; i < 50; ++i) {
      PacketPtr p = live_test::usid_packet(bed.network.pool(), kKnownUsid, kPayload);
      p->payload = {nullptr, 1000, 0, PayloadKind::none};
      bed.network.egress(bed.a, 0)->offer(std::move(p), bed.network.now());
    }
  });
  ASSERT_TRUE(bed.wait_for(50));
  bed.loop->stop();
  for (const auto& seen : bed.at_b->seen) EXPECT_EQ(seen.bytes.size(), kHeader);
  EXPECT_EQ(bed.network.pool().outstanding(), 0u);
  EXPECT_EQ(bed.fabric->socket(0).umem().free_frames(), free);
}

TEST_F(LiveLoopTest, PaddingBehindThePayloadTravelsButIsNotPayload) {
  LineBed bed;
  bed.loop->start();
  bed.loop->call([&] {
    PacketPtr p = live_test::usid_packet(bed.network.pool(), kKnownUsid, kPayload);
    p->wire_length += 4;  // an invariant CRC that nobody computes
    bed.network.egress(bed.a, 0)->offer(std::move(p), bed.network.now());
  });
  ASSERT_TRUE(bed.wait_for(1));
  bed.loop->stop();
  EXPECT_EQ(bed.at_b->seen[0].bytes.size(), kHeader + kPayload.size());
  EXPECT_EQ(bed.loop->fidelity().returned, 1u);
}

TEST_F(LiveLoopTest, DropsOfTheSwitchExplainWhatDidNotReturn) {
  LineBed bed({.realtime = false, .uid_timeout_ns = 50'000'000, .lateness_bound = seconds(10)});
  const auto payload = pattern(100);
  bed.loop->start();
  bed.send(30, kUnknownUsid, payload);
  bed.send(7, kKnownUsid, payload, /*hop_limit=*/1);
  bed.send(5, kKnownUsid, payload);
  ASSERT_TRUE(bed.wait_for(5));
  bed.loop->stop();
  const Fidelity f = bed.loop->fidelity();
  EXPECT_EQ(f.given, 42u);
  EXPECT_EQ(f.returned, 5u);
  EXPECT_EQ(f.switch_drops, 37u);
  EXPECT_EQ(f.unexplained, 0u);
  EXPECT_EQ(f.own_losses, 0u);
  EXPECT_EQ(count_of(f, "reported"), 37u);  // one by one, so no record waits for the sweep
  EXPECT_EQ(count_of(f, "swept"), 0u);
  EXPECT_EQ(f.verdict, LiveVerdict::kept_up) << f.reason;
  EXPECT_EQ(bed.network.pool().outstanding(), 0u);
}

TEST_F(LiveLoopTest, LossOutsideTheModelsIsNeverSilent) {
  LineBed bed;
  bed.loop->start();
  Rtnetlink rt(bed.switch_netns);
  rt.set_up("lnlv-p1", false);  // behind the engine's back
  rt.commit();
  bed.send(25, kKnownUsid, kPayload);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  bed.loop->stop();
  const Fidelity f = bed.loop->fidelity();
  EXPECT_EQ(f.given, 25u);
  EXPECT_EQ(f.returned, 0u);
  EXPECT_EQ(f.unexplained + f.own_losses, 25u);
  EXPECT_EQ(f.verdict, LiveVerdict::lost_packets);
  EXPECT_EQ(f.own_losses > 0, f.reason.find(" to lnlv switch's lnlv-p0)") != std::string::npos) << f.reason;
}

TEST_F(LiveLoopTest, AnEngineThatIsLateSaysSo) {
  LineBed bed({.realtime = false, .lateness_bound = milliseconds(5)});
  bed.loop->start();
  bed.loop->call([&] {
    bed.network.egress(bed.a, 0)->offer(live_test::usid_packet(bed.network.pool(), kKnownUsid, kPayload),
                                        bed.network.now());
    std::this_thread::sleep_for(std::chrono::milliseconds(60));  // before the packet can depart
  });
  ASSERT_TRUE(bed.wait_for(1));
  bed.loop->stop();
  const Fidelity f = bed.loop->fidelity();
  EXPECT_EQ(f.verdict, LiveVerdict::fell_behind);
  EXPECT_GE(f.stages[Stage::packet].max(), milliseconds(50));
  EXPECT_GE(f.longest_pass, milliseconds(55));
}

TEST_F(LiveLoopTest, FramesOfAHostsKernelShareTheLinkAndReachTheOtherKernel) {
  LineBed bed;
  live_test::RawSocket left(bed.left, "lnlv-left"), right(bed.right, "lnlv-right");
  bed.loop->start();
  PacketPool pool;
  const auto payload = pattern(700);
  const PacketPtr p = live_test::usid_packet(pool, kKnownUsid, payload);
  std::vector<std::uint8_t> frame(p->header.begin(), p->header.begin() + kHeader);
  frame.insert(frame.end(), payload.begin(), payload.end());
  ASSERT_TRUE(left.send(frame));
  const auto got = right.receive();
  ASSERT_EQ(got.size(), frame.size());
  EXPECT_TRUE(std::equal(payload.begin(), payload.end(), got.begin() + kHeader));
  EXPECT_EQ(got[14 + 7], 63);
  bed.loop->stop();
  const Fidelity f = bed.loop->fidelity();
  EXPECT_EQ(f.given, 1u);
  EXPECT_EQ(f.returned, 1u);
  EXPECT_EQ(count_of(f, "host_frames"), 1u);
}

// A socket alone holds 128 frames.
TEST_F(LiveLoopTest, FramesThatComeWhileTheLoopStandsForAnotherThreadAreKept) {
  constexpr int kFrames = 600;
  LineBed bed;
  live_test::RawSocket left(bed.left, "lnlv-left");
  const std::size_t free = bed.fabric->socket(0).umem().free_frames();
  bed.loop->start();
  std::promise<void> stands, resumed;
  ASSERT_TRUE(bed.loop->post([&] { bed.loop->stand([&] { stands.set_value(); }, resumed.get_future()); }));
  stands.get_future().wait();
  std::vector<std::uint8_t> frame(100, 0x11);
  for (int i = 0; i < kFrames; ++i) {
    ASSERT_TRUE(left.send(frame));
    if (i % 60 == 59) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  resumed.set_value();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  bed.loop->stop();
  const Fidelity f = bed.loop->fidelity();
  EXPECT_EQ(count_of(f, "host_frames"), static_cast<std::uint64_t>(kFrames));
  EXPECT_EQ(f.own_losses, 0u);
  EXPECT_EQ(bed.network.pool().outstanding(), 0u);
  EXPECT_EQ(bed.fabric->socket(0).umem().free_frames(), free);
}

TEST_F(LiveLoopTest, ForeignFramesAreCountedAndDropped) {
  LineBed bed;
  live_test::RawSocket port(bed.switch_netns, "lnlv-p1");  // the switch's own stack talks
  bed.loop->start();
  std::vector<std::uint8_t> frame(100, 0x11);
  frame[6] = 0x02;  // even one that looks like a uid
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(port.send(frame));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  bed.loop->stop();
  const Fidelity f = bed.loop->fidelity();
  EXPECT_EQ(count_of(f, "foreign"), 10u);
  EXPECT_EQ(bed.at_b->packets, 0u);
  EXPECT_EQ(f.verdict, LiveVerdict::kept_up) << f.reason;
}

TEST_F(LiveLoopTest, OrdersComeFromManyThreadsAndWindowsAreSeparate) {
  LineBed bed;
  bed.loop->start();
  bed.send(10, kKnownUsid, kPayload);
  ASSERT_TRUE(bed.wait_for(10));
  EXPECT_EQ(bed.loop->take_window()[Stage::packet].count(), 10u);
  EXPECT_EQ(bed.loop->take_window()[Stage::packet].count(), 0u);
  std::vector<std::thread> threads;
  std::uint64_t sum = 0;  // touched on the loop's thread only
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) bed.loop->call([&] { ++sum; });
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(bed.loop->call([&] { return sum; }), 800u);
  EXPECT_THROW(bed.loop->call([]() -> int { throw LiveError("inside", EIO); }), LiveError);
  bed.loop->stop();
  EXPECT_THROW(bed.loop->call([] {}), std::logic_error);
  EXPECT_EQ(bed.loop->fidelity().stages[Stage::packet].count(), 10u);
}

// As where a fault begins with an iteration that Python finds while it holds the loop.
TEST_F(LiveLoopTest, WhatTheHolderOfTheLoopAsksIsDoneWhileItStands) {
  LineBed bed;
  bed.loop->start();
  std::promise<void> stands, go;
  ASSERT_TRUE(bed.loop->post([&] { bed.loop->stand([&] { stands.set_value(); }, go.get_future()); }));
  stands.get_future().wait();
  Holders& holders = bed.loop->holders();
  holders.add();
  holders.add();
  EXPECT_EQ(bed.loop->take_window()[Stage::packet].count(), 0u);
  EXPECT_FALSE(holders.remove()) << "the outer hold ended with the inner one";
  EXPECT_EQ(bed.loop->call([] { return std::this_thread::get_id(); }), std::this_thread::get_id());
  EXPECT_TRUE(holders.remove());
  go.set_value();
  EXPECT_NE(bed.loop->call([] { return std::this_thread::get_id(); }), std::this_thread::get_id());
  bed.loop->stop();
}

TEST_F(LiveLoopTest, ADilatedClockRunsSlower) {
  LineBed bed({.dilation = 50, .realtime = false, .lateness_bound = seconds(10)});
  const Picoseconds before = bed.network.now();
  bed.loop->start();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const Picoseconds passed = bed.loop->call([&] { return bed.loop->clock().now(); }) - before;
  bed.loop->stop();
  EXPECT_GE(passed, milliseconds(2));
  EXPECT_LT(passed, milliseconds(20));
}

TEST_F(LiveLoopTest, TwentyRunsLeakNothing) {
  auto once = [] {
    LineBed bed;
    bed.loop->start();
    bed.send(100, kKnownUsid, kPayload);
    ASSERT_TRUE(bed.wait_for(100));
    bed.loop->stop();
  };
  for (int i = 0; i < 3; ++i) once();  // allocators and libraries warm up
  const std::size_t descriptors = live_test::open_descriptors();
  [[maybe_unused]] const std::size_t memory = live_test::resident_kib();
  for (int i = 0; i < 20; ++i) once();
  EXPECT_EQ(live_test::open_descriptors(), descriptors);
#if !defined(LOOMNET_SANITIZES_ADDRESS) && !defined(LOOMNET_SANITIZES_THREAD)  // they keep freed memory
  EXPECT_LT(live_test::resident_kib(), memory + 2048) << "KiB";
#endif
}

bool program_exists(std::uint32_t id) {
  const int fd = bpf_prog_get_fd_by_id(id);
  if (fd >= 0) ::close(fd);
  return fd >= 0;
}

TEST_F(LiveLoopTest, AKilledRunLeavesNoInterfaceAndNoProgram) {
  const Netns left = Netns::create("lnlv left");  // a node's namespace, which outlives the run
  int pipe_fds[2];
  ASSERT_EQ(::pipe(pipe_fds), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    // Everything is held by this process alone.
    const LineBed bed;
    LiveFabric more({{.node = 0, .port = 0, .netns = &left, .interface = "lnlv-x0"}}, {{.node = 0, .netns = &left}},
                    {.frames_per_umem = 256});
    bed.loop->start();
    bpf_prog_info info{};
    __u32 size = sizeof info;
    if (bpf_obj_get_info_by_fd(more.xdp_switch(0).program().program(), &info, &size)) ::_exit(1);
    if (::write(pipe_fds[1], &info.id, sizeof info.id) != sizeof info.id) ::_exit(1);
    for (;;) ::pause();
  }
  ::close(pipe_fds[1]);
  std::uint32_t id = 0;
  ASSERT_EQ(::read(pipe_fds[0], &id, sizeof id), static_cast<ssize_t>(sizeof id));
  ::close(pipe_fds[0]);
  EXPECT_TRUE(program_exists(id));
  EXPECT_EQ(Rtnetlink(left).links().size(), 2u);
  ::kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  // The kernel cleans namespaces up in the background.
  for (int i = 0; i < 500 && (Rtnetlink(left).links().size() > 1 || program_exists(id)); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(Rtnetlink(left).links().size(), 1u) << "an interface stayed";
  EXPECT_FALSE(program_exists(id)) << "a BPF program stayed";
}

}  // namespace
}  // namespace loomnet
