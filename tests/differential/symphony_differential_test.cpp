// The symphony program's egress hook, engine against kernel by BPF_PROG_TEST_RUN: the golden vectors, and
// 100,000 packets of rings, tunnels, hostile bytes and sequence numbers. Same marks, notes, rows, counters.
#include <gtest/gtest.h>

#include <map>

#include "differential/program_pair.hpp"
#include "switch/symphony/symphony_batch.hpp"
#include "switch_symphony/ring_packets.hpp"
#include "switch_symphony/sequence_frames.hpp"

namespace loomnet::test {
namespace {

constexpr SwitchPort kPorts = 4, kPort = 1;
constexpr std::uint32_t kHalf = 5;
constexpr std::uint64_t kSeed = 99;

class SymphonyDifferentialTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = missing_for_bpf(); !missing.empty()) GTEST_SKIP() << missing;
  }
};

// One half-link's hook in both builds.
struct HookPair {
  explicit HookPair(const ProgramOptions& options = {})
      : pair("symphony", kPorts, 7, options), hook(pair.native.make_egress({kHalf, kPort}, kSeed)) {}

  // Hands both the same packet; whether both mark it, or why the test fails.
  bool marks(const std::vector<std::uint8_t>& frame, const Leaving& leaving) {
    return answer(frame, leaving) == EgressVerdict::mark;
  }
  // What both answer.
  EgressVerdict answer(const std::vector<std::uint8_t>& frame, const Leaving& leaving) {
    std::array<QueuedClass, kQueueClasses> queued{};
    queued[kDataClass] = {leaving.waiting * 1000u, leaving.waiting};
    std::vector<std::uint8_t> ours = frame, theirs = frame;
    const std::size_t header = std::min<std::size_t>(ours.size(), kMaxHeaderBytes);
    const EgressVerdict verdict =
        hook->dequeue({ours.data(), header}, {nanoseconds(leaving.ns), static_cast<std::uint32_t>(ours.size()),
                                              kDataClass, leaving.ce, queued, leaving.own});
    ln_egress_meta meta{};
    meta.now = static_cast<ln_u64>(nanoseconds(leaving.ns).count);
    meta.seed = kSeed, meta.sequence = sequence++, meta.half = kHalf, meta.port = kPort;
    meta.queue = kDataClass, meta.marked = leaving.ce, meta.own_mark = leaving.own;
    meta.queued[kDataClass] = queued[kDataClass].bytes, meta.packets[kDataClass] = queued[kDataClass].packets;
    pair.xdp.test_egress(theirs, meta, run);
    EXPECT_EQ(run.verdict, verdict) << "packet " << sequence;
    EXPECT_EQ(ours, theirs);
    if (verdict == EgressVerdict::mark) {
      const auto note = hook->note().values;
      EXPECT_TRUE(std::equal(note.begin(), note.end(), run.note.begin())) << "packet " << sequence;
    }
    return verdict;
  }
  void compare() {
    const auto ours = pair.native.egress_snapshot(), theirs = pair.xdp.egress_snapshot();
    ASSERT_EQ(ours.size(), theirs.size());
    for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_EQ(ours[i].bytes, theirs[i].bytes) << ours[i].layout.name;
    std::vector<SwitchCounter> a, b;
    pair.native.egress_counters(a);
    pair.xdp.egress_counters(b);
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].value, b[i].value) << a[i].name;
  }
  std::uint64_t counter(std::string_view name) const {
    std::vector<SwitchCounter> all;
    pair.native.egress_counters(all);
    for (const SwitchCounter& each : all) {
      if (each.name == name) return each.value;
    }
    throw std::out_of_range(std::string(name));
  }

  ProgramPair pair;
  std::unique_ptr<EgressHook> hook;
  XdpProgram::EgressRun run;
  std::uint64_t sequence = 0;
};

TEST_F(SymphonyDifferentialTest, StepVectorsInTheKernel) {
  HookPair on, off({{"enable", false}});
  for (const StepVector& v : step_vectors()) {
    SCOPED_TRACE(v.number);
    const Leaving leaving{v.ns, v.waiting, v.ce};
    EXPECT_EQ((v.enabled ? on : off).marks(step_frame(step_of(v), v.ce ? Ecn2::ce : Ecn2::ect), leaving), v.extra);
    const symphony_row row = row_of(on.pair.xdp.egress_snapshot(), 7, v.ring);
    EXPECT_EQ(row.low, v.low);
    EXPECT_EQ(row.owner, v.owner);
  }
  on.compare();
  EXPECT_EQ(on.counter("extra_marks"), 3u);
  off.pair.xdp.egress_snapshot();
  EXPECT_EQ(row_of(off.pair.xdp.egress_snapshot(), 7, 0).state, SYMPHONY_FREE);
}

