// All-reduces that the network sums: exact integers, floats within the bound of their block exponents, several
// operations under way, and what is no sum.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

#include "collective/half.hpp"
#include "collective/quantise.hpp"
#include "collective/sum_cases.hpp"
#include "collective/sum_pairs.hpp"

namespace loomnet::testing {
namespace {

using ::testing::HasSubstr;

float draw(RandomStream& random) {
  const float mantissa = static_cast<float>(random.below(1u << 24)) / (1u << 23) - 1.0f;
  return std::ldexp(mantissa, static_cast<int>(random.below(24)) - 12);
}

// Every element is within n/(2f) of the exact sum of its block, and a float's rounding; all ranks alike.
void check_floats(const std::vector<std::vector<float>>& in, const std::vector<std::vector<float>>& out) {
  const auto n = static_cast<unsigned>(in.size());
  for (std::size_t begin = 0; begin < in[0].size(); begin += kValues) {
    const std::size_t end = std::min(begin + kValues, in[0].size());
    std::int8_t exponent = kLeastExponent;
    for (const auto& each : in) {
      exponent = std::max(exponent, exponent_of(std::span(each).subspan(begin, end - begin)).exponent);
    }
    const double bound = n / (2 * scale_of(exponent, n));
    for (std::size_t i = begin; i < end; ++i) {
      double exact = 0;
      for (const auto& each : in) exact += each[i];
      EXPECT_NEAR(out[0][i], exact, bound + std::abs(exact) * 0x1p-23) << i;
    }
  }
  for (const auto& each : out) EXPECT_EQ(std::memcmp(each.data(), out[0].data(), 4 * each.size()), 0);
}

class Sizes : public ::testing::TestWithParam<std::size_t> {};

TEST_P(Sizes, FloatsAreWithinTheBoundOnAllRanks) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const auto ranks = static_cast<std::uint32_t>(2 + seed % 4);
    World world(ranks, seed, sums());
    world.create_all(1);
    std::vector<std::vector<float>> in(ranks), out(ranks);
    std::vector<OperationId> ids;
    for (JobRank r = 0; r < ranks; ++r) {
      for (std::size_t i = 0; i < GetParam(); ++i) in[r].push_back(draw(world.random()));
      out[r].resize(GetParam());
      ids.push_back(world.start(r, 1, all_reduce(DataType::float32, in[r], out[r])));
    }
    world.run();
    for (JobRank r = 0; r < ranks; ++r) expect_ok(world, r, ids[r]);
    check_floats(in, out);
    EXPECT_LE(world.sums().most_under_way(), 8u);
    EXPECT_EQ(world.log(0).size(), 0u) << "no byte goes to a peer";
    // Each block once, its exponent ahead of it where the window needs that, and one fragment for the head.
    const std::size_t blocks = (GetParam() + kValues - 1) / kValues;
    EXPECT_EQ(world.sums().fragments(0), blocks + std::max<std::size_t>(1, std::min<std::size_t>(blocks, 18)));
    world.expect_quiet();
  }
}

TEST_P(Sizes, IntegersAreExactAndWrap) {
  World world(3, GetParam(), sums());
  world.create_all(1);
  std::vector<std::vector<std::int32_t>> data(3);
  std::vector<std::uint32_t> want(GetParam());
  for (JobRank r = 0; r < 3; ++r) {
    for (std::size_t i = 0; i < GetParam(); ++i) {
      data[r].push_back(static_cast<std::int32_t>(world.random().below(~0u)));
      want[i] += static_cast<std::uint32_t>(data[r][i]);
    }
  }
  std::vector<OperationId> ids;
  for (JobRank r = 0; r < 3; ++r) ids.push_back(world.start(r, 1, all_reduce(DataType::int32, data[r], data[r])));
  world.run();
  for (JobRank r = 0; r < 3; ++r) {
    expect_ok(world, r, ids[r]);
    EXPECT_EQ(std::memcmp(data[r].data(), want.data(), 4 * want.size()), 0);
  }
}

