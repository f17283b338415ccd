// Astraea's policies: inference in floats and in whole numbers, how far apart the two are, and the policy
// file, of which every field is checked.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <stdexcept>

#include "astraea_net.hpp"
#include "counted_memory.hpp"
#include "packet/crc32.hpp"
#include "transport/congestion/astraea/policies.hpp"

namespace loomnet::astraea {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<std::uint8_t>;

// --- inference -----------------------------------------------------------------------------------

// The same sums in double precision.
double exact(const Policy& policy, std::span<const float> input) {
  std::vector<double> x(input.begin(), input.end());
  for (std::size_t l = 0; l < policy.layers().size(); ++l) {
    const Layer& layer = policy.layers()[l];
    std::vector<double> y(layer.out);
    for (std::size_t o = 0; o < layer.out; ++o) {
      y[o] = layer.bias[o];
      for (std::size_t i = 0; i < layer.in; ++i) y[o] += double{layer.weights[o * layer.in + i]} * x[i];
      if (l + 1 < policy.layers().size() && y[o] < 0) y[o] *= 0.2;
    }
    x = y;
  }
  return settled(std::tanh(x[0]));
}

TEST(Policy, ActsAsItsLayersSay) {
  std::vector<std::uint32_t> windows;
  const auto inputs = testbed::random_inputs(1, 200, windows);
  const Policy policy = testbed::random_policy(1);
  std::vector<float> actions(200);
  policy.act(inputs, actions);
  double most = 0;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    EXPECT_NEAR(actions[i], exact(policy, std::span(inputs).subspan(i * 55, 55)), 2e-6) << i;
    most = std::max(most, std::fabs(double{actions[i]}));
  }
  EXPECT_GT(most, 0.2) << "the actions are not all near 0";
}

