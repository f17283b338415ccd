// Programs from one C file, compiled when the test runs: against the same program of Loomnet's own, on the same
// frames; and what a crash and a loop without an end in one are answered with.
#include <gtest/gtest.h>

#include "clock/random.hpp"
#include "compiled_program.hpp"
#include "echo_frames.hpp"
#include "switch/loaded/guarded_call.hpp"
#include "switch/packet_view.hpp"

namespace loomnet::test {
namespace {

constexpr std::size_t kPorts = 4;

// A program that is given one packet after the other.
class Bench {
 public:
  explicit Bench(const ProgramKind& kind, const ProgramOptions& options = {})
      : program(kind.make(checked_settings(kind, kPorts, 7, options))) {
    program->set_tables(host_tables(kPorts, 1, {{1, 2, 3}, {0}}));
  }
  // What became of the packet, in a form to compare.
  std::string give(const std::vector<std::uint8_t>& frame, std::size_t header, SwitchPort port, Picoseconds now) {
    const std::size_t n = std::min({frame.size(), header, kMaxHeaderBytes});
    memory_.assign(frame.begin() + static_cast<std::ptrdiff_t>(n), frame.end());
    const PacketPtr packet = pool_.allocate();
    std::copy_n(frame.begin(), n, packet->header.begin());
    packet->header_length = static_cast<std::uint8_t>(n);
    packet->wire_length = static_cast<std::uint32_t>(frame.size());
    packet->flow = 100 + ++given_, packet->message = given_;
    packet->payload = {memory_.data(), static_cast<std::uint32_t>(memory_.size()), 0, PayloadKind::region};
    PacketView view(*packet, pool_, program->needs(), scratch_);
    Verdict verdict = program->ingress_view(view, {now, port});
    if (verdict.leaves()) {
      if (const auto broken = view.apply()) verdict = Verdict::drop(program->count(*broken, port, 1));
    }
    std::string said = std::to_string(static_cast<int>(verdict.action)) + " " + std::to_string(verdict.value) + " " +
                       std::string(verdict.action == Verdict::Action::drop ? program->reason(verdict.value) : "");
    if (!verdict.leaves()) return said;
    said += " " + std::to_string(packet->flow) + " " + std::to_string(packet->message) + " ";
    said.append(packet->header.begin(), packet->header.begin() + packet->header_length);
    said.append(packet->payload.data, packet->payload.data + packet->payload.length);
    return said;
  }
  std::string totals() const {
    std::vector<SwitchCounter> all;
    program->counters(all);
    std::string said;
    for (const SwitchCounter& c : all) said += std::string(c.name) + "=" + std::to_string(c.value) + " ";
    return said;
  }
  std::unique_ptr<SwitchProgram> program;

 private:
  PacketPool pool_;
  ViewScratch scratch_;
  std::vector<std::uint8_t> memory_;
  std::uint32_t given_ = 0;
};

std::vector<std::uint8_t> some_frame(RandomStream& random) {
  const std::size_t payload = random.below(200);
  const unsigned kind = random.below(4);
  auto made = kind == 0   ? udp_frame("fd00::3", 7, payload)
              : kind == 1 ? udp_frame(random.below(2) ? "ff05::1" : "ff05::", 9, payload)
                          : udp_frame("fd00::3", static_cast<std::uint16_t>(SUM_PORT + random.below(17)), payload);
  for (std::size_t i = 62; i < made.size(); ++i) made[i] = static_cast<std::uint8_t>(random());
  made[21] = static_cast<std::uint8_t>(random.below(20) ? 64 : random.below(3));  // hop limit
  if (random.below(8) == 0) made[12 + random.below(50)] ^= static_cast<std::uint8_t>(1u << random.below(8));
  if (random.below(16) == 0) made.resize(14 + random.below(static_cast<std::uint32_t>(made.size())), 0);
  return made;
}

void expect_same(const ProgramKind& own, const ProgramKind& loaded, const ProgramOptions& options) {
  Bench ours(own, options), theirs(loaded, options);
  RandomStream random(20260501, 0, 0);
  std::map<std::string, int> seen;
  for (int i = 0; i < 20'000; ++i) {
    const auto frame = some_frame(random);
    static constexpr std::size_t kSplits[] = {62, 62, 192, 54, 100, 14};
    const std::size_t header = kSplits[random.below(6)];
    const auto port = static_cast<SwitchPort>(random.below(kPorts));
    const std::string said = ours.give(frame, header, port, nanoseconds(i));
    ASSERT_EQ(theirs.give(frame, header, port, nanoseconds(i)), said) << "frame " << i;
    ++seen[said.substr(0, 1)];
  }
  EXPECT_EQ(theirs.totals(), ours.totals());
  EXPECT_EQ(theirs.program->snapshot().bytes, ours.program->snapshot().bytes);
  EXPECT_GE(seen.size(), 3u) << "kinds of verdicts";
}

TEST(LoadedProgramTest, SumAsOneCFileDecidesAsSum) {
  expect_same(program_kind("sum"), compiled_programs().kind("sum"), {});
}

TEST(LoadedProgramTest, MirrorAsOneCFileDecidesAsMirror) {
  const ProgramKind& mirror = compiled_programs().kind("mirror");
  expect_same(program_kind("mirror"), mirror, {});
  expect_same(program_kind("mirror"), mirror, {{"sample", std::int64_t{3}}, {"snap", std::int64_t{100}}});
}

std::string fault_of(const ProgramOptions& options) {
  Bench bench(compiled_programs().kind("faulty"), options);
  EXPECT_EQ(bench.give(udp_frame("fd00::3", 9, 10), 62, 0, {}).substr(0, 1), "1") << "the first one passes";
  try {
    for (int i = 0; i < 2; ++i) bench.give(udp_frame("fd00::3", 9, 10), 62, 1, nanoseconds(5));
  } catch (const ProgramFault& fault) {
    return fault.what();
  }
  return "no fault";
}

TEST(LoadedProgramTest, ACrashOrALoopIsItsFaultAndTheProcessGoesOn) {
  for (int round = 0; round < 2; ++round) {
    EXPECT_TRUE(fault_of({{"how", std::int64_t{1}}})
                    .starts_with("faulty.c: the switch program crashed (SIGSEGV): it used memory at 0x10, which is "
                                 "not its own (a packet of 72 bytes, at 5000 ps of the engine's clock, by port 1) "
                                 "[faulty.c+0x"));
#if defined(__x86_64__)
    EXPECT_NE(fault_of({{"how", std::int64_t{2}}}).find("crashed (SIGFPE): a division by zero"), std::string::npos);
#endif
    EXPECT_NE(fault_of({{"how", std::int64_t{3}}}).find("crashed (SIGSEGV)"), std::string::npos) << "the stack";
    EXPECT_NE(fault_of({{"how", std::int64_t{4}}}).find("has not come back from a packet after 1 s"),
              std::string::npos);
    EXPECT_EQ(fault_of({}), "no fault");
  }
}

TEST(LoadedProgramTest, ASignalThatIsNotTheProgramsIsHandledAsBefore) {
#if defined(LOOMNET_SANITIZES_ADDRESS) || defined(LOOMNET_SANITIZES_THREAD)
  GTEST_SKIP() << "the sanitizer ends the process in its own way";
#endif
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        EXPECT_EQ(fault_of({}), "no fault");
        *reinterpret_cast<volatile int*>(16) = 1;
      },
      testing::KilledBySignal(SIGSEGV), "faulty.c may have written outside its memory");
}

}  // namespace
}  // namespace loomnet::test
