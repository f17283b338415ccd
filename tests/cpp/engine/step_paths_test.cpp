// Source ports and queue pairs by ring step, steps sent whole, and what is noted of the steps.
#include <set>

#include "engine/ring_bed.hpp"

namespace loomnet {
namespace {

using roce::RoceOptions;
using testing::RingBed;

constexpr unsigned kHosts = 4;
constexpr std::uint32_t kSteps = 2 * (kHosts - 1), kRepeats = 3;

CollectiveTrafficConfig config() { return {.job = JobId{5}, .bytes = 1'200'000, .repeat = kRepeats, .payload = true}; }

// Source ports of each host's data packets, by ring step.
std::map<unsigned, std::map<std::uint32_t, std::set<std::uint16_t>>> ports_of(const RingBed& bed) {
  std::map<unsigned, std::map<std::uint32_t, std::set<std::uint16_t>>> found;
  for (const auto& s : bed.packets.seen) {
    if (s.attributes.step_bytes > 0) found[s.host][s.attributes.ring_step].insert(s.source_port);
  }
  EXPECT_EQ(found.size(), bed.hosts);
  return found;
}

std::set<std::uint16_t> all_of(const std::map<std::uint32_t, std::set<std::uint16_t>>& steps) {
  std::set<std::uint16_t> all;
  for (const auto& [step, ports] : steps) {
    EXPECT_EQ(ports.size(), 1u) << "step " << step << " has one port";
    all.insert(ports.begin(), ports.end());
  }
  return all;
}

std::uint64_t counted(RingBed& bed, std::string_view name) {
  std::uint64_t sum = 0;
  for (unsigned h = 0; h < bed.hosts; ++h) sum += testing::counter(*bed.network.nic(h).transport(), name);
  return sum;
}

TEST(StepPaths, AQueuePairHasOnePortUnlessTheOptionSaysOtherwise) {
  RingBed bed(kHosts, RingBed::roce({}), config());
  bed.run();
  for (const auto& [host, steps] : ports_of(bed)) EXPECT_EQ(all_of(steps).size(), 1u);
}

TEST(StepPaths, RehashedByStepNothingIsOvertaken) {
  RingBed bed(kHosts, RingBed::roce({.rehash = roce::Rehash::step}), config());
  bed.run();
  for (const auto& [host, steps] : ports_of(bed)) EXPECT_GE(all_of(steps).size(), kRepeats * kSteps - 2);
  EXPECT_EQ(counted(bed, "naks_sent"), 0u);
  EXPECT_EQ(counted(bed, "retransmitted"), 0u);
}

TEST(StepPaths, TheSourcePortsLowBitsAreTheStep) {
  auto c = config();
  c.first_step = 4090;  // 12 bits wrap
  RingBed bed(kHosts, RingBed::roce({.identity = StepIdentity::sport}), c);
  bed.run();
  for (const auto& [host, steps] : ports_of(bed)) {
    for (const auto& [step, ports] : steps) {
      ASSERT_EQ(ports.size(), 1u);
      EXPECT_EQ(*ports.begin() & 0xfff, step % 4096);
      EXPECT_EQ(*ports.begin() >> 14, 3) << "in the dynamic range";
    }
  }
  for (const auto& s : bed.packets.seen) EXPECT_FALSE(s.header);
}

TEST(StepPaths, EachStepTakesAQueuePairAnew) {
  RingBed bed(kHosts, RingBed::roce({.dcqcn = true, .line_rate = 100'000'000'000}), config(), 3);
  bed.run();
  for (const auto& [host, steps] : ports_of(bed)) EXPECT_GE(all_of(steps).size(), kRepeats * kSteps - 2);
  EXPECT_EQ(counted(bed, "messages_failed"), 0u);
}

TEST(StepPaths, QueuePairsByStepSurviveLossAndKeepTheOrder) {
  const auto lossy = [](Network& network) {
    for (LinkId link = 0; link < kHosts; ++link) {
      LinkChange change;
      change.link = link;
      change.impairment = Impairment{.loss = 0.01};
      network.apply(change);
    }
  };
  RingBed bed(kHosts, RingBed::roce({}), config(), 3, lossy);
  bed.run();  // sums are right, so no chunk was taken for another
  EXPECT_GT(counted(bed, "retransmitted"), 0u);
}

TEST(StepPaths, AWholeStepLeavesOnceTheStepBeforeHasCome) {
  auto c = config();
  c.whole_steps = true;
  RingBed bed(kHosts, RingBed::roce({}), c);
  bed.run();
  std::map<std::pair<JobRank, std::uint32_t>, Picoseconds> came;
  for (const StepRow& row : bed.ring->steps().rows()) came[{row.rank, row.step}] = row.at;
  for (const auto& s : bed.packets.seen) {
    if (s.attributes.step_bytes == 0 || s.attributes.ring_step % kSteps == 0) continue;
    EXPECT_GE(s.at, (came.at({s.host, s.attributes.ring_step - 1})));
  }
}

TEST(StepPaths, EveryRankNotesEveryStepInOrder) {
  auto c = config();
  c.channels = 2;
  c.first_step = 7;
  RingBed bed(kHosts, RingBed::roce({}), c);
  bed.run();
  std::map<std::pair<JobRank, std::uint32_t>, std::uint32_t> next;
  Picoseconds last{};
  for (const StepRow& row : bed.ring->steps().rows()) {
    std::uint32_t& expected = next.try_emplace({row.rank, row.channel}, 7).first->second;
    EXPECT_EQ(row.step, expected++);
    EXPECT_GE(row.at, last);
    last = row.at;
  }
  EXPECT_EQ(next.size(), kHosts * 2);
  for (const auto& [who, end] : next) EXPECT_EQ(end, 7 + kRepeats * kSteps);
  EXPECT_EQ(bed.ring->steps().unlogged(), 0u);
}

TEST(StepPaths, ComputingBetweenStepsTakesItsTimeAndIsDrawnFromTheSeed) {
  const auto end_of = [](Picoseconds compute) {
    auto c = config();
    c.whole_steps = true;
    c.step_compute = compute;
    RingBed bed(kHosts, RingBed::roce({}), c);
    bed.run();
    return bed.ring->iterations(0).back().end;
  };
  const Picoseconds none = end_of({}), some = end_of(microseconds(20));
  EXPECT_EQ(some, end_of(microseconds(20)));
  EXPECT_GT(some, none + microseconds(20 * (kSteps - 1)) * kRepeats / 2);
  EXPECT_LT(some, none + microseconds(20 * kSteps) * kRepeats * 4);
}

TEST(StepPaths, WhatIsSaidOfStepsIsCheckedBeforeAnythingStarts) {
  const auto refused = [](const char* what, const std::function<void(CollectiveTrafficConfig&)>& spoil) {
    Network network(1);
    for (int h = 0; h < 2; ++h) network.add_host(1);
    auto c = config();
    c.hosts = {0, 1};
    spoil(c);
    try {
      CollectiveTraffic ring(network, c);
      ADD_FAILURE() << what;
    } catch (const std::invalid_argument& error) {
      EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
    }
  };
  refused("channels", [](auto& c) { c.channels = 0; });
  refused("channels", [](auto& c) { c.channels = 65; });
  refused("rings", [](auto& c) { c.collective = Collective::all_to_all, c.channels = 2; });
  refused("rings", [](auto& c) { c.collective = Collective::broadcast, c.first_step = 2; });
  refused("anew", [](auto& c) { c.repeat = 17, c.renew_every = 1; });
  refused("step_compute", [](auto& c) { c.step_compute = Picoseconds{-1}; });
}

}  // namespace
}  // namespace loomnet
