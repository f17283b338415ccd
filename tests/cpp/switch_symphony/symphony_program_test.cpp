// The engine's build of the symphony program, packet by packet: the golden vectors, the header behind
// tunnels and extension headers, options, gate, budget, counters, and what hostile packets get.
#include <gtest/gtest.h>

#include "clock/random.hpp"
#include "switch/program_kind.hpp"
#include "switch/symphony/symphony_batch.hpp"
#include "switch/symphony/symphony_program.hpp"
#include "switch_symphony/step_frames.hpp"

namespace loomnet::test {
namespace {

constexpr std::int64_t kEpoch = 131'072;  // ns, of shift 17

std::unique_ptr<SwitchProgram> symphony(const ProgramOptions& options = {}) {
  const ProgramKind kind = symphony_kind();
  return kind.make(checked_settings(kind, 4, 7, options));
}
step_header step(std::uint16_t rank, double steps, std::uint8_t flags = 0, std::uint16_t job = 7,
                 std::uint16_t nranks = 8) {
  return {flags, 5, job, 0, rank, nranks, static_cast<std::uint32_t>(static_cast<std::int64_t>(steps * 65536))};
}

// Rank 0 is at step 10, rank 1 two steps ahead, and the row's warm-up is over at `kWarm`.
constexpr std::int64_t kWarm = 3 * kEpoch;
void warm(HookBench& bench, std::uint16_t job = 7) {
  EXPECT_FALSE(bench.marks(step(0, 10, 0, job), {0}));
  EXPECT_FALSE(bench.marks(step(1, 12, 0, job), {1000}));
  EXPECT_FALSE(bench.marks(step(0, 10.1, 0, job), {kWarm}));
}

TEST(SymphonyProgramTest, StepVectors) {
  const auto program = symphony(), off = symphony({{"enable", false}});
  HookBench bench(*program), still(*off);
  for (const StepVector& v : step_vectors()) {
    SCOPED_TRACE(v.number);
    EXPECT_EQ((v.enabled ? bench : still).marks(step_of(v), {v.ns, v.waiting, v.ce}), v.extra);
    const symphony_row row = row_of(program->egress_snapshot(), 7, v.ring);
    EXPECT_EQ(row.low, v.low);
    EXPECT_EQ(row.owner, v.owner);
    EXPECT_EQ(row.egress, 1);
  }
  EXPECT_EQ(bench.counter("tagged"), 20u);
  EXPECT_EQ(bench.counter("extra_marks"), 3u);
  EXPECT_EQ(bench.counter("base_marks"), 1u);
  EXPECT_EQ(bench.counter("bypass"), 1u);
  EXPECT_EQ(bench.counter("init"), 5u);
  EXPECT_EQ(bench.counter("implausible"), 1u);
  EXPECT_EQ(bench.counter("stale_takes"), 1u);
  EXPECT_EQ(bench.counter("largest_gap"), 0x2C0C0u);  // packet 8: 2.75 steps
  const symphony_tally job = tally_of(program->egress_snapshot(), 7);
  EXPECT_EQ(job.counters[SYMPHONY_TAGGED], 20u);
  EXPECT_EQ(job.counters[SYMPHONY_EXTRA], 3u);
  EXPECT_EQ(job.counters[SYMPHONY_BYPASS], 1u);
  EXPECT_EQ(job.egress, 1);
  EXPECT_EQ(still.counter("tagged") + still.counter("bypass"), 0u);
}

TEST(SymphonyProgramTest, TheHeaderHasThePublishedBytes) {
  const std::uint8_t expected[] = {0x53, 0x59, 0x12, 5, 0, 7, 0, 0, 0, 0, 0, 8, 0xff, 0xfe, 0xff, 0xc0};
  const auto bytes = step_bytes({STEP_FLAG_LAST, 5, 7, 0, 0, 8, 0xFFFEFFC0});
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), expected));
}

