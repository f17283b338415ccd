// Every collective, world sizes 1 to 9, sizes from nothing to many slots, in random interleavings,
// against an oracle that needs no network.
#include <gtest/gtest.h>

#include <cmath>

#include "collective/harness.hpp"

namespace loomnet::testing {
namespace {

using Ints = std::vector<std::int32_t>;

constexpr std::uint64_t kCounts[] = {0, 1, 2, 7, 31, 32, 33, 100, 257, 1000};

struct Case {
  std::uint32_t ranks;
  std::uint64_t seed;
};

class Oracle : public ::testing::TestWithParam<Case> {
 protected:
  Oracle() : world(GetParam().ranks, GetParam().seed, shape()), n(GetParam().ranks) { world.create_all(5); }
  // Slot counts and sizes vary with the seed, one slot per channel included.
  static StagingConfig shape() {
    const std::uint64_t s = GetParam().seed;
    return {0, static_cast<std::uint32_t>(1 + s % 5), static_cast<std::uint32_t>(64 * (1 + s % 3)), 4};
  }
  Ints values(std::uint64_t count) {
    Ints v(count);
    for (auto& x : v) x = static_cast<std::int32_t>(world.random()());
    return v;
  }
  // Starts fill(r) on every rank in random order, events in between, and runs to rest.
  template <typename F>
  void all(F fill) {
    std::vector<JobRank> order(n);
    for (JobRank r = 0; r < n; ++r) order[r] = r;
    for (std::uint32_t i = n; i > 1; --i) std::swap(order[i - 1], order[world.random().below(i)]);
    std::vector<OperationId> ids(n);
    for (const JobRank r : order) {
      for (std::uint32_t k = world.random().below(20); k > 0; --k) world.step();
      ids[r] = world.start(r, 5, fill(r));
    }
    world.run();
    for (JobRank r = 0; r < n; ++r) {
      const OperationResult* result = world.result(r, ids[r]);
      ASSERT_NE(result, nullptr) << "rank " << r << " never finished";
      ASSERT_EQ(result->status, OperationStatus::ok) << result->message;
    }
    world.expect_quiet();
  }
  static Operation make(Collective c, std::uint64_t count) {
    Operation op;
    op.collective = c;
    op.type = DataType::int32;
    op.count = count;
    return op;
  }
  std::uint32_t below(std::uint32_t bound) { return world.random().below(bound); }

  World world;
  std::uint32_t n;
};

std::int32_t add(std::int32_t a, std::int32_t b) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
}

TEST_P(Oracle, AllReduce) {
  for (const std::uint64_t count : kCounts) {
    for (const Algorithm algorithm : {Algorithm::ring, Algorithm::tree, Algorithm::automatic}) {
      for (const bool in_place : {true, false}) {
        std::vector<Ints> in(n), out(n, Ints(count));
        Ints want(count, 0);
        for (auto& v : in) {
          v = values(count);
          for (std::size_t i = 0; i < count; ++i) want[i] = add(want[i], v[i]);
        }
        const std::vector<Ints> before = in;
        all([&](JobRank r) {
          Operation op = make(Collective::all_reduce, count);
          op.algorithm = algorithm;
          op.input = buffer(in[r]);
          op.output = in_place ? buffer(in[r]) : buffer(out[r]);
          return op;
        });
        for (JobRank r = 0; r < n; ++r) {
          ASSERT_EQ(in_place ? in[r] : out[r], want) << "count " << count << " rank " << r;
          if (!in_place) {
            ASSERT_EQ(in[r], before[r]) << "input was written";
          }
        }
      }
    }
  }
}

TEST_P(Oracle, FloatAllReduceAgreesBitForBitBetweenRanks) {
  for (const ReduceOp reduce : {ReduceOp::sum, ReduceOp::avg, ReduceOp::premul_sum}) {
    for (const Algorithm algorithm : {Algorithm::ring, Algorithm::tree}) {
      const std::size_t count = 333;
      std::vector<std::vector<float>> in(n, std::vector<float>(count));
      std::vector<double> want(count, 0), size(count, 0);
      for (JobRank r = 0; r < n; ++r) {
        const double factor = reduce == ReduceOp::premul_sum ? 0.5 + r : reduce == ReduceOp::avg ? 1.0 / n : 1.0;
        for (std::size_t i = 0; i < count; ++i) {
          in[r][i] = static_cast<float>(world.random().uniform() * 2 - 1) * 1e3f;
          want[i] += factor * in[r][i];
          size[i] += factor * std::abs(in[r][i]);
        }
      }
      all([&](JobRank r) {
        Operation op = make(Collective::all_reduce, count);
        op.type = DataType::float32;
        op.reduce = reduce;
        op.factor = 0.5 + r;
        op.algorithm = algorithm;
        op.input = op.output = buffer(in[r]);
        return op;
      });
      for (JobRank r = 0; r < n; ++r) {
        ASSERT_EQ(0, std::memcmp(in[r].data(), in[0].data(), count * 4)) << "rank " << r;
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_NEAR(in[r][i], want[i], size[i] * n * 0x1p-23) << "rank " << r << " at " << i;
        }
      }
    }
  }
}

