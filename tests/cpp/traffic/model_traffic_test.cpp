// Model jobs: when buckets are given, when iterations begin and end, what priorities they get; over sums that
// take a stated time, and over a ring.
#include "traffic/model_traffic.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <tuple>

#include "engine/clos.hpp"
#include "traffic/executor_sums.hpp"
#include "transport/roce/roce_transport.hpp"

namespace loomnet {
namespace {

using testing::Clos;

// A sum is there for all ranks `takes` after the last rank has given its bucket.
class TimedSums final : public BucketSums, private EventHandler {
 public:
  struct Given {
    JobRank rank;
    GradientBucket bucket;
    Picoseconds at;
  };
  TimedSums(Network& network, std::uint32_t ranks, Picoseconds takes)
      : network_(network), id_(network.events().add(*this)), ranks_(ranks), takes_(takes) {}

  void begin(JobRank rank, const GradientBucket& bucket, Picoseconds now) override {
    given.push_back({rank, bucket, now});
    if (bucket.number >= here_.size()) here_.resize(bucket.number + 1);
    if (++here_[bucket.number] < ranks_) return;
    here_[bucket.number] = 0;
    network_.events().schedule(now + takes_, id_, bucket.number);
  }
  void on_event(std::uint64_t number, Picoseconds now) override {
    for (JobRank r = 0; r < ranks_; ++r) {
      if (fails == r) {
        sink().failed(r, "the sum is lost", now);
        sink().failed(r, "and once more", now);
      } else {
        sink().summed(r, static_cast<std::uint32_t>(number), now);
      }
    }
  }

  std::vector<Given> given;
  JobRank fails = ~0u;

