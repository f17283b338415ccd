// The trace file by a generic protobuf reader and the field numbers that Perfetto's .proto files
// give: slices, arrows from operation to message to hops, counters, what is left open.
#include "trace/timeline.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "transport/transport.hpp"

namespace loomnet {
namespace {

// A message's fields, each in order of appearance.
struct Fields {
  std::map<std::uint32_t, std::vector<std::uint64_t>> numbers;
  std::map<std::uint32_t, std::vector<std::string>> bytes;

  explicit Fields(std::string_view in) {
    const auto varint = [&] {
      std::uint64_t value = 0;
      for (int shift = 0;; shift += 7) {
        const auto b = static_cast<std::uint8_t>(in.at(0));
        in.remove_prefix(1);
        value |= std::uint64_t{b & 0x7fu} << shift;
        if (!(b & 0x80)) return value;
      }
    };
    while (!in.empty()) {
      const std::uint64_t key = varint();
      const auto field = static_cast<std::uint32_t>(key >> 3);
      if ((key & 7) == 0) {
        numbers[field].push_back(varint());
      } else if ((key & 7) == 1) {
        std::uint64_t value = 0;
        for (int i = 0; i < 8; ++i) value |= std::uint64_t{static_cast<std::uint8_t>(in.at(i))} << 8 * i;
        numbers[field].push_back(value);
        in.remove_prefix(8);
      } else {
        EXPECT_EQ(key & 7, 2u);
        const std::uint64_t length = varint();
        bytes[field].emplace_back(in.substr(0, length));
        in.remove_prefix(length);
      }
    }
  }
  std::uint64_t number(std::uint32_t field) const { return numbers.at(field).at(0); }
  std::string text(std::uint32_t field) const {
    const auto found = bytes.find(field);
    return found == bytes.end() ? "" : found->second.at(0);
  }
  std::vector<std::uint64_t> all(std::uint32_t field) const {
    const auto found = numbers.find(field);
    return found == numbers.end() ? std::vector<std::uint64_t>{} : found->second;
  }
};

struct Event {
  std::uint64_t at, type, track;
  std::string name;
  std::vector<std::uint64_t> flows, ending;
  std::int64_t value = 0;
};

struct Trace {
  std::map<std::uint64_t, std::string> tracks;
  std::vector<Event> events;
  std::map<std::string, std::string> attributes;

