// Ranks that disagree, peers that misbehave or vanish: always a named error, on every member, and
// never memory touched out of bounds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collective/harness.hpp"
#include "collective/wire.hpp"

namespace loomnet::testing {
namespace {

using Floats = std::vector<float>;

Operation all_reduce(Floats& v, ReduceOp reduce = ReduceOp::sum) {
  Operation op;
  op.collective = Collective::all_reduce;
  op.type = DataType::float32;
  op.reduce = reduce;
  op.count = v.size();
  op.input = op.output = buffer(v);
  return op;
}

TEST(Faults, TwoAgainstThreeElements) {
  World world(2, 1);
  world.create_all(1);
  Floats two(2), three(3);
  const OperationId a = world.start(0, 1, all_reduce(two));
  const OperationId b = world.start(1, 1, all_reduce(three));
  world.run();
  for (const auto* result : {world.result(0, a), world.result(1, b)}) {
    ASSERT_NE(result, nullptr);
    EXPECT_TRUE(result->status == OperationStatus::mismatch || result->status == OperationStatus::peer_aborted);
  }
  const OperationResult* named =
      world.result(0, a)->status == OperationStatus::mismatch ? world.result(0, a) : world.result(1, b);
  ASSERT_EQ(named->status, OperationStatus::mismatch);
  EXPECT_NE(named->message.find("all_reduce(float32, 3 elements, sum)"), std::string::npos);
  EXPECT_NE(named->message.find("all_reduce(float32, 2 elements, sum)"), std::string::npos);
}

TEST(Faults, EveryKindOfDisagreementReachesEveryMember) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    for (int kind = 0; kind < 6; ++kind) {
      World world(5, seed);
      world.create_all(1);
      std::vector<Floats> data(5, Floats(100, 1.0f));
      std::vector<OperationId> ids;
      const JobRank odd = world.random().below(5);
      for (JobRank r = 0; r < 5; ++r) {
        Operation op = all_reduce(data[r]);
        if (r == odd) {
          if (kind == 0) op.count = 99;
          if (kind == 1) op.type = DataType::int32;
          if (kind == 2) op.reduce = ReduceOp::max;
          if (kind == 3) op.collective = Collective::reduce_scatter, op.count = 20;
          if (kind == 4) op.algorithm = Algorithm::tree;
          if (kind == 5) op.collective = Collective::broadcast, op.root = odd;
        }
        ids.push_back(world.start(r, 1, op));
      }
      // A rank that sends only (broadcast's root) may finish; its next operation must not.
      for (JobRank r = 0; r < 5; ++r) ids.push_back(world.start(r, 1, all_reduce(data[r])));
      world.run();
      int named = 0;
      for (JobRank r = 0; r < 5; ++r) {
        const OperationResult* result = world.result(r, ids[5 + r]);
        ASSERT_NE(result, nullptr) << "kind " << kind << " seed " << seed << " rank " << r;
        ASSERT_NE(result->status, OperationStatus::ok);
        if (result->status == OperationStatus::mismatch) ++named;
      }
      EXPECT_GE(named, 1) << "kind " << kind << " seed " << seed;
      world.expect_quiet();
    }
  }
}

TEST(Faults, AllToAllBlockSizes) {
  World world(3, 2);
  world.create_all(1);
  std::vector<std::vector<std::int32_t>> in(3, std::vector<std::int32_t>(6)), out = in;
  std::vector<OperationId> ids;
  for (JobRank r = 0; r < 3; ++r) {
    Operation op;
    op.collective = Collective::all_to_all;
    op.type = DataType::int32;
    op.input_counts = {2, 2, 2};
    op.output_counts = {2, 2, 2};
    if (r == 1) op.output_counts = {1, 2, 3};
    op.input = buffer(in[r]);
    op.output = buffer(out[r]);
    ids.push_back(world.start(r, 1, op));
  }
  world.run();
  ASSERT_NE(world.result(1, ids[1]), nullptr);
  EXPECT_EQ(world.result(1, ids[1])->status, OperationStatus::mismatch);
  EXPECT_NE(world.result(1, ids[1])->message.find("sends 8 bytes"), std::string::npos)
      << world.result(1, ids[1])->message;
}

