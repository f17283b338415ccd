// The parameter server of ATP and ESA, rule by rule.
#include "transport/ina/parameter_server.hpp"

#include "transport_ina/ina_script.hpp"

namespace loomnet::ina::test {
namespace {

constexpr Picoseconds kT = microseconds(5);

struct Script {
  explicit Script(InaOptions o = small(), InaJob job = job1()) : options(o), server(o, job) {}
  void give(std::uint32_t type, Sequence n, std::uint64_t workers, std::int32_t value, std::uint8_t flags = 0,
            Picoseconds now = kT) {
    aggregate_header h = header(type, n, workers, options.scheme);
    h.flags = flags;
    server.on_packet(h, values_of(value), now);
  }
  void whole(Sequence n, Picoseconds now = kT) { give(AGGREGATE_AGG, n, 7, 1, 0, now); }
  std::vector<Outgoing> sent(Picoseconds now = kT) {
    std::vector<Outgoing> all;
    while (auto out = server.pull(now)) all.push_back(*out);
    return all;
  }
  // The one RESULT that is ready; its sum.
  std::int32_t sum() {
    const auto all = sent();
    EXPECT_EQ(all.size(), 1u);
    if (all.size() != 1 || all[0].header.type != AGGREGATE_RESULT) return -1;
    return first_of(all[0].values);
  }
  std::uint64_t count(const std::string& name) { return counted(server.counters())[name]; }
  InaOptions options;
  ParameterServer server;
};

TEST(InaServer, GoldenBytesOfAResult) {
  InaOptions o = small();
  o.values = 256;
  o.window = 1;
  ParameterServer server(o, {1, 15, {}});
  aggregate_header h = header(AGGREGATE_AGG, 0, 15);
  h.values = 256;
  h.flags = AGGREGATE_COLLISION;
  h.exponent = static_cast<std::uint8_t>(-3);
  const auto values = values_of(11, 256);
  server.on_packet(h, values, {});
  auto out = server.pull({});
  ASSERT_TRUE(out);
  const IndexTable table = [] {
    IndexTable t(IndexPolicy::rehash, 1, 1, 1000);
    t.next(0, true);
    return t;
  }();
  EXPECT_EQ(out->header.next_index, table.of(1));
  out->header.next_index = 603;
  const std::uint8_t golden[] = {0x12, 6, 2, 0, 1, 0, 0xe6, 0, 0,    0, 0, 0, 0, 1, 0xfe, 0xfd,
                                 0x0f, 0, 0, 0, 0, 0, 0,    0, 0x5b, 2, 0, 0, 0, 0, 0,    0};
  EXPECT_EQ(std::memcmp(&out->header, golden, sizeof golden), 0);
  EXPECT_EQ(first_of(out->values), 11);
  EXPECT_EQ(out->wire_values, 256u);
}

TEST(InaServer, SumsDisjointParts) {  // P4, P5
  Script s;
  s.give(AGGREGATE_DATA, 0, 1, 100);
  s.give(AGGREGATE_EVICT, 0, 2, 10);
  s.give(AGGREGATE_DATA, 0, 1, 100);  // a copy
  EXPECT_FALSE(s.server.wants());
  s.give(AGGREGATE_REPLY, 0, 4, 1);
  EXPECT_EQ(s.sum(), 111);
  EXPECT_EQ(s.count("from_parts"), 1u);
  EXPECT_EQ(s.count("overlap"), 1u);
}

TEST(InaServer, ACoveringSumReplacesWhatItCovers) {  // P4
  Script s;
  s.give(AGGREGATE_RESEND, 0, 1, 100);
  s.give(AGGREGATE_EVICT, 0, 3, 110);
  EXPECT_EQ(s.count("superset"), 1u);
  s.give(AGGREGATE_EVICT, 0, 6, 11);  // half of it is there
  EXPECT_EQ(s.count("overlap"), 1u);
  EXPECT_EQ(s.server.parts(0).size(), 1u);
  s.give(AGGREGATE_RESEND, 0, 4, 1);
  EXPECT_EQ(s.sum(), 111);
  s.give(AGGREGATE_DATA, 1, 2, 5);
  s.give(AGGREGATE_AGG, 1, 7, 222);
  EXPECT_EQ(s.sum(), 222);
  EXPECT_EQ(s.count("full"), 1u);
}

TEST(InaServer, OneRunningSumTakesDisjointAndWholeParts) {
  InaOptions o = small();
  o.components = false;
  Script s(o);
  s.give(AGGREGATE_DATA, 0, 1, 100);
  s.give(AGGREGATE_EVICT, 0, 3, 110);  // covers, but what it covers cannot be taken out
  s.give(AGGREGATE_DATA, 0, 2, 10);
  EXPECT_EQ(s.server.parts(0).size(), 1u);
  s.give(AGGREGATE_DATA, 0, 4, 1);
  EXPECT_EQ(s.sum(), 111);
  EXPECT_EQ(s.count("overlap"), 1u);
  s.give(AGGREGATE_DATA, 1, 1, 1, AGGREGATE_BOOT);  // refused: 64 values in a fragment without any
  EXPECT_EQ(s.count("drop_values"), 1u);
}

TEST(InaServer, FloatsAreAddedInTheOrderOfTheWorkers) {
  for (const bool components : {true, false}) {
    InaOptions o = small();
    o.components = components;
    Script s(o);
    const auto give = [&](std::uint64_t worker, float value, std::uint32_t type = AGGREGATE_DATA) {
      s.give(type, 0, worker, std::bit_cast<std::int32_t>(value), AGGREGATE_FLOATS | AGGREGATE_BYPASS);
    };
    give(2, -3e38f);
    give(4, 1.0f);
    s.give(AGGREGATE_DATA, 0, 1, 5);  // int32 for a fragment of floats
    EXPECT_EQ(s.count("drop_floats"), 1u);
    give(2, -3e38f, AGGREGATE_RESEND);
    give(1, 3e38f);
    const auto all = s.sent();
    ASSERT_EQ(all.size(), 1u);
    EXPECT_TRUE(all[0].header.flags & AGGREGATE_FLOATS);
    EXPECT_EQ(std::bit_cast<float>(first_of(all[0].values)), (3e38f - 3e38f) + 1.0f) << "another order would give 0";
    EXPECT_EQ(s.count("as_floats"), 1u);
    s.give(AGGREGATE_DATA, 1, 1, 5);
    s.give(AGGREGATE_DATA, 1, 2, 5, AGGREGATE_FLOATS);
    EXPECT_EQ(s.count("drop_floats"), 2u);
    give(1, 3e38f, AGGREGATE_RESEND);  // its result again
    const auto again = s.sent();
    ASSERT_EQ(again.size(), 1u);
    EXPECT_EQ(std::bit_cast<float>(first_of(again[0].values)), 1.0f);
  }
}

TEST(InaServer, FlagsStickAndTheGreatestExponentWins) {  // P3
  Script s;
  for (unsigned w = 0; w < 3; ++w) {
    constexpr std::uint8_t kFlags[] = {AGGREGATE_ECN | AGGREGATE_BYPASS, AGGREGATE_NONFINITE, AGGREGATE_OVERFLOW};
    constexpr std::int8_t kExponents[] = {-100, -3, -128};
    aggregate_header h = header(AGGREGATE_DATA, 0, bit(w));
    h.flags = kFlags[w];
    h.exponent = static_cast<std::uint8_t>(kExponents[w]);
    s.server.on_packet(h, values_of(1), kT);
  }
  const auto all = s.sent();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].header.flags, AGGREGATE_STICKY);
  EXPECT_EQ(static_cast<std::int8_t>(all[0].header.exponent), -3);
}

