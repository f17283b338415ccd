// Astraea's program that decides by itself, in the kernel: the same intervals leave the same memory to the byte as in
// the engine's build, the verifier takes it within half a second, and a decision costs what its products cost.
// As root.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <gtest/gtest.h>
#include <time.h>

#include <cstring>
#include <memory>

#include "live/control_program.hpp"
#include "live/kernel_control.hpp"
#include "live/system.hpp"
#include "transport/astraea_net.hpp"
#include "transport/astraea_readings.hpp"
#include "transport/congestion/astraea/kernel_policy.hpp"

namespace loomnet {
namespace {

using namespace astraea;

// ln_trial with a policy.
class Trial {
 public:
  Trial()
      : began_s_(processor_s()),
        object_(load_control("astraea", "lnt_trial", 1, kLoad), bpf_object__close),
        load_s(processor_s() - began_s_) {
    policies_ = MappedMap(object_.get(), "ln_policy", sizeof(astraea_policies), 1);
    memory_ = MappedMap(object_.get(), "ln_trial_memory", sizeof(astraea_trial), 1);
    program_ = bpf_program__fd(bpf_object__find_program_by_name(object_.get(), "ln_trial"));
  }
  astraea_policies& policies() { return *reinterpret_cast<astraea_policies*>(policies_.bytes().data()); }
  astraea_trial& memory() { return *reinterpret_cast<astraea_trial*>(memory_.bytes().data()); }
  bool run() {
    bpf_test_run_opts options{};
    options.sz = sizeof options;
    return bpf_prog_test_run_opts(program_, &options) == 0 && options.retval == 0;
  }
  std::pair<std::uint64_t, std::uint64_t> runs() const {
    bpf_prog_info info{};
    std::uint32_t size = sizeof info;
    EXPECT_EQ(bpf_obj_get_info_by_fd(program_, &info, &size), 0);
    return {info.run_cnt, info.run_time_ns};
  }

 private:
  static constexpr ControlLoad kLoad{.decides = true, .trial = true};
  static double processor_s() {
    timespec t{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
  }

  const double began_s_;
  const std::unique_ptr<bpf_object, decltype(&bpf_object__close)> object_;

 public:
  const double load_s;  // the verifier runs in the thread that loads

 private:
  MappedMap policies_, memory_;
  int program_ = -1;
};

Plan plan_of_net(std::vector<std::uint16_t> hidden, const PolicySpec& spec, const char* extremes = "windowed+drain") {
  Policy policy = testbed::random_policy(4, std::move(hidden), spec);
  policy.quantise();
  return kernel_plan_of({{"agent", std::string("kernel")},
                         {"policy", add_policy(policy.serialize())},
                         {"features", std::string(to_string(spec.features))},
                         {"frames", std::int64_t{spec.frames}},
                         {"spacing", std::string(spec.spacing == Spacing::every ? "every" : "doubled")},
                         {"extremes", std::string(extremes)}});
}

class AstraeaTrial : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_kernel_control("astraea", true); !why.empty()) GTEST_SKIP() << why;
  }
};

TEST_F(AstraeaTrial, TheKernelDecidesAsTheEnginesBuildToTheByte) {
  Trial kernel;
  std::size_t decided = 0, moved = 0;
  const Plan plans[] = {
      plan_of_net({64, 32}, {}), plan_of_net({256, 128, 64}, {.features = FeatureSet::astraea10}, "lifetime"),
      plan_of_net({10, 3, 7}, {.features = FeatureSet::rel8, .frames = 6, .spacing = Spacing::doubled}, "windowed"),
      plan_of_net({64, 32}, {.features = FeatureSet::ours11, .frames = 16})};
  for (const Plan& plan : plans) {
    publish_policy(kernel.policies(), plan);
    const astraea_bank& bank = kernel.policies().bank[kernel.policies().active];
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      testbed::Readings flow(seed);
      auto engine = std::make_unique<astraea_memory>();
      engine->base = flow.begin();
      kernel.memory().memory = *engine;
      for (int i = 0; i < 400; ++i) {
        kernel.memory().acting = i >= 5;
        kernel.memory().memory.now = engine->now = flow.next();
        ASSERT_TRUE(kernel.run());
        astraea_decide(engine.get(), &bank, i >= 5);
        ASSERT_EQ(std::memcmp(engine.get(), &kernel.memory().memory, sizeof *engine), 0)
            << "seed " << seed << " interval " << i << ": action " << engine->out.action << " and "
            << kernel.memory().memory.out.action;
        decided += engine->out.acted;
        moved += engine->out.action != 0;
        kernel.memory().memory.base = engine->base = engine->now.sums;
        if (engine->out.window > 0) flow.take(engine->out.window);
      }
    }
  }
  EXPECT_GT(decided, 10'000u);
  EXPECT_GT(moved, decided / 2);
}

TEST_F(AstraeaTrial, LoadsAndDecidesInItsTime) {
  // K5: the shortest of 40 blocks, and the processor's time, since others use the machine, too.
  Trial kernel;
  std::printf("K5: loaded in %.3f s\n", kernel.load_s);
  EXPECT_LT(kernel.load_s, 0.5);
  const Fd stats(bpf_enable_stats(BPF_STATS_RUN_TIME));
  ASSERT_GE(stats.get(), 0);
  const struct {
    const char* name;
    std::vector<std::uint16_t> hidden;
    PolicySpec spec;
    double products;
  } nets[] = {{"no net", {}, {.features = FeatureSet::ours11, .frames = 1}, 0},
              {"55-64-32-1", {64, 32}, {}, 5'600},
              {"50-256-128-64-1", {256, 128, 64}, {.features = FeatureSet::astraea10}, 53'824}};
  double rest = 0;
  for (const auto& net : nets) {
    publish_policy(kernel.policies(), plan_of_net(net.hidden, net.spec));
    testbed::Readings flow(1);
    kernel.memory() = {};
    kernel.memory().memory.base = flow.begin();
    kernel.memory().memory.now = flow.next();
    kernel.memory().acting = 1;
    double best = 1e9;
    for (int block = 0; block < 40; ++block) {
      const auto before = kernel.runs();
      for (int i = 0; i < 50; ++i) ASSERT_TRUE(kernel.run());
      const auto after = kernel.runs();
      best = std::min(best, static_cast<double>(after.second - before.second) / (after.first - before.first));
    }
    if (net.products == 0) {
      rest = best;
      std::printf("K5: a decision with a net of 11 products: %.2f us\n", best / 1e3);
      continue;
    }
    std::printf("K5: %s: %.2f us a decision, %.2f ns a product\n", net.name, best / 1e3, (best - rest) / net.products);
    EXPECT_LT((best - rest) / net.products, 1.5) << net.name;
  }
}

}  // namespace
}  // namespace loomnet
