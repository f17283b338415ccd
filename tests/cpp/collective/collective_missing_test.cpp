// Collectives and messages of which the network loses bytes: framing always arrives, lost elements count as
// zeros, and each operation says what it has received and where bytes are missing.
#include <limits>

#include "collective/harness.hpp"

namespace loomnet {
namespace {

using testing::buffer;
using testing::World;

constexpr StagingConfig kShape{0, 3, 1024, 8};
constexpr std::uint32_t kPacket = 16;  // three packets of framing, then four int32 each
constexpr std::uint64_t kElements = 5000;

// Elements that the operation says are missing in `tensor`.
std::vector<bool> missing_in(const OperationResult& result, const std::vector<std::int32_t>& tensor) {
  std::vector<bool> missing(tensor.size());
  const auto* begin = reinterpret_cast<const std::uint8_t*>(tensor.data());
  for (const MissingBytes& m : result.received.missing) {
    EXPECT_GE(m.at, begin);
    EXPECT_LE(m.at + m.length, begin + tensor.size() * 4);
    for (std::uint64_t i = 0; i < m.length; ++i) missing[static_cast<std::size_t>(m.at + i - begin) / 4] = true;
  }
  return missing;
}

struct Pair {
  World world;
  std::vector<std::int32_t> tensor[2];
  OperationId id[2];
  explicit Pair(std::uint64_t seed) : world(2, seed, kShape) {
    world.create_all(0);
    world.lose(kPacket);
    for (int r = 0; r < 2; ++r) {
      for (std::uint64_t i = 0; i < kElements; ++i) tensor[r].push_back(static_cast<std::int32_t>(1 + i + 7000u * r));
    }
  }
  Operation operation(int rank, Collective collective, float tolerance) {
    Operation op;
    op.collective = collective;
    op.type = DataType::int32;
    op.count = kElements;
    op.peer = static_cast<GroupRank>(1 - rank);
    op.algorithm = Algorithm::ring;
    op.attributes.loss_tolerance = tolerance;
    if (collective != Collective::recv) op.input = buffer(tensor[rank]);
    if (collective != Collective::send) op.output = buffer(tensor[rank]);
    return op;
  }
  void run(Collective first, Collective second, float tolerance) {
    id[0] = world.start(0, 0, operation(0, first, tolerance));
    id[1] = world.start(1, 0, operation(1, second, tolerance));
    world.run();
    world.expect_quiet();
    for (const JobRank r : {0u, 1u}) {
      ASSERT_NE(result(r), nullptr);
      ASSERT_EQ(result(r)->status, OperationStatus::ok) << result(r)->message;
    }
  }
  const OperationResult* result(JobRank r) const { return world.result(r, id[r]); }
};

TEST(MissingBytesOf, AReliableOperationAreNone) {
  Pair pair(1);
  pair.run(Collective::all_reduce, Collective::all_reduce, 0);
  EXPECT_EQ(pair.world.lost(), 0u);
  for (const JobRank r : {0u, 1u}) {
    EXPECT_EQ(pair.result(r)->received.expected, 4 * kElements);  // half of the sum, half of the result
    EXPECT_EQ(pair.result(r)->received.delivered, 4 * kElements);
    EXPECT_TRUE(pair.result(r)->received.missing.empty());
  }
  for (std::uint64_t i = 0; i < kElements; ++i)
    ASSERT_EQ(pair.tensor[0][i], static_cast<std::int32_t>(2 + 2 * i + 7000));
}

TEST(MissingBytesOf, AnAllReduceAreKnownToTheRanksThatMissThem) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Pair pair(seed);
    pair.run(Collective::all_reduce, Collective::all_reduce, 1);
    std::uint64_t lost = 0;
    std::vector<bool> missing[2];
    for (const JobRank r : {0u, 1u}) {
      const Received& received = pair.result(r)->received;
      EXPECT_EQ(received.expected, 4 * kElements);
      EXPECT_LT(received.delivered, received.expected * 3 / 4);
      EXPECT_GT(received.delivered, received.expected / 2);
      lost += received.expected - received.delivered;
      missing[r] = missing_in(*pair.result(r), pair.tensor[r]);
      EXPECT_EQ(pair.world.counter(r, "received_bytes_lost"), received.expected - received.delivered);
    }
    EXPECT_EQ(lost, pair.world.lost());
    std::uint64_t wrong = 0;
    for (std::uint64_t i = 0; i < kElements; ++i) {
      const auto a = static_cast<std::int32_t>(1 + i), b = a + 7000;
      const std::int32_t owner = i < kElements / 2 ? 1 : 0;  // block k is summed at rank k - 1
      for (const int r : {0, 1}) {
        const std::int32_t sum = missing[owner][i] ? (owner == 0 ? a : b) : a + b;
        const std::int32_t expected = r != owner && missing[r][i] ? 0 : sum;
        ASSERT_EQ(pair.tensor[r][i], expected) << "rank " << r << " element " << i << " seed " << seed;
        wrong += expected != a + b;
      }
    }
    EXPECT_GT(wrong, kElements / 2);
  }
}