TEST(Faults, LengthsOnlyNoticesDifferentSizes) {
  World world(2, 3, {0, 3, 128, 4}, false);
  world.create_all(1);
  Operation op;
  op.collective = Collective::all_reduce;
  op.type = DataType::float32;
  op.count = 10;
  const OperationId a = world.start(0, 1, op);
  op.count = 14;
  const OperationId b = world.start(1, 1, op);
  world.run();
  ASSERT_NE(world.result(0, a), nullptr);
  ASSERT_NE(world.result(1, b), nullptr);
  EXPECT_NE(world.result(0, a)->status, OperationStatus::ok);
}

TEST(Faults, LostPeerFailsItsCommunicatorsOnly) {
  World world(4, 4);
  world.create_all(1);
  world.create(2, {0, 1});
  world.create(3, {2, 3});
  std::vector<Floats> data(4, Floats(500, 1.0f));
  std::vector<OperationId> ids;
  for (JobRank r = 0; r < 3; ++r) ids.push_back(world.start(r, 1, all_reduce(data[r])));
  for (int i = 0; i < 30; ++i) world.step();
  world.at(2).on_peer_failure(3, "left");
  world.run();
  for (JobRank r = 0; r < 3; ++r) {
    ASSERT_NE(world.result(r, ids[r]), nullptr);
    EXPECT_EQ(world.result(r, ids[r])->status, r == 2 ? OperationStatus::peer_failed : OperationStatus::peer_aborted);
  }
  EXPECT_NE(world.result(2, ids[2])->message.find("job rank 3 left"), std::string::npos);
  Floats x(50, 2.0f), y(50, 3.0f);
  const OperationId a = world.start(0, 2, all_reduce(x)), b = world.start(1, 2, all_reduce(y));
  world.run();
  EXPECT_EQ(world.result(0, a)->status, OperationStatus::ok);
  EXPECT_EQ(world.result(1, b)->status, OperationStatus::ok);
  EXPECT_EQ(x[0], 5.0f);
  const OperationId dead = world.start(2, 3, all_reduce(data[2]));
  ASSERT_NE(world.result(2, dead), nullptr);
  EXPECT_EQ(world.result(2, dead)->status, OperationStatus::peer_failed);
}

TEST(Faults, FailedWriteNamesPeerAndStatus) {
  World world(2, 5);
  world.create_all(1);
  Floats x(100), y(100);
  const OperationId a = world.start(0, 1, all_reduce(x));
  world.break_pair(0, 1);
  ASSERT_NE(world.result(0, a), nullptr);
  EXPECT_EQ(world.result(0, a)->status, OperationStatus::peer_failed);
  EXPECT_NE(world.result(0, a)->message.find("job rank 1 cannot be reached: retry_exceeded"), std::string::npos);
  EXPECT_TRUE(world.at(0).quiescent());
}

TEST(Faults, AbortReachesAllAndANewCommunicatorWorks) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    World world(4, seed, {0, 2, 64, 2});
    std::vector<Floats> data(4, Floats(300, 1.0f));
    for (CommunicatorId id = 1; id <= 8; ++id) {  // 2 channels per pair: they must come back
      world.create_all(id);
      std::vector<OperationId> ids;
      const bool abort = id % 2 == 1;
      for (JobRank r = 0; r < 4; ++r) ids.push_back(world.start(r, id, all_reduce(data[r])));
      if (abort) {
        for (std::uint32_t k = world.random().below(40); k > 0; --k) world.step();
        world.at(id % 4).abort(id, "enough");
      }
      world.run();
      for (JobRank r = 0; r < 4; ++r) {
        ASSERT_NE(world.result(r, ids[r]), nullptr);
        if (!abort) {
          ASSERT_EQ(world.result(r, ids[r])->status, OperationStatus::ok)
              << world.result(r, ids[r])->message << " seed " << seed << " id " << id;
        }
      }
      for (JobRank r = 0; r < 4; ++r) {
        world.at(r).close(id);
        for (std::uint32_t k = world.random().below(5); k > 0; --k) world.step();
      }
      world.run();
      world.expect_quiet();
    }
  }
}