  explicit Trace(const std::string& file) {
    const Fields whole(file);
    for (const std::string& one : whole.bytes.at(1)) {
      const Fields packet(one);
      EXPECT_EQ(packet.number(10), 1u);  // trusted_packet_sequence_id
      if (packet.bytes.contains(60)) {
        const Fields d(packet.text(60));
        tracks[d.number(1)] = d.bytes.contains(3) ? Fields(d.text(3)).text(6) : d.text(2);
      }
      if (packet.bytes.contains(126)) {
        const Fields a(Fields(packet.text(126)).text(1));
        attributes[a.text(1)] = a.text(3);
      }
      if (!packet.bytes.contains(11)) continue;
      const Fields e(packet.text(11));
      events.push_back({packet.number(8), e.number(9), e.number(11), e.text(23), e.all(47), e.all(48),
                        e.numbers.contains(30) ? static_cast<std::int64_t>(e.number(30)) : 0});
    }
  }
  std::vector<Event> on(const std::string& track) const {
    std::vector<Event> found;
    for (const Event& e : events) {
      if (tracks.at(e.track) == track) found.push_back(e);
    }
    return found;
  }
};

Trace written(const Recorder& recorder, Picoseconds end, Picoseconds zero = {}) {
  PerfettoWriter writer(zero);
  write_timeline(recorder,
                 {[](std::uint32_t host) { return "h" + std::to_string(host); },
                  [](std::uint32_t half) { return "link " + std::to_string(half); }},
                 end, writer);
  return Trace(writer.take());
}

class TimelineTest : public ::testing::Test {
 protected:
  PacketPtr packet(std::uint32_t message) {
    PacketPtr p = pool_.allocate();
    p->message = message;
    p->wire_length = 1000;
    return p;
  }
  PacketPool pool_;
  Recorder recorder_{{.seed = 1, .timeline = true}};
};

TEST_F(TimelineTest, ArrowsLeadFromOperationToMessageToEveryHop) {
  recorder_.work_begins(0, {"all_reduce", 4, 9, 2, 1}, microseconds(1));
  WorkRequest request{.id = 7, .length = 2000, .attributes = {.communicator = 9, .sequence = 2}, .message = 3};
  recorder_.posted(0, 257, request, microseconds(2));
  const PacketPtr one = packet(3), two = packet(3);
  for (std::uint32_t hop = 0; hop < 3; ++hop) {
    for (const Packet* p : {one.get(), two.get()}) {
      const Picoseconds at = microseconds(3 + hop) + nanoseconds(80 * static_cast<std::int64_t>(p->uid));
      const_cast<Packet*>(p)->ideal = at - nanoseconds(20);
      recorder_.sent(10 + hop, *p, at, at + nanoseconds(80));
    }
  }
  recorder_.completed(0, {257, Status::ok, 7, 2000}, microseconds(8));
  recorder_.work_ends(0, 0, 4, 2000, true, microseconds(9));
  const Trace trace = written(recorder_, microseconds(10));

  const auto operation = trace.on("h0 operations");
  ASSERT_EQ(operation.size(), 2u);
  EXPECT_EQ(operation[0].name, "all_reduce 4");
  EXPECT_EQ(operation[0].at, 1000u);
  EXPECT_EQ(operation[1].at, 9000u);
  ASSERT_EQ(operation[0].flows.size(), 1u);

  const auto message = trace.on("h0 queue pair 257");
  ASSERT_EQ(message.size(), 2u);
  EXPECT_EQ(message[0].ending, operation[0].flows);
  ASSERT_EQ(message[0].flows.size(), 2u);
  for (const char* link : {"link 10", "link 11"}) {
    const auto hops = trace.on(link);
    ASSERT_EQ(hops.size(), 4u);
    EXPECT_EQ(hops[0].flows, std::vector{message[0].flows[0]});
    EXPECT_EQ(hops[2].flows, std::vector{message[0].flows[1]});
    EXPECT_EQ(hops[1].at - hops[0].at, 80u);
  }
  const auto last = trace.on("link 12");
  EXPECT_TRUE(last[0].flows.empty());
  EXPECT_EQ(last[0].ending, std::vector{message[0].flows[0]});
  EXPECT_EQ(trace.attributes.at("loomnet.sampling.packets_share"), "all");
  EXPECT_EQ(trace.attributes.at("loomnet.sampling.hops_seen"), "6");
}

TEST_F(TimelineTest, WhatOverlapsHasTracksOfItsOwn) {
  for (std::uint64_t n = 0; n < 3; ++n) {
    recorder_.work_begins(0, {"send", n}, microseconds(static_cast<std::int64_t>(n)));
    recorder_.work_ends(0, 0, n, 1, true, microseconds(static_cast<std::int64_t>(n) + 2));
  }
  const Trace trace = written(recorder_, microseconds(10));
  std::map<std::uint64_t, int> open;
  std::set<std::uint64_t> used;
  for (const char* lane : {"h0 operations", "h0 operations, lane 2"}) {
    for (const Event& e : trace.on(lane)) {
      used.insert(e.track);
      open[e.track] += e.type == 1 ? 1 : -1;
      EXPECT_LE(open[e.track], 1);
    }
  }
  EXPECT_EQ(used.size(), 2u);  // the third finds the first one's free
}

TEST_F(TimelineTest, CountsFromZeroAndLeavesOutWhatEndedBefore) {
  recorder_.work_begins(0, {"send", 0}, microseconds(1));
  recorder_.work_ends(0, 0, 0, 1, true, microseconds(2));
  recorder_.work_begins(0, {"send", 1}, microseconds(3));
  recorder_.work_ends(0, 0, 1, 1, true, microseconds(9));
  recorder_.work_begins(0, {"send", 2}, microseconds(9));
  const Trace trace = written(recorder_, microseconds(10), microseconds(5));
  const auto found = trace.on("h0 operations");
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[0].at, 0u);  // it had begun before
  EXPECT_EQ(found[1].at, 4'000u);
  EXPECT_EQ(found[3].at, 5'000u);
}

TEST_F(TimelineTest, WhatIsOpenEndsWithTheRun) {
  recorder_.work_begins(0, {"barrier", 1}, microseconds(1));
  const Trace trace = written(recorder_, microseconds(10));
  const auto found = trace.on("h0 operations");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[1].at, 10'000u);
}

TEST_F(TimelineTest, DropsAreMarksAndEndTheirArrow) {
  const PacketPtr p = packet(0);
  recorder_.sent(1, *p, microseconds(1), microseconds(2));
  recorder_.dropped(1, *p, "loss", true, microseconds(3));
  const auto found = written(recorder_, microseconds(10)).on("link 1");
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[2].type, 3u);
  EXPECT_EQ(found[2].name, "drop: loss");
  EXPECT_EQ(found[2].ending, found[0].flows);
}

TEST_F(TimelineTest, QueueDepthsAreCounters) {
  recorder_.queued(4, 1500, microseconds(1));
  recorder_.queued(4, 0, microseconds(2));
  const auto found = written(recorder_, microseconds(10)).on("queue link 4");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].type, 4u);
  EXPECT_EQ(found[0].value, 1500);
  EXPECT_EQ(found[1].at, 2000u);
  EXPECT_EQ(found[1].value, 0);
}

TEST_F(TimelineTest, ALinkThatCameUpAgainCutsTheSliceItInterrupted) {
  const PacketPtr a = packet(0), b = packet(0);
  recorder_.sent(1, *a, microseconds(1), microseconds(9));  // the link died at 2 us
  recorder_.sent(1, *b, microseconds(3), microseconds(4));
  const auto found = written(recorder_, microseconds(10)).on("link 1");
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[1].type, 2u);
  EXPECT_EQ(found[1].at, 3000u);
}

}  // namespace
}  // namespace loomnet