TEST(SymphonyProgramTest, AMarkNamesItsWitness) {
  const auto program = symphony();
  HookBench bench(*program);
  warm(bench);
  ASSERT_TRUE(bench.marks(step(1, 12.5), {kWarm + 1000, 6}));
  EXPECT_EQ(bench.hook->note().by, "symphony");
  EXPECT_EQ(bench.hook->note().names[SYMPHONY_NOTE_owner], "owner");
  EXPECT_EQ(bench.noted(SYMPHONY_NOTE_job), 7u);
  EXPECT_EQ(bench.noted(SYMPHONY_NOTE_rank), 1u);
  EXPECT_EQ(bench.noted(SYMPHONY_NOTE_owner), 0u);
  EXPECT_EQ(bench.noted(SYMPHONY_NOTE_low), static_cast<std::uint32_t>(10.1 * 65536));
  EXPECT_EQ(bench.noted(SYMPHONY_NOTE_gap), bench.noted(SYMPHONY_NOTE_prog) - bench.noted(SYMPHONY_NOTE_low));
  EXPECT_EQ(bench.noted(SYMPHONY_NOTE_waiting), 6u);
}

// --- where the header is found --------------------------------------------------------------------

using Bytes = std::vector<std::uint8_t>;
Bytes joined(std::initializer_list<Bytes> parts) {
  Bytes out;
  for (const Bytes& part : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}
Bytes ipv6(std::uint8_t next, std::size_t behind, std::uint8_t ecn = 2) {
  Bytes out(40);
  out[0] = 0x60, out[1] = static_cast<std::uint8_t>(ecn << 4), out[6] = next, out[7] = 64;
  ln_store_be16(&out[4], static_cast<std::uint16_t>(behind));
  return out;
}
Bytes ipv4(std::uint8_t next, std::uint16_t fragment = 0, unsigned words = 6, std::uint8_t ecn = 2) {
  Bytes out(words * 4);
  out[0] = static_cast<std::uint8_t>(0x40 | words), out[1] = ecn, out[9] = next;
  ln_store_be16(&out[6], fragment);
  return out;
}
Bytes extension(std::uint8_t next, std::uint8_t more) {
  Bytes out(8u * (more + 1u));
  out[0] = next, out[1] = more;
  return out;
}
Bytes fragment(std::uint8_t next, std::uint16_t offset) {
  Bytes out(8);
  out[0] = next;
  ln_store_be16(&out[2], static_cast<std::uint16_t>(offset << 3 | 1));
  return out;
}
Bytes framed(std::initializer_list<Bytes> parts, std::uint16_t type = 0x86dd) {
  Bytes out(14);
  ln_store_be16(&out[12], type);
  const Bytes rest = joined(parts);
  out.insert(out.end(), rest.begin(), rest.end());
  return out;
}
Bytes vlan(std::uint16_t type) {
  Bytes out(4);
  ln_store_be16(&out[2], type);
  return out;
}

TEST(SymphonyProgramTest, TheHeaderIsFoundBehindTunnelsTagsAndExtensionHeaders) {
  const Bytes udp = step_udp(step(1, 12));
  struct Case {
    const char* what;
    Bytes frame;
    bool found;
  };
  Bytes cut = framed({ipv6(17, 60), udp});
  cut.resize(14 + 40 + 8 + 15);
  Bytes magic = framed({ipv6(17, 60), udp}), version = magic, port = magic, shortened = magic;
  magic[14 + 48] ^= 1, version[14 + 50] ^= 0x30, port[14 + 43] ^= 1, shortened[14 + 45] = 20;
  const Case cases[] = {
      {"plain", framed({ipv6(17, 60), udp}), true},
      {"uSID", framed({ipv6(41, 100), ipv6(17, 60), udp}), true},
      {"uSID with a segment routing header", framed({ipv6(43, 140), extension(41, 4), ipv6(17, 60), udp}), true},
      {"VLAN tag", framed({vlan(0x86dd), ipv6(17, 60), udp}, 0x8100), true},
      {"two VLAN tags", framed({vlan(0x8100), vlan(0x86dd), ipv6(17, 60), udp}, 0x88a8), true},
      {"three VLAN tags", framed({vlan(0x8100), vlan(0x8100), vlan(0x86dd), ipv6(17, 60), udp}, 0x88a8), false},
      {"options", framed({ipv6(0, 90), extension(60, 0), extension(43, 1), extension(17, 0), udp}), true},
      {"first fragment", framed({ipv6(44, 68), fragment(17, 0), udp}), true},
      {"later fragment", framed({ipv6(44, 68), fragment(17, 9), udp}), false},
      {"IPv4", framed({ipv4(17), udp}, 0x0800), true},
      {"IPv4 in IPv6", framed({ipv6(4, 90), ipv4(17, 0x2000), udp}), true},
      {"IPv6 in IPv4", framed({ipv4(41), ipv6(17, 60), udp}, 0x0800), true},
      {"later IPv4 fragment", framed({ipv4(17, 1), udp}, 0x0800), false},
      {"two tunnels", framed({ipv6(41, 140), ipv6(41, 100), ipv6(17, 60), udp}), false},
      {"too many headers",
       framed({ipv6(0, 130), extension(60, 0), extension(60, 0), extension(60, 0), extension(60, 0), extension(60, 0),
               extension(60, 0), extension(60, 0), extension(17, 0), udp}),
       false},
      {"cut in the header", cut, false},
      {"another magic", magic, false},
      {"another version", version, false},
      {"another port", port, false},
      {"UDP shorter than the header", shortened, false},
      {"TCP", framed({ipv6(6, 60), udp}), false},
      {"EtherType", framed({ipv6(17, 60), udp}, 0x0806), false},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.what);
    const auto program = symphony();
    HookBench bench(*program);
    EXPECT_FALSE(bench.marks(each.frame, {0}));
    EXPECT_EQ(bench.counter("tagged"), each.found ? 1u : 0u);
    EXPECT_EQ(bench.counter("bypass"), each.found ? 0u : 1u);
  }
}