TEST(Faults, ChannelsComeBackWhateverTheirCreditsWere) {
  // 8 slots: up to 3 credits are withheld in use, and must be given back on close.
  World world(2, 7, {0, 8, 64, 1});
  for (CommunicatorId id = 1; id <= 20; ++id) {
    world.create_all(id);
    Floats x(16 * id), y(16 * id);
    const OperationId a = world.start(0, id, all_reduce(x)), b = world.start(1, id, all_reduce(y));
    world.run();
    ASSERT_EQ(world.result(0, a)->status, OperationStatus::ok) << world.result(0, a)->message;
    ASSERT_EQ(world.result(1, b)->status, OperationStatus::ok) << world.result(1, b)->message;
    world.at(id % 2).close(id);
    world.run();
    world.at(1 - id % 2).close(id);
    world.run();
  }
}

TEST(Faults, AReopenedChannelIsNotReadByItsFormerCommunicator) {
  World world(2, 8, {0, 2, 64, 1});
  world.create_all(1);
  Floats x(8), y(8), z(8), w(8);
  world.start(0, 1, all_reduce(x));
  world.start(1, 1, all_reduce(y));
  world.run();
  // Rank 1 moves on to communicator 2 over the same channel; rank 0 still holds 1 and uses it.
  world.at(1).close(1);
  world.run();
  world.at(1).create(2, std::vector<JobRank>{0, 1});
  const OperationId b = world.start(1, 2, all_reduce(w));
  world.run();
  const OperationId stuck = world.start(0, 1, all_reduce(z));
  world.run();
  EXPECT_EQ(world.result(0, stuck), nullptr) << "took another communicator's data";
  EXPECT_EQ(world.result(1, b), nullptr);
  EXPECT_FALSE(world.at(0).find(1)->failed());
  world.at(0).close(1);
  EXPECT_EQ(world.result(0, stuck)->status, OperationStatus::closed);
  world.run();
  world.at(0).create(2, std::vector<JobRank>{0, 1});
  const OperationId a = world.start(0, 2, all_reduce(x));
  world.run();
  ASSERT_NE(world.result(0, a), nullptr);
  EXPECT_EQ(world.result(0, a)->status, OperationStatus::ok) << world.result(0, a)->message;
  ASSERT_NE(world.result(1, b), nullptr);
  EXPECT_EQ(world.result(1, b)->status, OperationStatus::ok);
}

TEST(Faults, ARankThatLeavesWithOperationsUnfinishedIsNamedToTheOthers) {
  World world(2, 8, {0, 2, 64, 1});
  world.create_all(1);
  Floats x(800), y(800);
  const OperationId waits = world.start(0, 1, all_reduce(x));
  world.start(1, 1, all_reduce(y));
  for (int i = 0; i < 5; ++i) world.step();
  world.at(1).close(1);
  world.run();
  ASSERT_NE(world.result(0, waits), nullptr);
  EXPECT_EQ(world.result(0, waits)->status, OperationStatus::peer_aborted);
  EXPECT_THAT(world.result(0, waits)->message,
              ::testing::HasSubstr("job rank 1 left with operations of its own unfinished"));
}

// --- a peer that does what it likes --------------------------------------------------------------

std::uint32_t word(Immediate i) { return i.encode(); }

void expect_protocol(World& world, OperationId id, const char* text) {
  ASSERT_NE(world.result(0, id), nullptr) << text;
  EXPECT_EQ(world.result(0, id)->status, OperationStatus::protocol) << text;
  EXPECT_NE(world.result(0, id)->message.find(text), std::string::npos)
      << world.result(0, id)->message << " lacks: " << text;
}

