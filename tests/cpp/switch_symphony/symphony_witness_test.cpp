// What must hold of every mark: some sender of the ring is behind by more than tau and has said so at
// this egress in its latest packet. On 400 random rings in both modes (S10), with the step counter
// wrapping (S9), and on a ring whose senders are level (S8).
#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "switch/program_kind.hpp"
#include "switch/symphony/symphony_program.hpp"
#include "switch_symphony/ring_packets.hpp"

namespace loomnet::test {
namespace {

std::unique_ptr<SwitchProgram> symphony(const ProgramOptions& options) {
  const ProgramKind kind = symphony_kind();
  return kind.make(checked_settings(kind, 4, 7, options));
}

struct Latest {
  std::uint32_t prog = 0;
  std::int64_t ns = 0;
  bool last = false;
};

TEST(SymphonyWitnessTest, EveryMarkOfRandomRingsHasAWitness) {  // S10
  constexpr std::uint32_t kFirst[] = {0, 60'000, 65'530, 65'535};
  std::uint64_t marks = 0, rings_with_marks = 0;
  for (std::uint64_t ring = 0; ring < 400; ++ring) {
    SCOPED_TRACE(ring);
    RandomStream random(ring, 0x7769746e, 0);
    RingShape shape;
    shape.nranks = static_cast<std::uint16_t>(2 + random.below(40));
    shape.first_step = kFirst[ring % 4];
    shape.packets_of_step = 2 + random.below(120);
    const double tau = random.below(2) ? 1 : 0.5;
    const bool prob = ring / 4 % 2;
    const auto program = symphony(
        {{"mode", std::string(prob ? "prob" : "spaced")}, {"tau", std::string(tau == 1 ? "1 step" : "0.5 step")}});
    HookBench bench(*program);
    RingPackets packets(shape, ring);
    std::map<std::uint16_t, Latest> latest;
    std::int64_t begun = -1;
    const std::uint64_t before = marks;
    for (int i = 0; i < 3000; ++i) {
      const RingPacket p = packets.next();
      if (begun < 0) begun = p.leaving.ns;
      if (bench.marks(p.step, p.leaving)) {
        ++marks;
        ASSERT_FALSE(p.leaving.ce);
        ASSERT_GE(p.leaving.waiting, 1u);
        ASSERT_GE(p.leaving.ns - begun, 131'072);  // warm-up
        const auto owner = static_cast<std::uint16_t>(bench.noted(SYMPHONY_NOTE_owner));
        ASSERT_NE(owner, p.step.rank);
        ASSERT_TRUE(latest.contains(owner));
        const Latest& witness = latest.at(owner);
        ASSERT_FALSE(witness.last);
        ASSERT_EQ(witness.prog, bench.noted(SYMPHONY_NOTE_low));
        ASSERT_GT(static_cast<std::int32_t>(p.step.prog - witness.prog), static_cast<std::int32_t>(tau * 65536));
        ASSERT_EQ(p.step.prog - witness.prog, bench.noted(SYMPHONY_NOTE_gap));
        ASSERT_LT(p.leaving.ns / 131'072 - witness.ns / 131'072, 2);  // it is not silent
      }
      latest[p.step.rank] = {p.step.prog, p.leaving.ns, (p.step.flags & STEP_FLAG_LAST) != 0};
    }
    rings_with_marks += marks > before;
    EXPECT_EQ(bench.counter("extra_marks"), marks - before);
    EXPECT_EQ(bench.counter("implausible"), 0u);
  }
  EXPECT_GE(marks, 4000u);
  EXPECT_GE(rings_with_marks, 200u);
}

TEST(SymphonyWitnessTest, WhereTheStepCounterBeginsChangesNothing) {  // S9
  for (const bool prob : {false, true}) {
    std::vector<std::vector<bool>> runs;
    for (const std::uint32_t first : {0u, 60'000u, 65'530u, 65'535u}) {
      RingShape shape;
      shape.first_step = first;
      const auto program = symphony({{"mode", std::string(prob ? "prob" : "spaced")}});
      HookBench bench(*program);
      RingPackets packets(shape, 3);
      auto& marks = runs.emplace_back();
      for (int i = 0; i < 20'000; ++i) {
        const RingPacket p = packets.next();
        marks.push_back(bench.marks(p.step, p.leaving));
      }
    }
    EXPECT_GT(std::count(runs[0].begin(), runs[0].end(), true), 10);
    for (const auto& each : runs) EXPECT_EQ(each, runs[0]);
  }
}

TEST(SymphonyWitnessTest, ALevelRingIsNotMarked) {  // S8, of one switch
  for (const bool prob : {false, true}) {
    const auto program = symphony({{"mode", std::string(prob ? "prob" : "spaced")}});
    HookBench bench(*program);
    RandomStream random(8, 0, 0);
    constexpr std::uint32_t kRanks = 16, kPackets = 100;
    std::int64_t now = 0;
    // A queue that all senders share: each has one packet in every round, in any order.
    for (std::uint32_t at = 0; at < 30 * kPackets; ++at) {
      std::vector<std::uint16_t> order(kRanks);
      for (std::uint16_t r = 0; r < kRanks; ++r) order[r] = r;
      for (std::size_t i = kRanks; i-- > 1;)
        std::swap(order[i], order[random.below(static_cast<std::uint32_t>(i + 1))]);
      for (const std::uint16_t rank : order) {
        now += 340;
        const std::uint32_t of = at % kPackets;
        const auto last = static_cast<std::uint8_t>(of + 1 == kPackets ? STEP_FLAG_LAST : 0);
        const step_header step{last, 5, 7, 0, rank, kRanks, at / kPackets << 16 | of * 65536 / kPackets};
        ASSERT_FALSE(bench.marks(step, {now, 12}));
      }
    }
    EXPECT_EQ(bench.counter("extra_marks"), 0u);
    EXPECT_LE(bench.counter("largest_gap"), 65'536u);
  }
}

TEST(SymphonyWitnessTest, JobsAndChannelsAreNeverCompared) {  // S14, of one switch
  const auto program = symphony({});
  HookBench bench(*program);
  std::map<std::pair<std::uint16_t, std::uint16_t>, std::map<std::uint16_t, std::uint32_t>> latest;
  std::vector<RingPackets> rings;
  for (std::uint16_t i = 0; i < 8; ++i) {
    RingShape shape;
    shape.job = i / 4, shape.ring = i % 4;
    shape.first_step = i * 3u;  // channels run at different steps
    rings.emplace_back(shape, 50u + i);
  }
  std::vector<RingPacket> ahead;
  for (RingPackets& each : rings) ahead.push_back(each.next());
  int marks = 0;
  for (int i = 0; i < 40'000; ++i) {
    const auto first = std::min_element(ahead.begin(), ahead.end(),
                                        [](const auto& a, const auto& b) { return a.leaving.ns < b.leaving.ns; });
    const RingPacket p = *first;
    *first = rings[static_cast<std::size_t>(first - ahead.begin())].next();
    auto& own = latest[{p.step.job, p.step.ring}];
    if (bench.marks(p.step, p.leaving)) {
      ++marks;
      ASSERT_EQ(own.at(static_cast<std::uint16_t>(bench.noted(SYMPHONY_NOTE_owner))), bench.noted(SYMPHONY_NOTE_low));
    }
    own[p.step.rank] = p.step.prog;
  }
  EXPECT_GT(marks, 50);
  EXPECT_EQ(bench.counter("init"), 8u);
}

}  // namespace
}  // namespace loomnet::test
