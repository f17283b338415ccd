// A worker of ATP or ESA, rule by rule.
#include "transport/ina/worker.hpp"

#include <cmath>

#include "transport_ina/ina_script.hpp"

namespace loomnet::ina::test {
namespace {

using Kind = Received::Kind;
constexpr Picoseconds kT = microseconds(10);

struct Script {
  explicit Script(InaOptions o = small(), std::uint64_t seed = 1) : options(o), worker(o, job1(), 0, seed) {}
  void fill() {
    while (worker.room()) submit();
  }
  void submit(bool first_of_tensor = false) {
    Contribution part;
    part.values = values;
    part.first_of_tensor = first_of_tensor;
    worker.submit(part);
  }
  // Type and number of each packet that is ready.
  std::vector<std::pair<int, Sequence>> sent(Picoseconds now) {
    std::vector<std::pair<int, Sequence>> all;
    while (auto out = worker.pull(now)) all.emplace_back(out->header.type, out->sequence);
    return all;
  }
  Kind result(Sequence n, Picoseconds now, std::uint8_t flags = 0, std::uint16_t next_index = AGGREGATE_NO_INDEX) {
    aggregate_header h = header(AGGREGATE_RESULT, n, 7, options.scheme);
    h.flags = flags;
    h.next_index = next_index;
    return worker.on_packet(h, values_of(9), now).kind;
  }
  Kind nak(Sequence n, Picoseconds now, std::uint64_t workers = 1) {
    return worker.on_packet(header(AGGREGATE_NAK, n, workers, options.scheme), {}, now).kind;
  }
  std::uint64_t count(const std::string& name) { return counted(worker.counters())[name]; }
  InaOptions options;
  std::vector<std::uint8_t> values = values_of(5);
  Worker worker;
};
const std::pair<int, Sequence> kData0{AGGREGATE_DATA, 0}, kResend0{AGGREGATE_RESEND, 0};

TEST(InaWorker, GoldenBytesOfData) {
  InaOptions o = small();
  o.values = 256;
  o.window = 8;
  Worker worker(o, {1, 15, {}}, 2, 1);
  const auto values = values_of(1, 256);
  Contribution part;
  part.values = values;
  part.priority = 107;
  worker.submit(part);
  const auto out = worker.pull(microseconds(0x11223344));
  ASSERT_TRUE(out);
  const std::uint8_t golden[] = {0x12, 0, 0, 0x6b, 1, 0, 0xe6, 0, 0,    0,    0, 0, 0,    1,    2,    0,
                                 4,    0, 0, 0,    0, 0, 0,    0, 0xff, 0xff, 0, 0, 0x44, 0x33, 0x22, 0x11};
  EXPECT_EQ(std::memcmp(&out->header, golden, sizeof golden), 0);
  EXPECT_EQ(out->values.data(), values.data());  // by reference
  EXPECT_EQ(out->wire_values, 256u);
}

TEST(InaWorker, SendsAWindowAndOneMoreForEachResultInOrder) {  // W1, W2
  Script s;
  s.fill();
  EXPECT_FALSE(s.worker.room());
  EXPECT_THROW(s.submit(), std::logic_error);
  EXPECT_EQ(s.sent(kT).size(), 4u);
  EXPECT_EQ(s.result(1, kT), Kind::result);
  EXPECT_FALSE(s.worker.room());  // 0 is still without
  EXPECT_EQ(s.worker.keeps_from(), 0);  // W5
  EXPECT_EQ(s.result(0, kT), Kind::result);
  EXPECT_EQ(s.worker.base(), 2);
  s.fill();
  EXPECT_EQ(s.sent(kT), (std::vector<std::pair<int, Sequence>>{{AGGREGATE_DATA, 4}, {AGGREGATE_DATA, 5}}));
  EXPECT_EQ(s.result(0, kT), Kind::nothing);
  EXPECT_EQ(s.result(1, kT), Kind::nothing);
  EXPECT_EQ(s.count("dup_result"), 2u);
}

TEST(InaWorker, AResultCarriesTheIndexOfAWindowLater) {  // W2
  for (const IndexPolicy policy : {IndexPolicy::rehash, IndexPolicy::fixed}) {
    InaOptions o = small();
    o.index_policy = policy;
    Script s(o);
    s.fill();
    EXPECT_EQ(s.worker.pull(kT)->header.index, 230);
    s.sent(kT);
    s.result(0, kT, 0, 555);
    s.fill();
    EXPECT_EQ(s.worker.pull(kT)->header.index, policy == IndexPolicy::rehash ? 555 : 230);
  }
}

TEST(InaWorker, TimersDoubleUpToTheirCapWithJitter) {  // W3
  InaOptions o = small();
  o.rto_cap = 4;
  Script s(o), same(o), other(o, 2);
  std::vector<std::int64_t> waits, same_waits, other_waits;
  const auto play = [](Script& script, std::vector<std::int64_t>& into) {
    script.submit();
    Picoseconds now = kT;
    EXPECT_EQ(script.sent(now), std::vector{kData0});
    for (int i = 0; i < 6; ++i) {
      const Picoseconds due = script.worker.deadline();
      script.worker.on_deadline(due - Picoseconds{1});
      EXPECT_FALSE(script.worker.wants());
      script.worker.on_deadline(due);
      EXPECT_EQ(script.worker.deadline(), kNever);  // it runs again from the packet that leaves
      into.push_back((due - now).count);
      now = due + kT;
      EXPECT_EQ(script.sent(now), std::vector{kResend0});
    }
  };
  play(s, waits), play(same, same_waits), play(other, other_waits);
  EXPECT_EQ(waits[0], o.rto_first.count);
  for (int i = 1; i < 6; ++i) {
    const double plain = static_cast<double>(o.rto_first.count) * (i == 1 ? 2 : 4);
    EXPECT_GE(static_cast<double>(waits[i]), 0.8 * plain);
    EXPECT_LE(static_cast<double>(waits[i]), 1.2 * plain);
  }
  EXPECT_EQ(waits, same_waits);
  EXPECT_NE(waits, other_waits);
  EXPECT_EQ(s.count("timeout"), 6u);
  EXPECT_EQ(s.worker.timeouts(), 6u);
}

TEST(InaWorker, ATensorsFirstResultEndsItsLongTimeouts) {
  Script s;
  s.submit(true), s.submit();
  s.sent(kT);
  EXPECT_EQ(s.worker.deadline(), kT + s.options.rto_first);
  s.result(0, kT * 2);
  EXPECT_EQ(s.worker.srtt(), kT);
  EXPECT_EQ(s.worker.deadline(), kT * 2 + s.options.rto_min);
  s.submit();
  s.sent(kT * 2);
  s.result(1, kT * 3), s.result(2, kT * 3);
  s.submit(true);  // the next tensor's stragglers get their time again
  s.sent(kT * 3);
  EXPECT_EQ(s.worker.deadline(), kT * 3 + s.options.rto_first);
}

TEST(InaWorker, TheRoundTripIsOfFragmentsSentOnce) {
  Script s;
  s.submit(), s.submit();
  s.sent(kT);
  s.nak(0, kT);
  s.sent(kT);
  s.result(0, kT * 100);
  EXPECT_EQ(s.worker.srtt(), Picoseconds{});
  s.result(1, kT * 9);
  EXPECT_EQ(s.worker.srtt(), kT * 8);
}

TEST(InaWorker, ANakIsAnsweredOnceARoundTrip) {  // W4
  Script s;
  s.fill();
  EXPECT_EQ(s.nak(0, kT), Kind::nothing);  // not sent yet
  s.sent(kT);
  s.result(1, kT * 2);  // a round trip of 1 kT
  EXPECT_EQ(s.nak(0, kT * 2, 6), Kind::nothing);  // of others
  EXPECT_EQ(s.nak(1, kT * 2), Kind::nothing);     // held
  EXPECT_EQ(s.nak(0, kT * 2), Kind::nak);
  EXPECT_EQ(s.nak(0, kT * 2), Kind::nothing);
  EXPECT_EQ(s.sent(kT * 2), std::vector{kResend0});
  EXPECT_EQ(s.nak(0, kT * 2), Kind::nothing);
  EXPECT_EQ(s.nak(0, kT * 3), Kind::nak);
  s.result(0, kT * 3);
  EXPECT_EQ(s.sent(kT * 3), (std::vector<std::pair<int, Sequence>>{}));  // its result came first
  EXPECT_EQ(s.count("nak_resend"), 1u);
  EXPECT_EQ(s.count("nak_early"), 5u);
}

TEST(InaWorker, WhereTheRootSendsResultsANakIsAnsweredForTwoWindows) {  // W6
  InaOptions o = small();
  o.index_policy = IndexPolicy::fixed;
  o.result_path = ResultPath::root;
  Script s(o);
  for (Sequence n = 0; n < 20; ++n) {
    s.submit();
    s.sent(kT * n);
    s.result(n, kT * n);
  }
  EXPECT_EQ(s.worker.keeps_from(), 12);
  EXPECT_EQ(s.nak(12, kT * 30), Kind::nak);
  EXPECT_EQ(s.nak(11, kT * 30), Kind::nothing);
  EXPECT_EQ(s.sent(kT * 30), (std::vector<std::pair<int, Sequence>>{{AGGREGATE_RESEND, 12}}));
  EXPECT_EQ(s.worker.deadline(), kNever);
}

TEST(InaWorker, AGapIsSentOnce) {
  for (const bool repair : {true, false}) {
    InaOptions o = small(AGGREGATE_ATP, 8);
    o.gap_repair = repair;
    Script s(o);
    s.fill();
    s.sent(kT);
    s.result(2, kT);
    EXPECT_EQ(s.sent(kT).size(), repair ? 2u : 0u);
    s.result(4, kT);
    EXPECT_EQ(s.sent(kT), (repair ? std::vector<std::pair<int, Sequence>>{{AGGREGATE_RESEND, 3}}
                                  : std::vector<std::pair<int, Sequence>>{}));
    s.result(3, kT);
    EXPECT_FALSE(s.worker.wants());
    EXPECT_EQ(s.count("gap_resend"), repair ? 3u : 0u);
  }
}

// A gap may be a sum that was put out of its slot. For each result that the server had already when it was
// asked, ESA's worker repairs 8 gaps for each worker of the job.
TEST(InaWorker, EsaRepairsGapsWhileResultsAreKnownToBeLost) {
  for (const aggregate_scheme scheme : {AGGREGATE_ATP, AGGREGATE_ESA}) {
    Script s(small(scheme, 200));
    s.fill();
    s.sent(kT);
    s.result(199, kT);
    const bool atp = scheme == AGGREGATE_ATP;
    EXPECT_EQ(s.count("gap_resend"), atp ? 199u : 0u);
    s.sent(kT);
    s.worker.on_deadline(s.worker.deadline());
    s.sent(kT);
    s.result(31, kT, AGGREGATE_UNICAST);
    for (Sequence n = 0; n < 199; ++n) {
      if (n != 31) s.result(n, kT);
    }
    const std::uint64_t before = s.count("gap_resend");
    s.fill();
    s.sent(kT);
    s.result(300, kT);
    EXPECT_EQ(s.count("gap_resend") - before, atp ? 100u : 24u);
  }
}

// The server may finish what was put out of its slot: ESA's worker leaves a gap four round trips for that, and one
// once a result was known to be lost.
TEST(InaWorker, UnderEsaAGapHasSomeRoundTrips) {
  const Picoseconds trip = microseconds(10);
  InaOptions o = small(AGGREGATE_ESA, 200);
  o.rto_min = milliseconds(100);
  Script s(o);
  s.fill();
  s.sent(kT);
  Picoseconds now = kT + trip;
  s.result(0, now);
  s.result(2, now);
  EXPECT_EQ(s.worker.deadline(), now + trip * 4);
  now = s.worker.deadline();
  s.worker.on_deadline(now);
  s.sent(now);  // fragment 1 goes to the server
  s.result(1, now, AGGREGATE_UNICAST);
  s.result(40, now);
  EXPECT_EQ(s.count("gap_resend"), 24u);  // 3 to 26, at once
  s.sent(now);
  EXPECT_GT(s.worker.deadline(), now);
  EXPECT_LT(s.worker.deadline(), now + trip * 4);
}

// Fragments travel by the trees in turn: a result by one tree says nothing of what another carries.
TEST(InaWorker, AGapIsOfOneTree) {
  using Sent = std::vector<std::pair<int, Sequence>>;
  InaOptions o = small(AGGREGATE_ATP, 12);
  Script s(o);
  s.worker.set_trees(3);
  s.fill();
  s.sent(kT);
  for (const Sequence n : {0, 3, 6}) s.result(n, kT);
  EXPECT_EQ(s.sent(kT), (Sent{}));
  s.result(8, kT);
  EXPECT_EQ(s.sent(kT), (Sent{{AGGREGATE_RESEND, 2}, {AGGREGATE_RESEND, 5}}));
  s.result(4, kT);
  EXPECT_EQ(s.sent(kT), (Sent{{AGGREGATE_RESEND, 1}}));
  s.result(11, kT);
  EXPECT_EQ(s.sent(kT), (Sent{}));
  EXPECT_EQ(s.count("gap_resend"), 3u);
  s.worker.set_trees(1);  // fragments under way went by the three trees
  s.result(9, kT);
  EXPECT_EQ(s.sent(kT), (Sent{}));
}

TEST(InaWorker, ARetransmissionIsNeverAYoungerFragments) {
  Script s(small(AGGREGATE_ESA, 1));
  s.submit();
  s.sent(kT);
  s.worker.on_deadline(s.worker.deadline());  // it is to be sent again ...
  s.result(0, kT * 5);                        // ... and is not, because its result comes
  s.submit();
  EXPECT_EQ(s.sent(kT * 6), (std::vector<std::pair<int, Sequence>>{{AGGREGATE_DATA, 1}}));
}

TEST(InaWorker, TheWindowHalvesOnAMarkAndGrowsByPacketsOf1500Bytes) {
  InaOptions o = small(AGGREGATE_ESA, 32);
  o.cwnd_cap = 20;
  Script s(o);
  EXPECT_EQ(s.worker.cwnd(), 20u);
  Sequence n = 0;
  const auto window = [&](std::uint8_t flags) {  // all that is out is answered
    s.fill();
    s.sent(kT);
    for (const Sequence end = s.worker.next(); n < end; ++n) s.result(n, kT, flags), flags = 0;
  };
  window(AGGREGATE_ECN);  // on the first result: the boundary is fragment 0
  EXPECT_EQ(s.worker.cwnd(), 10u);
  window(0);
  EXPECT_EQ(s.worker.cwnd(), 14u);  // packets of 350 bytes: 4
  window(0);
  window(0);
  EXPECT_EQ(s.worker.cwnd(), 20u);
  for (int i = 0; i < 12; ++i) window(AGGREGATE_ECN);
  EXPECT_EQ(s.worker.cwnd(), 1u);
  o.congestion_control = false;
  Script off(o);
  off.fill();
  EXPECT_EQ(off.sent(kT).size(), 20u);
  off.result(0, kT, AGGREGATE_ECN);
  EXPECT_EQ(off.worker.cwnd(), 20u);
}

TEST(InaWorker, NumbersWrap) {
  InaOptions o = small();
  o.first_sequence = (std::int64_t{1} << 32) - 2;
  Script s(o);
  s.fill();
  for (const std::uint32_t wire : {0xfffffffeu, 0xffffffffu, 0u, 1u})
    EXPECT_EQ(s.worker.pull(kT)->header.sequence, wire);
  EXPECT_EQ(s.result(std::int64_t{1} << 32, kT), Kind::result);
  EXPECT_EQ(s.result(o.first_sequence - 1, kT), Kind::nothing);
  EXPECT_EQ(s.count("drop_sequence"), 1u);
}

TEST(InaWorker, TakesTheResultsValuesAndFlags) {
  Script s;
  Contribution part;
  part.values = Bytes(s.values).first(12);
  s.worker.submit(part);
  part = {};
  part.boot = true;
  part.exponent = -7;
  s.worker.submit(part);
  EXPECT_EQ(s.worker.pull(kT)->wire_values, 64u);
  const auto boot = s.worker.pull(kT);
  EXPECT_EQ(boot->wire_values, 0u);
  EXPECT_EQ(boot->header.flags, AGGREGATE_BOOT);
  aggregate_header h = header(AGGREGATE_RESULT, 0, 7);
  h.values = 3;
  h.exponent = static_cast<std::uint8_t>(-5);
  h.flags = AGGREGATE_NONFINITE | AGGREGATE_COLLISION | AGGREGATE_OVERFLOW;
  const auto payload = values_of(77);
  const Received got = s.worker.on_packet(h, payload, kT);
  EXPECT_EQ(got.values.size(), 12u);
  EXPECT_EQ(first_of(got.values), 77);
  EXPECT_EQ(got.exponent, -5);
  EXPECT_EQ(got.flags, AGGREGATE_NONFINITE | AGGREGATE_OVERFLOW);
  h = header(AGGREGATE_RESULT, 1, 7);
  h.values = 0;
  h.flags = AGGREGATE_BOOT;
  EXPECT_EQ(s.worker.on_packet(h, {}, kT).kind, Kind::result);
}

TEST(InaWorker, BelievesNothingElse) {
  std::vector<Hostile> all;
  const auto add = [&](const char* counter, auto change, std::size_t bytes = 256) {
    all.push_back({counter, header(AGGREGATE_RESULT, 0, 7), bytes});
    change(all.back().header);
  };
  add("drop_version", [](auto& h) { h.version_scheme = 0x22; });
  add("drop_version", [](auto& h) { h.version_scheme = 0x11; });
  add("drop_job", [](auto& h) { h.job = 2; });
  for (const std::uint8_t type : {0, 1, 2, 3, 4, 5, 8, 255}) add("drop_type", [=](auto& h) { h.type = type; });
  add("drop_workers", [](auto& h) { h.workers = 8; });
  add("drop_values", [](auto& h) { h.values = 65; });
  add("drop_values", [](auto& h) { h.values = 63; });
  add("drop_short", [](auto&) {}, 255);
  add("drop_short", [](auto&) {}, 0);
  add("drop_boot", [](auto& h) { h.flags = AGGREGATE_BOOT, h.values = 0; });
  add("drop_floats", [](auto& h) { h.flags = AGGREGATE_FLOATS; });
  add("drop_index", [](auto& h) { h.next_index = 1000; });
  for (const std::uint32_t n : {2u, 100u, 0x7fffffffu, 0x80000000u, 0xffffffffu}) {
    add("drop_sequence", [=](auto& h) { h.sequence = n; });
  }
  for (const Hostile& hostile : all) {
    Script s;
    s.submit(), s.submit();
    s.sent(kT);
    auto before = counted(s.worker.counters());
    const Picoseconds deadline = s.worker.deadline();
    EXPECT_EQ(s.worker.on_packet(hostile.header, values_of(1, hostile.bytes / 4), kT).kind, Kind::nothing);
    before[hostile.counter] = 1;
    EXPECT_EQ(counted(s.worker.counters()), before) << hostile.counter;
    EXPECT_EQ(s.worker.deadline(), deadline);
    EXPECT_EQ(s.worker.base(), 0);
    EXPECT_FALSE(s.worker.wants());
    EXPECT_EQ(s.result(0, kT), Kind::result);
  }
}

TEST(InaWorker, RefusesWhatNoJobHas) {
  const auto refused = [](const std::string& field, auto change) {
    InaOptions o = small();
    InaJob job = job1();
    unsigned number = 0;
    change(o, job, number);
    try {
      Worker(o, job, number, 1);
      ADD_FAILURE() << field << " was taken";
    } catch (const std::invalid_argument& e) {
      EXPECT_NE(std::string(e.what()).find(field + ":"), std::string::npos) << e.what();
    }
  };
  refused("InaOptions.scheme", [](auto& o, auto&, auto&) { o.scheme = AGGREGATE_SWITCHML; });
  refused("InaOptions.values", [](auto& o, auto&, auto&) { o.values = 100; });
  refused("InaOptions.window", [](auto& o, auto&, auto&) { o.window = 0; });
  refused("InaOptions.window", [](auto& o, auto&, auto&) { o.window = 32769; });
  refused("InaOptions.pool", [](auto& o, auto&, auto&) { o.pool = 1'000'001; });
  refused("InaOptions.first_sequence", [](auto& o, auto&, auto&) { o.first_sequence = -1; });
  refused("InaOptions.result_path", [](auto& o, auto&, auto&) { o.result_path = ResultPath::root; });
  refused("InaOptions.rto_first", [](auto& o, auto&, auto&) { o.rto_first = {}; });
  refused("InaOptions.rto_min", [](auto& o, auto&, auto&) { o.rto_min = {}; });
  refused("InaOptions.rto_cap", [](auto& o, auto&, auto&) { o.rto_cap = 0; });
  refused("InaOptions.rto_jitter", [](auto& o, auto&, auto&) { o.rto_jitter = 1; });
  refused("InaOptions.rto_jitter", [](auto& o, auto&, auto&) { o.rto_jitter = std::nan(""); });
  refused("InaOptions.cwnd_cap", [](auto& o, auto&, auto&) { o.cwnd_cap = 40000; });
  refused("InaOptions.cwnd_step_bytes", [](auto& o, auto&, auto&) { o.cwnd_step_bytes = 0; });
  refused("InaOptions.switch_rtt", [](auto& o, auto&, auto&) { o.switch_rtt = {}; });
  refused("InaOptions.remind_rtts", [](auto& o, auto&, auto&) { o.remind_rtts = 0; });
  refused("InaOptions.remind_min", [](auto& o, auto&, auto&) { o.remind_min = {-1}; });
  refused("InaOptions.remind_cap", [](auto& o, auto&, auto&) { o.remind_cap = 0; });
  refused("InaOptions.early_gap", [](auto& o, auto&, auto&) { o.early_gap = 65537; });
  refused("InaOptions.nak_from", [](auto& o, auto&, auto&) { o.nak_from = 0; });
  refused("InaOptions.switchml_timeout", [](auto& o, auto&, auto&) { o.switchml_timeout = {}; });
  refused("InaOptions.switchml_threshold", [](auto& o, auto&, auto&) { o.switchml_threshold = 0; });
  refused("InaJob.job", [](auto&, auto& job, auto&) { job.job = 0xffff; });
  refused("InaJob.workers", [](auto&, auto& job, auto&) { job.workers = 0; });
  refused("InaJob.workers", [](auto&, auto&, auto& number) { number = 3; });
  refused("InaJob.workers", [](auto&, auto&, auto& number) { number = 64; });
  refused("InaJob.trees", [](auto&, auto& job, auto&) { job.trees = {{3, 4}, {3, 4, 3}}; });
  Script s;
  Contribution part;
  EXPECT_THROW(s.worker.submit(part), std::invalid_argument);  // neither values nor boot
  const auto many = values_of(1, 65);
  part.values = many;
  EXPECT_THROW(s.worker.submit(part), std::invalid_argument);
  EXPECT_EQ(s.worker.submitted(), 0);
}

}  // namespace
}  // namespace loomnet::ina::test