TEST(Malice, EachBreachHasAName) {
  const StagingConfig shape{0, 3, 128, 8};
  const auto open = word(Immediate::named(ImmediateKind::open, 0, 1));
  struct Breach {
    const char* name;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> arrivals;
  };
  const std::vector<Breach> breaches = {
      {"an immediate of no known kind", {{0u, 0}}},
      {"a control immediate that carries bytes", {{open, 4}}},
      {"data on a channel that does not exist", {{word(Immediate::data(8, 0, true, true, 0)), 48}}},
      {"data on a channel that is not open", {{word(Immediate::data(3, 0, true, true, 0)), 48}}},
      {"data in a slot out of turn", {{open, 0}, {word(Immediate::data(0, 1, true, true, 0)), 48}}},
      {"data of a length no slot has", {{open, 0}, {word(Immediate::data(0, 0, true, true, 0)), 47}}},
      {"data of a length no slot has", {{open, 0}, {word(Immediate::data(0, 0, true, true, 0)), 177}}},
      {"credit for slots that were not used", {{word({ImmediateKind::credit, 0, 4}), 0}}},
      {"credit for slots that were not used", {{word({ImmediateKind::credit, 0, 0}), 0}}},
      {"control of a channel that does not exist", {{word({ImmediateKind::credit, 9, 1}), 0}}},
      {"a channel opened while in use", {{open, 0}, {open, 0}}},
      {"a second channel for the same traffic", {{open, 0}, {word(Immediate::named(ImmediateKind::open, 1, 1)), 0}}},
      {"a channel closed that is not open", {{word({ImmediateKind::close, 0, 0}), 0}}},
      {"clear-to-send on a channel without messages", {{word({ImmediateKind::clear, 0, 0}), 0}}},
      {"an abort without a reason", {{word({ImmediateKind::abort, 0, 2}), 0}}},
      {"a slot without a valid header", {{open, 0}, {word(Immediate::data(0, 0, true, true, 0)), 64}}},
  };
  for (const Breach& b : breaches) {
    World world(2, 1, shape);
    world.create_all(1);
    Floats x(100);
    const OperationId id = world.start(0, 1, all_reduce(x));
    for (const auto& [immediate, length] : b.arrivals) world.forge(1, 0, immediate, length);
    expect_protocol(world, id, b.name);
    EXPECT_EQ(world.counter(0, "protocol_errors"), 1u);
    world.forge(1, 0, open, 0);  // nothing more is listened to
    EXPECT_GE(world.counter(0, "late_arrivals"), 1u);
  }
}

TEST(Malice, SendingWithoutCreditIsNoticed) {
  World world(2, 1, {0, 3, 128, 8});
  world.create_all(1);
  world.forge(1, 0, word(Immediate::named(ImmediateKind::open, 0, 1, Traffic::collective)), 0);
  // Headers of an operation this rank has not begun: they wait in their slots.
  for (std::uint32_t slot = 0; slot < 3; ++slot) {
    SlotHeader h;
    h.communicator = 1;
    h.sequence = 7;
    h.serialize(std::span<std::uint8_t, 48>(world.staging(0) + world.layout().receive_slot(1, 0, slot), 48));
    world.forge(1, 0, word(Immediate::data(0, slot, true, true, 7)), 48);
  }
  EXPECT_FALSE(world.at(0).find(1)->failed());
  world.forge(1, 0, word(Immediate::data(0, 0, true, true, 7)), 48);
  EXPECT_EQ(world.at(0).find(1)->status(), OperationStatus::protocol);
  EXPECT_NE(world.at(0).find(1)->fault().find("data without credit"), std::string::npos);
}

TEST(Malice, ASingleForeignCommunicatorIsNoMembership) {
  World world(3, 1);
  world.create(1, {0, 1});
  world.create_all(2);
  world.forge(2, 0, word(Immediate::named(ImmediateKind::open, 0, 1)), 0);
  EXPECT_FALSE(world.at(0).find(1)->failed()) << "a stranger must not end others' communicator";
  EXPECT_EQ(world.at(0).find(2)->status(), OperationStatus::protocol);
}

