// The golden trace of one slot with hosts and switch: two jobs of two workers each, the second of the
// higher priority. What each packet does is known, and what the servers and workers then hold.
#include <gtest/gtest.h>

#include <list>
#include <map>
#include <tuple>

#include "transport_ina/ina_network.hpp"
#include "transport_ina/ina_script.hpp"

namespace loomnet::ina::test {
namespace {

constexpr Picoseconds kNow = microseconds(1);

// Ports 0 and 1: the servers of jobs A and B; 2 to 5: A's workers, then B's.
class Trace {
 public:
  struct Job {
    explicit Job(std::uint16_t number, const InaOptions& o)
        : known{number, 3, {{0}}}, workers{Worker(o, known, 0, 1), Worker(o, known, 1, 1)}, server(o, known) {}
    InaJob known;
    Worker workers[2];
    ParameterServer server;
    std::map<Sequence, std::int32_t> sums[2];  // that each worker has
  };
  Trace() : options(small()), a(1, options), b(2, options) {
    static const ProgramKind kind = aggregate_kind();
    program = kind.make(checked_settings(kind, 6, 1,
                                         {{"policy", std::string("esa")},
                                          {"values", std::int64_t{64}},
                                          {"pool", std::int64_t{AGGREGATE_SLOT_BYTES(64)}}}));
    std::vector<AggregateBatch::Job> rows;
    for (std::uint16_t j = 0; j < 2; ++j) {
      auto row = loomnet::test::job_of(static_cast<std::uint16_t>(j + 1), 0);
      row.up = j;
      for (std::uint16_t w = 0; w < 2; ++w) row.children.push_back({static_cast<SwitchPort>(2 + 2 * j + w), bit(w)});
      rows.push_back(row);
    }
    program->set_tables(loomnet::test::aggregate_tables(rows, 6));
  }
  // One worker's next fragment goes to the switch, and all that follows arrives in order.
  void data(Job& job, unsigned w, std::int32_t value, std::uint8_t priority) {
    values.push_back(values_of(value));
    Contribution part;
    part.values = values.back();
    part.priority = priority;
    job.workers[w].submit(part);
    last = frame_of(*job.workers[w].pull(kNow), static_cast<std::uint8_t>(job.known.job));
    give(last, static_cast<SwitchPort>(2 * job.known.job + w));
  }
  void give(Frame frame, SwitchPort port) {
    const Verdict verdict = show(*program, memory, frame, port, kNow);
    if (!verdict.leaves()) return;
    if (verdict.action == Verdict::Action::reply) return arrive(frame, port);
    if (verdict.action == Verdict::Action::forward) return arrive(frame, verdict.value);
    for (const SwitchPort member : program->members(verdict.value)) arrive(frame, member);
  }
  void arrive(const Frame& frame, SwitchPort port) {
    Job& job = port == 0 || port == 2 || port == 3 ? a : b;
    const aggregate_header h = frame.header();
    EXPECT_EQ(h.job, job.known.job);
    if (port >= 2) {
      const Received got = job.workers[port % 2].on_packet(h, frame.payload(), kNow);
      if (got.kind == Received::Kind::result) job.sums[port % 2][got.sequence] = first_of(got.values);
      return;
    }
    to_server.emplace_back(h.type, h.job, h.sequence, h.workers);
    job.server.on_packet(h, frame.payload(), kNow);
    answer(job, kNow);
  }
  void answer(Job& job, Picoseconds now) {
    while (const auto out = job.server.pull(now)) give(frame_of(*out, 0), static_cast<SwitchPort>(job.known.job - 1));
  }
  aggregate_slot slot() const {
    aggregate_slot s;
    std::memcpy(&s, program->snapshot().bytes.data(), sizeof s);
    return s;
  }
  void expect_slot(std::uint16_t job, std::uint32_t n, std::uint64_t workers, int priority, std::int32_t value) const {
    const aggregate_slot s = slot();
    EXPECT_EQ(s.state, AGGREGATE_SUMMING);
    EXPECT_EQ(s.job, job + 1);
    EXPECT_EQ(s.sequence, n);
    EXPECT_EQ(s.workers, workers);
    EXPECT_EQ(s.priority, priority);
    EXPECT_EQ(s.sum[0], value);
  }
  using Arrived = std::tuple<int, int, std::uint32_t, std::uint64_t>;
  std::vector<Arrived> to_server;
  InaOptions options;
  Job a, b;
  std::unique_ptr<SwitchProgram> program;
  Memory memory;
  std::list<std::vector<std::uint8_t>> values;
  Frame last;
};

TEST(InaGoldenTrace, OneSlotOfTwoJobs) {
  Trace t;
  const auto server_got = [&](int type, int job, std::uint32_t n, std::uint64_t workers) {
    ASSERT_FALSE(t.to_server.empty());
    EXPECT_EQ(t.to_server.back(), (Trace::Arrived{type, job, n, workers}));
  };
  using Sums = std::map<Sequence, std::int32_t>;
  t.data(t.a, 0, 5, 50);  // 1
  t.expect_slot(1, 0, 1, 50, 5);
  t.data(t.b, 0, 7, 100);  // 2
  const Frame second = t.last;
  server_got(AGGREGATE_EVICT, 1, 0, 1);
  t.expect_slot(2, 0, 1, 100, 7);
  t.data(t.a, 1, 6, 50);  // 3
  server_got(AGGREGATE_DATA, 1, 0, 2);
  t.expect_slot(2, 0, 1, 50, 7);
  for (const Sums& sums : t.a.sums) EXPECT_EQ(sums, (Sums{{0, 11}}));
  t.data(t.a, 0, 1, 50);  // 4
  server_got(AGGREGATE_DATA, 1, 1, 1);
  t.expect_slot(2, 0, 1, 25, 7);
  t.data(t.a, 1, 2, 50);  // 5
  server_got(AGGREGATE_EVICT, 2, 0, 1);
  t.expect_slot(1, 1, 2, 50, 2);
  t.data(t.b, 1, 9, 100);  // 6
  server_got(AGGREGATE_EVICT, 1, 1, 2);
  t.expect_slot(2, 0, 2, 100, 9);
  for (const Sums& sums : t.a.sums) EXPECT_EQ(sums, (Sums{{0, 11}, {1, 3}}));
  for (const Sums& sums : t.b.sums) EXPECT_TRUE(sums.empty());
  const Picoseconds due = t.b.server.deadline();  // 7
  t.b.server.on_deadline(due);
  t.answer(t.b, due);
  server_got(AGGREGATE_REPLY, 2, 0, 2);
  for (const Sums& sums : t.b.sums) EXPECT_EQ(sums, (Sums{{0, 16}}));
  EXPECT_EQ(t.slot().state, AGGREGATE_FREE);
  t.give(second, 4);  // 8
  server_got(AGGREGATE_DATA, 2, 0, 1);
  EXPECT_EQ(t.b.server.counters().late, 1u);
  EXPECT_EQ(t.slot().state, AGGREGATE_FREE);
  EXPECT_EQ(t.slot().job, 3);
  EXPECT_EQ(t.slot().sequence, 0u);
}

}  // namespace
}  // namespace loomnet::ina::test