TEST_P(Oracle, ReduceScatterEvenUnevenListsAndScaled) {
  for (const std::uint64_t count : kCounts) {
    for (const int form : {0, 1, 2}) {  // even, uneven, uneven lists of tensors
      std::vector<std::uint64_t> counts(n, count);
      if (form > 0) {
        for (auto& c : counts) c = below(3) == 0 ? 0 : below(static_cast<std::uint32_t>(count) + 1);
      }
      std::vector<std::vector<Ints>> in(n);
      std::vector<Ints> flat(n), out(n), want(n);
      for (JobRank r = 0; r < n; ++r) {
        want[r].assign(counts[r], 0);
        out[r].assign(counts[r], -1);
      }
      for (JobRank r = 0; r < n; ++r) {
        for (JobRank k = 0; k < n; ++k) {
          in[r].push_back(values(counts[k]));
          flat[r].insert(flat[r].end(), in[r][k].begin(), in[r][k].end());
          for (std::size_t i = 0; i < counts[k]; ++i) want[k][i] = add(want[k][i], in[r][k][i]);
        }
      }
      const std::vector<Ints> before = flat;
      all([&](JobRank r) {
        Operation op = make(Collective::reduce_scatter, form == 0 ? count : 0);
        if (form > 0) op.input_counts = counts;
        op.input = buffer(flat[r]);
        if (form == 2) {
          op.input.parts.clear();
          for (Ints& v : in[r]) op.input.parts.push_back(reinterpret_cast<std::uint8_t*>(v.data()));
        }
        op.output = buffer(out[r]);
        return op;
      });
      for (JobRank r = 0; r < n; ++r) {
        ASSERT_EQ(out[r], want[r]) << "count " << count << " form " << form << " rank " << r;
        ASSERT_EQ(flat[r], before[r]) << "input was written";
      }
    }
  }
  // premul_sum and avg on floats, exact because the values are small integers.
  for (const ReduceOp reduce : {ReduceOp::premul_sum, ReduceOp::avg}) {
    const std::size_t count = 77;
    std::vector<std::vector<double>> in(n), out(n, std::vector<double>(count));
    for (JobRank r = 0; r < n; ++r) {
      for (std::size_t i = 0; i < count * n; ++i) in[r].push_back(static_cast<double>(i) + r);
    }
    all([&](JobRank r) {
      Operation op = make(Collective::reduce_scatter, count);
      op.type = DataType::float64;
      op.reduce = reduce;
      op.factor = 2;
      op.input = buffer(in[r]);
      op.output = buffer(out[r]);
      return op;
    });
    for (JobRank r = 0; r < n; ++r) {
      for (std::size_t i = 0; i < count; ++i) {
        double sum = 0;
        for (JobRank k = 0; k < n; ++k) sum += in[k][r * count + i];
        ASSERT_EQ(out[r][i], reduce == ReduceOp::avg ? sum / n : 2 * sum);
      }
    }
  }
}