// Window 8: chunks of 2 fragments, exponents 18 ahead.
INSTANTIATE_TEST_SUITE_P(Sums, Sizes,
                         ::testing::Values(1, 2, kValues - 1, kValues, kValues + 1, 7 * kValues, 8 * kValues,
                                           8 * kValues + 1, 9 * kValues, 10 * kValues, 18 * kValues, 18 * kValues + 1,
                                           11 * kValues, 12 * kValues - 3, 50 * kValues + 17));

TEST(Sums, AnyWindowAndNumberOfSlots) {
  for (const std::uint32_t window : {1u, 2u, 3u, 4u, 5u, 7u, 9u, 31u, 64u}) {
    for (const std::uint32_t slots : {1u, 2u, 7u, 64u}) {
      World world(2, window * 100 + slots, sums(window, slots));
      world.create_all(1);
      std::vector<std::vector<float>> in(2), out(2, std::vector<float>(70 * kValues + 5));
      for (auto& each : in) {
        for (std::size_t i = 0; i < out[0].size(); ++i) each.push_back(draw(world.random()));
      }
      std::vector<OperationId> ids;
      for (JobRank r = 0; r < 2; ++r) ids.push_back(world.start(r, 1, all_reduce(DataType::float32, in[r], out[r])));
      world.run();
      for (JobRank r = 0; r < 2; ++r) expect_ok(world, r, ids[r]);
      check_floats(in, out);
      EXPECT_LE(world.sums().most_under_way(), window);
    }
  }
}

TEST(Sums, RequestsOfSeveralServersCompleteInAnyOrder) {
  std::size_t passed_by = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    StagingConfig config = sums(8, 27);
    config.sum_servers = 3;
    World world(3, seed, config);
    world.sums().in_any_order();
    world.create_all(1);
    std::vector<std::vector<float>> in(3), out(3, std::vector<float>(70 * kValues + 5));
    for (auto& each : in) {
      for (std::size_t i = 0; i < out[0].size(); ++i) each.push_back(draw(world.random()));
    }
    std::vector<std::vector<std::int32_t>> whole(3, std::vector<std::int32_t>(777, 5));
    std::vector<OperationId> ids;
    for (JobRank r = 0; r < 3; ++r) {
      ids.push_back(world.start(r, 1, all_reduce(DataType::float32, in[r], out[r])));
      ids.push_back(world.start(r, 1, all_reduce(DataType::int32, whole[r], whole[r])));
    }
    world.run();
    for (std::size_t i = 0; i < ids.size(); ++i) expect_ok(world, static_cast<JobRank>(i / 2), ids[i]);
    check_floats(in, out);
    for (const auto& each : whole) EXPECT_EQ(each, std::vector<std::int32_t>(777, 15));
    passed_by += world.sums().passed_by();
    world.expect_quiet();
  }
  EXPECT_GT(passed_by, 100u) << "no request has completed before an older one";
}

TEST(Sums, RequestsAreDealtToServersInTurn) {
  SumPairs pairs;
  for (const std::uint32_t qp : {5u, 6u, 7u}) pairs.add(qp);
  EXPECT_TRUE(pairs.has(6) && !pairs.has(8));
  // Tensors of four requests and of one: the first request that each queue pair gets of a tensor begins it there.
  const std::vector<std::pair<std::uint32_t, bool>> want = {{5, true}, {6, true}, {7, true}, {5, false}, {6, true}};
  std::size_t i = 0;
  for (const bool begins : {true, false, false, false, true}) {
    bool first = begins;
    EXPECT_EQ(pairs.deal(first), want[i].first);
    EXPECT_EQ(first, want[i++].second);
  }
}

