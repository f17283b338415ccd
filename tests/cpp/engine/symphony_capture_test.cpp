// The symphony program in a fabric: every mark is in the capture of its port with its witness, and follows
// from the step headers there in order of departure; switched off it is forward to the byte (S7); the
// port's own marks are the same with it and without.
#include <gtest/gtest.h>

#include <optional>
#include <sstream>

#include "engine/network.hpp"
#include "engine/network_recorder.hpp"
#include "switch/registry/registry.hpp"
#include "switch/symphony/symphony_batch.hpp"
#include "switch_symphony/ring_packets.hpp"
#include "trace/blocks.hpp"
#include "trace/recorder.hpp"

namespace loomnet::test {
namespace {

constexpr std::uint16_t kComment = 1;

struct Departed {
  std::uint64_t ns = 0;
  std::uint32_t length = 0;
  bool ce = false;
  step_header step{};
  std::map<std::string, std::uint32_t> note;  // empty: not marked by the program
};

// A sender, two switches, and what two rings send through the link between these.
class Wire {
 public:
  Wire(std::string_view program, const ProgramOptions& options, bool red, std::string* file = nullptr) {
    ForwardBatch routes;
    routes.generation = 1;
    routes.hosts = {{address("fd00::2"), 0}};
    routes.groups = {{1}};
    network.add_host(1), network.add_host(1);
    for (NodeId n = 2; n < 4; ++n) {
      network.add_switch(2, make_program(n == 2 ? program : "forward", 2, 3, n == 2 ? options : ProgramOptions{}));
      auto batch = std::string_view(n == 2 ? program : "forward") == "symphony" ? SymphonyBatch{routes, {}, {}}.pack()
                                                                                : routes.pack();
      network.program(n)->set_tables(batch);
    }
    LinkConfig fast{.rate = gigabits(400), .delay = microseconds(1)},
        slow{.rate = gigabits(1), .delay = microseconds(1)};
    if (red) slow.ecn_low = 400, slow.ecn_high = 5000, slow.ecn_share = 0.3;
    network.connect({0, 0}, {2, 0}, fast, fast);
    network.connect({2, 1}, {3, 0}, slow, fast);
    network.connect({3, 1}, {1, 0}, fast, fast);
    NetworkRecorder recorder(network, {.seed = 1, .timeline = true});
    const std::size_t capture = recorder.capture(network.egress_half(2, 1), "p", "");
    const std::size_t arrivals = recorder.capture(network.egress_half(2, 0), "in", "");
    send();
    const std::string out = recorder.finish(capture);
    recorder.finish(arrivals);
    if (file) *file = out;
    for (const testing::CapturedPacket& each : testing::packets(out)) left.push_back(read(each));
    marks = recorder.recorder().marks();
    network.settle(2);
  }

  Network network{1};
  std::vector<Departed> left;
  std::vector<Recorder::Mark> marks;

 private:
  void send() {
    std::vector<RingPackets> rings;
    for (std::uint16_t i = 0; i < 2; ++i) {
      RingShape shape;
      shape.ring = i, shape.first_step = 65'534, shape.packet_ns = 5'500;
      rings.emplace_back(shape, 7u + i);
    }
    std::vector<RingPacket> ahead{rings[0].next(), rings[1].next()};
    for (int i = 0; i < 6000; ++i) {
      const std::size_t first = ahead[1].leaving.ns < ahead[0].leaving.ns;
      network.run_until(nanoseconds(ahead[first].leaving.ns));
      const std::vector<std::uint8_t> frame = step_frame(ahead[first].step, Ecn2::ect, 400);
      PacketPtr p = network.pool().allocate();
      const std::size_t header = 14 + 40 + 8 + STEP_HEADER_BYTES;
      std::copy_n(frame.begin(), header, p->header.begin());
      p->header_length = static_cast<std::uint8_t>(header);
      p->wire_length = static_cast<std::uint32_t>(frame.size());
      p->payload.length = static_cast<std::uint32_t>(frame.size() - header);
      p->ect = true;
      network.egress(0, 0)->offer(std::move(p), network.now());
      ahead[first] = rings[first].next();
    }
    network.run_until(network.now() + milliseconds(50));
  }
  static Departed read(const testing::CapturedPacket& packet) {
    Departed out;
    out.ns = packet.nanoseconds, out.length = packet.original;
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(packet.bytes.data());
    out.ce = (bytes[15] & 0x30) == 0x30;
    EXPECT_TRUE(step_header_load(bytes + 62, &out.step));
    if (!packet.options.contains(kComment)) return out;
    std::string comment = packet.options.at(kComment);
    const std::string begin = "marked by symphony: ";
    EXPECT_EQ(comment.substr(0, begin.size()), begin);
    std::istringstream words(comment.substr(begin.size()));
    for (std::string word; words >> word;) {
      const std::size_t equals = word.find('=');
      out.note[word.substr(0, equals)] = static_cast<std::uint32_t>(std::stoul(word.substr(equals + 1)));
    }
    return out;
  }
};

// The rows as a reader of the capture works them out: from headers, times and CE alone. Written apart from
// ebpf/symphony.h.
class Reader {
 public:
  // Whether the packet would be marked if one waited behind it; `marked`: it was.
  bool eligible(const Departed& d, bool marked, std::uint32_t* owner, std::uint32_t* low) {
    const std::uint64_t epoch = d.ns >> 17;
    Row& row = rows_[d.step.ring];
    const bool last = d.step.flags & STEP_FLAG_LAST;
    const auto distance = [&] { return static_cast<std::int32_t>(d.step.prog - row.low); };
    if (!row.made || std::abs(distance()) > 16 * 65536) {
      row = {true, d.step.prog, last ? -1 : d.step.rank, epoch, epoch, epoch, false, 255, 0};
      return false;
    }
    if (epoch != row.epoch) {
      row.credit =
          std::clamp<std::int64_t>(row.credit + (row.marks ? -1 : 1) +
                                       static_cast<std::int64_t>(std::min<std::uint64_t>(epoch - row.epoch, 256)) - 1,
                                   0, 255);
      row.epoch = epoch, row.marks = 0;
    }
    row.awake = row.awake || epoch - row.born >= 2;
    if (row.owner < 0 || row.owner == d.step.rank || distance() < 0 || epoch - row.heard >= 2) {
      row.low = d.step.prog, row.owner = d.step.rank, row.heard = epoch;
    }
    *owner = static_cast<std::uint32_t>(row.owner), *low = row.low;
    const std::int32_t gap = distance();
    if (last && row.owner == d.step.rank) row.owner = -1;
    const bool base = d.ce && !marked;
    const bool yes = gap > 65536 && row.awake && !base && row.credit > 0 && row.marks == 0;
    row.marks += marked;
    return yes;
  }

