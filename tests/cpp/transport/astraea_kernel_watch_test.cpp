// The agent where the kernel's program decides: it hands the policy over, counts, and keeps what was decided, from
// slots that are written by hand.
#include "transport/congestion/astraea/kernel_watch.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>

#include "astraea_net.hpp"
#include "ebpf/astraea.h"
#include "ebpf/astraea_policy_abi.h"
#include "transport/congestion/astraea/astraea.hpp"

namespace loomnet::astraea {
namespace {

class KernelWatch : public ::testing::Test {
 protected:
  KernelWatch() : memory(2 * sizeof(astraea_slot)) {
    Policy policy = testbed::random_policy(1);
    policy.quantise();
    agent = astraea_kind().in_kernel({{"agent", std::string("kernel")}, {"policy", add_policy(policy.serialize())}});
    agent->record();
  }
  astraea_slot& slot(std::size_t i = 0) { return reinterpret_cast<astraea_slot*>(memory.data())[i]; }
  void wake() { agent->wake(memory, 5'000'000); }
  std::map<std::string, std::uint64_t> counts() const {
    std::map<std::string, std::uint64_t> out;
    for (const auto& [name, count] : agent->counts()) out[std::string(name)] = count;
    return out;
  }
  // As the program ends an interval.
  void end(std::int32_t action) {
    astraea_slot& s = slot();
    s.wseq += 2;
    ++s.intervals;
    ++s.decisions;
    s.decided_us = 7'000;
    s.seen_cwnd = 40;
    s.seen_Bps = 1'000'000;
    s.seen_rtt_us = 30'000;
    s.seen_min_rtt_us = 25'000;
    s.seen_loss_Bps = 500;
    s.seen_queue_x256 = 640;
    s.action = action;
    s.command = astraea_command(7, 41);
    s.mode = ASTRAEA_AGENT;
  }

  std::vector<std::uint8_t> memory;
  std::unique_ptr<KernelAgent> agent;
};

TEST_F(KernelWatch, HandsThePolicyOverAndCommandsNothing) {
  std::vector<std::uint8_t> bytes(agent->policy_bytes());
  ASSERT_EQ(bytes.size(), sizeof(astraea_policies));
  agent->write_policy(bytes);
  const auto& policies = *reinterpret_cast<const astraea_policies*>(bytes.data());
  EXPECT_EQ(policies.bank[policies.active].version, 1u);
  EXPECT_EQ(policies.bank[policies.active].interval_us, 30'000u);
  EXPECT_EQ(policies.bank[policies.active].look_us, 5'000u);
  slot().state = ASTRAEA_LIVE;
  const std::vector<std::uint8_t> before = memory;
  wake();
  EXPECT_EQ(memory, before);
}

TEST_F(KernelWatch, KeepsWhatTheProgramDecided) {
  slot().state = ASTRAEA_LIVE;
  slot().gen = 3;
  slot().netns = 9;
  slot().local_port = 40'000;
  slot().remote_port = 80;
  wake();
  EXPECT_TRUE(agent->take_decisions().empty());
  end(-16'384);
  slot().fallbacks = 1;
  wake();
  wake();
  const auto rows = agent->take_decisions();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].at_ns, 7'000'000u);
  EXPECT_EQ(rows[0].netns, 9u);
  EXPECT_EQ(rows[0].local_port, 40'000);
  EXPECT_EQ(rows[0].window, 40u);
  EXPECT_EQ(rows[0].commanded, 41u);
  EXPECT_EQ(rows[0].mode, 1u);
  EXPECT_EQ(rows[0].rtt_us, 30'000);
  EXPECT_EQ(rows[0].least_rtt_us, 25'000);
  EXPECT_EQ(rows[0].throughput_Bps, 1e6);
  EXPECT_EQ(rows[0].loss_Bps, 500);
  EXPECT_EQ(rows[0].queue_packets, 2.5);
  EXPECT_NEAR(rows[0].action, -0.5, 1e-4);
  EXPECT_EQ(counts()["fallbacks"], 1u);
}

TEST_F(KernelWatch, SaysWhatItCameTooLateFor) {
  slot().state = ASTRAEA_LIVE;
  wake();
  for (int i = 0; i < 3; ++i) end(5);
  wake();
  EXPECT_EQ(counts()["decisions"], 3u);
  EXPECT_EQ(counts()["intervals_unseen"], 2u);
  EXPECT_EQ(agent->take_decisions().size(), 1u);
}

TEST_F(KernelWatch, CountsFlowsAndGivesSlotsBack) {
  slot(0).state = slot(1).state = ASTRAEA_LIVE;
  wake();
  slot(1).state = ASTRAEA_RELEASED;
  wake();
  EXPECT_EQ(slot(1).state, static_cast<ln_u32>(ASTRAEA_FREE));
  slot(1).gen = 1;
  slot(1).state = ASTRAEA_LIVE;
  slot(1).wseq = 1;  // the program writes
  wake();
  EXPECT_EQ(counts()["torn_reads"], 1u);
  slot(1).wseq = 2;
  wake();
  EXPECT_EQ(counts()["flows"], 3u);
  EXPECT_EQ(counts()["most_flows"], 2u);
}

}  // namespace
}  // namespace loomnet::astraea
