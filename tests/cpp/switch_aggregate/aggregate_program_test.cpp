// The aggregation program's rules in the engine's build: the published golden trace of one slot, each
// rule by itself, SwitchML's turns, and packets that must change nothing.
#include <gtest/gtest.h>

#include "packet/packet.hpp"
#include "switch/aggregate/aggregate_program.hpp"
#include "switch/packet_view.hpp"
#include "switch_aggregate/fragments.hpp"

namespace loomnet::test {
namespace {

constexpr std::size_t kPorts = 6;
constexpr std::uint16_t kA = 1, kB = 2;
std::unique_ptr<SwitchProgram> make(const ProgramOptions& options) {
  static const ProgramKind kind = aggregate_kind();
  return kind.make(checked_settings(kind, kPorts, 1, options));
}

constexpr std::int64_t kSlot64 = AGGREGATE_SLOT_BYTES(64);

class Switch {
 public:
  explicit Switch(ProgramOptions options, std::vector<AggregateBatch::Job> jobs) {
    options.try_emplace("values", std::int64_t{64});
    options.try_emplace("pool", kSlot64);
    program_ = make(options);
    program_->set_tables(aggregate_tables(std::move(jobs), kPorts));
  }
  // The verdict, and in `out` what leaves.
  Verdict give(const Fragment& f, SwitchPort in) {
    const std::vector<std::uint8_t> frame = frame_of(f);
    PacketPtr packet = pool_.allocate();
    packet->header_length = AGGREGATE_PAYLOAD_AT;
    std::copy_n(frame.begin(), AGGREGATE_PAYLOAD_AT, packet->header.begin());
    memory_.assign(frame.begin() + AGGREGATE_PAYLOAD_AT, frame.end());
    packet->payload = {memory_.data(), static_cast<std::uint32_t>(memory_.size()), 0, PayloadKind::region};
    packet->wire_length = static_cast<std::uint32_t>(frame.size());
    packet->flow = static_cast<std::uint32_t>(f.uid);
    PacketView view(*packet, pool_, program_->needs(), scratch_);
    const Verdict verdict = program_->ingress_view(view, {microseconds(++time_), in});
    if (verdict.leaves()) {
      EXPECT_FALSE(view.apply());
      std::vector<std::uint8_t> left(packet->header_bytes().begin(), packet->header_bytes().end());
      left.insert(left.end(), packet->payload.data, packet->payload.data + packet->payload.length);
      out = fragment_of(left);
      out.uid = packet->flow;
      destination = packet->header[14 + 39];
    }
    return verdict;
  }
  Verdict data(std::uint16_t job, std::uint32_t sequence, unsigned worker, std::int32_t value,
               std::uint8_t priority = 100) {
    return give(test::data(scheme, job, sequence, worker, value, priority), static_cast<SwitchPort>(worker + 1));
  }
  std::uint64_t counter(std::string_view name) const {
    std::vector<SwitchCounter> all;
    program_->counters(all);
    for (const auto& c : all) {
      if (c.name == name) return c.value;
    }
    throw std::out_of_range(std::string(name));
  }
  aggregate_slot slot(std::size_t n = 0) const {
    aggregate_slot s;
    const StateSnapshot snapshot = program_->snapshot();
    std::memcpy(&s, snapshot.bytes.data() + n * sizeof s, sizeof s);
    return s;
  }
  SwitchProgram& program() { return *program_; }
  Fragment out;
  unsigned destination = 0;  // the last byte of the address that the packet left for
  std::uint8_t scheme = AGGREGATE_ESA;