TEST(Sums, AWindowOfFragmentsIsUnderWayThroughout) {
  // Few slots more than a window's chunks are enough.
  World world(2, 3, sums(64, 7));
  world.create_all(1);
  std::vector<float> a(2000 * kValues, 1.0f), b = a;
  world.start(0, 1, all_reduce(DataType::float32, a, a));
  world.start(1, 1, all_reduce(DataType::float32, b, b));
  world.run();
  EXPECT_EQ(world.sums().most_under_way(), 64u);
  EXPECT_EQ(a, std::vector<float>(2000 * kValues, 2.0f));
}

TEST(Sums, SeveralOperationsAreUnderWayAndEndInOrder) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    constexpr std::uint32_t ranks = 3;
    World world(ranks, seed, sums());
    world.create_all(1);
    std::vector<std::vector<std::vector<float>>> in(5, std::vector<std::vector<float>>(ranks)), out = in;
    std::vector<std::vector<std::int32_t>> whole(ranks, std::vector<std::int32_t>(777, 5));
    std::vector<std::vector<OperationId>> ids(ranks);
    for (std::size_t k = 0; k < 5; ++k) {
      const std::size_t count = 1 + world.random().below(30 * kValues);
      for (JobRank r = 0; r < ranks; ++r) {
        for (std::size_t i = 0; i < count; ++i) in[k][r].push_back(draw(world.random()));
        out[k][r].resize(count);
      }
    }
    // Each rank starts its operations whenever the seed says.
    std::vector<std::size_t> next(ranks);
    while (*std::min_element(next.begin(), next.end()) < 6) {
      const JobRank r = world.random().below(ranks);
      if (next[r] < 6 && world.random().below(4) == 0) {
        const std::size_t k = next[r]++;
        ids[r].push_back(k == 5 ? world.start(r, 1, all_reduce(DataType::int32, whole[r], whole[r]))
                                : world.start(r, 1, all_reduce(DataType::float32, in[k][r], out[k][r])));
      } else {
        world.step();
      }
    }
    world.run();
    for (JobRank r = 0; r < ranks; ++r) {
      for (const OperationId id : ids[r]) expect_ok(world, r, id);
      EXPECT_EQ(whole[r], std::vector<std::int32_t>(777, 15));
    }
    for (std::size_t k = 0; k < 5; ++k) check_floats(in[k], out[k]);
    EXPECT_EQ(world.counter(0, "sums"), 6u);
  }
}

TEST(Sums, TheRequestsOfAnOperationBehindItsFirstContinueIt) {
  World world(2, 1, sums());
  world.create_all(1);
  std::vector<std::vector<float>> x(4, std::vector<float>(20 * kValues));
  for (std::size_t k = 0; k < 4; ++k) world.start(k % 2, 1, all_reduce(DataType::float32, x[k], x[k]));
  world.run();
  std::uint32_t before = ~0u, begun = 0;
  for (const auto& [rank, sum] : world.sums().log) {
    if (rank != 0) continue;
    EXPECT_EQ(sum.continues, sum.attributes.sequence == before);
    begun += !sum.continues;
    before = sum.attributes.sequence;
  }
  EXPECT_EQ(begun, 2u);
}

TEST(Sums, TheNextOperationsRequestsFollowAtOnce) {
  World world(2, 1, sums(8, 7));
  world.create_all(1);
  std::vector<std::int32_t> a(kValues), b(kValues), c(kValues), d(kValues);
  world.start(0, 1, all_reduce(DataType::int32, a, a));
  world.start(0, 1, all_reduce(DataType::int32, b, b));
  EXPECT_EQ(world.sums().log.size(), 4u) << "a head and a fragment of each, with no answer to any";
  world.start(1, 1, all_reduce(DataType::int32, c, c));
  world.start(1, 1, all_reduce(DataType::int32, d, d));
  world.run();
  world.expect_quiet();
}