TEST(MissingBytesOf, AMessageAreZerosWhereItSays) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Pair pair(seed);
    const bool late = seed % 2 != 0;  // the first chunk then comes before its receive
    if (late) {
      pair.id[0] = pair.world.start(0, 0, pair.operation(0, Collective::send, 1));
      pair.world.run();
      pair.id[1] = pair.world.start(1, 0, pair.operation(1, Collective::recv, 1));
      pair.world.run();
    } else {
      pair.run(Collective::send, Collective::recv, 1);
    }
    ASSERT_EQ(pair.result(1)->status, OperationStatus::ok);
    EXPECT_EQ(pair.result(0)->received.expected, 0u);
    const Received& received = pair.result(1)->received;
    EXPECT_EQ(received.expected, 4 * kElements);
    EXPECT_EQ(received.expected - received.delivered, pair.world.lost());
    const std::vector<bool> missing = missing_in(*pair.result(1), pair.tensor[1]);
    std::uint64_t zeros = 0;
    for (std::uint64_t i = 0; i < kElements; ++i) {
      ASSERT_EQ(pair.tensor[1][i], missing[i] ? 0 : static_cast<std::int32_t>(1 + i)) << i;
      zeros += missing[i];
    }
    EXPECT_EQ(4 * zeros, pair.world.lost());  // packets hold whole elements
  }
}

TEST(MissingBytesOf, AMessageAreWhatThePolicySays) {
  Pair pair(3);
  pair.world.at(1).set_fill(
      [](std::span<std::uint8_t> lost) { std::fill(lost.begin(), lost.end(), std::uint8_t{0xff}); });
  pair.run(Collective::send, Collective::recv, 1);
  const std::vector<bool> missing = missing_in(*pair.result(1), pair.tensor[1]);
  EXPECT_TRUE(std::count(missing.begin(), missing.end(), true) > 0);
  for (std::uint64_t i = 0; i < kElements; ++i) {
    ASSERT_EQ(pair.tensor[1][i], missing[i] ? -1 : static_cast<std::int32_t>(1 + i)) << i;
  }
}

// Elements that no packet boundary cuts in two: a packet of 20 bytes cuts int64 and complex numbers.
TEST(MissingBytesOf, AnElementAreAllOrNone) {
  Pair pair(3);
  pair.world.lose(20);
  pair.run(Collective::send, Collective::recv, 1);
  for (const MissingBytes& m : pair.result(1)->received.missing) {
    const auto at = static_cast<std::uint64_t>(m.at - reinterpret_cast<std::uint8_t*>(pair.tensor[1].data()));
    EXPECT_EQ(at % 16, 0u);
    EXPECT_TRUE(m.length % 16 == 0 || at + m.length == 4 * kElements || (at + m.length) % 1024 == 0);
  }
  EXPECT_GT(pair.result(1)->received.missing.size(), 0u);
}

