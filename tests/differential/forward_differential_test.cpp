// Engine against XDP on identical packets by BPF_PROG_TEST_RUN: golden vectors, 120,000 generated
// frames under two option sets and changing tables. Same verdict, bytes, metadata and counters.
#include <bpf/bpf.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <map>
#include <thread>

#include "differential/packet_generator.hpp"
#include "differential/program_pair.hpp"

namespace loomnet::test {
namespace {

constexpr SwitchPort kPorts = 64;
constexpr int kLoopback = 1;           // BPF_PROG_TEST_RUN comes in by the namespace's lo
constexpr std::size_t kEthernet = 14;  // the shortest frame the kernel test-runs

class ForwardDifferentialTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = missing_for_bpf(); !missing.empty()) GTEST_SKIP() << missing;
  }
  // Redirects must find an interface: lo behind every port; port `in` last, so it is the ingress.
  static void wire(ForwardPair& pair, SwitchPort ports, SwitchPort in) {
    for (SwitchPort port = 0; port < ports; ++port) pair.xdp.set_port(port, kLoopback);
    pair.xdp.set_port(in, kLoopback);
  }
};

TEST_F(ForwardDifferentialTest, GoldenVectors) {
  for (const GoldenVector& v : kGoldenVectors) {
    SCOPED_TRACE("V" + std::to_string(v.number));
    const auto in = static_cast<SwitchPort>(v.in);
    ForwardPair pair(kVectorPorts, {});
    pair.set_tables(vector_tables());
    wire(pair, kVectorPorts, in);
    const auto difference = pair.difference(frame(vector_spec(v)), in);
    EXPECT_FALSE(difference) << *difference;
    if (v.out < 0) {
      EXPECT_EQ(words(pair.last), std::string("drop ") + v.reason);
    } else {
      EXPECT_EQ(pair.last, Verdict::forward(static_cast<SwitchPort>(v.out)));
      XdpProgram::TestRun run;
      pair.xdp.test_run(frame(vector_spec(v)), run);
      EXPECT_EQ(run.frame, vector_result(v));
    }
  }
}

TEST_F(ForwardDifferentialTest, GeneratedPackets) {
  std::map<std::string, int> seen;
  int packets = 0;
  for (const std::uint32_t options : {FORWARD_CHECK_ADDRESSES, FORWARD_ALLOW_STALE_LENGTH}) {
    constexpr std::uint64_t kSeed = 20260321;
    SCOPED_TRACE("seed " + std::to_string(kSeed) + ", options " + std::to_string(options));
    ForwardPair pair(kPorts, {kSeed * 77 + options, options});
    PacketGenerator generator(kSeed + options, 3500);
    for (std::uint32_t generation = 1; generation <= 6; ++generation) {
      const auto in = static_cast<SwitchPort>(generation * 9);
      pair.set_tables(busy_tables(generation, kPorts));
      wire(pair, kPorts, in);
      for (int i = 0; i < 10'500; ++i) {
        const std::vector<std::uint8_t> bytes = generator.next();
        if (bytes.size() < kEthernet) continue;
        const auto difference = pair.difference(bytes, in);
        ASSERT_FALSE(difference) << "packet " << generator.uid() << ": " << *difference;
        ++seen[words(pair.last).substr(0, pair.last.action == Verdict::Action::forward ? 8 : 99)];
        ++packets;
      }
    }
    const auto difference = pair.counter_difference();
    EXPECT_FALSE(difference) << *difference;
  }
  EXPECT_GE(packets, 100'000);
  RecordProperty("packets", packets);
  for (const auto& [what, n] : seen) std::printf("  %-28s %d\n", what.c_str(), n);
  // The generator must reach everything a frame can cause.
  for (std::size_t i = FORWARD_DROP_TOO_SHORT; i <= FORWARD_DROP_HOP_LIMIT; ++i) {
    EXPECT_GE(seen["drop " + std::string(forward_counter_name(i))], 50) << forward_counter_name(i);
  }
  EXPECT_GE(seen["action 1"], 30'000);
}

TEST_F(ForwardDifferentialTest, EcmpChoosesTheSamePortsUnderEverySeed) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    ForwardPair pair(kPorts, {seed * 0x9e3779b97f4a7c15ull, FORWARD_DEFAULT_OPTIONS});
    pair.set_tables(busy_tables(1, kPorts));
    wire(pair, kPorts, 0);
    PacketGenerator generator(seed);
    std::map<int, int> ports;
    for (int i = 0; i < 500; ++i) {
      FrameSpec spec = generator.plain();
      spec.destination[15] = 3;  // host 3: the group of 60
      spec.hop_limit = 64;
      const auto difference = pair.difference(frame(spec), 0);
      ASSERT_FALSE(difference) << *difference;
      ++ports[pair.last.value];
    }
    EXPECT_GE(ports.size(), 50u) << "seed " << seed;
  }
}

TEST_F(ForwardDifferentialTest, WhatOnlyXdpCanMeet) {
  const std::vector<std::uint8_t> good = frame(vector_spec(kGoldenVectors[0]));
  XdpProgram::TestRun run;
  ForwardPair pair(kVectorPorts, {});
  const auto reason = [&] { return words(run.verdict); };
  pair.xdp.test_run(good, run);
  EXPECT_EQ(reason(), "drop drop_unknown_ingress");
  wire(pair, 1, 0);
  pair.xdp.test_run(good, run);
  EXPECT_EQ(reason(), "drop drop_no_tables");
  EXPECT_FALSE(run.metadata);
  pair.set_tables(vector_tables());
  pair.xdp.test_run(good, run);  // V1 leaves by p1, behind which no interface stands
  EXPECT_EQ(run.code, static_cast<std::uint32_t>(XDP_DROP));
  std::vector<SwitchCounter> counters;
  pair.xdp.counters(counters);
  EXPECT_EQ(counters.at(FORWARD_DROP_UNKNOWN_INGRESS).value, 1u);
  EXPECT_EQ(counters.at(FORWARD_DROP_NO_TABLES).value, 1u);
  EXPECT_EQ(counters.at(FORWARD_DROP_NO_DEVICE).value, 1u);
  EXPECT_EQ(counters.at(FORWARD_RECEIVED).value, 3u);
  counters.clear();
  pair.xdp.counters(LN_MAX_XDP_PORTS, counters);
  EXPECT_EQ(counters.at(FORWARD_RECEIVED).value, 1u);
}