TEST(Sums, AnOperationThatReadsWhatTheOneBeforeWritesWaits) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    World world(2, seed, sums());
    world.create_all(1);
    std::vector<std::vector<std::int32_t>> x(2, std::vector<std::int32_t>(20 * kValues, 1));
    std::vector<OperationId> ids(2);
    for (JobRank r = 0; r < 2; ++r) {
      for (int k = 0; k < 5; ++k) ids[r] = world.start(r, 1, all_reduce(DataType::int32, x[r], x[r]));
      // Another collective reads it too, and a sum what that collective writes.
      Operation broadcast = all_reduce(DataType::int32, x[r], x[r]);
      broadcast.collective = Collective::broadcast;
      broadcast.root = 1;
      world.start(r, 1, broadcast);
      ids[r] = world.start(r, 1, all_reduce(DataType::int32, x[r], x[r]));
    }
    world.run();
    for (JobRank r = 0; r < 2; ++r) {
      expect_ok(world, r, ids[r]);
      EXPECT_EQ(x[r], std::vector<std::int32_t>(20 * kValues, 64));
    }
  }
}

TEST(Sums, NotANumberAndInfinityFillTheirBlock) {
  World world(3, 7, sums());
  world.create_all(1);
  std::vector<std::vector<float>> in(3, std::vector<float>(40 * kValues, 1.5f)), out = in;
  in[1][3 * kValues + 5] = std::numeric_limits<float>::quiet_NaN();
  in[2][3 * kValues] = 3e38f;
  in[0][30 * kValues - 1] = -std::numeric_limits<float>::infinity();
  std::vector<OperationId> ids;
  for (JobRank r = 0; r < 3; ++r) ids.push_back(world.start(r, 1, all_reduce(DataType::float32, in[r], out[r])));
  world.run();
  for (JobRank r = 0; r < 3; ++r) {
    expect_ok(world, r, ids[r]);
    for (std::size_t i = 0; i < out[r].size(); ++i) {
      const bool bad = i / kValues == 3 || i / kValues == 29;
      EXPECT_EQ(std::isnan(out[r][i]), bad) << i;
      if (!bad) {
        EXPECT_FLOAT_EQ(out[r][i], 4.5f) << i;
      }
    }
    EXPECT_EQ(world.counter(r, "sums_not_finite"), 2u);
    EXPECT_EQ(world.counter(r, "sum_overflows"), 0u);
  }
}

TEST(Sums, HalvesAreWidenedAndRoundedOnce) {
  World world(4, 2, sums());
  world.create_all(1);
  std::vector<std::vector<std::uint16_t>> half(4), brain(4);
  for (JobRank r = 0; r < 4; ++r) {
    for (int i = 0; i < 300; ++i) {
      half[r].push_back(to_float16(static_cast<float>(i) / 4).bits);
      brain[r].push_back(to_bfloat16(static_cast<float>(i % 50)).bits);
    }
    half[r][0] = to_float16(40000.0f).bits;  // the sum overflows, the average does not
  }
  std::vector<OperationId> last(4);
  for (JobRank r = 0; r < 4; ++r) {
    world.start(r, 1, all_reduce(DataType::float16, half[r], half[r], ReduceOp::avg));
    last[r] = world.start(r, 1, all_reduce(DataType::bfloat16, brain[r], brain[r]));
  }
  world.run();
  for (JobRank r = 0; r < 4; ++r) {
    expect_ok(world, r, last[r]);
    EXPECT_EQ(to_float(Float16{half[r][0]}), 40000.0f);
    for (int i = 1; i < 300; ++i) {
      EXPECT_EQ(to_float(Float16{half[r][i]}), static_cast<float>(i) / 4);
      EXPECT_EQ(brain[r][i], to_bfloat16(static_cast<float>(4 * (i % 50))).bits);
    }
  }
}

TEST(Sums, AveragesOfIntegersAreTruncated) {
  World world(3, 2, sums());
  world.create_all(1);
  std::vector<std::vector<std::int32_t>> x(3, std::vector<std::int32_t>{-7, 7, 100});
  x[0] = {-8, 8, 101};
  for (JobRank r = 0; r < 3; ++r) world.start(r, 1, all_reduce(DataType::int32, x[r], x[r], ReduceOp::avg));
  world.run();
  for (const auto& each : x) EXPECT_EQ(each, (std::vector<std::int32_t>{-7, 7, 100}));
}