TEST(SymphonyProgramTest, ShortFramesAreReadNoFurtherThanTheyReach) {
  const auto program = symphony();
  HookBench bench(*program);
  const Bytes whole = framed({ipv6(43, 140), extension(41, 4), ipv6(17, 60), step_udp(step(1, 12))});
  for (std::size_t n = 0; n <= whole.size(); ++n) {
    const std::unique_ptr<std::uint8_t[]> exact(new std::uint8_t[n]);  // ASan sees a read beyond
    std::copy_n(whole.begin(), n, exact.get());
    std::array<QueuedClass, kQueueClasses> queued{};
    (void)bench.hook->dequeue({exact.get(), n}, {{}, static_cast<std::uint32_t>(n), kDataClass, false, queued});
  }
  EXPECT_EQ(bench.counter("tagged"), 33u);  // 32 bytes of payload and none
}

// --- marks ------------------------------------------------------------------------------------------

TEST(SymphonyProgramTest, NotEctAndCeAreLeftAlone) {
  const auto program = symphony();
  HookBench bench(*program);
  warm(bench);
  EXPECT_FALSE(bench.marks(step_frame(step(1, 12.5), Ecn2::not_ect), {kWarm + 1}));
  EXPECT_FALSE(bench.marks(step_frame(step(1, 12.5), Ecn2::ce), {kWarm + 2}));  // whatever the port says
  EXPECT_TRUE(bench.marks(step_frame(step(1, 12.5), Ecn2::ect), {kWarm + 3}));
}

TEST(SymphonyProgramTest, TheGateCountsPacketsOfThePacketsOwnClass) {
  const auto program = symphony({{"gate", std::int64_t{2}}, {"gate_bytes", std::int64_t{2500}}});
  HookBench bench(*program);
  warm(bench);
  EXPECT_FALSE(bench.marks(step(1, 12.5), {kWarm + 1, 1}));
  EXPECT_FALSE(bench.marks(step(1, 12.5), {kWarm + 2, 2}));  // 2,000 bytes
  EXPECT_TRUE(bench.marks(step(1, 12.5), {kWarm + 3, 3}));
  const auto open = symphony({{"gate", std::int64_t{0}}});
  HookBench ungated(*open);
  warm(ungated);
  EXPECT_TRUE(ungated.marks(step(1, 12.5), {kWarm + 1, 0}));
}

