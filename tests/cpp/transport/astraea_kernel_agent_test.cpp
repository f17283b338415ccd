// The agent of Astraea's flows in the kernel's TCP, on slots written by hand: start-up, decisions, fallback,
// flows that rest, come and go, contents that no kernel has written, and what options it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "astraea_flow.hpp"
#include "astraea_kernel.hpp"
#include "clock/random.hpp"

namespace loomnet::astraea {
namespace {

using ::testing::HasSubstr;
using namespace by_hand;

const OptionValues kConstant = {{"startup", std::string("none")}};

TEST(AstraeaKernelAgent, AttendsToAFlowBeforeItsFirstAcknowledgement) {
  Kernel kernel({{"interval_us", std::int64_t{40'000}}});
  kernel.open();
  for (int k = 0; k < 5; ++k) kernel.pass();
  EXPECT_TRUE(astraea_attended(kernel.slot().command, 1'005, 0));
  EXPECT_EQ(astraea_command_window(kernel.slot().command), 0u) << "its start-up goes on";
  EXPECT_EQ(kernel.slot().timeout_ms, 200u) << "five intervals";
  EXPECT_EQ(kernel.slot().flags, 0u);
  EXPECT_EQ(kernel.count("flows"), 1u);
  EXPECT_EQ(kernel.count("decisions"), 0u);
}

TEST(AstraeaKernelAgent, TheFirstQueueEndsTheStart) {
  Kernel kernel({{"policy", std::string("hold")}});
  kernel.open();
  kernel.go(20, 30);
  EXPECT_EQ(kernel.slot().mode, ASTRAEA_START);
  EXPECT_EQ(kernel.slot().cwnd, 30u) << "one packet for each acknowledgement";
  kernel.go(20, 50);
  EXPECT_EQ(kernel.slot().mode, ASTRAEA_AGENT);
  const std::uint32_t left = kernel.slot().cwnd;
  EXPECT_LT(left, 50u);
  kernel.go(300, 50);
  EXPECT_EQ(kernel.slot().cwnd, left) << "the window at its end is kept";
}

TEST(AstraeaKernelAgent, ALossEndsTheStartAndCutsShortPathsToWhatTheyCarry) {
  for (const double rtt : {5.0, 30.0}) {
    Kernel kernel({{"policy", std::string("hold")}});
    kernel.open();
    kernel.go(40, rtt);
    const std::uint32_t before = kernel.slot().cwnd;
    for (int k = 0; k < 12; ++k) {  // round trips are three times the least: a third of the window is the path
      kernel.pass();
      kernel.ack(3 * rtt, 0, k == 0);
    }
    EXPECT_EQ(kernel.slot().mode, ASTRAEA_AGENT);
    if (rtt < 8) {
      EXPECT_LT(kernel.slot().cwnd, before / 2);
    } else {
      EXPECT_GE(kernel.slot().cwnd, before);
    }
  }
}

TEST(AstraeaKernelAgent, DecidesAtEachIntervalAndGoesByTheSameMap) {
  Kernel kernel(with(kConstant, "policy", constant_policy(20)));
  kernel.open();
  kernel.go(5, 20);  // the first wake-up that sees an acknowledgement is the next
  EXPECT_EQ(kernel.slot().flags, ASTRAEA_NO_SLOW_START);
  std::uint32_t window = 10;
  kernel.go(5, 20);
  for (int k = 0; k < 40; ++k) {
    EXPECT_EQ(kernel.slot().cwnd, window);
    kernel.go(30, 20);
    window = map_action(window, 1);
  }
  EXPECT_EQ(kernel.count("decisions"), 40u);
  const auto decisions = kernel.agent->take_decisions();
  ASSERT_EQ(decisions.size(), 40u);
  EXPECT_EQ(decisions[0].window, 10u);
  EXPECT_EQ(decisions[0].commanded, 11u);
  EXPECT_EQ(decisions[0].rtt_us, 20'000);
  EXPECT_EQ(decisions[0].action, 1);
  EXPECT_EQ(decisions[0].local_port, 40'000);
  EXPECT_TRUE(kernel.agent->take_decisions().empty());
}

TEST(AstraeaKernelAgent, InWholeNumbersGoesTheSameWayAtFullAction) {
  const OptionValues options = with(kConstant, "policy", constant_policy(-20));
  Kernel one(options), other(with(options, "arithmetic", std::string("int16")));
  for (Kernel* each : {&one, &other}) {
    each->open();
    each->slot().cwnd = 400;
    each->go(2'000, 20);
  }
  EXPECT_EQ(one.slot().cwnd, other.slot().cwnd);
  EXPECT_LT(one.slot().cwnd, 100u);
}

// The same path for the control of the virtual clock and for the agent: a link of 200 packets per round trip.
double queued(std::uint64_t window) { return 30 + (window > 200 ? (static_cast<double>(window) - 200) * 0.15 : 0); }

TEST(AstraeaKernelAgent, SettlesWhereTheControlOfTheVirtualClockDoes) {
  Kernel kernel({{"startup", std::string("none")}});
  kernel.open();
  Flow flow({{"startup", std::string("none")}});
  flow.limits.cwnd = 150 * kMss;
  kernel.slot().cwnd = 150;
  for (int k = 0; k < 6'000; ++k) {
    kernel.pass();
    kernel.ack(queued(kernel.slot().cwnd));
    const auto rtt_us = static_cast<std::int64_t>(1'000 * queued(flow.window()));
    flow.packets_out = static_cast<std::uint32_t>(flow.window());
    flow.go(flow.now + milliseconds(1), microseconds(rtt_us));
  }
  EXPECT_NEAR(kernel.slot().cwnd, flow.window(), 1);
  EXPECT_GT(kernel.slot().cwnd, 200u);
}

TEST(AstraeaKernelAgent, GoesOnFromTheKernelsWindowAfterItWasAway) {
  Kernel kernel({{"policy", std::string("hold")}, {"startup", std::string("none")}});
  kernel.open();
  kernel.go(100, 20);
  kernel.slot().cwnd = 80;
  kernel.go(200, 20, false);
  EXPECT_EQ(kernel.slot().mode, ASTRAEA_FALLBACK);
  EXPECT_EQ(kernel.slot().fallbacks, 1u);
  kernel.slot().cwnd = 33;
  kernel.go(10, 20);
  EXPECT_EQ(kernel.slot().mode, ASTRAEA_AGENT);
  EXPECT_EQ(kernel.slot().cwnd, 33u);
  EXPECT_EQ(kernel.count("fallbacks"), 1u);
  kernel.go(300, 20);
  EXPECT_EQ(kernel.slot().cwnd, 33u);
}

TEST(AstraeaKernelAgent, AFlowThatRestsKeepsItsWindowAndItsAgent) {
  Kernel kernel(with(kConstant, "policy", constant_policy(20)));
  kernel.open();
  kernel.go(200, 20);
  const std::uint32_t window = kernel.slot().cwnd;
  const std::uint64_t decisions = kernel.count("decisions");
  kernel.slot().packets_out = 0;
  kernel.slot().epoch_most_out = 0;
  for (int k = 0; k < 1'000; ++k) kernel.pass();
  EXPECT_LE(kernel.count("decisions"), decisions + 1) << "at most the interval that was under way";
  EXPECT_TRUE(astraea_attended(kernel.slot().command, static_cast<ln_u32>(kernel.now_ns / 1'000'000), 150));
  kernel.ack(20);
  EXPECT_NEAR(kernel.slot().cwnd, window, 2);
  EXPECT_EQ(kernel.slot().fallbacks, 0u);
}

TEST(AstraeaKernelAgent, FreesSlotsAndBeginsAnewWithTheirNextFlow) {
  Kernel kernel(with(kConstant, "policy", constant_policy(20)));
  kernel.open(2);
  for (int k = 0; k < 300; ++k) {
    kernel.pass();
    kernel.ack(20, 2);
  }
  EXPECT_GT(kernel.slot(2).cwnd, 15u);
  kernel.close(2);
  for (int k = 0; k < 5; ++k) kernel.pass();
  EXPECT_EQ(kernel.slot(2).state, ASTRAEA_FREE);
  kernel.open(2);
  for (int k = 0; k < 30; ++k) {
    kernel.pass();
    kernel.ack(20, 2);
  }
  EXPECT_EQ(kernel.slot(2).cwnd, 10u);
  EXPECT_EQ(kernel.count("flows"), 2u);
  EXPECT_EQ(kernel.count("most_flows"), 1u);
}

// --- what no kernel has written ------------------------------------------------------------------

TEST(AstraeaKernelAgent, ContentsAreNeverTrusted) {
  Kernel kernel({}, 8);
  RandomStream random(7, 1, 1);
  std::uint64_t implausible = 0;
  for (int k = 0; k < 4'000; ++k) {
    for (std::size_t i = 0; i < 8; ++i) {
      if (random.uniform() < 0.5) continue;
      auto* bytes = reinterpret_cast<std::uint8_t*>(&kernel.slot(i));
      const std::size_t first = random.below(192), count = random.below(192 - first);
      for (std::size_t b = first; b < first + count; ++b) bytes[b] = static_cast<std::uint8_t>(random.below(256));
      if (random.uniform() < 0.8) kernel.slot(i).state = ASTRAEA_LIVE;
      if (random.uniform() < 0.8) kernel.slot(i).wseq &= ~1u;
      if (random.uniform() < 0.5) kernel.slot(i).gen = 1;
    }
    kernel.now_ns += 5'000'000;
    kernel.agent->wake(kernel.memory, kernel.now_ns);
    for (std::size_t i = 0; i < 8; ++i) {
      const std::uint32_t window = astraea_command_window(kernel.slot(i).command);
      ASSERT_TRUE(window == 0 || (window >= kLeastWindow && window <= kMostWindow)) << window;
    }
  }
  implausible = kernel.count("implausible_reads");
  EXPECT_GT(implausible, 100u);
  EXPECT_GT(kernel.count("torn_reads"), 100u);
}

TEST(AstraeaKernelAgent, AReadingThatIsRefusedMovesNoWindow) {
  Kernel kernel(with(kConstant, "policy", constant_policy(20)));
  kernel.open();
  kernel.go(300, 20);
  const std::uint32_t commanded = astraea_command_window(kernel.slot().command);
  kernel.slot().rtt_sum_us = ~0ull;
  for (int k = 0; k < 5; ++k) kernel.pass();
  EXPECT_EQ(kernel.count("implausible_reads"), 1u);
  EXPECT_EQ(astraea_command_window(kernel.slot().command), commanded);
  kernel.go(100, 20);
  EXPECT_GT(kernel.slot().cwnd, commanded) << "the flow goes on";
}

// --- options -------------------------------------------------------------------------------------

void expect_refused(const OptionValues& options, const std::string& why) {
  try {
    astraea_kind().in_kernel(options);
    ADD_FAILURE() << "not refused: " << why;
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr(why));
  }
}

TEST(AstraeaKernelAgent, RefusesWhatOnlyAModelHas) {
  expect_refused({{"policy", std::string("outside")}}, "astraea.policy: live, nobody outside decides");
  expect_refused({{"action", std::string("rate")}}, "astraea.action: live");
  expect_refused({{"action_delay_us", std::int64_t{5'000}}}, "astraea.action_delay_us: live");
  expect_refused({{"wake_us", std::int64_t{0}}}, "astraea.wake_us: live, 1000 or more");
  expect_refused({{"policy", std::string("mine")}}, "no policy \"mine\"");
  expect_refused({{"frames", std::int64_t{3}}, {"policy", constant_policy(1)}}, "frames is 3");
}

}  // namespace
}  // namespace loomnet::astraea
