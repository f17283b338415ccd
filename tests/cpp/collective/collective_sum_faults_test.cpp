// Every way in which a sum of the network can fail: it is named on all ranks, no rank gets a wrong sum, and
// nothing hangs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "collective/sum_cases.hpp"

namespace loomnet::testing {
namespace {

using ::testing::HasSubstr;

struct Different {
  const char* name;
  DataType type;
  ReduceOp op;
  std::size_t count;
};
class Mismatch : public ::testing::TestWithParam<Different> {};

TEST_P(Mismatch, IsNamedOnAllRanksAndNoRankGetsASum) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    World world(3, seed, sums());
    world.create_all(1);
    std::vector<std::vector<float>> x(3, std::vector<float>(5000, 1.0f));
    std::vector<OperationId> ids;
    for (JobRank r = 0; r < 3; ++r) {
      Operation o = all_reduce(DataType::float32, x[r], x[r]);
      o.count = 1000;
      if (r == 1) o.type = GetParam().type, o.reduce = GetParam().op, o.count = GetParam().count;
      ids.push_back(world.start(r, 1, o));
    }
    world.run();
    bool named = false;
    for (JobRank r = 0; r < 3; ++r) {
      const OperationResult* result = world.result(r, ids[r]);
      ASSERT_NE(result, nullptr) << "hangs on rank " << r;
      EXPECT_TRUE(result->status == OperationStatus::mismatch || result->status == OperationStatus::peer_aborted);
      if (result->status == OperationStatus::mismatch) {
        named = true;
        EXPECT_THAT(result->message, HasSubstr("another rank runs another operation"));
        EXPECT_THAT(result->message, HasSubstr("all_reduce("));
      }
    }
    EXPECT_TRUE(named);
  }
}
INSTANTIATE_TEST_SUITE_P(Sums, Mismatch,
                         ::testing::Values(Different{"count", DataType::float32, ReduceOp::sum, 1001},
                                           Different{"one", DataType::float32, ReduceOp::sum, 1},
                                           Different{"type", DataType::int32, ReduceOp::sum, 1000},
                                           Different{"half", DataType::float16, ReduceOp::sum, 1000},
                                           Different{"op", DataType::float32, ReduceOp::avg, 1000}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Sums, ARankThatRunsAnotherCollectiveIsNamed) {
  World world(2, 5, sums());
  world.create_all(1);
  std::vector<float> x(100, 1.0f), y(100, 1.0f);
  const OperationId sum = world.start(0, 1, all_reduce(DataType::float32, x, x));
  Operation broadcast = all_reduce(DataType::float32, y, y);
  broadcast.collective = Collective::broadcast;
  broadcast.root = 1;
  const OperationId other = world.start(1, 1, broadcast);
  world.run();
  ASSERT_NE(world.result(0, sum), nullptr);
  EXPECT_EQ(world.result(0, sum)->status, OperationStatus::mismatch);
  EXPECT_THAT(world.result(0, sum)->message, HasSubstr("broadcast"));
  EXPECT_THAT(world.result(0, sum)->message, HasSubstr("rank 0 runs all_reduce(float32, 100 elements, sum)"));
  ASSERT_NE(world.result(1, other), nullptr);
}

class Endings : public ::testing::TestWithParam<int> {};

// Abort, close, a peer's failure, a failed request: named at once, nothing hangs, late results hurt nothing.
TEST_P(Endings, WhileSumsAreUnderWay) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    World world(3, seed, sums());
    world.create_all(1);
    std::vector<std::vector<std::vector<float>>> x(
        3, std::vector<std::vector<float>>(3, std::vector<float>(20 * kValues, 1.0f)));
    std::vector<std::vector<OperationId>> ids(3);
    for (JobRank r = 0; r < 3; ++r) {
      for (int k = 0; k < 3; ++k) ids[r].push_back(world.start(r, 1, all_reduce(DataType::float32, x[r][k], x[r][k])));
    }
    for (std::uint32_t steps = world.random().below(200); steps > 0; --steps) world.step();
    OperationStatus want = OperationStatus::aborted;
    switch (GetParam()) {
      case 0:
        world.at(0).abort(1, "the test says so");
        break;
      case 1:
        want = OperationStatus::closed, world.at(0).close(1);
        break;
      case 2:
        want = OperationStatus::peer_failed, world.at(0).on_peer_failure(2, "was killed");
        break;
      case 3:
        EXPECT_TRUE(world.at(0).cancel(ids[0][2]));
        break;
    }
    for (const OperationId id : ids[0]) {
      const OperationResult* result = world.result(0, id);
      ASSERT_NE(result, nullptr);
      EXPECT_TRUE(result->status == OperationStatus::ok || result->status == want) << result->message;
    }
    EXPECT_NE(world.result(0, ids[0][2])->status, OperationStatus::ok);
    EXPECT_TRUE(world.at(0).idle());
    // The tensors may be gone from now on; requests under way complete all the same.
    const std::size_t posted = world.sums().log.size();
    for (auto& each : x[0]) each.clear(), each.shrink_to_fit();
    world.run();
    for (std::size_t i = posted; i < world.sums().log.size(); ++i) EXPECT_NE(world.sums().log[i].rank, 0u);
    const JobRank told = GetParam() == 2 ? 2 : 3;  // one that is gone hears nothing
    for (JobRank r = 1; r < told; ++r) {
      for (const OperationId id : ids[r]) ASSERT_NE(world.result(r, id), nullptr) << "rank " << r << " hangs";
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Sums, Endings, ::testing::Range(0, 4));

TEST(Sums, ARequestThatFailsIsNamed) {
  World world(2, 5, sums());
  world.create_all(1);
  std::vector<float> x(100, 1.0f);
  const OperationId id = world.start(0, 1, all_reduce(DataType::float32, x, x));
  world.at(0).on_sum(world.sums().log.at(0).sum.id, WriteStatus::retry_exceeded);
  ASSERT_NE(world.result(0, id), nullptr);
  EXPECT_EQ(world.result(0, id)->status, OperationStatus::peer_failed);
  EXPECT_THAT(world.result(0, id)->message, HasSubstr("a sum in the network failed: retry_exceeded"));
}

TEST(Sums, AnOverflowThatExponentsExcludeIsAnError) {
  World world(2, 5, sums());
  world.create_all(1);
  std::vector<float> x(kValues, 1.0f);
  const OperationId id = world.start(0, 1, all_reduce(DataType::float32, x, x));
  // The network answers by itself: the head's sum is twice its words.
  const Sum head = world.sums().log.at(0).sum;
  std::uint8_t* result = world.staging(0) + head.result_offset;
  for (std::uint32_t at = head.framing; at < head.length; at += 4) {
    std::int32_t word;
    std::memcpy(&word, head.local + at, 4);
    word *= 2;
    std::memcpy(result + at, &word, 4);
  }
  result[0] = 1;
  world.at(0).on_sum(head.id, WriteStatus::ok);
  const Sum values = world.sums().log.at(1).sum;
  (world.staging(0) + values.result_offset)[0] = static_cast<std::uint8_t>(Sum::kOverflowed);
  world.at(0).on_sum(values.id, WriteStatus::ok);
  ASSERT_NE(world.result(0, id), nullptr);
  EXPECT_EQ(world.result(0, id)->status, OperationStatus::protocol);
  EXPECT_THAT(world.result(0, id)->message, HasSubstr("left the range of an int32"));
}

TEST(Sums, CompletionsOfRequestsThatAreNotThereAreCounted) {
  World world(2, 5, sums());
  world.at(0).on_sum(1, WriteStatus::ok);
  world.create_all(1);
  world.at(0).on_sum(99, WriteStatus::ok);
  EXPECT_EQ(world.counter(0, "sum_strays"), 1u);
}

}  // namespace
}  // namespace loomnet::testing