TEST_P(Oracle, AllGatherEvenUnevenAndLists) {
  for (const std::uint64_t count : kCounts) {
    for (const int form : {0, 1, 2}) {
      std::vector<std::uint64_t> counts(n, count);
      if (form > 0) {
        for (auto& c : counts) c = below(3) == 0 ? 0 : below(static_cast<std::uint32_t>(count) + 1);
      }
      std::vector<Ints> in(n), out(n);
      Ints want;
      std::uint64_t total = 0;
      for (JobRank r = 0; r < n; ++r) {
        in[r] = values(counts[r]);
        want.insert(want.end(), in[r].begin(), in[r].end());
        total += counts[r];
      }
      std::vector<std::vector<Ints>> lists(n);
      for (JobRank r = 0; r < n; ++r) {
        out[r].assign(total, -1);
        for (JobRank k = 0; k < n; ++k) lists[r].push_back(Ints(counts[k], -1));
      }
      all([&](JobRank r) {
        Operation op = make(Collective::all_gather, form == 0 ? count : 0);
        if (form > 0) op.output_counts = counts;
        op.input = buffer(in[r]);
        op.output = buffer(out[r]);
        if (form == 2) {
          op.output.parts.clear();
          for (Ints& v : lists[r]) op.output.parts.push_back(reinterpret_cast<std::uint8_t*>(v.data()));
        }
        return op;
      });
      for (JobRank r = 0; r < n; ++r) {
        if (form == 2) {
          for (JobRank k = 0; k < n; ++k) ASSERT_EQ(lists[r][k], in[k]);
        } else {
          ASSERT_EQ(out[r], want) << "count " << count << " form " << form << " rank " << r;
        }
      }
    }
  }
}

TEST_P(Oracle, BroadcastAndReduceFromEveryRoot) {
  for (const std::uint64_t count : kCounts) {
    for (const Algorithm algorithm : {Algorithm::ring, Algorithm::tree}) {
      const GroupRank root = below(n);
      std::vector<Ints> data(n);
      for (auto& v : data) v = values(count);
      const std::vector<Ints> before = data;
      all([&](JobRank r) {
        Operation op = make(Collective::broadcast, count);
        op.algorithm = algorithm;
        op.root = root;
        op.input = op.output = buffer(data[r]);
        return op;
      });
      for (JobRank r = 0; r < n; ++r) ASSERT_EQ(data[r], before[root]) << "rank " << r;

      for (auto& v : data) v = values(count);
      const std::vector<Ints> inputs = data;
      Ints want(count, 0), out(count, -1);
      for (const auto& v : data) {
        for (std::size_t i = 0; i < count; ++i) want[i] = add(want[i], v[i]);
      }
      all([&](JobRank r) {
        Operation op = make(Collective::reduce, count);
        op.algorithm = algorithm;
        op.root = root;
        op.input = buffer(data[r]);
        if (r == root) op.output = buffer(out);
        return op;
      });
      ASSERT_EQ(out, want) << "count " << count << " root " << root;
      ASSERT_EQ(data, inputs) << "an input was written";
    }
  }
}

TEST_P(Oracle, ReduceAverageAndScaled) {
  for (const ReduceOp reduce : {ReduceOp::premul_sum, ReduceOp::avg}) {
    const std::size_t count = 55;
    const GroupRank root = below(n);
    std::vector<std::vector<double>> in(n);
    std::vector<double> out(count);
    for (JobRank r = 0; r < n; ++r) {
      for (std::size_t i = 0; i < count; ++i) in[r].push_back(static_cast<double>(i * 3) + r);
    }
    all([&](JobRank r) {
      Operation op = make(Collective::reduce, count);
      op.type = DataType::float64;
      op.reduce = reduce;
      op.factor = 4;
      op.root = root;
      op.input = buffer(in[r]);
      if (r == root) op.output = buffer(out);
      return op;
    });
    for (std::size_t i = 0; i < count; ++i) {
      double sum = 0;
      for (JobRank k = 0; k < n; ++k) sum += in[k][i];
      ASSERT_EQ(out[i], reduce == ReduceOp::avg ? sum / n : 4 * sum);
    }
  }
}

