// What Astraea's program in the kernel decides by itself, compiled for the engine: inputs beside those in floats,
// the network beside Policy::act_int16 to the bit, windows, drains and start-ups beside Agent. That the kernel
// computes the same as this build is tests/cpp/live/astraea_trial_test.cpp's.
#include "transport/congestion/astraea/kernel_policy.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>

#include "astraea_net.hpp"
#include "astraea_readings.hpp"
#include "transport/congestion/astraea/agent.hpp"

namespace loomnet::astraea {
namespace {

using ::testing::HasSubstr;

Plan plan_by(const Policy& policy, Lifetime extremes = Lifetime::windowed_drain) {
  const std::string name = add_policy(policy.serialize());
  const PolicySpec& spec = policy.spec();
  const char* const lifetimes[] = {"lifetime", "windowed", "windowed+drain"};
  Plan plan = kernel_plan_of({{"agent", std::string("kernel")},
                              {"policy", name},
                              {"features", std::string(to_string(spec.features))},
                              {"frames", std::int64_t{spec.frames}},
                              {"spacing", std::string(spec.spacing == Spacing::every ? "every" : "doubled")},
                              {"extremes", std::string(lifetimes[static_cast<int>(extremes)])}});
  forget_policy(name);
  return plan;
}

Policy quantised(std::uint64_t seed, std::vector<std::uint16_t> hidden = {64, 32}, PolicySpec spec = {}) {
  Policy policy = testbed::random_policy(seed, std::move(hidden), spec);
  policy.quantise();
  return policy;
}

// A flow of the kernel's whose policy is in bank 1.
struct Inside {
  explicit Inside(const Plan& plan) { publish_policy(*policies, plan); }
  const astraea_bank& bank() const { return policies->bank[policies->active]; }
  std::unique_ptr<astraea_policies> policies = std::make_unique<astraea_policies>();
  astraea_memory memory{};
};

std::int32_t input_of(float feature) {
  return static_cast<std::int32_t>(std::floor(std::clamp<double>(feature, -8, 8) * 4'096 + 0.5));
}

// --- inputs --------------------------------------------------------------------------------------

class KernelFrames : public ::testing::TestWithParam<FeatureSet> {};

TEST_P(KernelFrames, AreThoseInFloatsRounded) {
  const PolicySpec spec{.features = GetParam()};
  const Plan plan = plan_by(quantised(1, {16}, spec), Lifetime::windowed);
  std::size_t values = 0, apart = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    Inside inside(plan);
    testbed::Readings flow(seed);
    Extremes extremes(Lifetime::windowed);
    inside.memory.base = flow.begin();
    for (int i = 0; i < 250; ++i) {
      inside.memory.now = flow.next();
      const astraea_reading& now = inside.memory.now;
      const Measured m = testbed::measured(inside.memory.base, now);
      extremes.update(m.avg_thr_Bps, now.least_rtt_us, microseconds(static_cast<std::int64_t>(now.sums.at_us)));
      std::array<float, kMostFeatures> wanted{};
      frame(GetParam(), m, extremes.range(), wanted);
      ASSERT_EQ(astraea_decide(&inside.memory, &inside.bank(), 1), 1u);
      const ln_s32* found = inside.memory.ring + (inside.memory.next - 1) % ASTRAEA_DEPTH * ASTRAEA_COLUMNS;
      for (std::size_t f = 0; f < features_of(GetParam()); ++f) {
        const std::int32_t difference = found[f] - input_of(wanted[f]);
        ASSERT_LE(std::abs(difference), 1) << "seed " << seed << " interval " << i << " feature " << f;
        ++values;
        apart += difference != 0;
      }
      inside.memory.base = now.sums;
      flow.take(static_cast<std::uint32_t>(flow.window() * (i % 40 < 20 ? 1.03 : 0.97)));
    }
  }
  std::printf("%s: %zu of %zu inputs are one beside the rounded float\n", to_string(GetParam()).data(), apart, values);
  EXPECT_LT(apart, values / 100);
}

// Those that the kernel's counters tell; kernel_plan_of() refuses the others.
INSTANTIATE_TEST_SUITE_P(Sets, KernelFrames,
                         ::testing::Values(FeatureSet::astraea10, FeatureSet::ours11, FeatureSet::rel8),
                         [](const auto& set) { return std::string(to_string(set.param)); });

TEST(KernelArithmetic, LogarithmIsWithinItsBound) {
  RandomStream random(1, 1, 1);
  for (int i = 0; i < 20'000; ++i) {
    const auto x = static_cast<std::uint64_t>(std::exp2(20 + 43 * random.uniform()));
    const double exact = std::log2(static_cast<double>(x) / (1 << 20));
    const double found = astraea_log2(std::max<std::uint64_t>(x, 1 << 20)) / 65'536.0;
    ASSERT_LE(found, exact + 1e-9) << x;
    ASSERT_GE(found, exact - 1.0 / 32'768) << x;
  }
  EXPECT_EQ(astraea_log2(1 << 20), 0u);
  EXPECT_EQ(astraea_log2(1ull << 63), 43u << 16);
}

TEST(KernelArithmetic, ActionsAreThoseOfTheEngine) {
  RandomStream random(2, 1, 1);
  for (int i = 0; i < 100'000; ++i) {
    const auto window = static_cast<std::uint32_t>(random.below(20'001));
    const std::int32_t q = static_cast<std::int32_t>(random.below(65'535)) - 32'767;
    const std::uint32_t alpha = i % 2 ? 25'000 : static_cast<std::uint32_t>(random.below(500'001));
    ASSERT_EQ(astraea_acted(window, q, alpha), map_action_int(window, q, alpha)) << window << " " << q << " " << alpha;
  }
  EXPECT_EQ(astraea_acted(~0u, 32'767, 1'000'000), kWindowBound);
}

// --- the network ---------------------------------------------------------------------------------

struct Net {
  std::vector<std::uint16_t> hidden;
  PolicySpec spec;
};

class KernelNet : public ::testing::TestWithParam<Net> {};

TEST_P(KernelNet, ActsAsTheEnginesFormToTheBit) {
  const Policy policy = quantised(4, GetParam().hidden, GetParam().spec);
  const Plan plan = plan_by(policy);
  const std::size_t inputs = policy.inputs();
  std::vector<float> input(inputs);
  std::size_t decided = 0, moved = 0;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Inside inside(plan);
    testbed::Readings flow(seed);
    inside.memory.base = flow.begin();
    for (int i = 0; i < 100; ++i) {
      inside.memory.now = flow.next();
      astraea_decide(&inside.memory, &inside.bank(), 1);
      inside.memory.base = inside.memory.now.sums;
      if (!inside.memory.out.acted) continue;
      ++decided;
      // The frames of the ring as floats, which hold them exactly.
      const std::size_t width = features_of(policy.spec().features), frames = policy.spec().frames;
      for (std::size_t k = 0; k < frames; ++k) {
        const std::size_t back = policy.spec().spacing == Spacing::every ? k : (1u << k) - 1;
        const std::size_t row = (inside.memory.next - 1 - back) % ASTRAEA_DEPTH;
        for (std::size_t f = 0; f < width; ++f) {
          const bool there = back < inside.memory.filled;
          input[(frames - 1 - k) * width + f] =
              there ? static_cast<float>(inside.memory.ring[row * ASTRAEA_COLUMNS + f]) / 4'096 : 0;
        }
      }
      std::int16_t wanted = 0;
      policy.act_int16(input, {&wanted, 1});
      ASSERT_EQ(inside.memory.out.action, wanted) << "seed " << seed << " interval " << i;
      moved += wanted != 0;
    }
  }
  EXPECT_GT(decided, 900u);
  EXPECT_GT(moved, decided / 2) << "the actions are not all 0";
}

INSTANTIATE_TEST_SUITE_P(
    Nets, KernelNet,
    ::testing::Values(Net{{64, 32}, {}}, Net{{256, 128, 64}, {.features = FeatureSet::astraea10}}, Net{{}, {}},
                      Net{{10, 3, 7, 1, 9, 5, 12},
                          {.features = FeatureSet::rel8, .frames = 6, .spacing = Spacing::doubled}},
                      Net{{33}, {.features = FeatureSet::ours11, .frames = 16}}));

TEST(KernelNet, SaturatesAsTheEnginesForm) {
  // Weights at the end of 16 bits: sums leave the range of activations.
  PolicySpec spec{.features = FeatureSet::rel8, .frames = 1};
  std::vector<Layer> layers;
  for (std::uint16_t l = 0; l < 6; ++l) {
    const std::uint16_t in = l == 0 ? 8 : 64, out = l == 5 ? 1 : 64;
    layers.push_back(
        {in, out, std::vector<float>(std::size_t{in} * out, l % 2 ? -8.0f : 7.999f), std::vector<float>(out, 100.0f)});
  }
  Policy policy(spec, std::move(layers));
  policy.quantise();
  Inside inside(plan_by(policy));
  testbed::Readings flow(3);
  inside.memory.base = flow.begin();
  inside.memory.now = flow.next();
  astraea_decide(&inside.memory, &inside.bank(), 1);
  std::vector<float> input(8);
  for (std::size_t f = 0; f < 8; ++f) input[f] = static_cast<float>(inside.memory.ring[f]) / 4'096;
  std::int16_t wanted = 0;
  policy.act_int16(input, {&wanted, 1});
  EXPECT_EQ(std::abs(wanted), kFullAction);
  EXPECT_EQ(inside.memory.out.action, wanted);
}

// --- decisions -----------------------------------------------------------------------------------

class KernelDecisions : public ::testing::TestWithParam<Lifetime> {};

TEST_P(KernelDecisions, AreTheAgents) {
  const Plan plan = plan_by(quantised(5), GetParam());
  std::size_t drains = 0, held = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Inside inside(plan);
    testbed::Readings flow(seed);
    Agent agent(plan.agent);
    agent.judge_start({}, true, 10);
    inside.memory.base = flow.begin();
    agent.begin(microseconds(static_cast<std::int64_t>(flow.begin().at_us)));
    for (int i = 0; i < 900; ++i) {
      inside.memory.now = flow.next();
      const astraea_reading& now = inside.memory.now;
      const Picoseconds at = microseconds(static_cast<std::int64_t>(now.sums.at_us));
      const bool acts = agent.observe(testbed::measured(inside.memory.base, now), now.least_rtt_us, at);
      astraea_decide(&inside.memory, &inside.bank(), 1);
      ASSERT_EQ(inside.memory.out.acted, acts) << "seed " << seed << " interval " << i;
      const std::uint32_t window = now.after_timeout ? now.command : now.cwnd;
      std::uint32_t wanted;
      if (acts) {
        wanted = agent.command_int(inside.memory.out.action, window);
        if (wanted > window && !filled(window, std::max(now.packets_out, now.most_out))) {
          wanted = 0;
          ++held;
        }
      } else {
        wanted = agent.command_without_policy(window, at);
        drains += agent.mode() == Agent::Mode::drain && wanted > 0;
      }
      ASSERT_EQ(inside.memory.out.window, wanted) << "seed " << seed << " interval " << i;
      ASSERT_EQ(inside.memory.range.min_rtt_us, agent.range().min_rtt_us);
      ASSERT_NEAR(static_cast<double>(inside.memory.range.max_tput_Bps), agent.range().max_tput_Bps, 1);
      inside.memory.base = now.sums;
      if (wanted > 0) flow.take(wanted);
    }
  }
  EXPECT_EQ(drains >= 10, GetParam() == Lifetime::windowed_drain) << drains;
  EXPECT_GT(held, 20u) << "windows that were not used";
}

INSTANTIATE_TEST_SUITE_P(Lifetimes, KernelDecisions,
                         ::testing::Values(Lifetime::connection, Lifetime::windowed, Lifetime::windowed_drain));

TEST(KernelDecisions, HoldWhileTheStartLasts) {
  Inside inside(plan_by(quantised(5)));
  testbed::Readings flow(7);
  inside.memory.base = flow.begin();
  for (int i = 0; i < 10; ++i) {
    inside.memory.now = flow.next();
    astraea_decide(&inside.memory, &inside.bank(), 0);
    EXPECT_EQ(inside.memory.out.acted, 0u);
    EXPECT_EQ(inside.memory.out.window, 0u);
    inside.memory.base = inside.memory.now.sums;
  }
  EXPECT_EQ(inside.memory.filled, 10u) << "frames are kept meanwhile";
}

TEST(KernelStart, EndsAsTheAgents) {
  RandomStream random(3, 1, 1);
  std::size_t over = 0;
  for (int i = 0; i < 5'000; ++i) {
    const auto least = static_cast<std::uint32_t>(std::exp2(5 + 14 * random.uniform()));
    const std::uint32_t count = 8 + static_cast<std::uint32_t>(random.below(100));
    const auto sum = static_cast<std::uint64_t>(count * least * (1 + 0.3 * random.uniform()));
    Agent agent({});
    RttSamples samples;
    samples.count = count;
    samples.sum_us = static_cast<double>(sum);
    samples.least_us = least;
    agent.judge_start(samples, false, 10);
    const bool ended = agent.mode() != Agent::Mode::start;
    ASSERT_EQ(astraea_start_over(sum, count, least) != 0, ended) << least << " " << count << " " << sum;
    over += ended;
    const std::uint64_t rate = random.below(1u << 30);
    ASSERT_EQ(astraea_path_after_start(rate, 1, least), path_after_start(static_cast<double>(rate), least));
  }
  EXPECT_GT(over, 500u);
  EXPECT_LT(over, 4'500u);
  EXPECT_EQ(astraea_path_after_start(5, 0, 100), path_after_start(-1, 100));
}

// --- banks ---------------------------------------------------------------------------------------

TEST(KernelPolicy, TheIdleBankIsWrittenThenActive) {
  Inside inside(plan_by(quantised(1)));
  EXPECT_EQ(inside.policies->active, 1u);
  EXPECT_EQ(inside.policies->bank[1].version, 1u);
  EXPECT_EQ(inside.policies->bank[0].version, 0u);
  const auto first = std::make_unique<astraea_bank>(inside.policies->bank[1]);
  publish_policy(*inside.policies, plan_by(quantised(2)));
  EXPECT_EQ(inside.policies->active, 0u);
  EXPECT_EQ(inside.policies->bank[0].version, 2u);
  EXPECT_EQ(std::memcmp(first.get(), &inside.policies->bank[1], sizeof *first), 0) << "flows may still decide by it";
  EXPECT_NE(std::memcmp(first->weights, inside.policies->bank[0].weights, sizeof first->weights), 0);
  withdraw_policy(*inside.policies);
  EXPECT_EQ(inside.bank().version, 0u);
  publish_policy(*inside.policies, plan_by(quantised(2)));
  EXPECT_GT(inside.bank().version, 0u);
}

TEST(KernelPolicy, FramesOfAnotherSetAreForgotten) {
  Inside inside(plan_by(quantised(1)));
  testbed::Readings flow(7);
  inside.memory.base = flow.begin();
  for (int i = 0; i < 9; ++i) {
    inside.memory.now = flow.next();
    astraea_decide(&inside.memory, &inside.bank(), 1);
    if (i == 5) publish_policy(*inside.policies, plan_by(quantised(2)));
    if (i == 7) publish_policy(*inside.policies, plan_by(quantised(2, {8}, {.features = FeatureSet::rel8})));
    EXPECT_EQ(inside.memory.filled, i < 8 ? static_cast<unsigned>(i) + 1 : 1u);
  }
}

std::string refusal(const OptionValues& values) {
  try {
    kernel_plan_of(values);
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "";
}

TEST(KernelPolicy, RefusesInOneLineWhatHasNoPlace) {
  const auto by = [](const Policy& policy) { return add_policy(policy.serialize()); };
  const std::string kernel = "kernel";
  EXPECT_THAT(refusal({{"agent", kernel}}), HasSubstr("astraea.agent: \"kernel\" needs a trained policy"));
  EXPECT_THAT(
      refusal({{"agent", kernel}, {"policy", by(testbed::random_policy(1))}}),
      HasSubstr(
          "astraea.policy: it has no form of whole numbers; write its file after quantise(), or leave out agent="));
  EXPECT_THAT(refusal({{"agent", kernel}, {"policy", by(quantised(1))}, {"arithmetic", std::string("float32")}}),
              HasSubstr("astraea.arithmetic: a kernel has no floats"));
  EXPECT_THAT(
      refusal({{"agent", kernel}, {"interval_rtts", 1.0}, {"policy", by(quantised(1, {8}, {.interval_rtts = 1}))}}),
      HasSubstr("astraea.interval_rtts: the kernel's program has intervals of one length"));
  EXPECT_THAT(refusal({{"agent", kernel}, {"policy", by(quantised(1, {300}))}}),
              HasSubstr("astraea.policy: layer 0: out: 300; in the kernel's program 256 at most"));
  EXPECT_THAT(refusal({{"agent", kernel}, {"policy", by(quantised(1, {256, 256}))}}),
              HasSubstr("astraea.policy: layers: 80128 weights"));
  EXPECT_EQ(refusal({{"agent", kernel}, {"policy", by(quantised(1))}, {"arithmetic", std::string("int16")}}), "");
  // On the virtual clock a network of any size has that form.
  const Plan plan = plan_of({{"agent", kernel}, {"policy", by(quantised(1, {300}))}});
  EXPECT_EQ(plan.options.arithmetic, Arithmetic::int16);
}

}  // namespace
}  // namespace loomnet::astraea
