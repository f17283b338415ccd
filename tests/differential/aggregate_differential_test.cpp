// The aggregation program, engine against XDP by BPF_PROG_TEST_RUN, on random sequences of fragments of
// three jobs that share few slots: same verdict, bytes, label, reports, counters and slots, under every
// policy, way of release and number of values. Some frames are damaged, cut or not the program's.
#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "differential/packet_generator.hpp"
#include "differential/program_pair.hpp"
#include "switch/aggregate/aggregate_program.hpp"
#include "switch_aggregate/fragments.hpp"

namespace loomnet::test {
namespace {

constexpr SwitchPort kPorts = 8;
constexpr int kLoopback = 1;

struct Case {
  const char* policy;
  aggregate_scheme scheme;
  const char* dealloc;
  std::int64_t values;
  bool root;
  ProgramOptions more;
  bool answers = false;
};

class AggregateDifferentialTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = missing_for_bpf(); !missing.empty()) GTEST_SKIP() << missing;
  }

  // What workers and server might send: their sequences move on, old packets come again.
  Fragment next(RandomStream& random, const Case& c, std::uint64_t uid) {
    const auto job = static_cast<std::uint16_t>(1 + random.below(3));
    const unsigned workers = 1 + job;  // of the jobs below
    std::uint32_t& at = sequence_[job];
    if (random.below(6) == 0) ++at;
    Fragment f = data(c.scheme, job, at - std::min(at, random.below(random.below(8) ? 2 : 12)), random.below(workers),
                      static_cast<std::int32_t>(random()), static_cast<std::uint8_t>(1 + random.below(255)),
                      static_cast<std::size_t>(c.values));
    for (auto& v : f.values) v = static_cast<std::int32_t>(random());
    aggregate_header& h = f.header;
    h.index = static_cast<std::uint16_t>(random.below(4));
    h.exponent = static_cast<std::uint8_t>(random());
    if (random.below(20) == 0) h.flags = static_cast<std::uint8_t>(random());
    if (random.below(10) == 0) h.flags |= AGGREGATE_BOOT;
    if (h.flags & AGGREGATE_BOOT && random.below(4)) f.values.clear();
    f.ecn = random.below(8) ? 2 : 3;
    f.uid = uid;
    if (random.below(5) == 0) {
      static constexpr aggregate_type kOthers[] = {AGGREGATE_RESEND, AGGREGATE_AGG,    AGGREGATE_EVICT,
                                                   AGGREGATE_REPLY,  AGGREGATE_REMIND, AGGREGATE_RESULT,
                                                   AGGREGATE_RESULT, AGGREGATE_NAK};
      h.type = kOthers[random.below(8)];
      if (h.type == AGGREGATE_RESULT || h.type == AGGREGATE_NAK) h.workers = random.below(1u << workers);
      if (h.type == AGGREGATE_REMIND) h.hop = static_cast<std::uint16_t>(random.below(4));
      h.time = static_cast<std::uint32_t>(random());
    }
    if (random.below(40) == 0) h.workers = random();
    if (random.below(60) == 0) h.job = static_cast<std::uint16_t>(random.below(5));
    if (random.below(60) == 0) h.version_scheme = static_cast<std::uint8_t>(random());
    return f;
  }
  // The port behind which the sender is.
  static SwitchPort port_of(const Fragment& f, RandomStream& random) {
    const auto type = f.header.type;
    if (random.below(50) == 0) return static_cast<SwitchPort>(random.below(kPorts));
    if (type == AGGREGATE_RESULT || type == AGGREGATE_NAK || type == AGGREGATE_REMIND) return 0;
    return static_cast<SwitchPort>(f.header.source % 4 + 1);
  }
  static std::shared_ptr<const TableBatch> tables(const Case& c, std::uint32_t generation) {
    std::vector<AggregateBatch::Job> jobs;
    for (std::uint16_t n = 1; n <= 3; ++n) {
      if (generation == 2 && n == 2) continue;  // this job has ended
      AggregateBatch::Job job = job_of(n, n + 1u, c.scheme, n == 1 ? 2 : 4);
      job.root = !c.root ? AGGREGATE_INNER : c.answers ? AGGREGATE_ANSWERS : AGGREGATE_ROOT;
      job.base = n == 1 ? 0 : 8 * n - 12u;  // behind the slots of the jobs before
      job.hops = {{2, 5}, {3, 6}};
      if (n == 3) job.up = 7;
      jobs.push_back(job);
    }
    return aggregate_tables(jobs, kPorts, generation);
  }

  void run(const Case& c, std::uint64_t seed, int frames) {
    SCOPED_TRACE(std::string(c.policy) + " " + c.dealloc + " " + std::to_string(c.values) + " seed " +
                 std::to_string(seed));
    ProgramOptions options = c.more;
    options["policy"] = std::string(c.policy);
    options["dealloc"] = std::string(c.dealloc);
    options["values"] = c.values;
    const bool static_pool = c.scheme == AGGREGATE_SWITCHML;
    options["pool"] =
        static_cast<std::int64_t>((static_pool ? 20 : 4) * AGGREGATE_SLOT_BYTES(static_cast<std::uint32_t>(c.values)));
    options["hop"] = std::int64_t{1};
    static const ProgramKind kind = aggregate_kind();
    ProgramPair pair(kind, kPorts, seed, options);
    PacketGenerator generator(seed, 1500);
    RandomStream& random = generator.random();
    sequence_.clear();
    for (std::uint32_t generation = 1; generation <= 3; ++generation) {
      pair.set_tables(tables(c, generation));
      for (SwitchPort port = 0; port < kPorts; ++port) pair.xdp.set_port(port, kLoopback);
      for (int i = 0; i < frames / 3; ++i) {
        Fragment f = next(random, c, generator.uid());
        SwitchPort in = port_of(f, random);
        if (f.header.job == 3 && in == 0) in = 7;
        std::vector<std::uint8_t> bytes = frame_of(f);
        if (random.below(40) == 0) bytes = generator.next();
        if (random.below(60) == 0 && bytes.size() > 20) {
          std::uint8_t& byte =
              bytes[12 + random.below(static_cast<std::uint32_t>(std::min<std::size_t>(bytes.size() - 12, 90)))];
          byte = static_cast<std::uint8_t>(byte ^ 1u << random.below(8));
        }
        if (random.below(60) == 0) bytes.resize(14 + random.below(static_cast<std::uint32_t>(bytes.size())), 0);
        if (bytes.size() < 14) continue;
        pair.xdp.set_port(in, kLoopback);  // of all ports, the loopback interface is this one
        static constexpr std::size_t kSplits[] = {94, 94, 94, 192, 62, 100, 14};
        const auto difference = pair.difference(bytes, in, kSplits[random.below(7)]);
        ASSERT_FALSE(difference) << "frame " << i << " of generation " << generation << ": " << *difference;
        ++seen_[pair.words(pair.last).substr(0, pair.last.leaves() ? 8 : 99)];
        ++packets_;
        if (i % 500 == 0) {
          ASSERT_EQ(pair.xdp.snapshot().bytes, pair.native.snapshot().bytes) << "after frame " << i;
        }
      }
    }
    const auto difference = pair.counter_difference();
    EXPECT_FALSE(difference) << *difference;
    EXPECT_EQ(pair.xdp.snapshot().bytes, pair.native.snapshot().bytes);
    std::vector<SwitchCounter> all;
    pair.native.counters(all);
    for (const SwitchCounter& counter : all) counted_[std::string(counter.name)] += counter.value;
  }
  std::map<std::uint16_t, std::uint32_t> sequence_;
  std::map<std::string, int> seen_;
  std::map<std::string, std::uint64_t> counted_;
  int packets_ = 0;
};