TEST(InaServer, SumsWrapOrSaturate) {
  for (const bool saturate : {false, true}) {
    InaOptions o = small();
    o.saturate = saturate;
    Script s(o, job1(3));
    s.give(AGGREGATE_DATA, 0, 1, INT32_MAX);
    s.give(AGGREGATE_DATA, 0, 2, 2);
    const auto all = s.sent();
    ASSERT_EQ(all.size(), 1u);
    EXPECT_EQ(first_of(all[0].values), saturate ? INT32_MAX : INT32_MIN + 1);
    EXPECT_EQ(all[0].header.flags, saturate ? AGGREGATE_OVERFLOW : 0u);
    s.give(AGGREGATE_DATA, 1, 1, INT32_MIN);
    s.give(AGGREGATE_DATA, 1, 2, -1);
    EXPECT_EQ(s.sum(), saturate ? INT32_MIN : INT32_MAX);
  }
}

TEST(InaServer, AResultIsKeptForThoseThatAskAgain) {  // P2
  Script s;
  s.whole(0);
  EXPECT_EQ(s.sum(), 1);
  s.give(AGGREGATE_DATA, 0, 2, 10);  // late, and no question
  s.give(AGGREGATE_EVICT, 0, 3, 10);
  EXPECT_FALSE(s.server.wants());
  EXPECT_EQ(s.count("late"), 2u);
  s.give(AGGREGATE_RESEND, 0, 4, 1);
  s.give(AGGREGATE_RESEND, 0, 1, 1);
  s.give(AGGREGATE_RESEND, 0, 4, 1);
  const auto all = s.sent();
  ASSERT_EQ(all.size(), 2u);
  for (const Outgoing& out : all) EXPECT_EQ(out.header.flags, AGGREGATE_UNICAST);
  EXPECT_EQ(all[0].header.workers | all[1].header.workers, 5u);
  EXPECT_EQ(first_of(all[0].values), 1);
  EXPECT_EQ(s.count("re_result"), 3u);
}

