// The two example programs, engine against XDP on identical packets by BPF_PROG_TEST_RUN: 60,000
// generated frames each, under several splits into header and payload. Same verdict, bytes, label,
// metadata, reports, counters and state. Also the egress hook, and what a switch does after a reboot.
#include <gtest/gtest.h>

#include <map>

#include "differential/packet_generator.hpp"
#include "differential/program_pair.hpp"
#include "switch_registry/compiled_program.hpp"
#include "switch_registry/echo_frames.hpp"

namespace loomnet::test {
namespace {

constexpr SwitchPort kPorts = 8;
constexpr int kLoopback = 1;

class ProgramDifferentialTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = missing_for_bpf(); !missing.empty()) GTEST_SKIP() << missing;
  }
  static void wire(ProgramPair& pair, SwitchPort in) {
    for (SwitchPort port = 0; port < kPorts; ++port) pair.xdp.set_port(port, kLoopback);
    pair.xdp.set_port(in, kLoopback);
  }

  // Frames of a kind of the program's own, of forward's kinds, and both with flipped bytes.
  template <typename Own>
  void run(ProgramPair& pair, std::uint64_t seed, Own own) {
    PacketGenerator generator(seed, 1500);
    RandomStream& random = generator.random();
    for (std::uint32_t generation = 1; generation <= 3; ++generation) {
      const auto in = static_cast<SwitchPort>(generation);
      auto batch = std::make_shared<TableBatch>(*busy_tables(generation, kPorts).pack());
      batch->groups = {{1, 2, 3}, {0}};
      pair.set_tables(batch);
      wire(pair, in);
      for (int i = 0; i < 18'000; ++i) {
        std::vector<std::uint8_t> bytes = random.below(4) ? own(random, generator.uid()) : generator.next();
        if (random.below(16) == 0 && bytes.size() > 12) {
          for (unsigned flips = 1 + random.below(3); flips-- > 0;) {
            std::uint8_t& byte =
                bytes[12 + random.below(static_cast<std::uint32_t>(std::min<std::size_t>(bytes.size() - 12, 130)))];
            byte = static_cast<std::uint8_t>(byte ^ 1u << random.below(8));
          }
        }
        if (random.below(16) == 0) {
          bytes.resize(14 + random.below(static_cast<std::uint32_t>(bytes.size())), 0);
        }
        if (bytes.size() < 14) continue;
        static constexpr std::size_t kSplits[] = {62, 62, 192, 54, 70, 100, 14};
        const auto difference = pair.difference(bytes, in, kSplits[random.below(7)]);
        ASSERT_FALSE(difference) << "frame " << i << " of generation " << generation << ": " << *difference;
        ++seen_[pair.words(pair.last).substr(0, pair.last.leaves() ? 8 : 99)];
        ++packets_;
      }
    }
    const auto difference = pair.counter_difference();
    EXPECT_FALSE(difference) << *difference;
    EXPECT_EQ(pair.xdp.snapshot().bytes, pair.native.snapshot().bytes);
    for (const auto& [what, n] : seen_) std::printf("  %-28s %d\n", what.c_str(), n);
    EXPECT_GE(packets_, 50'000);
  }
  std::map<std::string, int> seen_;
  int packets_ = 0;
};

std::vector<std::uint8_t> filled(RandomStream& random, std::vector<std::uint8_t> frame) {
  for (std::size_t i = 62; i < std::min<std::size_t>(frame.size(), 130); ++i) {
    frame[i] = static_cast<std::uint8_t>(random());
  }
  frame[21] = static_cast<std::uint8_t>(random.below(20) ? 64 : random.below(3));
  frame[37] = static_cast<std::uint8_t>(1 + random.below(50));
  return frame;
}