TEST_P(Oracle, AllToAllEvenAndUnevenWithZeros) {
  for (const std::uint64_t count : kCounts) {
    for (const bool uneven : {false, true}) {
      std::vector<std::vector<std::uint64_t>> counts(n, std::vector<std::uint64_t>(n, count));
      if (uneven) {
        for (auto& row : counts) {
          for (auto& c : row) c = below(2) == 0 ? 0 : below(static_cast<std::uint32_t>(count) + 1);
        }
      }
      std::vector<Ints> in(n), out(n), want(n);
      std::vector<std::vector<std::uint64_t>> incoming(n, std::vector<std::uint64_t>(n));
      for (JobRank r = 0; r < n; ++r) {
        for (JobRank k = 0; k < n; ++k) {
          const Ints block = values(counts[r][k]);
          in[r].insert(in[r].end(), block.begin(), block.end());
          want[k].insert(want[k].end(), block.begin(), block.end());
          incoming[k][r] = counts[r][k];
        }
      }
      for (JobRank r = 0; r < n; ++r) out[r].assign(want[r].size(), -1);
      all([&](JobRank r) {
        Operation op = make(Collective::all_to_all, uneven ? 0 : count);
        if (uneven) {
          op.input_counts = counts[r];
          op.output_counts = incoming[r];
        }
        op.input = buffer(in[r]);
        op.output = buffer(out[r]);
        return op;
      });
      for (JobRank r = 0; r < n; ++r) ASSERT_EQ(out[r], want[r]) << "count " << count << " rank " << r;
    }
  }
}

TEST_P(Oracle, GatherAndScatter) {
  for (const std::uint64_t count : kCounts) {
    for (const bool uneven : {false, true}) {
      const GroupRank root = below(n);
      std::vector<std::uint64_t> counts(n, count);
      if (uneven) {
        for (auto& c : counts) c = below(3) == 0 ? 0 : below(static_cast<std::uint32_t>(count) + 1);
      }
      std::vector<Ints> blocks(n), out(n);
      Ints whole;
      for (JobRank r = 0; r < n; ++r) {
        blocks[r] = values(counts[r]);
        whole.insert(whole.end(), blocks[r].begin(), blocks[r].end());
        out[r].assign(counts[r], -1);
      }
      Ints gathered(whole.size(), -1);
      all([&](JobRank r) {
        Operation op = make(Collective::gather, uneven && r == root ? 0 : counts[r]);
        op.root = root;
        op.input = buffer(blocks[r]);
        if (r == root) op.output = buffer(gathered);
        if (r == root && uneven) op.output_counts = counts;
        return op;
      });
      ASSERT_EQ(gathered, whole) << "count " << count << " root " << root;
      all([&](JobRank r) {
        Operation op = make(Collective::scatter, uneven && r == root ? 0 : counts[r]);
        op.root = root;
        op.output = buffer(out[r]);
        if (r == root) op.input = buffer(whole);
        if (r == root && uneven) op.input_counts = counts;
        return op;
      });
      ASSERT_EQ(out, blocks) << "count " << count << " root " << root;
    }
  }
}

TEST_P(Oracle, BarrierHoldsUntilTheLastRankArrives) {
  const JobRank last = below(n);
  std::vector<OperationId> ids(n);
  for (JobRank r = 0; r < n; ++r) {
    if (r != last) ids[r] = world.start(r, 5, make(Collective::barrier, 0));
  }
  world.run();
  for (JobRank r = 0; r < n; ++r) {
    if (r != last) {
      EXPECT_EQ(world.result(r, ids[r]), nullptr) << "rank " << r << " left early";
    }
  }
  ids[last] = world.start(last, 5, make(Collective::barrier, 0));
  world.run();
  for (JobRank r = 0; r < n; ++r) ASSERT_NE(world.result(r, ids[r]), nullptr);
  world.expect_quiet();
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (std::uint32_t n = 1; n <= 9; ++n) {
    for (std::uint64_t seed = 1; seed <= 4; ++seed) all.push_back({n, seed * 100 + n});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Worlds, Oracle, ::testing::ValuesIn(cases()), [](const auto& info) {
  return "n" + std::to_string(info.param.ranks) + "_seed" + std::to_string(info.param.seed);
});

}  // namespace
}  // namespace loomnet::testing