 private:
  PacketPool pool_;
  ViewScratch scratch_;
  std::vector<std::uint8_t> memory_;
  std::unique_ptr<SwitchProgram> program_;
  std::int64_t time_ = 0;
};

const Verdict kAbsorbed{Verdict::Action::absorb, 0}, kUp = Verdict::forward(0);

TEST(AggregateProgram, TheGoldenTraceOfOneSlot) {
  Switch s({{"policy", "esa"}}, {job_of(kA, 2), job_of(kB, 2)});
  EXPECT_EQ(s.data(kA, 0, 0, 5, 50), kAbsorbed);  // 1: claim
  EXPECT_EQ(s.data(kB, 0, 0, 7, 100), kUp);       // 2: swap
  EXPECT_EQ(s.out.header.type, AGGREGATE_EVICT);
  EXPECT_EQ(s.out.header.job, kA);
  EXPECT_EQ(s.out.header.workers, 1u);
  EXPECT_EQ(s.out.values[0], 5);
  EXPECT_EQ(s.destination, kA);
  EXPECT_TRUE(s.out.header.flags & AGGREGATE_BYPASS);
  EXPECT_EQ(s.data(kA, 0, 1, 6, 50), kUp);  // 3: collides
  EXPECT_EQ(s.out.header.type, AGGREGATE_DATA);
  EXPECT_EQ(s.out.header.flags, AGGREGATE_BYPASS | AGGREGATE_COLLISION);
  EXPECT_EQ(s.slot().priority, 50);
  EXPECT_EQ(s.data(kA, 1, 0, 1, 50), kUp);  // 4: 50 > 50 is false
  EXPECT_EQ(s.slot().priority, 25);
  EXPECT_EQ(s.data(kA, 1, 1, 2, 50), kUp);  // 5: swap
  EXPECT_EQ(s.out.header.type, AGGREGATE_EVICT);
  EXPECT_EQ(s.out.header.job, kB);
  EXPECT_EQ(s.out.values[0], 7);
  EXPECT_EQ(s.destination, kB);
  EXPECT_EQ(s.data(kB, 0, 1, 9, 100), kUp);  // 6: swap
  EXPECT_EQ(s.out.header.job, kA);
  EXPECT_EQ(s.out.header.workers, 2u);
  EXPECT_EQ(s.out.values[0], 2);
  Fragment remind = test::data(AGGREGATE_ESA, kB, 0, 0, 0);  // 7
  remind.header.type = AGGREGATE_REMIND;
  remind.header.source = AGGREGATE_FROM_SERVER;
  remind.header.time = 77;
  EXPECT_EQ(s.give(remind, 0).action, Verdict::Action::reply);
  EXPECT_EQ(s.out.header.type, AGGREGATE_REPLY);
  EXPECT_EQ(s.out.header.workers, 2u);
  EXPECT_EQ(s.out.values[0], 9);
  EXPECT_EQ(s.out.header.time, 77u);
  EXPECT_EQ(s.slot().state, AGGREGATE_FREE);
  EXPECT_EQ(s.data(kB, 0, 0, 7, 100), kUp);  // 8: a late duplicate
  EXPECT_EQ(s.out.header.flags, AGGREGATE_BYPASS);
  EXPECT_EQ(s.counter("remembered"), 1u);
  EXPECT_EQ(s.counter("preempt"), 3u);
  EXPECT_EQ(s.counter("collide"), 2u);
}

TEST(AggregateProgram, ASumLeavesAsAggWithTheFirstPartsLabel) {
  for (const char* dealloc : {"completion", "ack", "lazy"}) {
    Switch s({{"dealloc", dealloc}}, {job_of(kA, 3)});
    Fragment first = test::data(AGGREGATE_ESA, kA, 0, 0, 1, 10);
    first.uid = 41;
    first.header.exponent = static_cast<std::uint8_t>(-3);
    Fragment second = test::data(AGGREGATE_ESA, kA, 0, 1, 10, 90);
    second.header.exponent = 5;
    second.header.flags = AGGREGATE_NONFINITE;
    second.ecn = 3;  // CE on the way here
    EXPECT_EQ(s.give(first, 1), kAbsorbed);
    EXPECT_EQ(s.give(second, 2), kAbsorbed);
    EXPECT_EQ(s.give(first, 1), kAbsorbed);  // S6
    EXPECT_EQ(s.data(kA, 0, 2, 100), kUp);
    EXPECT_EQ(s.out.header.type, AGGREGATE_AGG);
    EXPECT_EQ(s.out.header.workers, 7u);
    EXPECT_EQ(s.out.values[0], 111);
    EXPECT_EQ(s.out.header.priority, 100);
    EXPECT_EQ(static_cast<std::int8_t>(s.out.header.exponent), 5);
    EXPECT_EQ(s.out.header.flags, AGGREGATE_NONFINITE | AGGREGATE_ECN);
    EXPECT_EQ(s.out.header.source, AGGREGATE_FROM_SWITCH);
    EXPECT_EQ(s.out.uid, 41u);
    EXPECT_EQ(s.counter("useful_ps"), 3'000'000u);
    if (std::string(dealloc) == "completion") {
      EXPECT_EQ(s.slot().state, AGGREGATE_FREE);
      EXPECT_EQ(s.counter("held_ps"), 3'000'000u);
      continue;
    }
    EXPECT_EQ(s.slot().state, AGGREGATE_DONE);
    EXPECT_EQ(s.data(kA, 0, 2, 100), kUp);  // S4
    EXPECT_EQ(s.out.header.type, AGGREGATE_AGG);
    EXPECT_EQ(s.out.values[0], 111);
    Fragment result = s.out;
    result.header.type = AGGREGATE_RESULT;
    EXPECT_EQ(s.give(result, 0), (Verdict{Verdict::Action::replicate, 0}));
    EXPECT_EQ(s.slot().state, AGGREGATE_FREE);
    EXPECT_EQ(s.counter("release"), 1u);
  }
}

TEST(AggregateProgram, OnlyItsOwnerOrNobodyUsesASlotUnderAtp) {
  Switch s({{"policy", "atp"}}, {job_of(kA, 2, AGGREGATE_ATP), job_of(kB, 2, AGGREGATE_ATP)});
  s.scheme = AGGREGATE_ATP;
  EXPECT_EQ(s.data(kA, 0, 0, 5, 1), kAbsorbed);
  EXPECT_EQ(s.data(kB, 0, 0, 7, 255), kUp);
  EXPECT_EQ(s.out.header.flags, AGGREGATE_BYPASS | AGGREGATE_COLLISION);
  EXPECT_EQ(s.slot().priority, 1);
  Fragment resend = test::data(AGGREGATE_ATP, kA, 0, 1, 6);
  resend.header.type = AGGREGATE_RESEND;
  EXPECT_EQ(s.give(resend, 2), kUp);  // empties the slot, its own part added
  EXPECT_EQ(s.out.header.type, AGGREGATE_RESEND);
  EXPECT_EQ(s.out.header.workers, 3u);
  EXPECT_EQ(s.out.header.source, 1);
  EXPECT_EQ(s.out.values[0], 11);
  EXPECT_EQ(s.slot().state, AGGREGATE_FREE);
  EXPECT_EQ(s.give(resend, 2), kUp);  // never claims
  EXPECT_EQ(s.out.header.workers, 2u);
  EXPECT_EQ(s.slot().state, AGGREGATE_FREE);
  EXPECT_EQ(s.counter("flush"), 1u);
}

TEST(AggregateProgram, EsasResendsTouchNoMemory) {
  Switch s({}, {job_of(kA, 2)});
  Fragment resend = test::data(AGGREGATE_ESA, kA, 0, 0, 6);
  resend.header.type = AGGREGATE_RESEND;
  EXPECT_EQ(s.give(resend, 1), kUp);
  EXPECT_EQ(s.slot().state, AGGREGATE_FREE);
  EXPECT_EQ(s.slot().job, 0);
}

TEST(AggregateProgram, AWindowLaterTheOldFragmentIsOver) {
  Switch s({}, {job_of(kA, 2)});
  EXPECT_EQ(s.data(kA, 0xfffffffe, 0, 5), kAbsorbed);
  EXPECT_EQ(s.data(kA, 1, 0, 8), kUp);  // 3 later: collides
  EXPECT_EQ(s.data(kA, 2, 0, 8), kAbsorbed);  // 4 later, over the wrap: S8
  EXPECT_EQ(s.counter("takeover"), 1u);
  EXPECT_EQ(s.data(kA, 0xfffffffe, 1, 5), kAbsorbed);  // S9
  EXPECT_EQ(s.counter("ghost"), 1u);
  EXPECT_EQ(s.slot().sequence, 2u);
  EXPECT_EQ(s.slot().sum[0], 8);
}

TEST(AggregateProgram, SlotsOfAJobThatHasEndedAreFree) {
  Switch s({{"policy", "atp"}}, {job_of(kA, 2, AGGREGATE_ATP), job_of(kB, 2, AGGREGATE_ATP)});
  s.scheme = AGGREGATE_ATP;
  EXPECT_EQ(s.data(kA, 0, 0, 5), kAbsorbed);
  s.program().set_tables(aggregate_tables({job_of(kB, 2, AGGREGATE_ATP)}, kPorts, 2));
  EXPECT_EQ(s.data(kB, 9, 0, 7), kAbsorbed);
  EXPECT_EQ(s.slot().job, kB + 1);
  EXPECT_EQ(s.counter("takeover"), 1u);
}

TEST(AggregateProgram, TwoLevelsSumByTheJobsBitmap) {
  AggregateBatch::Job leaf = job_of(kA, 2);
  leaf.root = AGGREGATE_INNER;
  AggregateBatch::Job root = job_of(kA, 1);
  root.children = {{1, 3}, {2, 4}};  // a switch with workers 0 and 1, and worker 2
  Switch below({{"hop", std::int64_t{7}}}, {leaf}), above({}, {root});
  below.data(kA, 0, 0, 1);
  EXPECT_EQ(below.data(kA, 0, 1, 2), kUp);
  EXPECT_EQ(below.out.header.hop, 7);
  EXPECT_EQ(above.give(below.out, 1), kAbsorbed);
  Fragment late = below.out;  // worker 0 alone, past the leaf
  late.header.workers = 1;
  EXPECT_EQ(above.give(late, 1), kAbsorbed);  // S6
  EXPECT_EQ(above.give(test::data(AGGREGATE_ESA, kA, 0, 2, 4), 2), kUp);
  EXPECT_EQ(above.out.header.workers, 7u);
  EXPECT_EQ(above.out.values[0], 7);
  Fragment alone = test::data(AGGREGATE_ESA, kA, 1, 0, 4);  // bypassed the leaf
  EXPECT_EQ(above.give(alone, 1), kAbsorbed);
  Fragment both = below.out;
  both.header.sequence = 1;
  EXPECT_EQ(above.give(both, 1), kUp);  // S7
  EXPECT_TRUE(above.out.header.flags & AGGREGATE_BYPASS);
  EXPECT_EQ(above.counter("overlap"), 1u);
}

TEST(AggregateProgram, AFragmentOfOneWorkerNeedsNoMemory) {
  Switch s({{"pool", std::int64_t{0}}}, {job_of(kA, 1), job_of(kB, 2)});
  EXPECT_EQ(s.data(kB, 0, 0, 5), kUp);  // a pool of nothing sums nothing
  EXPECT_EQ(s.out.header.type, AGGREGATE_DATA);
  Switch t({}, {job_of(kA, 1)});
  EXPECT_EQ(t.data(kA, 0, 0, 5), kUp);
  EXPECT_EQ(t.out.header.type, AGGREGATE_AGG);
  EXPECT_EQ(t.slot().job, 0);
}

TEST(AggregateProgram, AdditionsWrapOrSaturate) {
  Switch wraps({}, {job_of(kA, 2)});
  wraps.data(kA, 0, 0, INT32_MAX);
  wraps.data(kA, 0, 1, 1);
  EXPECT_EQ(wraps.out.values[0], INT32_MIN);
  EXPECT_EQ(wraps.out.header.flags, 0);
  for (const auto [a, b, sum] : {std::array{INT32_MAX, 1, INT32_MAX}, std::array{INT32_MIN, -1, INT32_MIN}}) {
    Switch stops({{"saturate", true}}, {job_of(kA, 2)});
    stops.data(kA, 0, 0, a);
    stops.data(kA, 0, 1, b);
    EXPECT_EQ(stops.out.values[0], sum);
    EXPECT_EQ(stops.out.header.flags, AGGREGATE_OVERFLOW);
    EXPECT_EQ(stops.counter("saturated"), 1u);
  }
}

TEST(AggregateProgram, ABootFragmentCarriesAnExponentAlone) {
  Switch s({}, {job_of(kA, 2)});
  Fragment boot = test::data(AGGREGATE_ESA, kA, 0, 0, 0);
  boot.header.flags = AGGREGATE_BOOT;
  boot.header.exponent = static_cast<std::uint8_t>(-9);
  boot.values.clear();
  EXPECT_EQ(s.give(boot, 1), kAbsorbed);
  EXPECT_EQ(s.give(test::data(AGGREGATE_ESA, kA, 0, 1, 3), 2), kUp);  // no fragment is both
  EXPECT_TRUE(s.out.header.flags & AGGREGATE_BYPASS);
  boot.header.workers = 2;
  boot.header.exponent = static_cast<std::uint8_t>(-12);
  EXPECT_EQ(s.give(boot, 2), kUp);
  EXPECT_EQ(s.out.header.type, AGGREGATE_AGG);
  EXPECT_EQ(static_cast<std::int8_t>(s.out.header.exponent), -9);
  EXPECT_TRUE(s.out.values.empty());
}

TEST(AggregateProgram, FloatsPassWithoutASlot) {
  for (const bool resend : {false, true}) {
    Switch s({{"policy", "atp"}}, {job_of(kA, 2, AGGREGATE_ATP)});
    s.scheme = AGGREGATE_ATP;
    for (std::uint32_t worker = 0; worker < 2; ++worker) {
      Fragment floats = test::data(AGGREGATE_ATP, kA, 0, worker, 3);
      floats.header.flags = AGGREGATE_FLOATS;
      if (resend) floats.header.type = AGGREGATE_RESEND;
      EXPECT_EQ(s.give(floats, static_cast<SwitchPort>(worker + 1)), kUp);
      EXPECT_EQ(s.out.values[0], 3);
      EXPECT_EQ(s.out.header.workers, 1u << worker);
    }
    EXPECT_EQ(s.counter("claim"), 0u);
    EXPECT_EQ(s.counter("upwards"), 2u);
  }
}

struct SwitchMl : Switch {
  SwitchMl(unsigned workers, bool check, std::uint32_t window = 2)
      : Switch({{"policy", "switchml"}, {"generation_check", check}, {"pool", 4 * kSlot64}},
               {job_of(kA, workers, AGGREGATE_SWITCHML, window)}) {
    scheme = AGGREGATE_SWITCHML;
  }
};

TEST(AggregateProgram, SwitchMlsTwoSetsTakeTurns) {
  for (const bool check : {true, false}) {
    SCOPED_TRACE(check);
    SwitchMl s(2, check);
    for (std::uint32_t p = 0; p < 12; ++p) {
      ASSERT_EQ(s.data(kA, p, 0, 1), kAbsorbed);
      ASSERT_EQ(s.data(kA, p, 0, 1), kAbsorbed);  // a duplicate before the sum is whole
      ASSERT_EQ(s.data(kA, p, 1, static_cast<std::int32_t>(p)), (Verdict{Verdict::Action::replicate, 0}));
      ASSERT_EQ(s.out.header.type, AGGREGATE_RESULT);
      ASSERT_EQ(s.out.values[0], static_cast<std::int32_t>(p) + 1);
      ASSERT_EQ(s.out.header.workers, 3u);
      ASSERT_EQ(s.data(kA, p, 0, 1).action, Verdict::Action::reply);  // it has lost the result
      ASSERT_EQ(s.out.values[0], static_cast<std::int32_t>(p) + 1);
      ASSERT_EQ(s.out.header.workers, 1u);
      ASSERT_TRUE(s.out.header.flags & AGGREGATE_UNICAST);
    }
  }
}

TEST(AggregateProgram, SwitchMlWithoutTheCheckIsWrongUnderReordering) {
  for (const bool check : {true, false}) {
    SwitchMl s(2, check, 1);
    for (std::uint32_t p = 0; p < 2; ++p) s.data(kA, p, 0, 1), s.data(kA, p, 1, 1);
    s.data(kA, 0, 0, 1000);  // an old copy arrives behind the sender's next packet
    s.data(kA, 2, 0, 1);
    s.data(kA, 2, 1, 1);
    EXPECT_EQ(s.out.values[0] == 2, check);
  }
}

TEST(AggregateProgram, SwitchMlWithOneWorkerAnswersAtOnce) {
  SwitchMl s(1, true);
  EXPECT_EQ(s.data(kA, 0, 0, 9), (Verdict{Verdict::Action::replicate, 0}));
  EXPECT_EQ(s.out.values[0], 9);
  EXPECT_EQ(s.data(kA, 0, 0, 9).action, Verdict::Action::reply);
}

std::string_view dropped(Switch& s, const Fragment& f, SwitchPort in) {
  const Verdict verdict = s.give(f, in);
  return verdict.action == Verdict::Action::drop ? s.program().reason(verdict.value) : "not dropped";
}

TEST(AggregateProgram, AServerMayBeOnAWorkersHost) {
  AggregateBatch::Job job = job_of(kA, 2);
  job.children[0].port = job.up;  // worker 0
  Switch s({}, {job});
  EXPECT_EQ(s.give(test::data(AGGREGATE_ESA, kA, 0, 0, 1), job.up), kAbsorbed);
  EXPECT_EQ(s.data(kA, 0, 1, 2), Verdict::forward(job.up));
  Fragment result = s.out;
  result.header.type = AGGREGATE_RESULT;
  EXPECT_EQ(s.give(result, job.up), (Verdict{Verdict::Action::replicate, 0}));
  result.header.workers = 1;
  EXPECT_EQ(s.give(result, job.up), Verdict::forward(job.up));
}

TEST(AggregateProgram, AForgedPacketChangesNoSum) {
  Switch s({}, {job_of(kA, 2), job_of(kB, 2)});
  s.data(kA, 0, 0, 5);
  const auto before = s.program().snapshot().bytes;
  Fragment f = data(AGGREGATE_ESA, kA, 0, 1, 6);
  EXPECT_EQ(dropped(s, f, 1), "drop_aggregate_workers");  // worker 1 is not behind port 1
  EXPECT_EQ(dropped(s, f, 4), "drop_aggregate_workers");
  f.header.workers = 7;
  EXPECT_EQ(dropped(s, f, 2), "drop_aggregate_workers");
  f.header.workers = 0;
  EXPECT_EQ(dropped(s, f, 2), "drop_aggregate_workers");
  f = data(AGGREGATE_ESA, kA, 0, 1, 6);
  EXPECT_EQ(dropped(s, f, 0), "drop_aggregate_workers");  // from where results come
  f.header.type = AGGREGATE_RESULT;
  EXPECT_EQ(dropped(s, f, 2), "drop_aggregate_type");
  f.header.type = 8;
  EXPECT_EQ(dropped(s, f, 2), "drop_aggregate_type");
  f = data(AGGREGATE_ATP, kA, 0, 1, 6);
  EXPECT_EQ(dropped(s, f, 2), "drop_aggregate_type");
  f = data(AGGREGATE_ESA, kA, 0, 1, 6);
  f.header.version_scheme = 2 << 4 | AGGREGATE_ESA;
  EXPECT_EQ(dropped(s, f, 2), "drop_aggregate_version");
  f = data(AGGREGATE_ESA, kA, 0, 1, 6, 100, 63);
  EXPECT_EQ(dropped(s, f, 2), "drop_aggregate_short");
  f = data(AGGREGATE_ESA, kA, 0, 0, 0);
  f.header.type = AGGREGATE_REMIND;
  f.header.hop = 9;
  EXPECT_EQ(dropped(s, f, 0), "drop_aggregate_no_hop");
  f.header.type = AGGREGATE_RESULT;
  f.header.workers = 4;
  f.header.sequence = 1;
  EXPECT_EQ(dropped(s, f, 0), "drop_aggregate_dead");
  f = data(AGGREGATE_ESA, 77, 0, 0, 6);  // no such job: by its address, fd00::1
  EXPECT_EQ(s.give(f, 3), Verdict::forward(0));
  EXPECT_EQ(s.counter("forward_host"), 1u);
  EXPECT_EQ(s.program().snapshot().bytes, before);
}

TEST(AggregateProgram, TablesThatDoNotFitAreRefused) {
  const auto refused = [](auto change) {
    AggregateBatch batch;
    batch.forward = ForwardBatch::unpack(*host_tables(kPorts));
    batch.jobs = {job_of(kA, 2)};
    change(batch);
    try {
      make({})->set_tables(batch.pack());
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string("not refused");
  };
  EXPECT_EQ(refused([](auto& b) { b.jobs[0].up = 6; }), "AggregateBatch.jobs: job 1: up: port 6 of a switch of 6");
  EXPECT_EQ(refused([](auto& b) { b.jobs[0].window = 0; }), "AggregateBatch.jobs: job 1: window: 1 to 2^30");
  EXPECT_EQ(refused([](auto& b) { b.jobs[0].children[1].workers = 1; }),
            "AggregateBatch.jobs: job 1: children: a worker below two ports");
  EXPECT_EQ(refused([](auto& b) { b.jobs[0].children[1].port = 1; }), "TableBatch.groups[0]: port 1 stands twice");
  EXPECT_EQ(refused([](auto& b) { b.jobs.push_back(b.jobs[0]); }), "AggregateBatch.jobs: job 1 stands twice");
  const auto shares = [&](std::uint32_t base) {
    return refused([&](auto& b) {
      b.jobs.push_back(job_of(kB, 2));
      for (auto& job : b.jobs) job.scheme = AGGREGATE_SWITCHML, job.root = AGGREGATE_INNER, job.window = 4;
      b.jobs[1].base = base;
    });
  };
  EXPECT_EQ(shares(7), "AggregateBatch.jobs: two of SwitchML's have slot 7");
  EXPECT_EQ(shares(8), "not refused");
  EXPECT_THROW(make({{"values", std::int64_t{100}}}), std::invalid_argument);
}

TEST(AggregateProgram, TablesSurvivePacking) {
  AggregateBatch batch;
  batch.forward = ForwardBatch::unpack(*host_tables(kPorts, 3));
  batch.jobs = {job_of(kA, 4, AGGREGATE_SWITCHML, 9), job_of(kB, 1)};
  batch.jobs[0].base = 12;
  batch.jobs[1].hops = {{3, 1}, {9, 2}};
  const auto packed = batch.pack();
  EXPECT_EQ(AggregateBatch::unpack(*packed), batch);
  EXPECT_EQ(packed->groups[0], (std::vector<SwitchPort>{1, 2, 3, 4}));
  for (std::size_t n = 0; n < packed->bytes.size(); ++n) {
    TableBatch cut = *packed;
    cut.bytes.resize(n);
    EXPECT_THROW(AggregateBatch::unpack(cut), std::invalid_argument) << n;
  }
}

// The header's bytes as published with the formats.
TEST(AggregateProgram, TheHeadersBytesAreTheReferences) {
  Fragment f = data(AGGREGATE_ESA, 1, 0, 2, 0, 107, 256);
  f.header.index = 230;
  f.header.time = 0x11223344;
  const std::vector<std::uint8_t> frame = frame_of(f);
  const std::array<std::uint8_t, 32> golden = {0x12, 0, 0,    0x6b, 1, 0, 0xe6, 0,    0,    0,   0,
                                               0,    0, 1,    2,    0, 4, 0,    0,    0,    0,   0,
                                               0,    0, 0xff, 0xff, 0, 0, 0x44, 0x33, 0x22, 0x11};
  EXPECT_TRUE(std::equal(golden.begin(), golden.end(), frame.begin() + AGGREGATE_AT));
}

}  // namespace
}  // namespace loomnet::test