TEST(Malice, RandomGarbageNeverCrashesAndOthersGoOn) {
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    World world(3, seed, {0, 2, 128, 4}, seed % 4 != 0);
    RandomStream random(seed, 9, 9);
    world.create_all(1);
    world.create(2, {0, 1});
    std::vector<Floats> data(3, Floats(200, 1.0f)), own(2, Floats(150, 2.0f));
    for (JobRank r = 0; r < 3; ++r) world.start(r, 1, all_reduce(data[r]));
    const OperationId a = world.start(0, 2, all_reduce(own[0]));
    const OperationId b = world.start(1, 2, all_reduce(own[1]));
    // Rank 2 scribbles over its own region at rank 0 and sends immediates, near-valid ones mostly.
    for (int i = 0; i < 30; ++i) {
      if (seed % 4 != 0) {
        for (int k = 0; k < 40; ++k) {
          world.staging(
              0)[world.layout().receive_row(2) + random.below(static_cast<std::uint32_t>(world.layout().row_bytes()))] =
              static_cast<std::uint8_t>(random());
        }
      }
      Immediate immediate{
          static_cast<ImmediateKind>(1 + random.below(7)), static_cast<std::uint8_t>(random.below(5)),
          random.below(3) == 0 ? static_cast<std::uint32_t>(random()) & Immediate::kValueMask : random.below(8)};
      if (random.below(2) == 0) {
        immediate = Immediate::data(static_cast<std::uint8_t>(random.below(2)), random.below(2), random.below(2) == 0,
                                    random.below(2) == 0, random.below(3));
      }
      const bool data_kind = immediate.kind == ImmediateKind::data;
      world.forge(2, 0, immediate.encode(), data_kind ? 48 + 4 * random.below(33) : 0);
      for (std::uint32_t k = random.below(4); k > 0; --k) world.step();
    }
    world.run();
    ASSERT_NE(world.result(0, a), nullptr);
    ASSERT_EQ(world.result(0, a)->status, OperationStatus::ok) << world.result(0, a)->message;
    ASSERT_EQ(world.result(1, b)->status, OperationStatus::ok);
    if (seed % 4 != 0) {
      ASSERT_EQ(own[0][0], 4.0f);
    }
  }
}

TEST(Caller, MistakesAreRefusedAtOnce) {
  World world(2, 1);
  world.create_all(1);
  Floats v(4);
  std::vector<JobRank> twice{0, 0}, outside{0, 7}, foreign{1};
  EXPECT_THROW(world.at(0).create(1, std::vector<JobRank>{0, 1}), std::invalid_argument);
  EXPECT_THROW(world.at(0).create(2, twice), std::invalid_argument);
  EXPECT_THROW(world.at(0).create(2, outside), std::invalid_argument);
  EXPECT_THROW(world.at(0).create(2, foreign), std::invalid_argument);
  EXPECT_THROW(world.at(0).create(1u << 20, std::vector<JobRank>{0, 1}), std::invalid_argument);
  EXPECT_THROW(world.at(0).start(9, all_reduce(v)), std::invalid_argument);
  Operation op = all_reduce(v, ReduceOp::band);
  EXPECT_THROW(world.at(0).start(1, op), std::invalid_argument);
  op = all_reduce(v);
  op.output = Buffers();
  EXPECT_THROW(world.at(0).start(1, op), std::invalid_argument);
  op = all_reduce(v);
  op.collective = Collective::broadcast;
  op.root = 2;
  EXPECT_THROW(world.at(0).start(1, op), std::invalid_argument);
  op = all_reduce(v);
  op.count = 1ull << 62;
  EXPECT_THROW(world.at(0).start(1, op), std::invalid_argument);
  op = all_reduce(v);
  op.collective = Collective::send;
  op.peer = 0;
  EXPECT_THROW(world.at(0).start(1, op), std::invalid_argument);
  op.collective = Collective::all_to_all;
  op.input_counts = {1, 2, 3};
  EXPECT_THROW(world.at(0).start(1, op), std::invalid_argument);
  EXPECT_TRUE(world.at(0).idle());
  EXPECT_THROW(StagingLayout({0, 8, 64, 1}), std::invalid_argument);
  EXPECT_THROW(StagingLayout({2, 65, 64, 1}), std::invalid_argument);
  EXPECT_THROW(StagingLayout({2, 8, 65, 1}), std::invalid_argument);
  EXPECT_THROW(StagingLayout({2, 8, 64, 257}), std::invalid_argument);
}

}  // namespace
}  // namespace loomnet::testing