TEST(Policy, SumsFromTheFirstInputToTheLastEachProductRounded) {
  // In any other order, or fused, the sum is another: 2^24 + 1 + 1 in floats is 2^24.
  const auto one = [](std::vector<float> weights) {
    PolicySpec spec{.features = FeatureSet::rel8, .frames = 1};
    std::vector<Layer> layers{{.in = 8, .out = 1, .weights = std::move(weights), .bias = {0}}};
    const std::vector<float> input = {4'096, 1, 1, -4'096, 0, 0, 0, 0};
    float a = 7;
    Policy(spec, std::move(layers)).act(input, {&a, 1});
    return a;
  };
  EXPECT_EQ(one({4'096, 1, 1, 4'096, 0, 0, 0, 0}), 0);
  // (1 + 2^-12)^2 - 1 - 2^-11 is 2^-24 where the product is not rounded.
  const float x = 1.000244140625f;
  PolicySpec spec{.features = FeatureSet::rel8, .frames = 1};
  std::vector<Layer> layers{{.in = 8, .out = 1, .weights = {x, 0, 0, 0, 0, 0, 0, 0}, .bias = {-1.00048828125f}},
                            {.in = 1, .out = 1, .weights = {10'000}, .bias = {0}},
                            {.in = 1, .out = 1, .weights = {10'000}, .bias = {0}}};
  const std::vector<float> input = {x, 0, 0, 0, 0, 0, 0, 0};
  float a = 7;
  Policy(spec, layers).act(input, {&a, 1});
  EXPECT_EQ(a, 0) << "2^-24 times 10^8 is 6, and its tanh 1";
}

TEST(Policy, GivesAFlowTheSameActionInEveryBatch) {
  std::vector<std::uint32_t> windows;
  const auto inputs = testbed::random_inputs(2, 64, windows);
  Policy policy = testbed::random_policy(2);
  policy.quantise();
  std::vector<float> together(64);
  std::vector<std::int16_t> whole(64);
  policy.act(inputs, together);
  policy.act_int16(inputs, whole);
  for (std::size_t i = 0; i < 64; ++i) {
    float a = 0;
    std::int16_t q = 0;
    policy.act(std::span(inputs).subspan(i * 55, 55), {&a, 1});
    policy.act_int16(std::span(inputs).subspan(i * 55, 55), {&q, 1});
    EXPECT_EQ(std::bit_cast<std::uint32_t>(a), std::bit_cast<std::uint32_t>(together[i]));
    EXPECT_EQ(q, whole[i]);
  }
}

TEST(Policy, AllocatesNothingToAct) {
  std::vector<std::uint32_t> windows;
  const auto inputs = testbed::random_inputs(3, 32, windows);
  Policy policy = testbed::random_policy(3);
  policy.quantise();
  std::vector<float> actions(32);
  std::vector<std::int16_t> whole(32);
  tanh_table();
  const std::size_t before = testbed::allocations;
  policy.act(inputs, actions);
  policy.act_int16(inputs, whole);
  EXPECT_EQ(testbed::allocations, before);
}

TEST(Policy, ActsOnAnyNumbersWithinItsRange) {
  constexpr float kInfinite = std::numeric_limits<float>::infinity(), kNone = std::numeric_limits<float>::quiet_NaN();
  Policy policy = testbed::random_policy(4);
  policy.quantise();
  RandomStream random(4, 3, 1);
  for (int i = 0; i < 200; ++i) {
    std::vector<float> input(55);
    for (float& x : input) {
      const std::array any = {kInfinite, -kInfinite, kNone, 1e38f, -1e38f, 0.0f, 1.0f};
      x = any[random.below(any.size())];
    }
    float a = 7;
    std::int16_t q = 0;
    policy.act(input, {&a, 1});
    policy.act_int16(input, {&q, 1});
    EXPECT_LE(std::fabs(a), 1);
    EXPECT_LE(std::abs(int{q}), kFullAction);
  }
  std::vector<float> short_input(54);
  float a = 0;
  EXPECT_THROW(policy.act(short_input, {&a, 1}), std::invalid_argument);
  std::int16_t q = 0;
  EXPECT_THROW(testbed::random_policy(4).act_int16(std::vector<float>(55), {&q, 1}), std::logic_error);
}

TEST(Policy, InWholeNumbersActsAlike) {
  constexpr std::size_t kFlows = 2'000;
  std::size_t same = 0, total = 0;
  double apart = 0, most = 0;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    std::vector<std::uint32_t> windows;
    const auto inputs = testbed::random_inputs(seed, kFlows, windows);
    Policy policy = testbed::random_policy(seed);
    policy.quantise();
    std::vector<float> actions(kFlows);
    std::vector<std::int16_t> whole(kFlows);
    policy.act(inputs, actions);
    policy.act_int16(inputs, whole);
    for (std::size_t i = 0; i < kFlows; ++i) {
      const double difference_of_actions = std::fabs(actions[i] - static_cast<double>(whole[i]) / kFullAction);
      apart += difference_of_actions;
      most = std::max(most, difference_of_actions);
      const std::int64_t difference =
          std::int64_t{map_action(windows[i], actions[i])} - map_action_int(windows[i], whole[i]);
      EXPECT_LE(std::abs(difference), 1) << "seed " << seed << " flow " << i << " window " << windows[i];
      same += difference == 0;
      ++total;
    }
  }
  EXPECT_GE(total, 10'000u);
  EXPECT_LE(apart / static_cast<double>(total), 0.02);
  EXPECT_GE(static_cast<double>(same) / static_cast<double>(total), 0.99);
  RecordProperty("mean_difference", std::to_string(apart / static_cast<double>(total)));
  RecordProperty("largest_difference", std::to_string(most));
  RecordProperty("same_window", std::to_string(static_cast<double>(same) / static_cast<double>(total)));
}

TEST(TanhTable, RisesFrom0ToTheLastRow) {
  const auto table = tanh_table();
  ASSERT_EQ(table.size(), 257u);
  EXPECT_EQ(table[0], 0);
  EXPECT_EQ(table[64], 24'955);   // tanh 1
  EXPECT_EQ(table[256], 32'745);  // tanh 4
  for (std::size_t i = 1; i < table.size(); ++i) EXPECT_GE(table[i], table[i - 1]);
}

// --- the file ------------------------------------------------------------------------------------

PolicySpec small() { return {.features = FeatureSet::rel8, .frames = 2}; }

Bytes a_file() {
  Policy policy = testbed::random_policy(6, {3}, small());
  policy.quantise();
  return policy.serialize();
}

// Where things are in a_file(): a header, a layer of 16 x 3, one of 3 x 1, the same in whole numbers.
constexpr std::size_t kFirstLayer = 32, kSecondLayer = kFirstLayer + 4 + 4 * (48 + 3),
                      kWhole = kSecondLayer + 4 + 4 * (3 + 1);

std::string refusal(const Bytes& file) {
  try {
    Policy::parse(file);
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "accepted";
}
// What is said of a_file() after a change, with a CRC that fits.
std::string refusal_of(const std::function<void(Bytes&)>& change) {
  Bytes file = a_file();
  file.resize(file.size() - 4);
  change(file);
  const std::uint32_t crc = crc32(file);
  for (int i = 0; i < 4; ++i) file.push_back(static_cast<std::uint8_t>(crc >> 8 * i));
  return refusal(file);
}
std::string with_u16(std::size_t at, std::uint16_t value) {
  return refusal_of([&](Bytes& b) {
    b[at] = static_cast<std::uint8_t>(value);
    b[at + 1] = static_cast<std::uint8_t>(value >> 8);
  });
}
std::string with_u32(std::size_t at, std::uint32_t value) {
  return refusal_of([&](Bytes& b) {
    for (std::size_t i = 0; i < 4; ++i) b[at + i] = static_cast<std::uint8_t>(value >> 8 * i);
  });
}

TEST(PolicyFile, IsReadAsItWasWritten) {
  const Bytes file = a_file();
  EXPECT_EQ(file.size(), kWhole + 2 * 48 + 4 * 3 + 2 * 3 + 4 * 1 + 4);
  const Policy policy = Policy::parse(file);
  EXPECT_EQ(policy.serialize(), file);
  EXPECT_EQ(policy.spec(), small());
  EXPECT_TRUE(policy.quantised());
  EXPECT_EQ(refusal_of([](Bytes&) {}), "accepted");
  // Byte for byte, so that another reader can be written from the table in policy_file.cpp.
  const Bytes header(file.begin(), file.begin() + 32);
  EXPECT_EQ(header, (Bytes{'A',  'S',  'T',  'P',  1, 0, 1, 0, 8,    0,    2, 0, 3, 0, 30, 0,
                           0xcd, 0xcc, 0xcc, 0x3c, 4, 0, 0, 0, 0x20, 0x4e, 0, 0, 2, 0, 1,  0}));
}

TEST(PolicyFile, KeepsWhatThePolicyWasTrainedWith) {
  PolicySpec spec = small();
  spec.spacing = Spacing::doubled;
  spec.interval_ms = 20;
  spec.alpha = 0.05f;
  spec.cwnd_min = 2;
  spec.cwnd_max = 5'000;
  spec.folded = true;
  const Policy policy = testbed::random_policy(7, {}, spec);
  const Policy again = Policy::parse(policy.serialize());
  EXPECT_EQ(again.spec(), spec);
  EXPECT_EQ(again.layers(), policy.layers());
  EXPECT_FALSE(again.quantised());
}

TEST(PolicyFile, KeepsWhatItsActionsAreInBitsThatOldFilesHaveAs0) {
  PolicySpec spec{.features = FeatureSet::aurora3, .frames = 10, .interval_rtts = 1.25};
  for (const ActionKind action : {ActionKind::window, ActionKind::rate, ActionKind::factor}) {
    spec.action = action;
    spec.inner = action == ActionKind::factor ? InnerRule::vegas : InnerRule::cubic;
    spec.alpha = action == ActionKind::factor ? 2 : 0.025f;
    const Bytes file = testbed::random_policy(7, {}, spec).serialize();
    EXPECT_EQ(Policy::parse(file).spec(), spec);
    const int kind = action == ActionKind::window ? 0 : action == ActionKind::rate ? 1 << 3 : (3 << 3) + (2 << 5);
    EXPECT_EQ(file[6], kind);
    EXPECT_EQ(file[7], 5) << "quarters of a round trip";
    EXPECT_EQ(file[12], 4) << "the feature set";
  }
  const auto refused = [](PolicySpec wrong) {
    try {
      testbed::random_policy(7, {}, wrong);
    } catch (const std::invalid_argument& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refused({.interval_rtts = 0.1}), "policy: interval_rtts: 0.100000; give quarters, 0 to 63.75");
  EXPECT_THAT(refused({.interval_rtts = 64}), HasSubstr("interval_rtts"));
  EXPECT_THAT(refused({.interval_rtts = std::nan("")}), HasSubstr("interval_rtts"));
  EXPECT_THAT(refused({.action = ActionKind::factor, .alpha = 9}), HasSubstr("a factor's exponent"));
  EXPECT_THAT(refused({.action = ActionKind::rate, .alpha = 2}), HasSubstr("alpha: 2.0"));
}

TEST(PolicyFile, IsRefusedByTheFieldThatIsWrong) {
  EXPECT_THAT(refusal({}), HasSubstr("policy: magic: these bytes are no .astp file"));
  EXPECT_THAT(with_u16(0, 7), HasSubstr("magic"));
  EXPECT_EQ(with_u16(4, 2), "policy: version: 2; this Loomnet reads version 1");
  EXPECT_EQ(with_u16(6, 128), "policy: flags: 128; bit 7 is 0, and bits 5 and 6 are 0 to 2");
  EXPECT_EQ(with_u16(6, 96), "policy: flags: 96; bit 7 is 0, and bits 5 and 6 are 0 to 2");
  EXPECT_THAT(with_u16(6, 16), HasSubstr("action: \"absolute\" has a range of rates that no policy file has"));
  EXPECT_THAT(with_u16(6, 32), HasSubstr("inner: reno is of action \"factor\" alone"));
  EXPECT_EQ(with_u16(8, 9), "policy: features per frame: 9; rel8 has 8");
  EXPECT_EQ(with_u16(10, 0), "policy: frames: 0; give 1 to 16");
  EXPECT_EQ(with_u16(10, 3), "policy: layer 0: in: 16; give 24, the features of all frames");
  EXPECT_THAT(with_u16(12, 5),
              HasSubstr("feature set: no set has the number 5; give 1 to 4 (astraea10, ours11, rel8, aurora3)"));
  EXPECT_EQ(with_u16(14, 0), "policy: interval: 0; give 1 to 1000");
  EXPECT_THAT(with_u32(16, std::bit_cast<std::uint32_t>(-1.0f)), HasSubstr("alpha"));
  EXPECT_THAT(with_u32(16, 0x7fc00000), HasSubstr("alpha: nan"));
  EXPECT_THAT(with_u32(20, 0), HasSubstr("cwnd_min: 0"));
  EXPECT_THAT(with_u32(24, 3), HasSubstr("cwnd_max: 3; give 4 to"));
  EXPECT_THAT(with_u32(24, 0xffffffff), HasSubstr("cwnd_max"));
  EXPECT_EQ(with_u16(28, 0), "policy: layers: 0; give 1 to 8");
  EXPECT_EQ(with_u16(28, 9), "policy: layers: 9; give 1 to 8");
  EXPECT_EQ(with_u16(30, 2), "policy: activation: 2; give 1, leaky ReLU 0.2 and tanh");
  EXPECT_EQ(with_u16(kFirstLayer + 2, 1025), "policy: layer 0: out: 1025; give 1 to 1024");
  EXPECT_THAT(with_u16(kFirstLayer + 2, 1024), HasSubstr("layer 0: weights: the file ends within it"));
  EXPECT_EQ(with_u16(kSecondLayer, 4), "policy: layer 1: in: 4; give 3, what the layer before gives");
  EXPECT_EQ(with_u16(kSecondLayer + 2, 2), "policy: layer 1: out: 2; the last layer gives 1, the action");
  EXPECT_THAT(with_u32(kFirstLayer + 4, 0x7f800000), HasSubstr("layer 0: weights: number 0 is inf"));
  EXPECT_THAT(with_u32(kSecondLayer + 4 + 12, 0x7fc00000), HasSubstr("layer 1: bias: number 0 is nan"));
  EXPECT_THAT(with_u32(kFirstLayer + 4, std::bit_cast<std::uint32_t>(1e5f)), HasSubstr("weights of -10000 to 10000"));
  EXPECT_THAT(with_u16(kWhole, 1), HasSubstr("whole numbers: not those of the weights"));
  EXPECT_THAT(refusal_of([](Bytes& b) { b.push_back(0); }), HasSubstr("end: 1 bytes behind the last layer"));
  EXPECT_THAT(refusal_of([](Bytes& b) { b.pop_back(); }), HasSubstr("layer 1: whole numbers: the file ends within"));
  EXPECT_THAT(with_u16(6, 0), HasSubstr("bytes behind the last layer")) << "without the flag of whole numbers";
}

TEST(PolicyFile, IsRefusedInOneLineWhateverByteChanges) {
  const Bytes file = a_file();
  for (std::size_t i = 0; i < file.size(); ++i) {
    Bytes changed = file;
    changed[i] ^= 0x40;
    const std::string said = refusal(changed);
    EXPECT_NE(said, "accepted") << i;
    EXPECT_EQ(said.find('\n'), std::string::npos);
  }
  for (std::size_t size = 0; size < file.size(); ++size) {
    EXPECT_NE(refusal(Bytes(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size))), "accepted");
  }
}

// --- the register --------------------------------------------------------------------------------

TEST(Policies, HaveNamesThatFollowFromTheirBytes) {
  const Bytes one = a_file(), other = testbed::random_policy(9, {3}, small()).serialize();
  const std::string name = add_policy(one);
  EXPECT_EQ(add_policy(one), name);
  EXPECT_NE(add_policy(other), name);
  EXPECT_EQ(policy_named(name).rule, Rule::trained);
  EXPECT_EQ(policy_named(name).trained->serialize(), one);
  EXPECT_EQ(policy_named("hold").rule, Rule::hold);
  EXPECT_EQ(policy_named("teacher").rule, Rule::teacher);
  EXPECT_THROW(policy_named("/etc/passwd"), std::invalid_argument);
}

}  // namespace
}  // namespace loomnet::astraea
