// The panel's programs in the kernel, of XDP and of tc: their decisions against those of the same function here, generations
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
#include "live/kernel_panel.hpp"
#include "panel/panel_device.hpp"
#include "panel/panel_model.hpp"

namespace loomnet::test {
namespace {

using namespace std::chrono_literals;

std::uint64_t monotonic_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

class PanelDifferential : public ::testing::TestWithParam<PanelHook> {};
INSTANTIATE_TEST_SUITE_P(Hooks, PanelDifferential, ::testing::Values(PanelHook::xdp, PanelHook::tc),
                         [](const auto& hook) { return hook.param == PanelHook::tc ? "tc" : "xdp"; });

TEST_P(PanelDifferential, RandomEntriesAreDecidedAlike) {
  if (const std::string missing = missing_for_bpf(); !missing.empty()) GTEST_SKIP() << missing;
  constexpr std::size_t kPorts = 1000;
  KernelPanel kernel(kPorts);
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
    kernel.publish(entries);
    for (std::uint32_t port = 0; port < kPorts; ++port) {
      const panel_question answer = kernel.ask(port, GetParam());
      const panel_verdict wanted = panel_decide(&entries[port], monotonic_ns(), 0);
      ASSERT_EQ(answer.verdict, static_cast<ln_u32>(wanted)) << "round " << round << " port " << port;
      ASSERT_EQ(answer.peer, entries[port].peer);
      ASSERT_EQ(answer.generation, entries[port].generation);
      ++seen[wanted];
    }
  }
  for (int verdict = 0; verdict < PANEL_VERDICTS; ++verdict) EXPECT_GT(seen[static_cast<panel_verdict>(verdict)], 100);
  EXPECT_THROW(kernel.ask(1024, GetParam()), std::invalid_argument);
  EXPECT_THROW(KernelPanel(1025), std::invalid_argument);
  EXPECT_THROW(kernel.publish(std::vector<panel_entry>(3)), std::invalid_argument);
}

TEST_P(PanelDifferential, NoPacketSeesAMixedMapOf576Ports) {
  if (const std::string missing = missing_for_bpf(); !missing.empty()) GTEST_SKIP() << missing;
  constexpr std::uint32_t kPorts = 576;
  // Generation g joins port p to 5 p + g: every port moves in each.
  const auto peer = [](std::uint32_t port, std::uint64_t generation) {
    return static_cast<std::uint32_t>((port * 5 + generation) % kPorts);
  };
  panel::PanelDevice device(kPorts, {.profile = panel::profile("ideal")});
  KernelPanel kernel(kPorts);
  const auto next = [&] {
    std::vector<panel::CrossConnect> all(kPorts);
    for (std::uint32_t p = 0; p < kPorts; ++p) {
      all[p] = {static_cast<panel::Port>(p), static_cast<panel::Port>(peer(p, device.generation() + 1))};
    }
    device.connect(all, panel::Mode::update, {});
    std::vector<panel_entry> entries;
    for (std::uint32_t p = 0; p < kPorts; ++p) entries.push_back(device.entry(static_cast<panel::Port>(p), {}));
    kernel.publish(entries);
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
      const panel_question answer = kernel.ask(port, GetParam());
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

TEST_P(PanelDifferential, FramesOfAnyKindComeOutWholeWhereTheyAreJoinedTo) {
  if (const std::string missing = missing_for_bpf(); !missing.empty()) GTEST_SKIP() << missing;
  constexpr std::size_t kPorts = 4;
  VethBench bench(kPorts, /*ipv6=*/false);
  EngineEndpoint pass;  // a veth takes frames that XDP redirects only if its peer runs a program too
  bench.peers_ns.run([&] {
    for (std::size_t i = 0; i < kPorts && GetParam() == PanelHook::xdp; ++i) pass.add_pass("e" + std::to_string(i));
  });
  // Dark for longer than a busy machine takes to send the first frame.
  const panel::Profile slow{"slow", {panel::Duration::Kind::fixed, 500}, {}};
  panel::PanelDevice device(kPorts, {.profile = slow});
  KernelPanel kernel(kPorts);
  kernel.attach(bench.switch_ns, bench.port_names, GetParam());
  const auto now = [] { return Picoseconds{static_cast<std::int64_t>(monotonic_ns()) * 1000}; };
  const auto publish = [&] {
    std::vector<panel_entry> entries;
    for (std::size_t p = 0; p < kPorts; ++p) entries.push_back(device.entry(static_cast<panel::Port>(p), now()));
    kernel.publish(entries);
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
  std::this_thread::sleep_for(550ms);  // light returns without any call

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
  EXPECT_EQ(kernel.counters(0).packets[PANEL_DROP_DARK], 1u);
  EXPECT_EQ(kernel.counters(0).packets[PANEL_FORWARD], static_cast<std::uint64_t>(sent / 3));
  EXPECT_EQ(kernel.counters(0).bytes, bytes);
  bench.peers[3].send(frame_of(60));
  device.set_override({0, true}, panel::Override::force_blocked, now());
  publish();
  bench.peers[1].send(frame_of(60));
  bench.collect(50ms, [](std::size_t, const std::vector<std::uint8_t>&) -> bool {
    ADD_FAILURE() << "nothing is joined there";
    return true;
  });
  EXPECT_EQ(kernel.counters(3).packets[PANEL_DROP_UNMAPPED], 1u);
  EXPECT_EQ(kernel.counters(1).packets[PANEL_DROP_BLOCKED], 1u);
}

// Many panels lie side by side in one table, since each publication waits for the kernel's grace period. Time
// is emulated: the question names it.
TEST_P(PanelDifferential, AThousandRandomSequencesDoWhatTheModelDoes) {
  if (const std::string missing = missing_for_bpf(); !missing.empty()) GTEST_SKIP() << missing;
  constexpr std::size_t kPorts = 6, kPanels = 170, kSequences = 1020, kSteps = 60;
  RandomStream light(7, 0, 0);
  std::map<panel_verdict, std::uint64_t> seen;
  for (std::size_t first = 0; first < kSequences; first += kPanels) {
    KernelPanel kernel(kPorts * kPanels);
    std::vector<panel::PanelDevice> devices;
    std::vector<panel::Model> models(kPanels);
    std::vector<RandomStream> randoms;
    for (std::size_t i = 0; i < kPanels; ++i) {
      devices.emplace_back(kPorts, panel::DeviceOptions{.profile = panel::profile("sim25"), .seed = first + i});
      randoms.emplace_back(first + i, 0, 0);
    }
    Picoseconds now = milliseconds(1);  // a question of time 0 asks the kernel's clock
    for (std::size_t step = 0; step < kSteps; ++step) {
      now += milliseconds(static_cast<std::int64_t>(light.below(20)));
      std::vector<panel_entry> entries;
      for (std::size_t i = 0; i < kPanels; ++i) {
        ASSERT_TRUE(panel::random_step(randoms[i], devices[i], models[i], kPorts, now))
            << "sequence " << first + i << " step " << step;
        for (std::size_t port = 0; port < kPorts; ++port) {
          panel_entry entry = devices[i].entry(static_cast<panel::Port>(port), now);
          if (entry.peer != PANEL_NO_PEER) entry.peer += static_cast<ln_u32>(i * kPorts);
          entries.push_back(entry);
        }
      }
      kernel.publish(entries);
      for (const Picoseconds later : {now, now + milliseconds(7)}) {
        for (std::uint32_t at = 0; at < entries.size(); ++at) {
          panel_question question{};
          question.port = at;
          question.now = static_cast<std::uint64_t>(later.count / 1000);
          question.chance = ~0u;
          const panel_question answer = kernel.ask(question, GetParam());
          const auto port = static_cast<panel::Port>(at % kPorts);
          const panel_verdict wanted = models[at / kPorts].verdict(port, later);
          ASSERT_EQ(answer.verdict, static_cast<ln_u32>(wanted))
              << "sequence " << first + at / kPorts << " step " << step << " port " << port;
          if (wanted == PANEL_FORWARD) {
            ASSERT_EQ(answer.peer, models[at / kPorts].to[port] + at / kPorts * kPorts);
          }
          ++seen[wanted];
        }
      }
    }
  }
  for (const panel_verdict verdict : {PANEL_FORWARD, PANEL_DROP_UNMAPPED, PANEL_DROP_BLOCKED, PANEL_DROP_DARK}) {
    EXPECT_GT(seen[verdict], 1000u);
  }
}

}  // namespace
}  // namespace loomnet::test
