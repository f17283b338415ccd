// A rank's parts of sums: what its NIC takes of them, what it refuses by name, and whole ranks over a NIC that
// adds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <latch>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "clock/random.hpp"
#include "rank/rank_loopback.hpp"
#include "rank/rank_session.hpp"
#include "rank/rank_wire.hpp"

namespace loomnet {
namespace {

using rank::CompletionEntry;
using rank::Geometry;
using rank::Memory;
using rank::Submission;
using ::testing::HasSubstr;

Geometry summing(bool floats = false) {
  Geometry g = testing::small();
  g.slots = 1;
  g.slot_payload = 64;
  g.slot_channels = 1;
  g.sum_slots = 2;
  g.sum_values = 64;
  g.sum_window = 8;  // requests of up to 2 fragments
  if (floats) g.sum_scale = 1'000'000, g.sum_floats = 1;
  g.staging_bytes = StagingLayout(rank::staging_of(g)).total_bytes();
  return g;
}

class SumWire : public testing::RankWire {
 protected:
  SumWire() : RankWire(summing()), layout(rank::staging_of(summing())) { port.bind_sum(30, 99); }

  Submission sum(std::uint32_t fragments = 2) const {
    return {.id = 5,
            .local_offset = layout.sum_request(1),
            .remote_offset = layout.sum_result(1),
            .peer = 0,
            .length = fragments + (4 - fragments % 4) % 4 + 256 * fragments,
            .framing = fragments + (4 - fragments % 4) % 4,
            .opcode = rank::kSumOpcode};
  }
  StagingLayout layout;
};

TEST_F(SumWire, APartOfASumArrivesCheckedAndItsCompletionNamesTheRankItself) {
  Submission s = sum();
  s.communicator = 3;
  s.sequence = 4;
  s.tag = 6;
  s.layer = 7;
  s.priority = 8;
  s.immediate = 1;
  post(s);
  ASSERT_EQ(port.poll(batch), 1u);
  EXPECT_EQ(batch[0].qp, 30u);
  EXPECT_EQ(batch[0].peer, 0u);
  const WorkRequest& r = batch[0].request;
  EXPECT_EQ(r.remote_key, 99u);
  EXPECT_EQ(r.remote_address, layout.sum_result(1));
  EXPECT_EQ(r.local, reinterpret_cast<std::uint8_t*>(memory.staging().data()) + layout.sum_request(1));
  EXPECT_EQ(r.length, 4 + 512u);
  EXPECT_EQ(r.framing, 4u);
  EXPECT_EQ(r.immediate, 1u);
  EXPECT_EQ(r.attributes, (Attributes{.communicator = 3, .sequence = 4, .tag = 6, .layer = 7, .priority = 8}));
  port.complete({.qp = 30, .id = 5, .length = r.length}, {});
  port.flush({});
  std::array<CompletionEntry, 4> out;
  ASSERT_EQ(completions.pop(out), 1u);
  EXPECT_EQ(out[0].peer, 0u);
  EXPECT_EQ(out[0].id, 5u);
}
TEST_F(SumWire, ExponentsAloneAndValuesAlone) {
  Submission s = sum();
  s.length = s.framing = 9;
  post(s);
  s.length = 512, s.framing = 0;
  post(s);
  EXPECT_EQ(port.poll(batch), 2u);
}
TEST_F(SumWire, MoreValuesThanTheFramingHasBytesFor) {
  Submission s = sum();
  s.framing = 1;
  s.length = 1 + 257 * 4;
  EXPECT_EQ(after(s), RankFault::bad_sum);
}
TEST_F(SumWire, HalfAnInteger) {
  Submission s = sum();
  s.length += 2;
  EXPECT_EQ(after(s), RankFault::bad_sum);
}
TEST_F(SumWire, NothingToSum) {
  Submission s = sum();
  s.length = s.framing = 0;
  EXPECT_EQ(after(s), RankFault::bad_sum);
}
TEST_F(SumWire, MoreFramingThanASumHasBytes) {
  Submission s = sum();
  s.framing = s.length + 4;
  EXPECT_EQ(after(s), RankFault::bad_sum);
}
TEST_F(SumWire, FieldsThatASumLacks) {
  for (int field = 0; field < 10; ++field) {
    SCOPED_TRACE(field);
    Memory own = Memory::create(summing());
    rank::WakeWord own_wake(own.engine_words().rank_wake);
    RankPort each(own, own_wake);
    each.bind_sum(30, 99);
    rank::RingProducer<Submission> ring(own.ring_words(rank::kSubmissions), own.ring_entries(rank::kSubmissions), 8);
    Submission s = sum();
    switch (field) {
      case 0:
        s.peer = 1;
        break;
      case 1:
        s.channel = 1;
        break;
      case 2:
        s.immediate = kSumFloats;
        break;  // of a run without them
      case 3:
        s.ring_step = 1;
        break;
      case 4:
        s.step_bytes = 1;
        break;
      case 5:
        s.step_offset = 1;
        break;
      case 6:
        s.loss_tolerance = 0.5f;
        break;
      case 7:
        s.reserved = 1;
        break;
      case 8:
        s.ring_rank = 1;
        break;
      case 9:
        s.ring_size = 1;
        break;
    }
    ASSERT_TRUE(ring.push(s));
    ring.publish();
    EXPECT_EQ(each.poll(batch), 0u);
    EXPECT_EQ(each.fault(), RankFault::bad_sum);
  }
}
TEST(RankSums, FloatsAreTakenWhereTheRunHasThem) {
  for (const bool values : {true, false}) {
    SCOPED_TRACE(values);
    Memory own = Memory::create(summing(true));
    const StagingLayout layout(rank::staging_of(summing(true)));
    rank::WakeWord wake(own.engine_words().rank_wake);
    RankPort port(own, wake);
    port.bind_sum(30, 99);
    rank::RingProducer<Submission> ring(own.ring_words(rank::kSubmissions), own.ring_entries(rank::kSubmissions), 8);
    ASSERT_TRUE(ring.push({.id = 5,
                           .local_offset = layout.sum_request(1),
                           .remote_offset = layout.sum_result(1),
                           .length = values ? 512u : 4u,
                           .immediate = kSumContinues | kSumFloats,
                           .framing = values ? 0u : 4u,
                           .opcode = rank::kSumOpcode}));
    ring.publish();
    std::array<RankWork, 2> batch;
    EXPECT_EQ(port.poll(batch), values ? 1u : 0u);
    EXPECT_EQ(port.fault(), values ? RankFault::none : RankFault::bad_sum);
    if (values) {
      EXPECT_EQ(batch[0].request.immediate, kSumContinues | kSumFloats);
    }
  }
}
TEST(RankSums, FloatsNeedAScale) {
  Geometry g = summing(true);
  g.sum_scale = 0;
  rank::Layout layout;
  std::string_view why;
  EXPECT_FALSE(rank::make_layout(g, layout, why));
  EXPECT_EQ(why, "sum_floats");
}
TEST_F(SumWire, RequestInASlotOfWrites) {
  Submission s = sum();
  s.local_offset = 0;
  EXPECT_EQ(after(s), RankFault::out_of_region);
}
TEST_F(SumWire, ResultInASlotOfWrites) {
  Submission s = sum();
  s.remote_offset = layout.sums_at() - 4;
  EXPECT_EQ(after(s), RankFault::out_of_region);
}
TEST_F(SumWire, ResultBeyondTheArea) {
  Submission s = sum();
  s.remote_offset = layout.total_bytes() - s.length + 1;
  EXPECT_EQ(after(s), RankFault::out_of_region);
}
TEST_F(SumWire, RequestWithoutBytes) {
  Submission s = sum();
  s.local_offset = rank::kNoData;
  EXPECT_EQ(after(s), RankFault::out_of_region);
}
TEST_F(SumWire, OffsetThatWraps) {
  Submission s = sum();
  s.remote_offset = ~0ull - 8;
  EXPECT_EQ(after(s), RankFault::out_of_region);
}
// Parts of sums that differ from a good one in a few fields: whatever is taken lies in the area for sums and can be
// cut into fragments, and both outcomes occur.
TEST(RankSums, WhateverIsTakenCanBeSummed) {
  const StagingLayout layout(rank::staging_of(summing()));
  RandomStream random(7, 0, 0);
  std::array<RankWork, 4> batch;
  int taken = 0, refused = 0;
  std::unique_ptr<Memory> memory;
  std::unique_ptr<rank::WakeWord> wake;
  std::unique_ptr<RankPort> port;
  std::unique_ptr<rank::RingProducer<Submission>> ring;
  std::unique_ptr<rank::RingConsumer<CompletionEntry>> completions;
  std::array<CompletionEntry, 4> read;
  for (int round = 0; round < 20'000; ++round) {
    if (!port || port->fault() != RankFault::none) {
      port.reset();
      memory = std::make_unique<Memory>(Memory::create(summing()));
      wake = std::make_unique<rank::WakeWord>(memory->engine_words().rank_wake);
      port = std::make_unique<RankPort>(*memory, *wake);
      port->bind_sum(30, 99);
      ring = std::make_unique<rank::RingProducer<Submission>>(memory->ring_words(rank::kSubmissions),
                                                              memory->ring_entries(rank::kSubmissions), 8);
      completions = std::make_unique<rank::RingConsumer<CompletionEntry>>(memory->ring_words(rank::kCompletions),
                                                                          memory->ring_entries(rank::kCompletions), 8);
    }
    const auto near = [&](std::uint64_t about) { return about + random.below(9) - 4; };
    Submission s{.id = 1,
                 .local_offset = layout.sum_request(0),
                 .remote_offset = layout.sum_result(0),
                 .peer = 0,
                 .length = 516,
                 .framing = 4,
                 .opcode = rank::kSumOpcode};
    for (std::uint32_t k = random.below(3); k > 0; --k) {
      switch (random.below(6)) {
        case 0:
          s.length = static_cast<std::uint32_t>(near(random.below(2) ? 516 : random.below(3000)));
          break;
        case 1:
          s.framing = static_cast<std::uint32_t>(near(random.below(3)));
          break;
        case 2:
          s.local_offset = near(random.below(2) ? layout.sums_at() : layout.total_bytes() - 516);
          break;
        case 3:
          s.remote_offset = near(random.below(2) ? layout.sums_at() : layout.total_bytes() - 516);
          break;
        case 4:
          s.length = static_cast<std::uint32_t>(random());
          break;
        case 5:
          s.immediate = random.below(3);
          break;
      }
    }
    ASSERT_TRUE(ring->push(s));
    ring->publish();
    if (port->poll(batch) == 0) {
      EXPECT_TRUE(port->fault() == RankFault::bad_sum || port->fault() == RankFault::out_of_region);
      ++refused;
      continue;
    }
    ++taken;
    const WorkRequest& r = batch[0].request;
    const auto* begin = reinterpret_cast<const std::uint8_t*>(memory->staging().data());
    ASSERT_GE(r.local, begin + layout.sums_at());
    ASSERT_LE(r.local + r.length, begin + layout.total_bytes());
    ASSERT_GE(r.remote_address, layout.sums_at());
    ASSERT_LE(r.remote_address + r.length, layout.total_bytes());
    ASSERT_LE(r.framing, r.length);
    const std::uint32_t values = (r.length - r.framing) / 4;
    ASSERT_EQ(values * 4 + r.framing, r.length);
    ASSERT_TRUE(r.length > 0 && (r.framing == 0 || r.framing * 64 >= values));
    port->complete({.qp = 30, .id = 1, .length = r.length}, {});
    port->flush({});
    completions->pop(read);
  }
  EXPECT_GT(taken, 2000);
  EXPECT_GT(refused, 2000);
}

class NoSums : public testing::RankWire {};

TEST_F(NoSums, ASumWhereThereAreNone) {
  Submission s = good();
  s.peer = 0;
  s.opcode = rank::kSumOpcode;
  EXPECT_EQ(after(s), RankFault::bad_sum);
  EXPECT_EQ(to_string(RankFault::bad_sum), "malformed part of a sum");
}
TEST_F(NoSums, AQueuePairForSumsNeedsAnAreaForThem) { EXPECT_THROW(port.bind_sum(30, 1), std::invalid_argument); }
TEST(Geometries, SumsOutOfRangeAreRefusedByName) {
  const auto refused = [](auto change) {
    Geometry g = summing();
    change(g);
    try {
      Memory::create(g);
    } catch (const std::invalid_argument& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_THAT(refused([](Geometry& g) { g.sum_slots = 65; }), ::testing::HasSubstr("bad sum_slots"));
  EXPECT_THAT(refused([](Geometry& g) { g.sum_values = 63; }), ::testing::HasSubstr("bad sum_values"));
  EXPECT_THAT(refused([](Geometry& g) { g.sum_window = 0; }), ::testing::HasSubstr("bad sum_window"));
  Geometry g = summing();
  g.staging_bytes -= 64;
  Memory memory = Memory::create(g);
  rank::WakeWord wake(memory.engine_words().rank_wake);
  EXPECT_THROW(RankPort(memory, wake), std::invalid_argument);
}

// --- sessions ------------------------------------------------------------------------------------

constexpr std::int64_t kSecond = 1'000'000'000;

class SummingRanks : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kWorld = 3;
  SummingRanks() : nic(kWorld, 1, true) {
    nic.start();
    for (std::uint32_t r = 0; r < kWorld; ++r) {
      sessions.push_back(std::make_unique<rank::RankSession>(nic.memory_fd(r), nic.engine_event_fd(r)));
    }
  }
  template <typename Body>
  void each(Body body) {
    std::vector<std::thread> threads;
    for (std::uint32_t r = 0; r < kWorld; ++r) {
      threads.emplace_back([&, r] {
        std::vector<JobRank> all(kWorld);
        std::iota(all.begin(), all.end(), 0u);
        sessions[r]->create(1, all);
        body(r, *sessions[r]);
      });
    }
    for (auto& t : threads) t.join();
  }
  static std::vector<Operation> sum(std::vector<float>& values) {
    Operation o;
    o.collective = Collective::all_reduce;
    o.type = DataType::float32;
    o.count = values.size();
    o.input = o.output = Buffers(values.data());
    o.attributes = {.layer = 4, .priority = 9};
    return {o};
  }

  rank::LoopbackNic nic;
  std::vector<std::unique_ptr<rank::RankSession>> sessions;
};

TEST_F(SummingRanks, ManySumsBesideOtherOperations) {
  each([&](std::uint32_t r, rank::RankSession& session) {
    std::vector<std::vector<float>> x;
    std::vector<rank::WorkPtr> works;
    for (const std::size_t size : {1u, 64u, 5000u, 40'000u, 3u}) {
      x.emplace_back(size, static_cast<float>(r + 1));
    }
    for (auto& each : x) works.push_back(session.start(1, sum(each), 60 * kSecond));
    works.push_back(session.start(1, {Operation{}}, 60 * kSecond));
    for (const auto& work : works) {
      ASSERT_TRUE(session.wait(work, 60 * kSecond));
      ASSERT_EQ(work->status, OperationStatus::ok) << work->message;
    }
    for (const auto& each : x) {
      for (const float value : each) ASSERT_NEAR(value, 6.0f, 1e-5);
    }
    session.leave(5 * kSecond);
  });
  EXPECT_GT(nic.sums(), 0u);
  for (std::uint32_t r = 0; r < kWorld; ++r) {
    EXPECT_EQ(nic.fault(r), RankFault::none);
    for (const Attributes& a : nic.take_sum_attributes(r)) {
      EXPECT_EQ(a.layer, 4u);
      EXPECT_EQ(a.priority, 9u);
    }
  }
}

TEST_F(SummingRanks, ASumThatNeverEndsTimesOutAndARankThatIsKilledEndsIt) {
  nic.set_stalled(true);
  // All have begun before one is killed, and that one has not left by itself.
  std::latch begun(kWorld), killed(1);
  each([&](std::uint32_t r, rank::RankSession& session) {
    std::vector<float> x(1000, 1.0f);
    const auto work = session.start(1, sum(x), r == 0 ? kSecond / 10 : 60 * kSecond);
    ASSERT_FALSE(work->done) << "start() waits for nothing";
    begun.arrive_and_wait();
    if (r == 1) nic.gone(2, rank::GoneReason::killed), killed.count_down();
    if (r == 2) killed.wait();
    if (r != 2) {
      ASSERT_TRUE(session.wait(work, 20 * kSecond));
      EXPECT_NE(work->status, OperationStatus::ok);
      EXPECT_THAT(work->message, ::testing::AnyOf(HasSubstr("Timed out waiting 100ms for all_reduce"),
                                                  HasSubstr("job rank 2 was killed")));
    }
    session.leave(0);
  });
}

}  // namespace
}  // namespace loomnet
