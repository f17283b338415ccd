// The panel's program in the kernel: its decisions against those of the same function here, generations
// published while packets are decided on, and frames through real veths.
#include <gtest/gtest.h>

#include <atomic>
#include <ctime>
#include <map>
#include <thread>

#include "differential/program_pair.hpp"
#include "differential/veth_bench.hpp"
#include "ebpf/panel.h"
#include "live/engine_endpoint.hpp"
#include "live/xdp_panel.hpp"
#include "panel/panel_device.hpp"

namespace loomnet::test {
namespace {

using namespace std::chrono_literals;

std::uint64_t monotonic_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

TEST(PanelDifferential, RandomEntriesAreDecidedAlike) {
  if (const std::string missing = missing_for_bpf(); !missing.empty()) GTEST_SKIP() << missing;
  constexpr std::size_t kPorts = 1000;
  XdpPanel xdp(kPorts);
  RandomStream random(1, 0, 0);
  std::map<panel_verdict, int> seen;
  for (int round = 0; round < 20; ++round) {
    std::vector<panel_entry> entries(kPorts);
    for (panel_entry& entry : entries) {
      entry.peer = random.below(5) ? random.below(kPorts) : PANEL_NO_PEER;
      entry.flags = random.below(3) ? 0 : static_cast<ln_u8>(random.below(8));
      entry.status = static_cast<ln_u8>(random.below(4));
      const std::uint64_t ahead = random.below(2) ? 3'600'000'000'000ull : 0;  // one hour: no race with the clock
      entry.dark_until = random.below(3) ? 0 : monotonic_ns() + ahead - (ahead ? 0 : 1);
      entry.drop = random.below(4) ? 0 : 0xffffffffu;
      entry.generation = random();
    }
    xdp.publish(entries);
    for (std::uint32_t port = 0; port < kPorts; ++port) {
      const panel_question answer = xdp.ask(port);
      const panel_verdict wanted = panel_decide(&entries[port], monotonic_ns(), 0);
      ASSERT_EQ(answer.verdict, static_cast<ln_u32>(wanted)) << "round " << round << " port " << port;
      ASSERT_EQ(answer.peer, entries[port].peer);
      ASSERT_EQ(answer.generation, entries[port].generation);
      ++seen[wanted];
    }
  }
  for (int verdict = 0; verdict < PANEL_VERDICTS; ++verdict) EXPECT_GT(seen[static_cast<panel_verdict>(verdict)], 100);
  EXPECT_THROW(xdp.ask(1024), std::invalid_argument);
  EXPECT_THROW(XdpPanel(1025), std::invalid_argument);
  EXPECT_THROW(xdp.publish(std::vector<panel_entry>(3)), std::invalid_argument);
}

TEST(PanelDifferential, NoPacketSeesAMixedMapOf576Ports) {
  if (const std::string missing = missing_for_bpf(); !missing.empty()) GTEST_SKIP() << missing;
  constexpr std::uint32_t kPorts = 576;
  // Generation g joins port p to 5 p + g: every port moves in each.
  const auto peer = [](std::uint32_t port, std::uint64_t generation) {
    return static_cast<std::uint32_t>((port * 5 + generation) % kPorts);
  };
  panel::PanelDevice device(kPorts, {.profile = panel::profile("ideal")});
  XdpPanel xdp(kPorts);
  const auto next = [&] {
    std::vector<panel::CrossConnect> all(kPorts);
    for (std::uint32_t p = 0; p < kPorts; ++p) {
      all[p] = {static_cast<panel::Port>(p), static_cast<panel::Port>(peer(p, device.generation() + 1))};
    }
    device.connect(all, panel::Mode::update, {});
    std::vector<panel_entry> entries;
    for (std::uint32_t p = 0; p < kPorts; ++p) entries.push_back(device.entry(static_cast<panel::Port>(p), {}));
    xdp.publish(entries);
  };
  next();
  RandomStream random(2, 0, 0);
  std::atomic<bool> stop{false};
  std::thread publisher([&] {
    while (!stop) next();
  });
  const auto ends = std::chrono::steady_clock::now() + 2s;
  std::uint64_t asked = 0, first = ~0ull, last = 0, wrong = 0, went_back = 0;
  while (std::chrono::steady_clock::now() < ends) {
    for (std::uint32_t i = 0; i < kPorts; ++i) {
      // Ports far apart one after the other: a table that is written while it is in use has new entries at
      // its front and old ones at its end.
      const std::uint32_t port = random.below(kPorts);
      const panel_question answer = xdp.ask(port);
      wrong += answer.peer != peer(port, answer.generation) || answer.verdict != PANEL_FORWARD;
      went_back += answer.generation < last;
      first = std::min<std::uint64_t>(first, answer.generation);
      last = answer.generation;
      ++asked;
    }
  }
  stop = true;
  publisher.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(went_back, 0u);
  EXPECT_GT(last, first + 5) << "generations must have come meanwhile";
  std::printf("  %llu packets over %llu generations\n", static_cast<unsigned long long>(asked),
              static_cast<unsigned long long>(last - first + 1));
}

TEST(PanelDifferential, FramesOfAnyKindComeOutWholeWhereTheyAreJoinedTo) {
  if (const std::string missing = missing_for_bpf(); !missing.empty()) GTEST_SKIP() << missing;
  constexpr std::size_t kPorts = 4;
  VethBench bench(kPorts, /*ipv6=*/false);
  EngineEndpoint pass;  // a veth takes redirected frames only if its peer runs a program too
  bench.peers_ns.run([&] {
    for (std::size_t i = 0; i < kPorts; ++i) pass.add_pass("e" + std::to_string(i));
  });
  panel::PanelDevice device(kPorts, {.profile = panel::profile("sim25")});
  XdpPanel xdp(kPorts);
  xdp.attach(bench.switch_ns, bench.port_names);
  const auto now = [] { return Picoseconds{static_cast<std::int64_t>(monotonic_ns()) * 1000}; };
  const auto publish = [&] {
    std::vector<panel_entry> entries;
    for (std::size_t p = 0; p < kPorts; ++p) entries.push_back(device.entry(static_cast<panel::Port>(p), now()));
    xdp.publish(entries);
  };
  // A loop at port 2; half a circuit from 3 to 1 would have no way back.
  device.connect(std::vector<panel::CrossConnect>{{0, 1}, {1, 0}, {2, 2}}, panel::Mode::update, now());
  publish();

  RandomStream random(5, 0, 0);
  const auto frame_of = [&](std::size_t size) {
    std::vector<std::uint8_t> frame(size);
    for (std::uint8_t& byte : frame) byte = static_cast<std::uint8_t>(random());
    frame[0] |= 2, frame[0] &= 0xfe;
    return frame;
  };
  bench.peers[0].send(frame_of(100));
  bench.collect(5ms, [](std::size_t, const std::vector<std::uint8_t>&) -> bool {
    ADD_FAILURE() << "light came before its time";
    return true;
  });
  std::this_thread::sleep_for(40ms);  // light returns without any call

  std::uint64_t bytes = 0;
  int sent = 0;
  for (const std::size_t size : {60, 64, 65, 128, 576, 1500, 3000, 3414}) {
    for (int kind = 0; kind < 20; ++kind) {
      for (const std::size_t port : {0u, 1u, 2u}) {
        const std::vector<std::uint8_t> frame = frame_of(size);
        bench.peers[port].send(frame);
        bool came = false;
        bench.collect(1s, [&](std::size_t at, const std::vector<std::uint8_t>& found) {
          EXPECT_EQ(at, port == 2 ? 2u : 1 - port);
          EXPECT_EQ(found, frame);
          return came = true;
        });
        ASSERT_TRUE(came) << size << " bytes from port " << port;
        bytes += port == 0 ? size : 0;
        ++sent;
      }
    }
  }
  EXPECT_EQ(xdp.counters(0).packets[PANEL_DROP_DARK], 1u);
  EXPECT_EQ(xdp.counters(0).packets[PANEL_FORWARD], static_cast<std::uint64_t>(sent / 3));
  EXPECT_EQ(xdp.counters(0).bytes, bytes);
  bench.peers[3].send(frame_of(60));
  device.set_override({0, true}, panel::Override::force_blocked, now());
  publish();
  bench.peers[1].send(frame_of(60));
  bench.collect(50ms, [](std::size_t, const std::vector<std::uint8_t>&) -> bool {
    ADD_FAILURE() << "nothing is joined there";
    return true;
  });
  EXPECT_EQ(xdp.counters(3).packets[PANEL_DROP_UNMAPPED], 1u);
  EXPECT_EQ(xdp.counters(1).packets[PANEL_DROP_BLOCKED], 1u);
}

}  // namespace
}  // namespace loomnet::test
