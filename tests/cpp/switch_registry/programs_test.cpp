// Programs by name: what a wrong name, option or group is told, and what the two examples decide.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "echo_frames.hpp"
#include "switch/packet_view.hpp"
#include "switch/registry/registry.hpp"

namespace loomnet {
namespace {

using test::host_tables;
using test::udp_frame;

std::string refusal(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "not refused";
}

TEST(ProgramRegistryTest, AWrongNameOrOptionIsAnsweredWithWhatThereIs) {
  EXPECT_EQ(refusal([] { make_program("mirrow", 4, 1); }),
            "no switch program \"mirrow\"; there are aggregate, forward, mirror, sum and symphony");
  EXPECT_EQ(refusal([] { make_program("mirror", 4, 1, {{"smaple", std::int64_t{2}}}); }),
            "switch program \"mirror\" has no option \"smaple\"; it has check_addresses, "
            "allow_stale_length, sample, snap and mark_above");
  EXPECT_EQ(refusal([] { make_program("mirror", 4, 1, {{"sample", std::int64_t{0}}}); }),
            "switch program \"mirror\", option sample: must be 1 to 1000000000, not 0");
  EXPECT_EQ(refusal([] { make_program("mirror", 4, 1, {{"sample", std::string("two")}}); }),
            "switch program \"mirror\", option sample: must be a whole number, not \"two\"");
  EXPECT_EQ(refusal([] { make_program("forward", 4, 1, {{"check_addresses", 1.5}}); }),
            "switch program \"forward\", option check_addresses: must be true or false, not 1.5");
  EXPECT_EQ(refusal([] { make_program("sum", 0, 1); }), "a switch has 1 to 16384 ports, not 0");
}

TEST(ProgramRegistryTest, AGroupThatCannotBeIsNamed) {
  const auto program = make_program("mirror", 4, 1);
  const auto set = [&](std::vector<std::vector<SwitchPort>> groups) {
    return refusal([&] { program->set_tables(host_tables(4, 1, std::move(groups))); });
  };
  EXPECT_EQ(set({{1}, {}}), "TableBatch.groups[1]: no members; name one or more of the switch's ports (0 to 3)");
  EXPECT_EQ(set({{0, 4}}), "TableBatch.groups[0]: port 4 of a switch whose ports are 0 to 3");
  EXPECT_EQ(set({{2, 1, 2}}), "TableBatch.groups[0]: port 2 stands twice");
  EXPECT_EQ(program->generation(), 0u);
}

// A program with one packet at a time in its engine build.
class Bench {
 public:
  Bench(std::string_view name, const ProgramOptions& options = {}) : program(make_program(name, 4, 7, options)) {
    program->set_tables(host_tables(4, 1, {{1, 2, 3}}));
  }
  Verdict give(const std::vector<std::uint8_t>& frame, SwitchPort port = 0, Picoseconds now = {}) {
    memory_.assign(frame.begin() + 62, frame.end());
    packet = pool_.allocate();
    std::copy_n(frame.begin(), 62, packet->header.begin());
    packet->header_length = 62;
    packet->wire_length = static_cast<std::uint32_t>(frame.size());
    packet->flow = 100 + ++given_;
    packet->payload = {memory_.data(), static_cast<std::uint32_t>(memory_.size()), 0, PayloadKind::region};
    PacketView view(*packet, pool_, program->needs(), scratch_);
    const Verdict verdict = program->ingress_view(view, {now, port});
    if (verdict.leaves()) {
      EXPECT_FALSE(view.apply());
    }
    return verdict;
  }
  std::uint64_t count(std::string_view name) const {
    std::vector<SwitchCounter> all;
    program->counters(all);
    for (const SwitchCounter& c : all) {
      if (c.name == name) return c.value;
    }
    ADD_FAILURE() << "no counter " << name;
    return 0;
  }
  std::unique_ptr<SwitchProgram> program;

 private:
  PacketPool pool_;
  ViewScratch scratch_;
  std::vector<std::uint8_t> memory_;
  std::uint32_t given_ = 0;