 private:
  struct Row {
    bool made = false;
    std::uint32_t low = 0;
    int owner = -1;
    std::uint64_t heard = 0, epoch = 0, born = 0;
    bool awake = false;
    std::int64_t credit = 255;
    int marks = 0;
  };
  std::map<std::uint16_t, Row> rows_;
};

int recompute(const Wire& wire, bool gated) {
  Reader reader;
  int marks = 0;
  for (std::size_t i = 0; i < wire.left.size(); ++i) {
    const Departed& d = wire.left[i];
    const bool marked = !d.note.empty();
    std::uint32_t owner = 0, low = 0;
    const bool eligible = reader.eligible(d, marked, &owner, &low);
    if (!marked) {
      EXPECT_FALSE(eligible && !gated) << i;
      continue;
    }
    ++marks;
    EXPECT_TRUE(d.ce) << i;
    EXPECT_TRUE(eligible) << i;
    EXPECT_EQ(d.note.at("owner"), owner) << i;
    EXPECT_EQ(d.note.at("low"), low) << i;
    EXPECT_EQ(d.note.at("prog"), d.step.prog) << i;
    EXPECT_EQ(d.note.at("rank"), d.step.rank) << i;
    EXPECT_EQ(d.note.at("gap"), d.step.prog - low) << i;
    // The packet that waited behind it leaves as soon as this one has left: 8 ns a byte, 24 of framing.
    if (gated) {
      EXPECT_EQ(wire.left.at(i + 1).ns - d.ns, (d.length + 24u) * 8) << i;
    }
  }
  return marks;
}

TEST(SymphonyCaptureTest, EveryMarkFollowsFromTheCapture) {
  for (const bool red : {false, true}) {
    SCOPED_TRACE(red);
    Wire gated("symphony", {}, red), ungated("symphony", {{"gate", std::int64_t{0}}}, red);
    EXPECT_EQ(gated.left.size(), 6000u);
    const int marks = recompute(gated, true);
    EXPECT_GT(marks, 20);
    EXPECT_GT(recompute(ungated, false), marks);
    ASSERT_EQ(gated.marks.size(), static_cast<std::size_t>(marks));
    for (const Recorder::Mark& mark : gated.marks) {
      EXPECT_EQ(mark.half, gated.network.egress_half(2, 1));
      EXPECT_EQ(mark.by, "symphony");
    }
    std::vector<SwitchCounter> counters;
    gated.network.hooks(2)->egress_counters(counters);
    EXPECT_EQ(counters[SYMPHONY_TAGGED].value, 6000u);
    EXPECT_EQ(counters[SYMPHONY_EXTRA].value, static_cast<std::uint64_t>(marks));
  }
}

TEST(SymphonyCaptureTest, SwitchedOffItIsForwardToTheByte) {  // S7
  for (const bool red : {false, true}) {
    std::string off, none;
    Wire a("symphony", {{"enable", false}}, red, &off), b("forward", {}, red, &none);
    EXPECT_GT(off.size(), 100'000u);
    EXPECT_EQ(off, none);
  }
}

TEST(SymphonyCaptureTest, ThePortsOwnMarksAreTheSameWithItAndWithout) {
  for (const char* mode : {"spaced", "prob"}) {
    Wire with("symphony", {{"mode", std::string(mode)}}, true), without("forward", {}, true);
    ASSERT_EQ(with.left.size(), without.left.size());
    int base = 0, extra = 0;
    for (std::size_t i = 0; i < with.left.size(); ++i) {
      const bool own = with.left[i].ce && with.left[i].note.empty();
      EXPECT_EQ(own, without.left[i].ce) << i;
      base += own, extra += !with.left[i].note.empty();
    }
    EXPECT_GT(base, 50);
    EXPECT_GT(extra, 10);
  }
}

TEST(SymphonyCaptureTest, ARebootForgetsTheRowsOfPacketsThatHaveLeft) {
  Wire wire("symphony", {}, false);
  EXPECT_NE(row_of(wire.network.hooks(2)->egress_snapshot(), 7, 0).state, SYMPHONY_FREE);
  wire.network.reset_switch(2);
  EXPECT_EQ(row_of(wire.network.hooks(2)->egress_snapshot(), 7, 0).state, SYMPHONY_FREE);
  EXPECT_EQ(wire.network.hooks(2)->generation(), 0u);
}

}  // namespace
}  // namespace loomnet::test
