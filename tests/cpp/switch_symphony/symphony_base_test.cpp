// Rules for base marks: which packets of a ring lose the mark of their port's own rule, that a mark made
// upstream is never touched, and that nothing else of the program depends on the rule.
#include <gtest/gtest.h>

#include <map>

#include "switch/program_kind.hpp"
#include "switch/symphony/symphony_program.hpp"
#include "switch_symphony/ring_packets.hpp"

namespace loomnet::test {
namespace {

constexpr std::int64_t kEpoch = 131'072;  // ns, of shift 17
constexpr std::int64_t kWarm = 3 * kEpoch;
const char* const kRules[] = {"all", "not_owner", "leaders", "not_random", "not_leader"};

std::unique_ptr<SwitchProgram> symphony(const std::string& rule, ProgramOptions more = {}) {
  const ProgramKind kind = symphony_kind();
  more["base_marks"] = rule;
  return kind.make(checked_settings(kind, 4, 7, more));
}
step_header step(std::uint16_t rank, double steps, std::uint8_t flags = 0) {
  return {flags, 5, 7, 0, rank, 8, static_cast<std::uint32_t>(static_cast<std::int64_t>(steps * 65536))};
}
// Ranks 0, 1 and 2 are at steps 10, 10.5 and 12, and the warm-up is over.
void warm(HookBench& bench) {
  for (const std::int64_t at : {std::int64_t{0}, kWarm}) {
    bench.verdict(step(2, 12), {at});
    bench.verdict(step(1, 10.5), {at + 1000});
    bench.verdict(step(0, 10), {at + 2000});
  }
}
constexpr Leaving own(std::int64_t ns) { return {ns, 3, true, true}; }
constexpr Leaving upstream(std::int64_t ns) { return {ns, 3, true, false}; }

struct Expected {
  const char* rule;
  EgressVerdict rearmost, behind, leader;  // of their packets that the port marks
};

TEST(SymphonyBaseTest, EachRuleTakesBackTheMarksOfItsSenders) {
  constexpr auto kept = EgressVerdict::leave, taken = EgressVerdict::unmark;
  for (const Expected& each : {Expected{"all", kept, kept, kept}, Expected{"not_owner", taken, kept, kept},
                               Expected{"leaders", taken, taken, kept}, Expected{"not_leader", kept, kept, taken}}) {
    SCOPED_TRACE(each.rule);
    const auto program = symphony(each.rule);
    HookBench bench(*program);
    warm(bench);
    EXPECT_EQ(bench.verdict(step(2, 12.1), own(kWarm + 3000)), each.leader);
    EXPECT_EQ(bench.verdict(step(1, 10.6), own(kWarm + 4000)), each.behind);
    EXPECT_EQ(bench.verdict(step(0, 10.1), own(kWarm + 5000)), each.rearmost);
    const std::uint64_t taken_back = (each.leader == taken) + (each.behind == taken) + (each.rearmost == taken);
    EXPECT_EQ(bench.counter("unmarked"), taken_back);
    EXPECT_EQ(bench.counter("base_marks"), 3 - taken_back);
    EXPECT_EQ(tally_of(program->egress_snapshot(), 7).counters[SYMPHONY_UNMARKED], taken_back);
  }
}

TEST(SymphonyBaseTest, AMarkMadeUpstreamStaysWhateverTheRule) {
  for (const char* rule : kRules) {
    SCOPED_TRACE(rule);
    const auto program = symphony(rule);
    HookBench bench(*program);
    warm(bench);
    for (std::uint16_t rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(bench.verdict(step(rank, 10 + rank), upstream(kWarm + 3000 + rank)), EgressVerdict::leave);
    }
    EXPECT_EQ(bench.counter("unmarked"), 0u);
    EXPECT_EQ(bench.counter("base_marks"), 3u);
  }
}

TEST(SymphonyBaseTest, TheWarmUpTheFirstPacketAndPacketsOfNoRingKeepTheirMarks) {
  for (const char* rule : kRules) {
    SCOPED_TRACE(rule);
    const auto program = symphony(rule);
    HookBench bench(*program);
    EXPECT_EQ(bench.verdict(step(0, 10), own(0)), EgressVerdict::leave);
    EXPECT_EQ(bench.verdict(step(0, 10.1), own(1000)), EgressVerdict::leave);
    EXPECT_EQ(bench.verdict(step(0, 10.2, STEP_FLAG_OTHER), own(kWarm)), EgressVerdict::leave);
    EXPECT_EQ(bench.counter("unmarked"), 0u);
  }
}

// On random rings: the marks of `leaders` have a gap above tau, `not_owner` takes back exactly what the rearmost
// sender sends, and extra marks, rows and gaps are the same whatever the rule.
TEST(SymphonyBaseTest, NothingButBaseMarksDependsOnTheRule) {
  std::uint64_t taken_back[std::size(kRules)] = {};
  for (std::uint64_t ring = 0; ring < 24; ++ring) {
    SCOPED_TRACE(ring);
    std::vector<EgressVerdict> plain;
    std::vector<std::uint32_t> lows;
    for (std::size_t rule = 0; rule < std::size(kRules); ++rule) {
      SCOPED_TRACE(kRules[rule]);
      const auto program = symphony(kRules[rule], {{"mode", std::string(ring % 2 ? "prob" : "spaced")}});
      HookBench bench(*program);
      RingShape shape;
      shape.nranks = static_cast<std::uint16_t>(3 + ring % 20);
      RingPackets packets(shape, ring);
      RandomStream random(ring, 0x62617365, 0);
      for (int i = 0; i < 1000; ++i) {
        RingPacket p = packets.next();
        p.leaving.ce = random.below(3) == 0;
        p.leaving.own = p.leaving.ce && random.below(4) != 0;
        const EgressVerdict verdict = bench.verdict(p.step, p.leaving);
        const symphony_row row = row_of(program->egress_snapshot(), 7, 0);
        if (rule == 0) {
          ASSERT_NE(verdict, EgressVerdict::unmark);
          plain.push_back(verdict);
          lows.push_back(row.low);
          continue;
        }
        ASSERT_EQ(row.low, lows[static_cast<std::size_t>(i)]);
        if (verdict != EgressVerdict::unmark) {
          ASSERT_EQ(verdict, plain[static_cast<std::size_t>(i)]);
          continue;
        }
        ASSERT_TRUE(p.leaving.own);
        ASSERT_EQ(plain[static_cast<std::size_t>(i)], EgressVerdict::leave);
        ++taken_back[rule];
        const auto gap = static_cast<std::int32_t>(p.step.prog - row.low);
        if (rule == 1) {
          ASSERT_EQ(gap, 0);
        } else if (rule == 2) {
          ASSERT_LE(gap, 65'536);
        }
      }
    }
  }
  // Controls spare one sender at a time too. The foremost sends more packets than the rearmost.
  const auto like = [&](int control) {
    return static_cast<double>(taken_back[control]) / static_cast<double>(taken_back[1]);
  };
  EXPECT_GT(taken_back[1], 500u);
  EXPECT_GT(taken_back[2], taken_back[1]);
  EXPECT_GT(like(3), 0.5);
  EXPECT_LT(like(3), 2.0);
  EXPECT_GT(like(4), 0.5);
}

TEST(SymphonyBaseTest, TheRandomSenderIsNoRankInParticular) {
  std::map<std::uint16_t, int> spared;
  for (std::uint64_t ring = 0; ring < 60; ++ring) {
    const auto program = symphony("not_random");
    HookBench bench(*program, 1, ring);
    RingPackets packets({}, ring);
    for (int i = 0; i < 2000; ++i) {
      RingPacket p = packets.next();
      p.leaving.ce = p.leaving.own = true;
      spared[p.step.rank] += bench.verdict(p.step, p.leaving) == EgressVerdict::unmark;
    }
  }
  ASSERT_EQ(spared.size(), 8u);
  int all = 0;
  for (const auto& [rank, count] : spared) all += count;
  for (const auto& [rank, count] : spared) EXPECT_GT(count, all / 8 / 3) << rank;
}

TEST(SymphonyBaseTest, AnotherRuleIsRefusedByName) {
  try {
    symphony("laggards");
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find("base_marks: must be all, not_owner, leaders, not_random or not_leader"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace loomnet::test