TEST(Sums, MemoryNeedNotBeAligned) {
  World world(2, 2, sums());
  world.create_all(1);
  std::vector<std::vector<std::uint8_t>> bytes(2, std::vector<std::uint8_t>(4 * 100 + 1));
  for (JobRank r = 0; r < 2; ++r) {
    for (int i = 0; i < 100; ++i) {
      const auto value = static_cast<float>(i);
      std::memcpy(bytes[r].data() + 1 + 4 * i, &value, 4);
    }
    Operation o;
    o.collective = Collective::all_reduce;
    o.type = DataType::float32;
    o.count = 100;
    o.input = o.output = Buffers(bytes[r].data() + 1);
    world.start(r, 1, o);
  }
  world.run();
  for (int i = 0; i < 100; ++i) {
    float value;
    std::memcpy(&value, bytes[1].data() + 1 + 4 * i, 4);
    EXPECT_EQ(value, 2.0f * static_cast<float>(i));
  }
}

TEST(Sums, AFixedScaleNeedsNoExponentsAndSaysWhatItCannotHold) {
  World world(2, 5, sums(8, 7, 1'000'000));
  world.create_all(1);
  std::vector<std::vector<float>> in(2, std::vector<float>(30 * kValues, 0.25f)), out = in;
  in[0][5 * kValues] = 1e30f;                                            // saturates
  in[1][9 * kValues] = std::numeric_limits<float>::quiet_NaN();
  std::vector<OperationId> ids;
  for (JobRank r = 0; r < 2; ++r) ids.push_back(world.start(r, 1, all_reduce(DataType::float32, in[r], out[r])));
  EXPECT_EQ(world.sums().fragments(0), 1u + 6 * 2) << "7 slots, with no exponents to wait for";
  world.run();
  EXPECT_EQ(world.sums().fragments(0), 31u);
  for (JobRank r = 0; r < 2; ++r) {
    expect_ok(world, r, ids[r]);
    EXPECT_EQ(world.counter(r, "sum_overflows"), 1u) << "known to all ranks, whichever saturated";
    EXPECT_EQ(world.counter(r, "sums_not_finite"), 1u);
    EXPECT_TRUE(std::isnan(out[r][9 * kValues + 3]));
    EXPECT_FLOAT_EQ(out[r][0], 0.5f);
  }
}

TEST(Sums, ASaturatedSumOfIntegersIsCountedOnAllRanks) {
  World world(2, 5, sums());
  world.sums().saturate();
  world.create_all(1);
  std::vector<std::vector<std::int32_t>> x(2, std::vector<std::int32_t>(3 * kValues, 1 << 30));
  x[0][0] = 5;
  for (JobRank r = 0; r < 2; ++r) world.start(r, 1, all_reduce(DataType::int32, x[r], x[r]));
  world.run();
  for (JobRank r = 0; r < 2; ++r) {
    EXPECT_EQ(x[r][0], 5 + (1 << 30));
    EXPECT_EQ(x[r][1], std::numeric_limits<std::int32_t>::max());
    EXPECT_EQ(world.counter(r, "sum_overflows"), 3u);
  }
}

TEST(Sums, ASlotWordThatIsWrongIsSeenInTheResult) {
  World world(2, 5, sums());
  world.create_all(1);
  std::vector<std::vector<float>> x(2, std::vector<float>(kValues, 1.0f));
  for (JobRank r = 0; r < 2; ++r) world.start(r, 1, all_reduce(DataType::float32, x[r], x[r]));
  while (world.counter(0, "sum_requests") < 2 || world.counter(1, "sum_requests") < 2) ASSERT_TRUE(world.step());
  world.sums().corrupt(0x40000000);
  world.run();
  EXPECT_NE(x[0][0] == 2.0f, x[1][0] == 2.0f) << "one of the two copies was wrong";
}

