// Engine against XDP through real veths: 12,000 generated frames into an XDP switch in its
// namespace; what comes out, where and with which bytes, must be what the engine's program says.
#include <gtest/gtest.h>

#include <map>

#include "differential/packet_generator.hpp"
#include "differential/program_pair.hpp"
#include "differential/veth_bench.hpp"
#include "live/engine_endpoint.hpp"
#include "live/xdp_switch.hpp"

namespace loomnet::test {
namespace {

using namespace std::chrono_literals;

constexpr SwitchPort kPorts = 8;

TEST(ForwardNamespaceTest, FramesLeaveWhereAndAsTheEngineSays) {
  if (const std::string missing = missing_for_bpf(); !missing.empty()) GTEST_SKIP() << missing;
  const ForwardSettings settings{20260322, FORWARD_DEFAULT_OPTIONS};
  VethBench bench(kPorts, /*ipv6=*/false);
  XdpReports reports;
  XdpSwitch xdp(bench.switch_ns, bench.port_names, program_kind("forward"), settings.hash_seed, {}, reports);
  // A veth takes redirected frames only if its peer runs a program too.
  EngineEndpoint pass;
  bench.peers_ns.run([&] {
    for (SwitchPort i = 0; i < kPorts; ++i) pass.add_pass("e" + std::to_string(i));
  });
  ForwardProgram native(kPorts, settings);

  struct Expected {
    SwitchPort port;
    std::vector<std::uint8_t> bytes;
  };
  PacketGenerator generator(20260322);
  int packets = 0, forwarded = 0;
  for (std::uint32_t generation = 1; generation <= 3; ++generation) {
    const auto tables = busy_tables(generation, kPorts).pack();
    native.set_tables(tables);
    xdp.program().set_tables(*tables);
    for (int round = 0; round < 20; ++round) {
      std::map<std::uint64_t, Expected> expected;
      for (int i = 0; i < 200; ++i) {
        std::vector<std::uint8_t> bytes = generator.next();
        if (bytes.size() < 14) bytes.resize(14);  // AF_PACKET sends whole Ethernet headers only
        ln_uid_to_mac(generator.uid(), bytes.data() + 6);
        const auto in = static_cast<SwitchPort>(generator.random().below(kPorts));
        std::vector<std::uint8_t> edited = bytes;
        const Verdict verdict = native.ingress(std::span(edited).first(std::min(edited.size(), kMaxHeaderBytes)),
                                               static_cast<std::uint32_t>(edited.size()), {{}, in});
        if (verdict.action == Verdict::Action::forward) {
          expected[generator.uid()] = {verdict.value, edited};
          ++forwarded;
        }
        bench.peers[in].send(bytes);
        ++packets;
      }
      const auto check = [&](std::size_t port, const std::vector<std::uint8_t>& bytes) {
        const std::uint64_t uid = bytes.size() < 12 ? 0 : ln_uid_from_mac(bytes.data() + 6);
        const auto at = expected.find(uid);
        if (at == expected.end()) {
          ADD_FAILURE() << "port " << port << " sent what the engine dropped or sent already: " << hex(bytes);
          return false;
        }
        EXPECT_EQ(port, at->second.port) << "uid " << uid;
        EXPECT_EQ(bytes, at->second.bytes) << "uid " << uid;
        expected.erase(at);
        return expected.empty();
      };
      bench.collect(2s, check);
      ASSERT_TRUE(expected.empty()) << expected.size() << " frames never left, first "
                                    << hex(expected.begin()->second.bytes);
      ASSERT_FALSE(::testing::Test::HasFailure());
    }
  }
  // Whatever else may still come out was wrong.
  bench.collect(100ms, [](std::size_t port, const std::vector<std::uint8_t>& bytes) {
    ADD_FAILURE() << "port " << port << " sent one frame too many: " << hex(bytes);
    return false;
  });
  EXPECT_GE(packets, 10'000);
  EXPECT_GE(forwarded, 3'000);
  // Conservation: by port and by name the kernel counted what the engine counted.
  for (SwitchPort port = 0; port < kPorts; ++port) {
    std::vector<SwitchCounter> ours, theirs;
    native.counters(port, ours);
    xdp.program().counters(port, theirs);
    for (std::size_t i = 0; i < ours.size(); ++i) {
      EXPECT_EQ(theirs[i].value, ours[i].value) << "port " << port << " " << ours[i].name;
    }
  }
  RecordProperty("packets", packets);
  std::printf("  %d frames in, %d out\n", packets, forwarded);
}

}  // namespace
}  // namespace loomnet::test