TEST_F(SymphonyDifferentialTest, AHundredThousandPacketsAreMarkedAlike) {
  std::uint64_t marks = 0, packets = 0;
  for (const bool prob : {false, true}) {
    HookPair both(
        {{"mode", std::string(prob ? "prob" : "spaced")}, {"rows", std::int64_t{16}}, {"idle", std::int64_t{64}}});
    std::vector<RingPackets> rings;
    for (std::uint16_t i = 0; i < 6; ++i) {
      RingShape shape;
      shape.job = static_cast<std::uint16_t>(i / 2 * 64), shape.ring = i, shape.first_step = 65'520;
      shape.nranks = static_cast<std::uint16_t>(2 + 5 * i);
      rings.emplace_back(shape, 11u + i);
    }
    RandomStream random(prob, 0x64696666, 0);
    std::int64_t now = 0;
    for (int i = 0; i < 50'000; ++i, ++packets) {
      RingPacket p = rings[random.below(6)].next();
      p.leaving.ns = now += random.below(2000) + (random.below(3000) == 0 ? 40'000'000 : 0);
      if (random.below(100) == 0) p.step.gen = static_cast<ln_u8>(p.step.gen + 1);
      if (random.below(50) == 0) p.step.prog = static_cast<std::uint32_t>(random());
      if (random.below(50) == 0) p.step.job = static_cast<std::uint16_t>(random());
      const Ecn2 ecn = random.below(20) == 0 ? Ecn2::not_ect : p.leaving.ce ? Ecn2::ce : Ecn2::ect;
      std::vector<std::uint8_t> frame = wrapped(random, step_udp(p.step, random.below(40)), ecn);
      if (random.below(16) == 0) {
        for (unsigned flips = 1 + random.below(3); flips-- > 0;) {
          std::uint8_t& byte = frame[12 + random.below(static_cast<std::uint32_t>(frame.size() - 12))];
          byte = static_cast<std::uint8_t>(byte ^ 1u << random.below(8));
        }
      }
      if (random.below(40) == 0) {
        frame.resize(std::max<std::size_t>(14, random.below(static_cast<std::uint32_t>(frame.size()))));
      }
      marks += both.marks(frame, p.leaving);
      if (HasFailure()) return;
    }
    both.compare();
    for (const char* each :
         {"tagged", "extra_marks", "base_marks", "bypass", "no_row", "init", "implausible", "stale_takes"}) {
      EXPECT_GT(both.counter(each), 50u) << each;
    }
  }
  EXPECT_EQ(packets, 100'000u);
  EXPECT_GT(marks, 2'000u);
  std::printf("  %llu packets, %llu extra marks\n", static_cast<unsigned long long>(packets),
              static_cast<unsigned long long>(marks));
}

// The rules for base marks, with and without the port's own mark on each packet.
TEST_F(SymphonyDifferentialTest, BaseMarksAreTakenBackAlike) {
  for (const std::string rule : {"not_owner", "leaders", "not_random", "not_leader"}) {
    SCOPED_TRACE(rule);
    HookPair both({{"base_marks", rule}, {"rows", std::int64_t{16}}, {"idle", std::int64_t{64}}});
    std::vector<RingPackets> rings;
    for (std::uint16_t i = 0; i < 4; ++i) {
      RingShape shape;
      shape.ring = i, shape.first_step = 65'520;
      shape.nranks = static_cast<std::uint16_t>(2 + 5 * i);
      rings.emplace_back(shape, 31u + i);
    }
    RandomStream random(5, 0x62617365, 0);
    std::int64_t now = 0;
    std::map<EgressVerdict, std::uint64_t> answers;
    for (int i = 0; i < 20'000; ++i) {
      RingPacket p = rings[random.below(4)].next();
      p.leaving.ns = now += random.below(2000) + (random.below(3000) == 0 ? 40'000'000 : 0);
      p.leaving.ce = random.below(2) == 0;
      p.leaving.own = p.leaving.ce && random.below(4) != 0;
      if (random.below(100) == 0) p.step.gen = static_cast<ln_u8>(p.step.gen + 1);
      const Ecn2 ecn = p.leaving.ce ? Ecn2::ce : Ecn2::ect;
      ++answers[both.answer(wrapped(random, step_udp(p.step, random.below(40)), ecn), p.leaving)];
      if (HasFailure()) return;
    }
    both.compare();
    EXPECT_EQ(both.counter("unmarked"), answers[EgressVerdict::unmark]);
    EXPECT_GT(answers[EgressVerdict::unmark], 500u);
    EXPECT_GT(answers[EgressVerdict::mark], 50u);
    EXPECT_GT(both.counter("base_marks"), 500u);
  }
}

TEST_F(SymphonyDifferentialTest, PacketsWithoutAHeaderAreMarkedAlikeByTheirRules) {
  for (const std::string identity : {"seq", "sport"}) {
    SCOPED_TRACE(identity);
    HookPair both({{"identity", identity}, {"rows", std::int64_t{64}}, {"jobs", std::string("a")}});
    SymphonyBatch batch = sequence_rules(identity == "seq");
    batch.forward.generation = 1;
    batch.jobs = {{3, true, SYMPHONY_SPACED, 0}, {4, true, SYMPHONY_PROB, 100}};
    both.pair.set_tables(batch.pack());
    SequencePackets packets(identity == "seq", 5);
    std::uint64_t marks = 0;
    for (int i = 0; i < 20'000; ++i) {
      const auto [frame, leaving] = packets.next();
      marks += both.marks(frame, leaving);
      if (HasFailure()) return;
    }
    both.compare();
    EXPECT_GT(marks, 20u);
    EXPECT_GT(both.counter("bypass"), 100u);
  }
}

}  // namespace
}  // namespace loomnet::test