TEST(SymphonyProgramTest, SpacedMarksOncePerRowAndEpochAndProbAtMostHalf) {
  for (const bool prob : {false, true}) {
    const auto program = symphony({{"mode", std::string(prob ? "prob" : "spaced")}});
    HookBench bench(*program);
    warm(bench);
    int marks = 0;
    for (int i = 0; i < 1000; ++i) {
      marks += bench.marks(step(1, 13), {kWarm + 2000 + i});
      EXPECT_FALSE(bench.marks(step(0, 10.1), {kWarm + 2000 + i}));
    }
    if (prob) {
      EXPECT_GT(marks, 900);  // 2.9 steps: certain, and the laggard's packets are half of the row's
      EXPECT_LE(marks, 1001);
    } else {
      EXPECT_EQ(marks, 1);
    }
  }
}

TEST(SymphonyProgramTest, ProbMarksWithTheLeadBeyondTau) {
  for (const double lead : {1.125, 1.25, 1.375}) {
    const auto program = symphony({{"mode", std::string("prob")}, {"credit", std::int64_t{0}}});
    HookBench bench(*program);
    warm(bench);
    int marks = 0;
    for (int epoch = 0; epoch < 400; ++epoch) {
      for (int i = 0; i < 10; ++i) {
        const std::int64_t at = kWarm + 2000 + epoch * kEpoch + i;
        marks += bench.marks(step(1, 10.1 + lead), {at});
        EXPECT_FALSE(bench.marks(step(0, 10.1), {at}));
      }
    }
    EXPECT_NEAR(marks / 4000.0, lead - 1, 0.03) << lead;
  }
}