TEST_F(AggregateDifferentialTest, EveryPolicyOnRandomSequences) {
  const Case cases[] = {
      {"esa", AGGREGATE_ESA, "completion", 64, true, {}},
      {"esa", AGGREGATE_ESA, "ack", 256, true, {{"saturate", true}}},
      {"esa",
       AGGREGATE_ESA,
       "lazy",
       128,
       false,
       {{"downgrade", std::int64_t{2}}, {"downgrade_every", std::int64_t{3}}}},
      {"esa", AGGREGATE_ESA, "ack", 64, true, {{"downgrade", std::int64_t{0}}}},
      {"atp", AGGREGATE_ATP, "", 64, true, {}},
      {"atp", AGGREGATE_ATP, "completion", 256, true, {{"saturate", true}}},
      {"switchml", AGGREGATE_SWITCHML, "", 64, true, {}},
      {"switchml", AGGREGATE_SWITCHML, "", 256, false, {}},
      {"switchml", AGGREGATE_SWITCHML, "", 128, true, {{"generation_check", false}, {"saturate", true}}},
      {"esa", AGGREGATE_ESA, "lazy", 64, true, {}, true},
  };
  std::uint64_t seed = 20260500;
  for (const Case& c : cases) {
    run(c, ++seed, 12'000);
    if (HasFatalFailure()) return;
  }
  for (const auto& [what, n] : seen_) std::printf("  %-32s %d\n", what.c_str(), n);
  EXPECT_GE(packets_, 100'000);
  // No rule is compared by never being used.
  for (const char* rule : {"claim",
                           "merge",
                           "complete",
                           "duplicate",
                           "overlap",
                           "again",
                           "collide",
                           "preempt",
                           "remembered",
                           "takeover",
                           "ghost",
                           "flush",
                           "release",
                           "remind_hit",
                           "remind_empty",
                           "saturated",
                           "answered",
                           "upwards",
                           "downwards",
                           "drop_aggregate_short",
                           "drop_aggregate_version",
                           "drop_aggregate_type",
                           "drop_aggregate_workers",
                           "drop_aggregate_dead",
                           "drop_aggregate_no_hop",
                           "forward_host"}) {
    EXPECT_GT(counted_[rule], 20u) << rule;
  }
}

}  // namespace
}  // namespace loomnet::test