TEST_F(ProgramDifferentialTest, MirrorOnGeneratedPackets) {
  for (const ProgramOptions& options :
       {ProgramOptions{}, ProgramOptions{{"sample", std::int64_t{3}}, {"snap", std::int64_t{100}}}}) {
    SCOPED_TRACE(options.size());
    ProgramPair pair("mirror", kPorts, 0xfeed, options);
    run(pair, 20260401 + options.size(), [](RandomStream& random, std::uint64_t uid) {
      const std::size_t payload = random.below(200);
      return filled(random, random.below(2) ? udp_frame("fd00::3", 7, payload, uid)
                                            : udp_frame(random.below(2) ? "ff05::1" : "ff05::", 9, payload, uid));
    });
  }
  EXPECT_GE(packets_, 100'000);
  EXPECT_GE(seen_["action 4"], 10'000);  // reply
  EXPECT_GE(seen_["action 3"], 10'000);  // replicate
  EXPECT_GE(seen_["action 1"], 1'000);
  EXPECT_GE(seen_["drop drop_not_sampled"], 1'000);
  EXPECT_GE(seen_["action 5 value 0"], 100);  // pass
}

TEST_F(ProgramDifferentialTest, SumOnGeneratedPackets) {
  for (const std::uint64_t seed : {1u, 2u}) {
    ProgramPair pair("sum", kPorts, seed);
    run(pair, 20260402 + seed, [](RandomStream& random, std::uint64_t uid) {
      return filled(random, udp_frame("fd00::3", static_cast<std::uint16_t>(SUM_PORT + random.below(17)),
                                      random.below(16) ? 64 + random.below(200) : random.below(64), uid));
    });
    EXPECT_GE(pair.counter("summed"), 3'000u);
  }
  EXPECT_GE(packets_, 100'000);
  EXPECT_GE(seen_["action 6 value 0"], 20'000);  // absorb
  EXPECT_GE(seen_["drop drop_sum_short"], 1'000);
}

// One C file, compiled here for both: what a user's program gets.
TEST_F(ProgramDifferentialTest, OneCFileIsTheSameInBothBuilds) {
  {
    ProgramPair pair(compiled_programs().kind("sum", true), kPorts, 3);
    run(pair, 20260403, [](RandomStream& random, std::uint64_t uid) {
      return filled(random, udp_frame("fd00::3", static_cast<std::uint16_t>(SUM_PORT + random.below(17)),
                                      random.below(16) ? 64 + random.below(200) : random.below(64), uid));
    });
    EXPECT_GE(pair.counter("summed"), 3'000u);
  }
  ProgramPair pair(compiled_programs().kind("mirror", true), kPorts, 0xfeed,
                   {{"sample", std::int64_t{3}}, {"snap", std::int64_t{100}}});
  run(pair, 20260404, [](RandomStream& random, std::uint64_t uid) {
    const std::size_t payload = random.below(200);
    return filled(random, random.below(2) ? udp_frame("fd00::3", 7, payload, uid)
                                          : udp_frame(random.below(2) ? "ff05::1" : "ff05::", 9, payload, uid));
  });
  EXPECT_GE(seen_["action 4"], 5'000);
}

TEST_F(ProgramDifferentialTest, TheEgressHookIsTheSameInBothBuilds) {
  const ProgramOptions options = {{"mark_above", std::int64_t{5000}}};
  ProgramPair pair("mirror", kPorts, 1, options);
  constexpr std::uint32_t kHalf = 11;
  constexpr std::uint64_t kSeed = 77;
  const auto hook = pair.native.make_egress({kHalf, 2}, kSeed);
  RandomStream random(5, 0, 0);
  std::vector<std::uint8_t> frame = udp_frame("fd00::3", 9, 100);
  XdpProgram::EgressRun run;
  int marks = 0;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    ln_egress_meta meta{};
    meta.now = i, meta.seed = kSeed, meta.sequence = i, meta.half = kHalf, meta.port = 2;
    meta.queue = random.below(kQueueClasses), meta.marked = random.below(8) == 0;
    std::array<QueuedClass, kQueueClasses> queued{};
    for (std::size_t q = 0; q < kQueueClasses; ++q) {
      queued[q].bytes = meta.queued[q] = random.below(10'000);
    }
    std::vector<std::uint8_t> ours = frame, theirs = frame;
    const EgressVerdict verdict = hook->dequeue(ours, {{static_cast<std::int64_t>(i)},
                                                       static_cast<std::uint32_t>(ours.size()),
                                                       static_cast<QueueClass>(meta.queue),
                                                       meta.marked != 0,
                                                       queued});
    pair.xdp.test_egress(theirs, meta, run);
    ASSERT_EQ(run.verdict, verdict) << i;
    ASSERT_EQ(ours, theirs);
    marks += verdict == EgressVerdict::mark;
  }
  EXPECT_NEAR(marks, 2000 * 7 / 8 / 4, 120);
  ProgramPair none("sum", kPorts, 1);
  EXPECT_THROW(none.xdp.test_egress(frame, {}, run), std::invalid_argument);
}

TEST_F(ProgramDifferentialTest, ARebootForgetsStateAndTablesInBothBuilds) {
  ProgramPair pair("sum", kPorts, 1);
  pair.set_tables(host_tables(kPorts, 7));
  wire(pair, 0);
  const auto give = [&](std::uint64_t uid) {
    const auto difference = pair.difference(udp_frame("fd00::2", SUM_PORT + 1, 64, uid), 0, 62);
    EXPECT_FALSE(difference) << *difference;
  };
  give(1), give(2), give(3);
  EXPECT_EQ(pair.last.action, Verdict::Action::absorb);
  EXPECT_EQ(pair.xdp.snapshot().bytes, pair.native.snapshot().bytes);
  pair.native.reset();
  pair.xdp.reset();
  for (const std::uint8_t byte : pair.xdp.snapshot().bytes) ASSERT_EQ(byte, 0);
  XdpProgram::TestRun run;
  pair.xdp.test_run(udp_frame("fd00::2", SUM_PORT + 1, 64, 0), run);  // uid 0: no report
  EXPECT_EQ(pair.words(run.verdict), "drop drop_no_tables");
  pair.set_tables(host_tables(kPorts, 1));
  give(5);
  EXPECT_EQ(pair.last.action, Verdict::Action::absorb);  // not the fourth
}

TEST_F(ProgramDifferentialTest, TheKernelsClockIsEmulated) {
  KernelProgram kernel("sum", kPorts);
  XdpProgram& xdp = kernel.program;
  for (SwitchPort port = 0; port < kPorts; ++port) xdp.set_port(port, kLoopback);
  xdp.set_tables(*host_tables(kPorts));
  for (const double dilation : {1.0, 50.0}) {
    timespec t;
    ::clock_gettime(CLOCK_MONOTONIC, &t);
    const std::int64_t wall = t.tv_sec * 1'000'000'000ll + t.tv_nsec;
    const std::int64_t passed = 20'000'000'000;  // ns since the clock was set, more than 32 bits
    xdp.set_clock(wall - passed, milliseconds(3), dilation);
    XdpProgram::TestRun run;
    const auto row = static_cast<std::uint16_t>(dilation == 1 ? 1 : 2);
    xdp.test_run(udp_frame("fd00::2", static_cast<std::uint16_t>(SUM_PORT + row), 64, row), run);
    sum_row state{};
    const StateSnapshot snapshot = xdp.snapshot();
    std::memcpy(&state, snapshot.bytes.data() + row * sizeof state, sizeof state);
    const double expected = 3e9 + static_cast<double>(passed) * 1000 / dilation;
    EXPECT_GE(static_cast<double>(state.since), expected);
    EXPECT_LT(static_cast<double>(state.since), expected + 1e12 / dilation);  // a second at most
  }
}

}  // namespace
}  // namespace loomnet::test
