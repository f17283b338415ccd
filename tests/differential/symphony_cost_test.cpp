// What one departure costs in the kernel's build of the symphony program, by BPF_PROG_TEST_RUN on one CPU:
// printed, with a bound that a mistake would break and a loaded machine does not.
#include <gtest/gtest.h>

#include <algorithm>

#include "differential/program_pair.hpp"
#include "switch_symphony/step_frames.hpp"

namespace loomnet::test {
namespace {

TEST(SymphonyCostTest, NanosecondsOfOneDepartureInTheKernel) {
  if (const std::string missing = missing_for_bpf(); !missing.empty()) GTEST_SKIP() << missing;
  constexpr int kRepeat = 200'000;
  const auto cost = [](const ProgramOptions& options, step_header step, bool header) {
    ProgramPair pair("symphony", 4, 7, options);  // pins the thread to its CPU
    XdpProgram::EgressRun run;
    ln_egress_meta meta{};
    meta.queue = kDataClass, meta.packets[kDataClass] = 3, meta.queued[kDataClass] = 3000;
    const auto give = [&](step_header of, std::uint64_t epochs, int repeat) {
      std::vector<std::uint8_t> bytes = step_frame(of);
      if (!header) bytes[57] ^= 1;
      meta.now = epochs * 131'072'000;
      pair.xdp.test_egress(bytes, meta, run, repeat);
    };
    give({0, 5, 7, 0, 0, 8, 0x10000}, 0, 1);
    give({0, 5, 7, 0, 0, 8, 0x10000}, 3, 1);
    std::uint32_t best = ~0u;
    for (int i = 0; i < 5; ++i) {
      give(step, 3, kRepeat);
      best = std::min(best, run.nanoseconds);
    }
    return best;
  };
  const step_header level{0, 5, 7, 0, 1, 8, 0x18000}, ahead{0, 5, 7, 0, 1, 8, 0x40000};
  struct Case {
    const char* what;
    std::uint32_t ns;
  };
  const Case cases[] = {
      {"off", cost({{"enable", false}}, level, true)},
      {"without a step header", cost({}, level, false)},
      {"within tau", cost({}, level, true)},
      {"ahead, mode spaced", cost({}, ahead, true)},
      {"ahead, mode prob", cost({{"mode", std::string("prob")}}, ahead, true)},
  };
  for (const Case& each : cases) {
    std::printf("  %-24s %u ns\n", each.what, each.ns);
    EXPECT_LT(each.ns, 1000u) << each.what;
  }
}

}  // namespace
}  // namespace loomnet::test