TEST(InaServer, AtpsEmptiedSlotAsksForItsSender) {
  Script s(small(AGGREGATE_ATP));
  s.whole(0);
  s.sent();
  aggregate_header h = header(AGGREGATE_RESEND, 0, 3, AGGREGATE_ATP);
  h.source = 1;
  s.server.on_packet(h, values_of(1), kT);
  EXPECT_EQ(s.sent().at(0).header.workers, 2u);
}

TEST(InaServer, ForgetsWhatIsTwoWindowsOld) {  // P1
  Script s;
  for (Sequence n = 0; n < 8; ++n) s.whole(n);
  s.sent();
  s.give(AGGREGATE_RESEND, 0, 1, 1);
  EXPECT_EQ(s.sent().size(), 1u);
  s.whole(8);
  s.sent();
  s.give(AGGREGATE_RESEND, 0, 1, 1);
  EXPECT_FALSE(s.server.wants());
  EXPECT_EQ(s.count("ghost"), 1u);
  EXPECT_TRUE(s.server.parts(0).empty());
  EXPECT_EQ(s.server.highest(), 8);
  EXPECT_EQ(s.server.base(), 9);
}

TEST(InaServer, ACollisionGivesThePositionANewIndex) {
  Script s;
  s.give(AGGREGATE_DATA, 0, 1, 1);
  s.give(AGGREGATE_DATA, 0, 2, 1, AGGREGATE_COLLISION);
  s.give(AGGREGATE_DATA, 0, 4, 1);
  const auto first = s.sent().at(0).header;
  EXPECT_TRUE(first.flags & AGGREGATE_COLLISION);
  EXPECT_EQ(first.index, 230);
  EXPECT_NE(first.next_index, 230);
  s.whole(1);
  const auto second = s.sent().at(0).header;
  EXPECT_EQ(second.index, second.next_index);
  for (Sequence n = 2; n < 5; ++n) s.whole(n);
  EXPECT_EQ(s.sent().at(2).header.index, first.next_index);
  s.give(AGGREGATE_RESEND, 0, 1, 1);  // a kept result says the same as before
  const auto again = s.sent().at(0).header;
  EXPECT_EQ(again.index, 230);
  EXPECT_EQ(again.next_index, first.next_index);
  EXPECT_EQ(s.count("rehash"), 1u);
}

