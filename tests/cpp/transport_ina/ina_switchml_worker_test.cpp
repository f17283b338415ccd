// SwitchML's worker: two sets of slots, one timeout for all, numbers that wrap.
#include "transport/ina/switchml_worker.hpp"

#include "transport_ina/ina_script.hpp"

namespace loomnet::ina::test {
namespace {

constexpr Picoseconds kT = microseconds(10);

struct Script {
  explicit Script(InaOptions o = small(AGGREGATE_SWITCHML)) : options(o), worker(o, job1(), 0) {}
  void submit(int n = 1) {
    Contribution part;
    part.values = values;
    for (; n > 0; --n) worker.submit(part);
  }
  std::vector<Sequence> sent(Picoseconds now = kT) {
    std::vector<Sequence> all;
    while (auto out = worker.pull(now)) {
      EXPECT_EQ(out->header.type, AGGREGATE_DATA);
      EXPECT_EQ(out->header.index, on_wire(out->sequence) % (2 * options.window));
      all.push_back(out->sequence);
    }
    return all;
  }
  bool result(Sequence n) {
    return worker.on_packet(header(AGGREGATE_RESULT, n, 7, AGGREGATE_SWITCHML), values_of(9), kT).kind ==
           Received::Kind::result;
  }
  InaOptions options;
  std::vector<std::uint8_t> values = values_of(5);
  SwitchMlWorker worker;
};
using Sent = std::vector<Sequence>;

TEST(InaSwitchMlWorker, AResultReleasesTheSameSlotOfTheOtherSet) {
  Script s;
  s.submit(7);
  EXPECT_EQ(s.sent(), (Sent{0, 1, 2, 3}));
  EXPECT_TRUE(s.result(2));
  EXPECT_EQ(s.sent(), (Sent{6}));
  EXPECT_TRUE(s.result(3));  // 7 is not there yet
  EXPECT_EQ(s.sent(), (Sent{}));
  s.submit();
  EXPECT_EQ(s.sent(), (Sent{7}));
  EXPECT_FALSE(s.worker.room());  // two windows ahead of 0
  EXPECT_THROW(s.submit(), std::logic_error);
  EXPECT_FALSE(s.result(2));
  EXPECT_FALSE(s.result(4));  // not sent
  EXPECT_TRUE(s.result(0));
  EXPECT_EQ(s.worker.base(), 1);
  EXPECT_EQ(counted(s.worker.counters())["dup_result"], 1u);
  EXPECT_EQ(counted(s.worker.counters())["drop_sequence"], 1u);
}

// Slots know nothing of one another: while slot 0 waits, fragments go through the three others without end.
TEST(InaSwitchMlWorker, OtherSlotsGoOnBesideOneThatWaits) {
  Script s;
  s.submit(8);
  EXPECT_EQ(s.sent(), (Sent{0, 1, 2, 3}));
  for (Sequence n = 0; n < 400; n += 4) {
    for (Sequence each = n + 1; each < n + 4; ++each) EXPECT_TRUE(s.result(each));
    while (s.worker.room()) s.submit();
    EXPECT_EQ(s.sent(), (Sent{n + 5, n + 6, n + 7}));
  }
  EXPECT_EQ(s.worker.base(), 0);
  for (Sequence n = 0; n < 400; n += 4) {
    EXPECT_TRUE(s.result(n));
    EXPECT_EQ(s.sent(), (Sent{n + 4}));
  }
  EXPECT_EQ(s.worker.base(), 400);
}

// A tensor of 6 packets with W 4: the next one starts at set 1, slot 2.
TEST(InaSwitchMlWorker, TensorsFollowOneAnotherThroughTheSlots) {
  Script s;
  s.submit(6);
  for (Sequence n = 0; n < 6; ++n) s.sent(), s.result(n);
  s.submit();
  EXPECT_EQ(s.worker.pull(kT)->header.index, 4 + 2);
}

TEST(InaSwitchMlWorker, TheTimeoutDoublesAtThresholdsThatGrow) {
  InaOptions o = small(AGGREGATE_SWITCHML);
  o.switchml_threshold = 3;
  Script s(o);
  s.submit();
  EXPECT_EQ(s.sent(), (Sent{0}));
  std::vector<std::int64_t> waits;
  Picoseconds now = kT;
  for (int i = 0; i < 12; ++i) {
    waits.push_back((s.worker.deadline() - now) / o.switchml_timeout);
    now = s.worker.deadline();
    s.worker.on_deadline(now);
    EXPECT_EQ(s.sent(now), (Sent{0}));
  }
  // After 4 timeouts, and after 7 more.
  EXPECT_EQ(waits, (std::vector<std::int64_t>{1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 4}));
  EXPECT_EQ(s.worker.timeouts(), 12u);
  EXPECT_TRUE(s.result(0));
  EXPECT_EQ(s.worker.deadline(), kNever);
  EXPECT_EQ(s.worker.timeouts(), 0u);
}

TEST(InaSwitchMlWorker, EachThreadCountsTheTimeoutsOfItsOwnSlots) {
  InaOptions o = small(AGGREGATE_SWITCHML);
  o.switchml_threshold = 1;
  o.switchml_threads = 2;
  Script s(o);
  s.submit(4);
  s.sent();
  s.result(1), s.result(2), s.result(3);
  Picoseconds now{};
  for (int i = 0; i < 2; ++i) {  // slots 0 and 2 are the first thread's
    now = s.worker.deadline();
    s.worker.on_deadline(now);
    EXPECT_EQ(s.sent(now), (Sent{0}));
  }
  EXPECT_EQ(s.worker.timeout(), o.switchml_timeout * 2);
  s.submit(4);
  EXPECT_EQ(s.sent(now), (Sent{5, 6, 7}));
  EXPECT_EQ(s.worker.deadline() - now, o.switchml_timeout);  // of 5 and 7
  s.result(0), s.result(5), s.result(7);
  EXPECT_EQ(s.worker.deadline() - now, o.switchml_timeout * 2);  // of 6
}

TEST(InaSwitchMlWorker, ATensorBeginsWithTheFirstTimeoutWhereClientsDo) {
  for (const bool slices : {false, true}) {
    InaOptions o = small(AGGREGATE_SWITCHML);
    o.switchml_threshold = 1;
    o.switchml_threads = 1;
    o.switchml_slices = slices;
    Script s(o);
    s.submit();
    s.sent();
    Picoseconds now{};
    for (int i = 0; i < 2; ++i) {
      now = s.worker.deadline();
      s.worker.on_deadline(now);
      s.sent(now);
    }
    EXPECT_TRUE(s.result(0));
    Contribution next;
    next.values = s.values;
    next.first_of_tensor = true;
    s.worker.submit(next);
    s.sent(now);
    EXPECT_EQ(s.worker.deadline() - now, o.switchml_timeout * (slices ? 1 : 2));
  }
}

TEST(InaSwitchMlWorker, TheTimeoutHasAnEnd) {
  InaOptions o = small(AGGREGATE_SWITCHML);
  o.switchml_threshold = 1;
  Script s(o);
  s.submit();
  s.sent();
  for (int i = 0; i < 400; ++i) {
    const Picoseconds now = s.worker.deadline();
    s.worker.on_deadline(now);
    s.sent(now);
  }
  EXPECT_EQ(s.worker.timeout(), seconds(3600));
}

// A window need not divide 2^32: slots go on in turn where the numbers of fragments wrap.
TEST(InaSwitchMlWorker, SlotsStayInTurnWhereNumbersWrap) {
  for (const std::uint32_t window : {4u, 3u}) {
    InaOptions o = small(AGGREGATE_SWITCHML, window);
    o.first_sequence = (std::int64_t{1} << 32) - 2;
    Script s(o);
    for (std::int64_t n = o.first_sequence; n < o.first_sequence + 12; ++n) {
      s.submit(1);
      const auto packet = s.worker.pull(kT);
      ASSERT_TRUE(packet);
      EXPECT_EQ(packet->header.sequence, static_cast<std::uint32_t>(n));
      EXPECT_EQ(packet->header.index, n % (2 * window));
      EXPECT_TRUE(s.result(n));
    }
  }
}

TEST(InaSwitchMlWorker, BelievesNothingElse) {
  std::vector<Hostile> all;
  const auto add = [&](const char* counter, auto change, std::size_t bytes = 256) {
    all.push_back({counter, header(AGGREGATE_RESULT, 0, 7, AGGREGATE_SWITCHML), bytes});
    change(all.back().header);
  };
  add("drop_version", [](auto& h) { h.version_scheme = 0x12; });
  add("drop_job", [](auto& h) { h.job = 0; });
  for (const std::uint8_t type : {0, 1, 3, 5, 7, 9}) add("drop_type", [=](auto& h) { h.type = type; });
  add("drop_workers", [](auto& h) { h.workers = 15; });
  add("drop_values", [](auto& h) { h.values = 1; });
  add("drop_short", [](auto&) {}, 128);
  add("drop_boot", [](auto& h) { h.flags = AGGREGATE_BOOT, h.values = 0; });
  add("drop_floats", [](auto& h) { h.flags = AGGREGATE_FLOATS; });
  for (const std::uint32_t n : {1u, 9u, 0x80000000u, 0xffffffffu})
    add("drop_sequence", [=](auto& h) { h.sequence = n; });
  for (const Hostile& hostile : all) {
    Script s;
    s.submit();
    s.sent();
    auto before = counted(s.worker.counters());
    EXPECT_EQ(s.worker.on_packet(hostile.header, values_of(1, hostile.bytes / 4), kT).kind, Received::Kind::nothing);
    before[hostile.counter] = 1;
    EXPECT_EQ(counted(s.worker.counters()), before) << hostile.counter;
    EXPECT_EQ(s.worker.base(), 0);
    EXPECT_TRUE(s.result(0));
  }
  EXPECT_THROW(SwitchMlWorker(small(AGGREGATE_ESA), job1(), 0), std::invalid_argument);
  EXPECT_THROW(SwitchMlWorker(small(AGGREGATE_SWITCHML), job1(), 3), std::invalid_argument);
}

}  // namespace
}  // namespace loomnet::ina::test