 public:
  PacketPtr packet;
};

TEST(MirrorProgramTest, AnswersEchoRequestsAndSendsMulticastToItsGroup) {
  Bench bench("mirror");
  EXPECT_EQ(bench.give(udp_frame("fd00::2", 7, 100)), (Verdict{Verdict::Action::reply, 0}));
  EXPECT_EQ(bench.packet->header[14 + 8 + 15], 2);   // from fd00::2 …
  EXPECT_EQ(bench.packet->header[14 + 24 + 15], 1);  // … to fd00::1
  EXPECT_EQ(ln_load_be16(bench.packet->header.data() + 54), 7);
  EXPECT_EQ(ln_load_be16(bench.packet->header.data() + 56), 5000);
  EXPECT_EQ(bench.give(udp_frame("ff05::", 9, 100)), (Verdict{Verdict::Action::replicate, 0}));
  EXPECT_EQ(bench.packet->header[21], 63);
  EXPECT_EQ(bench.program->members(0).size(), 3u);
  EXPECT_TRUE(bench.program->members(1).empty());
  EXPECT_EQ(bench.give(udp_frame("fd00::3", 9, 100)), Verdict::forward(2));  // falls through
  EXPECT_EQ(bench.count("echoed"), 1u);
  EXPECT_EQ(bench.count("replied"), 1u);
  EXPECT_EQ(bench.count("replicated"), 1u);
  EXPECT_EQ(bench.count("forward_host"), 1u);
  EXPECT_EQ(bench.count("received"), 3u);
}

TEST(MirrorProgramTest, OptionsCutAnswersAndSampleRequests) {
  Bench bench("mirror", {{"sample", std::int64_t{4}}, {"snap", std::int64_t{128}}});
  int answered = 0;
  for (int i = 0; i < 4000; ++i) {
    const Verdict verdict = bench.give(udp_frame("fd00::2", 7, 500));
    if (verdict.action != Verdict::Action::reply) {
      EXPECT_EQ(bench.program->reason(verdict.value), "drop_not_sampled");
      continue;
    }
    ++answered;
    ASSERT_EQ(bench.packet->wire_length, 128u);
    ASSERT_EQ(bench.packet->payload.length, 66u);
    ASSERT_EQ(ln_load_be16(bench.packet->header.data() + 18), 74);
  }
  EXPECT_NEAR(answered, 1000, 120);
}

TEST(MirrorProgramTest, TheEgressHookMarksAboveItsBoundWithAStreamPerHalfLink) {
  const auto program = make_program("mirror", 4, 7, {{"mark_above", std::int64_t{1000}}});
  std::vector<std::uint8_t> header(62);
  std::array<QueuedClass, kQueueClasses> queued{};
  const auto marks = [&](std::uint32_t half, std::uint64_t bytes) {
    const auto hook = program->make_egress({half, 1}, 99);
    queued[kDataClass].bytes = bytes;
    std::vector<bool> marked;
    for (int i = 0; i < 1000; ++i) {
      marked.push_back(hook->dequeue(header, {{}, 1500, kDataClass, false, queued}) == EgressVerdict::mark);
    }
    return marked;
  };
  const auto below = marks(5, 1000);
  EXPECT_EQ(std::count(below.begin(), below.end(), true), 0);
  const auto above = marks(5, 1001);
  EXPECT_NEAR(std::count(above.begin(), above.end(), true), 500, 60);
  EXPECT_EQ(marks(5, 1001), above);  // the seed and the half-link alone decide
  EXPECT_NE(marks(6, 1001), above);
  EXPECT_EQ(make_program("sum", 4, 7)->make_egress({5, 1}, 99), nullptr);
}

TEST(SumProgramTest, AbsorbsThreeAndSendsTheFourthWithTheirBytesAdded) {
  Bench bench("sum");
  for (int round = 0; round < 2; ++round) {
    const std::uint32_t first = static_cast<std::uint32_t>(101 + 4 * round);
    for (std::uint8_t i = 1; i <= 3; ++i) {
      EXPECT_EQ(bench.give(udp_frame("fd00::4", SUM_PORT + 5, 80, i, i), 0, microseconds(i)),
                (Verdict{Verdict::Action::absorb, 0}));
    }
    EXPECT_EQ(bench.give(udp_frame("fd00::4", SUM_PORT + 5, 80, 4, 200)), Verdict::forward(3));
    for (int i = 0; i < 64; ++i) ASSERT_EQ(bench.packet->payload.data[i], 206) << i;
    EXPECT_EQ(bench.packet->payload.data[64], 200);  // behind what is summed
    EXPECT_EQ(bench.packet->flow, first);            // as the first packet's
  }
  EXPECT_EQ(bench.count("absorbed"), 6u);
  EXPECT_EQ(bench.count("summed"), 2u);
  EXPECT_EQ(bench.count("forward_host"), 2u);
  EXPECT_EQ(bench.count("received"), 8u);
  const Verdict short_one = bench.give(udp_frame("fd00::4", SUM_PORT, 63));
  EXPECT_EQ(bench.program->reason(short_one.value), "drop_sum_short");
}

TEST(SumProgramTest, ItsStateIsShownByNameAndGoneAfterAReset) {
  Bench bench("sum");
  bench.give(udp_frame("fd00::4", SUM_PORT + 2, 64, 1, 9), 0, microseconds(3));
  bench.give(udp_frame("fd00::4", SUM_PORT + 2, 64, 2, 1));
  const StateSnapshot snapshot = bench.program->snapshot();
  EXPECT_EQ(snapshot.layout.name, "sums");
  ASSERT_EQ(snapshot.bytes.size(), std::size_t{snapshot.layout.rows} * snapshot.layout.row_bytes);
  const auto value = [&](std::string_view name) {
    for (const StateField& f : snapshot.layout.fields) {
      if (f.name != name) continue;
      std::uint64_t v = 0;
      std::memcpy(&v, snapshot.bytes.data() + 2 * snapshot.layout.row_bytes + f.offset,
                  std::min<std::size_t>(f.bytes, 8));
      return v;
    }
    return ~std::uint64_t{0};
  };
  EXPECT_EQ(value("count"), 2u);
  EXPECT_EQ(value("flow"), 101u);
  EXPECT_EQ(value("since"), 3'000'000u);
  EXPECT_EQ(value("bytes"), 0x0a0a0a0a0a0a0a0au);
  bench.program->reset();
  for (const std::uint8_t byte : bench.program->snapshot().bytes) ASSERT_EQ(byte, 0);
  const Verdict dropped = bench.give(udp_frame("fd00::4", SUM_PORT + 2, 64));
  EXPECT_EQ(bench.program->reason(dropped.value), "drop_no_tables");
  bench.program->set_tables(host_tables(4, 1));  // a switch that booted knows no generation
  EXPECT_EQ(bench.give(udp_frame("fd00::4", SUM_PORT + 2, 64)).action, Verdict::Action::absorb);
  EXPECT_EQ(bench.count("received"), 4u);  // counters are the run's
}

}  // namespace
}  // namespace loomnet