TEST(InaServer, RemindsEverySwitchAndThenTheWorkers) {  // P6
  Script s;
  s.give(AGGREGATE_DATA, 0, 1, 100);
  const Picoseconds d0 = s.options.switch_rtt * 10;
  EXPECT_EQ(s.server.deadline(), kT + d0);
  s.give(AGGREGATE_DATA, 0, 1, 100, 0, kT * 2);  // nothing new: the timer runs on
  s.server.on_deadline(kT + d0);
  auto all = s.sent(kT + d0);
  ASSERT_EQ(all.size(), 2u);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(all[i].header.type, AGGREGATE_REMIND);
    EXPECT_EQ(all[i].header.hop, 20 + i);
    EXPECT_EQ(all[i].header.index, 230);
    EXPECT_EQ(all[i].header.time, clock_us(kT + d0));
    EXPECT_EQ(all[i].wire_values, 64u);  // the answer is written into it
  }
  Picoseconds now = kT + d0;
  for (const int times : {2, 4, 8, 16, 16}) {
    EXPECT_EQ(s.server.deadline(), now + d0 * times);
    now += d0 * times;
    s.server.on_deadline(now);
    all = s.sent(now);
    ASSERT_EQ(all.size(), 3u);
    EXPECT_EQ(all[2].header.type, AGGREGATE_NAK);
    EXPECT_EQ(all[2].header.workers, 6u);  // that are missing
    EXPECT_EQ(all[2].wire_values, 0u);
  }
  s.give(AGGREGATE_REPLY, 0, 6, 11, 0, now);
  EXPECT_EQ(s.sum(), 111);
  s.server.on_deadline(now + seconds(1));
  EXPECT_FALSE(s.server.wants());
  EXPECT_EQ(s.server.deadline(), kNever);
}

TEST(InaServer, AReplyIsNoProgressOfWorkersButMeasuresTheRoundTrip) {
  Script s;
  s.give(AGGREGATE_DATA, 0, 1, 100);
  const Picoseconds due = s.server.deadline();
  s.server.on_deadline(due);
  const auto reminder = s.sent(due).at(0).header;
  aggregate_header reply = header(AGGREGATE_REPLY, 0, 0);
  reply.time = reminder.time + 1;  // of another reminder
  s.server.on_packet(reply, values_of(0), due + kT);
  EXPECT_EQ(s.server.srtt(), s.options.switch_rtt);
  reply.time = reminder.time;
  const Picoseconds deadline = s.server.deadline();
  s.server.on_packet(reply, values_of(0), due + microseconds(9));
  EXPECT_EQ(s.server.srtt(), microseconds(2));  // 1 + (9 - 1) / 8
  s.server.on_packet(reply, values_of(0), due + seconds(9));  // the second one measures nothing
  EXPECT_EQ(s.server.srtt(), microseconds(2));
  EXPECT_EQ(s.server.deadline(), deadline);
  EXPECT_EQ(s.server.parts(0).size(), 1u);
}

TEST(InaServer, AFinishedFragmentRemindsOfThoseBehindIt) {
  InaOptions o = small(AGGREGATE_ESA, 8);
  Script s(o);
  s.whole(5);  // gap 4: 0 and 1 are behind it by 4 and more, and the server has not heard of them
  auto all = s.sent();
  ASSERT_EQ(all.size(), 5u);
  EXPECT_EQ(all[0].header.type, AGGREGATE_RESULT);
  for (int i = 1; i < 5; ++i) {
    EXPECT_EQ(all[i].header.type, AGGREGATE_REMIND);
    EXPECT_EQ(all[i].sequence, (i - 1) / 2);
  }
  s.whole(6);
  all = s.sent();
  EXPECT_EQ(all.size(), 3u);  // 2 alone is new
  EXPECT_EQ(s.count("early"), 3u);
  Script quiet(small(AGGREGATE_ATP, 8));
  quiet.whole(5);
  quiet.give(AGGREGATE_DATA, 6, 1, 1);
  EXPECT_EQ(quiet.sent().size(), 1u);
  EXPECT_EQ(quiet.server.deadline(), kNever);  // ATP has no reminders
}