TEST(Sums, AttributesReachTheNetwork) {
  World world(2, 5, sums());
  world.create_all(1);
  std::vector<float> a(20 * kValues), b(20 * kValues);
  Operation o = all_reduce(DataType::float32, a, a);
  o.attributes = {.tag = 3, .loss_tolerance = 0.5f, .layer = 4, .priority = 9};
  world.start(0, 1, o);
  world.start(1, 1, all_reduce(DataType::float32, b, b));
  world.run();
  for (const auto& [rank, sum] : world.sums().log) {
    if (rank != 0) continue;
    EXPECT_EQ(sum.attributes,
              (Attributes{.communicator = 1, .tag = 3, .loss_tolerance = 0, .layer = 4, .priority = 9}));
  }
}

// --- what is no sum ------------------------------------------------------------------------------

TEST(Sums, OnlyTheFirstGroupOfAllRanksInOrder) {
  World world(3, 5, sums());
  world.create(7, {0, 1});
  world.create(8, {2, 1, 0});
  world.create(9, {0, 1, 2});
  world.create(10, {0, 1, 2});
  std::vector<std::vector<float>> x(3, std::vector<float>(100, 1.0f));
  const auto reduce = [&](CommunicatorId id, const std::vector<JobRank>& members) {
    const std::size_t before = world.sums().log.size();
    for (const JobRank r : members) world.start(r, id, all_reduce(DataType::float32, x[r], x[r]));
    world.run();
    return world.sums().log.size() > before;
  };
  EXPECT_FALSE(reduce(7, {0, 1}));
  EXPECT_FALSE(reduce(8, {0, 1, 2}));
  EXPECT_TRUE(reduce(9, {0, 1, 2}));
  EXPECT_FALSE(reduce(10, {0, 1, 2}));
  for (JobRank r = 0; r < 3; ++r) world.at(r).close(9);
  EXPECT_FALSE(reduce(10, {0, 1, 2}));
  for (JobRank r = 0; r < 3; ++r) world.at(r).create(11, std::vector<JobRank>{0, 1, 2});
  EXPECT_FALSE(reduce(11, {0, 1, 2})) << "ranks may close a group at different moments";
}

TEST(Sums, OtherOperationsAndTypesGoByTheOrdinaryTransport) {
  World world(2, 5, sums());
  world.create_all(1);
  std::vector<std::vector<double>> wide(2, std::vector<double>(10, 1.0));
  std::vector<std::vector<float>> x(2, std::vector<float>(10, 1.0f));
  for (JobRank r = 0; r < 2; ++r) {
    world.start(r, 1, all_reduce(DataType::float64, wide[r], wide[r]));
    world.start(r, 1, all_reduce(DataType::float32, x[r], x[r], ReduceOp::max));
    Operation none = all_reduce(DataType::float32, x[r], x[r]);
    none.count = 0;
    world.start(r, 1, none);
  }
  world.run();
  EXPECT_TRUE(world.sums().log.empty());
  EXPECT_EQ(wide[0][0], 2.0);
  world.expect_quiet();
}

TEST(Sums, AJobOfOneRankAsksNothingOfTheNetwork) {
  World world(1, 5, sums());
  world.create_all(1);
  std::vector<float> x(10, 1.0f);
  expect_ok(world, 0, world.start(0, 1, all_reduce(DataType::float32, x, x)));
  EXPECT_TRUE(world.sums().log.empty());
}

// --- layout --------------------------------------------------------------------------------------

TEST(Sums, TheirAreaLiesBehindTheSlotsAndMovesNothing) {
  const StagingLayout without({.ranks = 3});
  const StagingLayout with({.ranks = 3, .sum_slots = 7, .sum_values = 256, .sum_window = 256});
  EXPECT_EQ(without.total_bytes(), with.sums_at());
  EXPECT_EQ(without.sums_bytes(), 0u);
  EXPECT_EQ(with.sum_chunk(), 64u);
  EXPECT_EQ(with.sums_bytes(), 7u * 2 * (64 + 64 * 1024));
  EXPECT_EQ(with.sum_result(6) + 64 + 64 * 1024, with.total_bytes());
  EXPECT_EQ(without.send_slot(2, 15, 7), with.send_slot(2, 15, 7));
}

