// What a bounded recording keeps: whole messages chosen by hash, the same in every run, and queues
// whose peaks and ends survive.
#include "trace/recorder.hpp"

#include <gtest/gtest.h>

#include <set>

#include "transport/transport.hpp"

namespace loomnet {
namespace {

// `count` messages of `packets` packets each over one link.
void play(Recorder& recorder, std::uint32_t count, std::uint32_t packets) {
  PacketPool pool;
  for (std::uint32_t n = 1; n <= count; ++n) {
    WorkRequest request;
    request.id = n;
    request.message = n;
    request.length = packets * 1000;
    recorder.posted(0, 5, request, microseconds(n));
    for (std::uint32_t i = 0; i < packets; ++i) {
      PacketPtr p = pool.allocate();
      p->message = n;
      p->wire_length = 1000;
      recorder.sent(2, *p, microseconds(n), microseconds(n) + nanoseconds(80));
    }
    PacketPtr control = pool.allocate();
    recorder.sent(3, *control, microseconds(n), microseconds(n) + nanoseconds(5));
    recorder.completed(0, {5, Status::ok, n, request.length}, microseconds(n + 3));
  }
}

std::set<std::uint32_t> kept(const Recorder& recorder) {
  std::set<std::uint32_t> numbers;
  for (const auto& m : recorder.messages()) numbers.insert(m.number);
  return numbers;
}

TEST(Recorder, KeepsAllBelowTheBound) {
  Recorder recorder({.seed = 1, .timeline = true});
  play(recorder, 100, 10);
  EXPECT_EQ(recorder.messages().size(), 100u);
  EXPECT_EQ(recorder.hops().size(), 1100u);
  EXPECT_EQ(recorder.packet_sampler().halvings(), 0);
  EXPECT_EQ(recorder.messages()[41].completed, microseconds(45));
}

TEST(Recorder, AboveTheBoundKeepsWholeMessagesChosenByHash) {
  const RecorderConfig config{.seed = 1, .timeline = true, .most_hops = 1000};
  Recorder recorder(config);
  play(recorder, 1000, 10);
  EXPECT_LE(recorder.hops().size(), 1000u);
  EXPECT_GE(recorder.packet_sampler().halvings(), 3);
  EXPECT_EQ(recorder.seen().hops, 11000u);
  EXPECT_EQ(recorder.seen().messages, 1000u);
  const auto numbers = kept(recorder);
  ASSERT_GT(numbers.size(), 20u);
  std::map<std::uint32_t, int> hops;
  for (const auto& h : recorder.hops()) ++hops[h.message];
  hops.erase(0);
  EXPECT_EQ(hops.size(), numbers.size());
  for (const auto& [number, n] : hops) {
    EXPECT_EQ(n, 10);
    EXPECT_TRUE(numbers.contains(number));
  }
  // The end of the run is as well represented as its beginning.
  EXPECT_GT(*numbers.rbegin(), 900u);
  EXPECT_LT(*numbers.begin(), 100u);

  Recorder again(config), other({.seed = 2, .timeline = true, .most_hops = 1000});
  play(again, 1000, 10);
  play(other, 1000, 10);
  EXPECT_EQ(kept(again), numbers);
  EXPECT_NE(kept(other), numbers);
}

TEST(Recorder, KeepsOperationsOfAllMembersOrNone) {
  Recorder recorder({.seed = 1, .timeline = true, .most_operations = 64});
  for (std::uint32_t k = 0; k < 200; ++k) {
    for (std::uint32_t host = 0; host < 4; ++host) {
      recorder.work_begins(host, {"all_reduce", k, 0, k, 1}, microseconds(k));
    }
    for (std::uint32_t host = 0; host < 4; ++host) {
      recorder.work_ends(host, 0, k, 100, true, microseconds(k + 1));
    }
  }
  std::map<std::uint64_t, int> members;
  for (const auto& o : recorder.operations()) {
    ++members[o.label.number];
    EXPECT_EQ(o.end - o.begin, microseconds(1));
  }
  ASSERT_GE(members.size(), 3u);
  EXPECT_LE(members.size(), 16u);
  for (const auto& [number, n] : members) EXPECT_EQ(n, 4) << number;
}

TEST(Recorder, TwoJobsOfAHostNumberTheirOperationsAlike) {
  Recorder recorder({.seed = 1, .timeline = true});
  recorder.work_begins(3, {.name = "all_reduce", .number = 7, .operations = 1, .job = 0}, microseconds(1));
  recorder.work_begins(3, {.name = "flow", .number = 7, .operations = 1, .job = 1}, microseconds(2));
  recorder.work_ends(3, 0, 7, 100, true, microseconds(9));
  recorder.work_ends(3, 1, 7, 50, true, microseconds(4));
  const auto found = recorder.operations();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].label.name, "all_reduce");
  EXPECT_EQ(found[0].end, microseconds(9));
  EXPECT_EQ(found[0].bytes, 100u);
  EXPECT_EQ(found[1].label.name, "flow");
  EXPECT_EQ(found[1].end, microseconds(4));
  EXPECT_EQ(found[1].bytes, 50u);
}

TEST(Recorder, NothingIsKeptWhereOnlyCapturesWereAskedFor) {
  Recorder recorder({.seed = 1});
  play(recorder, 10, 10);
  EXPECT_TRUE(recorder.hops().empty());
  EXPECT_TRUE(recorder.messages().empty());
}

TEST(QueueSeries, KeepsEveryChangeThenPeaksAndLastValues) {
  QueueSeries series(100);
  for (int i = 0; i < 50; ++i) series.add(1, static_cast<std::uint32_t>(i), nanoseconds(i));
  EXPECT_EQ(series.points(), 50u);
  EXPECT_EQ(series.bin(), Picoseconds{});
  // A saw over 1 ms: 0 … 90 and back to 0, a peak of 500 once.
  for (int i = 0; i < 10'000; ++i) {
    const auto depth = static_cast<std::uint32_t>(i == 5003 ? 500 : i % 10 * 10);
    series.add(2, depth, nanoseconds(100 * i));
  }
  series.add(2, 0, microseconds(1000));
  EXPECT_LE(series.points(), 100u);
  EXPECT_GT(series.bin(), Picoseconds{});
  series.each([&](std::uint32_t half, const std::vector<QueueSeries::Point>& points) {
    for (std::size_t i = 1; i < points.size(); ++i) EXPECT_LE(points[i - 1].at, points[i].at);
    if (half == 1) {
      EXPECT_EQ(points.back().bytes, 49u);
      return;
    }
    const auto peak =
        std::max_element(points.begin(), points.end(), [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
    EXPECT_EQ(peak->bytes, 500u);
    EXPECT_EQ(peak->at, nanoseconds(500'300));  // when it was
    EXPECT_EQ(points.back().bytes, 0u);
    EXPECT_EQ(points.back().at, microseconds(1000));
  });
}

}  // namespace
}  // namespace loomnet