TEST(SymphonyProgramTest, AFalseLaggardSpendsTheBudgetAndIsThenIgnored) {  // S11, of one switch
  // Its progress stands still for good, as a stuck or forged sender's would: leaders lose 255 epochs.
  const auto program = symphony({{"g", std::int64_t{10'000}}});
  HookBench bench(*program);
  warm(bench);
  int marks = 0;
  for (int epoch = 0; epoch < 2000; ++epoch) {
    for (int i = 0; i < 20; ++i) {
      const std::int64_t at = kWarm + 2000 + epoch * kEpoch + i * 100;
      (void)bench.marks(step(0, 10.1), {at});
      marks += bench.marks(step(1, 12 + epoch / 100.0), {at + 50});
    }
  }
  EXPECT_GE(marks, 255);
  EXPECT_LE(marks, 255 + 2000 / 2);  // an epoch without marks earns one with
  EXPECT_GT(bench.counter("credit_exhausted"), 0u);
  EXPECT_EQ(bench.counter("extra_marks"), static_cast<std::uint64_t>(marks));
}

TEST(SymphonyProgramTest, AReleasedOwnerHoldsNoOneBack) {
  const auto program = symphony();
  HookBench bench(*program);
  warm(bench);
  EXPECT_FALSE(bench.marks(step(0, 10.99, STEP_FLAG_LAST), {kWarm + 10}));
  EXPECT_FALSE(bench.marks(step(1, 12.5), {kWarm + 20}));
  EXPECT_EQ(row_of(program->egress_snapshot(), 7, 0).owner, 1);
}

TEST(SymphonyProgramTest, RetransmissionsMayBeIgnored) {
  for (const bool ignore : {false, true}) {
    const auto program = symphony({{"retx", std::string(ignore ? "ignore" : "count")}});
    HookBench bench(*program);
    warm(bench);
    EXPECT_FALSE(bench.marks(step(0, 9, STEP_FLAG_AGAIN), {kWarm + 10}));
    EXPECT_EQ(row_of(program->egress_snapshot(), 7, 0).low, static_cast<std::uint32_t>((ignore ? 10.1 : 9) * 65536));
    EXPECT_EQ(bench.marks(step(1, 12.5, STEP_FLAG_AGAIN), {kWarm + 20}), !ignore);
  }
}

TEST(SymphonyProgramTest, CompletedStepsMayBeComparedAlone) {
  const auto program = symphony({{"cmp", std::string("step")}});
  HookBench bench(*program);
  warm(bench);
  EXPECT_FALSE(bench.marks(step(1, 10.9), {kWarm + 10}));  // the same step
  EXPECT_TRUE(bench.marks(step(1, 11.0), {kWarm + 20}));   // less than a step's bytes ahead
}

TEST(SymphonyProgramTest, ARestartWithTheSameNumberIsNotMarkedInItsWarmUp) {  // S15
  const auto program = symphony();
  HookBench bench(*program);
  warm(bench);
  ASSERT_TRUE(bench.marks(step(1, 12.5), {kWarm + 1000}));
  const std::int64_t restart = kWarm + 5000;
  const auto again = [](std::uint16_t rank, double steps) {
    step_header header = step(rank, steps);
    header.gen = 6;
    return header;
  };
  int early = 0, late = 0;
  for (std::int64_t at = restart; at < restart + 10 * kEpoch; at += 4000) {
    const double behind = static_cast<double>(at - restart) / (10.0 * kEpoch);
    (void)bench.marks(again(0, behind), {at});
    const bool mark = bench.marks(again(1, 2 + behind), {at + 2000});
    // Warm-up lasts one epoch at least, two at most.
    (at < restart + kEpoch ? early : late) += mark;
  }
  EXPECT_EQ(early, 0);
  EXPECT_GE(late, 6);
}

// --- hostile packets --------------------------------------------------------------------------------

TEST(SymphonyProgramTest, ForgedPacketsBypassOrStartTheRowAgain) {
  const auto program = symphony();
  HookBench bench(*program);
  warm(bench);
  step_header forged = step(8, 0);  // a rank that the ring has not
  EXPECT_FALSE(bench.marks(forged, {kWarm + 10}));
  forged = step(0, 0), forged.nranks = 1;
  EXPECT_FALSE(bench.marks(forged, {kWarm + 20}));
  forged.nranks = 8193;
  EXPECT_FALSE(bench.marks(forged, {kWarm + 30}));
  EXPECT_EQ(bench.counter("bypass"), 3u);
  EXPECT_EQ(row_of(program->egress_snapshot(), 7, 0).low, static_cast<std::uint32_t>(10.1 * 65536));
  // Farther than any sender can be: no lead and no lag, but another row, which marks nobody at first.
  EXPECT_FALSE(bench.marks(step(2, 10.1 - 16.1), {kWarm + 40}));
  EXPECT_FALSE(bench.marks(step(1, 12.5), {kWarm + 50}));
  EXPECT_EQ(bench.counter("implausible"), 2u);
}

TEST(SymphonyProgramTest, AFullTableKeepsItsRingsAndCountsTheRest) {
  const auto program = symphony({{"rows", std::int64_t{16}}});
  HookBench bench(*program);
  warm(bench);
  for (std::uint32_t i = 0; i < 4000; ++i) {
    step_header hostile = step(1, 5);
    hostile.job = static_cast<std::uint16_t>(1000 + i), hostile.ring = static_cast<std::uint16_t>(i * 7);
    EXPECT_FALSE(bench.marks(hostile, {kWarm + 10}));
  }
  EXPECT_GE(bench.counter("no_row"), 4000u - 15);
  EXPECT_TRUE(bench.marks(step(1, 12.5), {kWarm + 20}));  // the live row was not evicted
  EXPECT_EQ(tally_of(program->egress_snapshot(), 7).counters[SYMPHONY_EXTRA], 1u);
  EXPECT_GE(tally_of(program->egress_snapshot(), 0xffff).counters[SYMPHONY_NO_ROW], 3000u);
  // Rows that have been idle are another's.
  step_header later = step(1, 5);
  later.job = 9;
  EXPECT_FALSE(bench.marks(later, {kWarm + 8193 * kEpoch}));
  EXPECT_EQ(row_of(program->egress_snapshot(), 9, 0).owner, 1);
}

TEST(SymphonyProgramTest, ListedJobsAloneAreTrackedAsTheirRowsSay) {
  const auto program = symphony({{"jobs", std::string("a")}});
  SymphonyBatch batch;
  batch.forward.generation = 1;
  batch.jobs = {{7, true, SYMPHONY_SPACED, 0}, {8, false, SYMPHONY_SPACED, 0}, {9, true, SYMPHONY_PROB, 0}};
  HookBench bench(*program);
  EXPECT_FALSE(bench.marks(step(0, 1), {0}));  // before the first batch no job is known
  program->set_tables(batch.pack());
  for (const std::uint16_t job : {7, 8, 9, 10}) warm(bench, job);
  int marks[11] = {};
  for (const std::uint16_t job : {7, 8, 9, 10}) {
    for (int i = 0; i < 6; ++i) marks[job] += bench.marks(step(1, 13, 0, job), {kWarm + 100 + i});
  }
  EXPECT_EQ(marks[7], 1);
  EXPECT_EQ(marks[8], 0);
  EXPECT_EQ(marks[9], 4);  // at most half of the row's packets, here marked as they come
  EXPECT_EQ(marks[10], 0);
  EXPECT_EQ(bench.counter("bypass"), 1u + 2 * 9);
}

TEST(SymphonyProgramTest, ARebootForgetsRowsAndKeepsCounters) {
  const auto program = symphony();
  HookBench bench(*program);
  warm(bench);
  program->reset();
  EXPECT_EQ(row_of(program->egress_snapshot(), 7, 0).state, SYMPHONY_FREE);
  EXPECT_FALSE(bench.marks(step(1, 12.5), {kWarm + 20}));
  EXPECT_EQ(bench.counter("tagged"), 4u);
}

TEST(SymphonyProgramTest, PortsToHostsHaveNoHookUnlessAskedFor) {
  const EgressPlace to_host{5, 1, true};
  EXPECT_EQ(symphony()->make_egress(to_host, 1), nullptr);
  const auto program = symphony({{"host_ports", true}});
  EXPECT_NE(program->make_egress(to_host, 1), nullptr);
}

TEST(SymphonyProgramTest, AWrongOptionIsNamedWithTheFix) {
  const auto refusal = [](const ProgramOptions& options) -> std::string {
    try {
      symphony(options);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(refusal({{"tau", std::string("1 lap")}}),
            "switch program \"symphony\", option tau: \"1 lap\" is no distance, as \"1 step\", \"0.5 step\" or a "
            "number of units");
  EXPECT_NE(refusal({{"tau", std::string("-1 step")}}), "accepted");
  EXPECT_NE(refusal({{"tau", std::string("nan step")}}), "accepted");
  EXPECT_NE(refusal({{"tau", std::string("40000 step")}}), "accepted");
  EXPECT_NE(refusal({{"span", std::string("3 step")}}), "accepted");
  EXPECT_NE(refusal({{"span", std::string("0 step")}}), "accepted");
  EXPECT_NE(refusal({{"rows", std::int64_t{100}}}), "accepted");
  EXPECT_NE(refusal({{"cmp", std::string("step")}, {"tau", std::string("0.5 step")}}), "accepted");
  EXPECT_NE(refusal({{"cmp", std::string("step")}, {"identity", std::string("seq")}}), "accepted");
  EXPECT_EQ(refusal({{"tau", std::string("0.5 steps")}, {"span", std::string("0.25 step")}}), "accepted");
}

}  // namespace
}  // namespace loomnet::test