TEST(Sums, ALayoutOutOfRangeIsRefusedByName) {
  const auto refused = [](StagingConfig config) {
    try {
      StagingLayout layout(config);
    } catch (const std::invalid_argument& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_THAT(refused({.ranks = 2, .sum_slots = 65, .sum_values = 64, .sum_window = 1}), HasSubstr("sum_slots"));
  EXPECT_THAT(refused({.ranks = 2, .sum_slots = 1, .sum_values = 100, .sum_window = 1}), HasSubstr("sum_values"));
  EXPECT_THAT(refused({.ranks = 2, .sum_slots = 1, .sum_values = 64, .sum_window = 0}), HasSubstr("sum_window"));
  EXPECT_THAT(refused({.ranks = 2, .sum_slots = 1, .sum_values = 64, .sum_window = 32769}), HasSubstr("sum_window"));
}

using Shape = std::tuple<std::uint64_t, std::uint32_t, std::uint32_t, bool, bool>;
Shape shape_of(const Sum& sum) { return {sum.result_offset, sum.length, sum.framing, sum.continues, sum.floats}; }

// One rank without bytes, each of whose requests completes as soon as the executor has returned.
struct LengthsOnly : Verbs, OperationSink {
  explicit LengthsOnly(const StagingLayout& layout) : executor(layout, 0, nullptr, *this, *this) {}
  void post(JobRank, const Write&) override { FAIL() << "a write between ranks"; }
  void post_sum(const Sum& sum) override {
    EXPECT_EQ(sum.local, nullptr);
    posted.push_back(sum);
  }
  void finished(OperationId, const OperationResult& result) override {
    EXPECT_EQ(result.status, OperationStatus::ok) << result.message;
    bytes.push_back(result.received.delivered);
  }
  CollectiveExecutor executor;
  std::vector<Sum> posted;
  std::vector<std::uint64_t> bytes;
};

TEST(Sums, LengthsAloneArePostedAsBytesAre) {
  const std::vector<std::size_t> counts = {1, 40 * kValues + 3, 5 * kValues};
  for (const std::uint32_t scale : {0u, 1000u}) {
    World world(2, 3, sums(8, 7, scale));
    world.create_all(1);
    std::vector<std::vector<float>> tensors;
    for (const std::size_t count : counts) tensors.emplace_back(count, 0.5f);
    for (JobRank r = 0; r < 2; ++r) {
      for (auto& each : tensors) world.start(r, 1, all_reduce(DataType::float32, each, each));
    }
    world.run();
    std::vector<Shape> with_bytes, with_lengths;
    for (const auto& [rank, sum] : world.sums().log) {
      if (rank == 0) with_bytes.push_back(shape_of(sum));
    }
    LengthsOnly lengths(world.layout());
    lengths.executor.create(1, std::vector<JobRank>{0, 1});
    for (const std::size_t count : counts) {
      Operation op;
      op.collective = Collective::all_reduce;
      op.type = DataType::float32;
      op.count = count;
      lengths.executor.start(1, op);
    }
    for (std::size_t i = 0; i < lengths.posted.size(); ++i) {
      const Sum sum = lengths.posted[i];
      with_lengths.push_back(shape_of(sum));
      lengths.executor.on_sum(sum.id, WriteStatus::ok);
    }
    EXPECT_EQ(with_lengths, with_bytes);
    EXPECT_EQ(lengths.bytes, (std::vector<std::uint64_t>{4, 4 * counts[1], 4 * counts[2]}));
  }
}

}  // namespace
}  // namespace loomnet::testing