TEST(MissingBytesOf, ScaledSumsAreKnownInTheInput) {
  constexpr std::uint32_t kRanks = 3;
  World world(kRanks, 5, kShape);
  world.create_all(0);
  world.lose(kPacket);
  std::vector<float> in[kRanks], out[kRanks];
  std::vector<OperationId> ids;
  for (JobRank r = 0; r < kRanks; ++r) {
    in[r].assign(kRanks * 1000, 1.0f);
    out[r].assign(1000, -1.0f);
    Operation op;
    op.collective = Collective::reduce_scatter;
    op.type = DataType::float32;
    op.reduce = ReduceOp::premul_sum;
    op.factor = 2;
    op.count = 1000;
    op.attributes.loss_tolerance = 1;
    op.input = buffer(in[r]);
    op.output = buffer(out[r]);
    ids.push_back(world.start(r, 0, op));
  }
  world.run();
  for (JobRank r = 0; r < kRanks; ++r) {
    const OperationResult* result = world.result(r, ids[r]);
    ASSERT_NE(result, nullptr);
    ASSERT_EQ(result->status, OperationStatus::ok) << result->message;
    EXPECT_EQ(result->received.expected, 2 * 4000u);
    bool in_input = false, in_output = false;
    for (const MissingBytes& m : result->received.missing) {
      const auto within = [&](const std::vector<float>& v) {
        const auto* begin = reinterpret_cast<const std::uint8_t*>(v.data());
        return m.at >= begin && m.at + m.length <= begin + 4 * v.size();
      };
      EXPECT_TRUE(within(in[r]) != within(out[r]));
      in_input |= within(in[r]);
      in_output |= within(out[r]);
    }
    EXPECT_TRUE(in_input && in_output);
  }
}

// What only a transport that breaks its contract reports.
TEST(MissingBytesOf, ASlotHeaderFailThePeer) {
  for (const std::uint32_t packet : {16u, 64u, 4096u}) {
    World world(2, 1, kShape);
    world.create_all(0);
    Operation op;
    op.collective = Collective::all_reduce;
    op.type = DataType::int32;
    op.attributes.loss_tolerance = 1;
    std::vector<std::int32_t> tensor(100);
    op.count = tensor.size();
    op.input = op.output = buffer(tensor);
    const OperationId id = world.start(1, 0, op);
    Missing missing = Missing::of(48 + 200, packet);
    missing.add(0, std::min(packet, 48u + 200));
    ASSERT_TRUE(missing.sound(48 + 200));
    world.forge(0, 1, Immediate::named(ImmediateKind::open, 0, 0).encode(), 0);
    world.forge(0, 1, Immediate::data(0, 0, true, true, 0).encode(), 48 + 200, missing);
    const OperationResult* result = world.result(1, id);
    ASSERT_NE(result, nullptr) << packet;
    EXPECT_EQ(result->status, OperationStatus::protocol);
    EXPECT_NE(result->message.find("slot header is missing"), std::string::npos) << result->message;
  }
}

TEST(MissingBytesOf, LengthsOnlyAreCounted) {
  World world(4, 9, kShape, false);
  world.create_all(0);
  world.lose(256);
  std::uint64_t lost = 0;
  std::vector<OperationId> ids;
  for (JobRank r = 0; r < 4; ++r) {
    Operation op;
    op.collective = Collective::all_gather;
    op.type = DataType::int32;
    op.count = 2000;
    op.attributes.loss_tolerance = 1;
    ids.push_back(world.start(r, 0, op));
  }
  world.run();
  for (JobRank r = 0; r < 4; ++r) {
    const Received& received = world.result(r, ids[r])->received;
    EXPECT_EQ(received.expected, 3 * 8000u);
    EXPECT_TRUE(received.missing.empty());
    lost += received.expected - received.delivered;
  }
  EXPECT_GT(lost, 0u);
  EXPECT_EQ(lost, world.lost());
}

TEST(MissingBytesOf, AToleranceThatIsNoShareIsRefused) {
  Pair pair(1);
  for (const float tolerance : {-0.1f, 1.1f, std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_THROW(pair.world.start(0, 0, pair.operation(0, Collective::all_reduce, tolerance)), std::invalid_argument);
  }
}

}  // namespace
}  // namespace loomnet