TEST_F(ForwardDifferentialTest, RefusedTablesLeaveTheOldOnes) {
  ForwardPair pair(kVectorPorts, {});
  wire(pair, kVectorPorts, 0);
  pair.set_tables(vector_tables(5));
  ForwardBatch bad = vector_tables(6);
  bad.fib[0].port = kVectorPorts;
  EXPECT_THROW(pair.xdp.set_tables(*bad.pack()), std::invalid_argument);
  EXPECT_THROW(pair.xdp.set_tables(*vector_tables(5).pack()), std::invalid_argument);
  EXPECT_EQ(pair.xdp.generation(), 5u);
  const auto difference = pair.difference(frame(vector_spec(kGoldenVectors[0])), 0);
  EXPECT_FALSE(difference) << *difference;
  EXPECT_EQ(pair.last, Verdict::forward(1));
}

TEST_F(ForwardDifferentialTest, TablesAreReplacedAtOnceUnderTraffic) {
  // Generation g renames the own uN and sends everything to port g % 4. A packet that met rows of
  // two generations would find no route, or leave by a port that its generation does not name.
  const auto batch = [](std::uint32_t generation) {
    ForwardBatch tables;
    tables.generation = generation;
    const unsigned own = generation % 2;
    tables.own_un = {{usid_block(3), static_cast<std::uint16_t>(0x2000 + own)}};
    tables.fib = {{{usid_block(3), static_cast<std::uint16_t>(0x2001 - own)}, static_cast<SwitchPort>(generation % 4)},
                  {{usid_block(3), 0x4002}, static_cast<SwitchPort>(generation % 4)}};
    return tables.pack();
  };
  KernelProgram kernel("forward", kVectorPorts);
  XdpProgram& xdp = kernel.program;
  for (SwitchPort port = 0; port < kVectorPorts; ++port) xdp.set_port(port, kLoopback);
  xdp.set_tables(*batch(1));
  std::atomic<bool> stop = false;
  std::map<std::uint32_t, int> generations;
  std::string wrong;
  std::thread traffic([&] {
    cpu_set_t cpu;
    CPU_ZERO(&cpu);
    CPU_SET(static_cast<std::size_t>(sched_getcpu()), &cpu);
    sched_setaffinity(0, sizeof cpu, &cpu);
    XdpProgram::TestRun run;
    FrameSpec spec;
    for (int i = 0; !stop && wrong.empty(); ++i) {
      spec.destination = address(i % 2 ? "fc00:3:2000:2000:2001:4002::" : "fc00:3:2001:2001:2000:4002::");
      xdp.test_run(frame(spec), run);
      if (run.code != XDP_REDIRECT || !run.metadata || run.metadata->value != run.metadata->generation % 4) {
        wrong = words(run.verdict) + " in generation " + std::to_string(run.generation);
      }
      ++generations[run.generation];
    }
  });
  for (std::uint32_t generation = 2; generation <= 60; ++generation) xdp.set_tables(*batch(generation));
  stop = true;
  traffic.join();
  EXPECT_EQ(wrong, "");
  EXPECT_GE(generations.size(), 20u);
}

TEST_F(ForwardDifferentialTest, MetadataOfTheSwitchBeforeIsReplaced) {
  ForwardPair pair(kVectorPorts, {});
  pair.set_tables(vector_tables());
  wire(pair, kVectorPorts, 2);
  const GoldenVector& v = kGoldenVectors[0];
  for (const std::size_t present : {4u, 16u, 24u}) {
    SCOPED_TRACE(present);
    std::vector<std::uint8_t> in(present, 0xcc), out(4096);
    const std::vector<std::uint8_t> bytes = frame(vector_spec(v));
    in.insert(in.end(), bytes.begin(), bytes.end());
    xdp_md context{};
    context.data = static_cast<std::uint32_t>(present);
    context.data_end = static_cast<std::uint32_t>(in.size());
    LIBBPF_OPTS(bpf_test_run_opts, options);
    options.data_in = in.data();
    options.data_size_in = static_cast<std::uint32_t>(in.size());
    options.data_out = out.data();
    options.data_size_out = static_cast<std::uint32_t>(out.size());
    options.ctx_in = &context;
    options.ctx_size_in = sizeof context;
    options.repeat = 1;
    ASSERT_EQ(bpf_prog_test_run_opts(pair.xdp.program(), &options), 0) << std::strerror(errno);
    EXPECT_EQ(options.retval, static_cast<std::uint32_t>(XDP_REDIRECT));
    ASSERT_EQ(options.data_size_out, bytes.size() + sizeof(ln_metadata));
    ln_metadata metadata;
    std::memcpy(&metadata, out.data(), sizeof metadata);
    EXPECT_EQ(metadata.magic, LN_METADATA_MAGIC);
    EXPECT_EQ(metadata.ingress, 2u);
    EXPECT_EQ(metadata.value, 1u);
    out.resize(options.data_size_out);
    EXPECT_EQ(std::vector<std::uint8_t>(out.begin() + sizeof metadata, out.end()), vector_result(v));
  }
}

}  // namespace
}  // namespace loomnet::test