TEST(InaServer, WhereTheRootSendsResultsTheServerSendsItsOwn) {
  InaOptions o = small();
  o.index_policy = IndexPolicy::fixed;
  o.result_path = ResultPath::root;
  Script s(o);
  const auto whole = [&](Sequence n) { s.give(AGGREGATE_RESULT, n, 7, 1); };
  whole(0);
  EXPECT_FALSE(s.server.wants());
  s.give(AGGREGATE_RESULT, 1, 3, 1);
  EXPECT_EQ(counted(s.server.counters())["drop_workers"], 1u) << "a RESULT is of all workers";
  s.give(AGGREGATE_RESEND, 0, 1, 1);
  EXPECT_EQ(s.sum(), 1);
  for (const std::uint64_t w : {1, 2, 4}) s.give(AGGREGATE_RESEND, 1, w, 1);
  EXPECT_EQ(s.sum(), 3);
  whole(100);  // 2 to 99 were lost on their way here: the workers have them
  EXPECT_EQ(s.server.base(), 93);
}

TEST(InaServer, NumbersWrap) {
  InaOptions o = small();
  o.first_sequence = (std::int64_t{1} << 32) - 3;
  Script s(o);
  for (Sequence n = o.first_sequence; n < o.first_sequence + 30; ++n) {
    s.whole(n);
    EXPECT_EQ(s.sum(), 1) << n;
  }
  EXPECT_EQ(s.server.highest(), o.first_sequence + 29);
}

TEST(InaServer, BelievesNothingElse) {
  std::vector<Hostile> all;
  const auto add = [&](const char* counter, auto change, std::size_t bytes = 256) {
    all.push_back({counter, header(AGGREGATE_RESEND, 1, 2), bytes});
    change(all.back().header);
  };
  add("drop_version", [](auto& h) { h.version_scheme = 0x02; });
  add("drop_version", [](auto& h) { h.version_scheme = 0x10; });
  add("drop_job", [](auto& h) { h.job = 0xffff; });
  for (const std::uint8_t type : {4, 6, 7, 8, 200}) add("drop_type", [=](auto& h) { h.type = type; });
  add("drop_workers", [](auto& h) { h.workers = 8 | 2; });
  add("drop_workers", [](auto& h) { h.workers = 0; });
  add("drop_workers", [](auto& h) { h.source = 0; });
  add("drop_workers", [](auto& h) { h.source = AGGREGATE_FROM_SWITCH; });
  add("drop_values", [](auto& h) { h.values = 0xffff; });
  add("drop_values", [](auto& h) { h.values = 63; });
  add("drop_short", [](auto&) {}, 252);
  add("drop_boot", [](auto& h) { h.flags = AGGREGATE_BOOT, h.values = 0; });
  for (const std::uint32_t n : {5u, 6u, 0x7fffffffu, 0x80000000u, 0xffffffffu}) {
    add("drop_sequence", [=](auto& h) { h.sequence = n; });
  }
  for (const Hostile& hostile : all) {
    Script s;
    s.whole(0);
    s.sent();
    s.give(AGGREGATE_DATA, 1, 1, 100);
    auto before = counted(s.server.counters());
    const Picoseconds deadline = s.server.deadline();
    s.server.on_packet(hostile.header, values_of(1, hostile.bytes / 4), kT);
    before[hostile.counter] = 1;
    EXPECT_EQ(counted(s.server.counters()), before) << hostile.counter;
    EXPECT_EQ(s.server.deadline(), deadline);
    EXPECT_EQ(s.server.highest(), 1);
    EXPECT_FALSE(s.server.wants());
    s.give(AGGREGATE_DATA, 1, 6, 11);
    EXPECT_EQ(s.sum(), 111);
  }
}

}  // namespace
}  // namespace loomnet::ina::test