 private:
  Network& network_;
  ObjectId id_;
  std::uint32_t ranks_;
  Picoseconds takes_;
  std::vector<std::uint32_t> here_;
};

struct Timed {
  explicit Timed(ModelTrafficConfig config, Picoseconds takes, std::uint64_t seed = 1)
      : network(seed), clos(network, {.planes = 1}), sums(network, 2, takes) {
    config.hosts = {0, 1};
    traffic.emplace(network, sums, config);
    traffic->start();
  }
  void run() {
    while (!traffic->done() && !network.run_until(seconds(100))) {
    }
    ASSERT_TRUE(traffic->done());
  }
  Network network;
  Clos clos;
  TimedSums sums;
  std::optional<ModelTraffic> traffic;
};

TEST(ModelTraffic, BackwardProducesBucketsFromTheLastToTheFirst) {
  // Forward 30 us, backward 60 us: 60 bytes are 1 us each.
  Timed bed({.buckets = {20, 28, 12}, .start = microseconds(5), .compute = microseconds(90)}, microseconds(7));
  bed.run();
  ASSERT_EQ(bed.sums.given.size(), 6u);
  const std::tuple<std::uint32_t, std::uint64_t, int> expected[] = {{2, 12, 47}, {1, 28, 75}, {0, 20, 95}};
  for (std::size_t i = 0; i < 6; ++i) {
    const auto& [rank, bucket, at] = bed.sums.given[i];
    EXPECT_EQ(rank, i % 2);
    EXPECT_EQ(std::tuple(bucket.number, bucket.bytes),
              std::tuple(std::get<0>(expected[i / 2]), std::get<1>(expected[i / 2])));
    EXPECT_EQ(bucket.attributes.layer, bucket.number);
    EXPECT_EQ(bucket.attributes.sequence, i / 2);
    EXPECT_EQ(at, microseconds(std::get<2>(expected[i / 2])));
  }
  EXPECT_EQ(bed.traffic->iterations(0).back().begin, microseconds(5));
  EXPECT_EQ(bed.traffic->iterations(0).back().end, microseconds(102));
  // What the host saw: three operations, each from its bucket to its sum.
  const WorkMeter& meter = bed.network.nic(0).meter();
  ASSERT_EQ(meter.work().size(), 3u);
  EXPECT_EQ(meter.work()[1].begin, microseconds(75));
  EXPECT_EQ(meter.work()[1].end, microseconds(82));
  EXPECT_EQ(meter.work()[1].bytes, 28u);
}

TEST(ModelTraffic, TheNextIterationBeginsWhenAllSumsAreThere) {
  Timed bed({.buckets = {4, 4}, .iterations = 4, .compute = microseconds(30)}, microseconds(10));
  bed.run();
  for (JobRank rank : {0u, 1u}) {
    const auto& rows = bed.traffic->iterations(rank);
    ASSERT_EQ(rows.size(), 4u);
    for (int k = 0; k < 4; ++k) {
      EXPECT_EQ(rows[k].begin, microseconds(40 * k));
      EXPECT_EQ(rows[k].end, microseconds(40 * (k + 1)));
    }
  }
}

TEST(ModelTraffic, ForwardAndBackwardShareTheComputeTime) {
  for (const auto& [forward, back, front] : {std::tuple{0.0, 50, 100}, {0.5, 75, 100}, {1.0, 100, 100}}) {
    Timed bed({.buckets = {8, 8}, .compute = microseconds(100), .forward = forward}, microseconds(1));
    bed.run();
    EXPECT_EQ(bed.sums.given.front().at, microseconds(back)) << forward;
    EXPECT_EQ(bed.sums.given.back().at, microseconds(front)) << forward;
  }
}

TEST(ModelTraffic, JitterIsOfEachRankAndIterationAndOfTheSeed) {
  const auto times = [](std::uint64_t seed, std::uint32_t job, double jitter) {
    Timed bed({.job = JobId{job}, .buckets = {4}, .iterations = 200, .compute = microseconds(100), .jitter = jitter},
              microseconds(3), seed);
    bed.run();
    for (int k = 0; k < 200; ++k) {
      // An iteration ends when the slower rank's bucket is summed.
      const auto [begin, end] = bed.traffic->iterations(0)[k];
      EXPECT_EQ(end - begin, std::max(bed.traffic->computed(0)[k], bed.traffic->computed(1)[k]) + microseconds(3));
    }
    std::vector<std::int64_t> all;
    for (JobRank r : {0u, 1u}) {
      for (const Picoseconds t : bed.traffic->computed(r)) all.push_back(t.count);
    }
    return all;
  };
  const auto one = times(1, 0, 0.2);
  EXPECT_EQ(one, times(1, 0, 0.2));
  EXPECT_NE(one, times(2, 0, 0.2));
  EXPECT_NE(one, times(1, 1, 0.2));
  EXPECT_NE(std::vector(one.begin(), one.begin() + 200), std::vector(one.begin() + 200, one.end()));
  const auto [low, high] = std::minmax_element(one.begin(), one.end());
  EXPECT_GE(*low, microseconds(80).count);
  EXPECT_LT(*low, microseconds(82).count);
  EXPECT_LE(*high, microseconds(120).count);
  EXPECT_GT(*high, microseconds(118).count);
  EXPECT_EQ(times(1, 0, 0), std::vector<std::int64_t>(400, microseconds(100).count));
}

TEST(ModelTraffic, FromItsStopOnNoIterationBegins) {
  for (const auto& [stop, rounds] : {std::tuple{1, 1}, {39, 1}, {40, 1}, {41, 2}, {119, 3}, {121, 4}, {9999, 4}}) {
    Timed bed({.buckets = {4, 4}, .iterations = 4, .stop = microseconds(stop), .compute = microseconds(30)},
              microseconds(10));
    bed.run();
    for (JobRank rank : {0u, 1u}) EXPECT_EQ(bed.traffic->iterations(rank).size(), rounds) << stop;
  }
}

TEST(ModelTraffic, ARankWithoutASumIsAFailureAndEndsTheJob) {
  Timed bed({.buckets = {4, 4}, .iterations = 4, .compute = microseconds(30)}, microseconds(10));
  bed.sums.fails = 1;
  bed.network.run_until(seconds(1));
  EXPECT_FALSE(bed.traffic->done()) << "rank 0 waits for sums that need rank 1";
  ASSERT_EQ(bed.traffic->failures().size(), 1u);
  EXPECT_EQ(bed.traffic->failures()[0].rank, 1u);
  EXPECT_EQ(bed.traffic->failures()[0].message, "the sum is lost");
  EXPECT_EQ(bed.traffic->failures()[0].at, microseconds(30));
}

TEST(ModelTraffic, PrioritiesRiseTowardsTheFrontAndTheEnd) {
  Timed bed({.buckets = {4, 4, 4, 4}, .iterations = 8, .compute = microseconds(40), .link = gigabits(10)},
            microseconds(10));
  bed.run();
  const auto at = [&](std::size_t iteration, std::size_t bucket) {
    return int{bed.sums.given[(iteration * 4 + bucket) * 2].bucket.attributes.priority};
  };
  for (std::size_t k = 0; k < 8; ++k) {
    for (std::size_t i = 1; i < 4; ++i) EXPECT_GT(at(k, i), at(k, i - 1));
    EXPECT_EQ(at(k, 0), bed.sums.given[k * 8 + 1].bucket.attributes.priority) << "alike on both ranks";
  }
  EXPECT_GT(at(7, 0), at(1, 0));
  // The first iteration knows the stated compute time, 8 x 40 us; the second one's mean is 50 us.
  const double ratio = 16 * 8 / 10e9 / 40e-6;
  EXPECT_EQ(at(0, 3), priority_of(PriorityMode::full, {8 * 40e-6, ratio, 4, 0}));
  EXPECT_EQ(at(1, 3), priority_of(PriorityMode::full, {7 * 50e-6, ratio, 4, 0}));
}

TEST(ModelTraffic, AskedForEachBucketIterationAndRank) {
  std::vector<BucketFacts> asked;
  Timed bed({.buckets = {4, 8},
             .iterations = 2,
             .compute = microseconds(30),
             .ask =
                 [&](const BucketFacts& facts) {
                   asked.push_back(facts);
                   return static_cast<std::uint8_t>(10 * facts.iteration + facts.urgency.layer);
                 }},
            microseconds(10));
  bed.run();
  ASSERT_EQ(asked.size(), 8u);
  EXPECT_EQ(asked[0].rank, 0u);
  EXPECT_EQ(asked[1].rank, 1u);
  EXPECT_EQ(asked[0].iteration, 1u);
  EXPECT_EQ(asked[7].iteration, 2u);
  EXPECT_EQ(asked[0].bytes, 8u);
  EXPECT_EQ(asked[0].urgency.layers, 2u);
  EXPECT_NEAR(asked[0].progress, 1 / 3. + 2 / 3. * 2 / 3., 1e-6);
  EXPECT_EQ(asked[2].progress, 1.0);
  EXPECT_EQ(bed.sums.given[0].bucket.attributes.priority, 11);
  EXPECT_EQ(bed.sums.given[6].bucket.attributes.priority, 20);
}

TEST(ModelTraffic, RefusesWhatNoJobCanBe) {
  Network network(1);
  Clos clos(network, {.planes = 1});
  TimedSums sums(network, 2, microseconds(1));
  const ModelTrafficConfig good{.hosts = {0, 1}, .buckets = {4}};
  EXPECT_NO_THROW(ModelTraffic(network, sums, good));
  const auto refused = [&](auto change) {
    ModelTrafficConfig config = good;
    change(config);
    EXPECT_THROW(ModelTraffic(network, sums, config), std::invalid_argument);
  };
  refused([](auto& c) { c.hosts = {0}; });
  refused([](auto& c) { c.buckets = {}; });
  refused([](auto& c) { c.buckets = {6}; });
  refused([](auto& c) { c.buckets = {4, 0}; });
  refused([](auto& c) { c.buckets.assign(65535, 4); });
  refused([](auto& c) { c.iterations = 0; });
  refused([](auto& c) { c.stop = c.start; });
  refused([](auto& c) { c.compute = Picoseconds{-1}; });
  refused([](auto& c) { c.forward = 1.1; });
  refused([](auto& c) { c.jitter = 1; });
  refused([](auto& c) { c.link = {}; });
}

// --- over a ring ----------------------------------------------------------------------------------
struct Ring {
  explicit Ring(ModelTrafficConfig config, std::uint64_t seed = 1)
      : network(seed), clos(network, {.planes = 1, .leaves = 1, .spines = 1, .hosts_per_leaf = 4}) {
    for (NodeId host = 0; host < 4; ++host) {
      Nic& nic = network.nic(host);
      nic.set_transport(std::make_unique<roce::RoceTransport>(nic.sink(), roce::RoceOptions{}));
    }
    config.hosts = {0, 1, 2, 3};
    config.link = gigabits(100);
    sums.emplace(network, ExecutorSumsConfig{.hosts = config.hosts, .longest = 1 << 20});
    for (unsigned a = 0; a < 4; ++a) {
      for (unsigned b = a + 1; b < 4; ++b) {
        clos.connect(a, 100 + b, b, 100 + a);
        sums->set_queue_pair(a, b, 100 + b);
        sums->set_queue_pair(b, a, 100 + a);
      }
    }
    traffic.emplace(network, *sums, config);
    traffic->start();
    while (!traffic->done() && !network.run_until(seconds(10))) {
    }
    EXPECT_TRUE(traffic->done());
    EXPECT_TRUE(traffic->failures().empty());
  }
  Network network;
  Clos clos;
  std::optional<ExecutorSums> sums;
  std::optional<ModelTraffic> traffic;
};

TEST(ModelTrafficOverARing, TakesWhatTheLongerOfComputeAndCommunicationTakes) {
  // 4 MiB in four buckets: 2 x 3/4 x 4 MiB at 100 Gb/s are 503 us.
  const std::vector<std::uint64_t> buckets(4, 1 << 20);
  const double wire = 1.5 * (4 << 20) * 8 / 100e9;
  Ring network_bound({.buckets = buckets, .iterations = 3, .compute = microseconds(20)});
  const auto last = network_bound.traffic->iterations(2).back();
  const double length = (last.end - last.begin).seconds();
  EXPECT_GT(length, wire);
  EXPECT_LT(length, 1.3 * wire);
  // Only the front bucket's sum, a quarter of the bytes, is left when backward ends.
  Ring compute_bound({.buckets = buckets, .iterations = 3, .compute = milliseconds(3)});
  const auto slow = compute_bound.traffic->iterations(2).back();
  EXPECT_GT((slow.end - slow.begin).seconds(), 3e-3 + wire / 4);
  EXPECT_LT((slow.end - slow.begin).seconds(), 3e-3 + 1.3 * wire / 4);
}

TEST(ModelTrafficOverARing, IsTheSameForTheSameSeed) {
  const auto outcome = [](std::uint64_t seed) {
    Ring ring({.buckets = {1 << 20, 4096, 65536}, .iterations = 5, .compute = microseconds(100), .jitter = 0.2}, seed);
    return std::tuple(ring.traffic->iterations(3).back().end.count, ring.network.events().processed(),
                      ring.network.pool().last_uid());
  };
  EXPECT_EQ(outcome(3), outcome(3));
  EXPECT_NE(outcome(3), outcome(4));
}

}  // namespace
}  // namespace loomnet
