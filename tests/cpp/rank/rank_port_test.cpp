// The NIC's side of the shared memory: what a well-behaved rank gets, and how each kind of
// misbehaviour is cut off by name.
#include "rank/rank_port.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include "clock/random.hpp"
#include "rank/rank_wire.hpp"

namespace loomnet {
namespace {

using rank::ArrivalEntry;
using rank::CompletionEntry;
using rank::Geometry;
using rank::MarkEntry;
using rank::Memory;
using rank::NoticeEntry;
using rank::Submission;
using testing::small;

class Wire : public testing::RankWire {};

TEST_F(Wire, AWorkRequestArrivesCheckedAndResolved) {
  post(good(42));
  ASSERT_EQ(port.poll(batch), 1u);
  EXPECT_EQ(batch[0].qp, 10u);
  EXPECT_EQ(batch[0].request.remote_key, 77u);
  EXPECT_EQ(batch[0].request.remote_address, 256u);
  EXPECT_EQ(batch[0].request.id, 42u);
  EXPECT_EQ(batch[0].request.opcode, Opcode::write_with_immediate);
  EXPECT_EQ(batch[0].request.local, reinterpret_cast<std::uint8_t*>(memory.staging().data()) + 128);
  EXPECT_EQ(batch[0].request.posted, nanoseconds(5));
  EXPECT_EQ(port.outstanding(), 1u);
  port.complete({.qp = 10, .status = Status::ok, .id = 42, .length = 64}, microseconds(3));
  std::array<CompletionEntry, 4> out;
  EXPECT_EQ(completions.pop(out), 0u) << "visible before flush";
  port.flush(microseconds(3));
  ASSERT_EQ(completions.pop(out), 1u);
  EXPECT_EQ(out[0].id, 42u);
  EXPECT_EQ(out[0].peer, 1u);
  EXPECT_EQ(out[0].at_ps, 3'000'000);
  EXPECT_EQ(port.outstanding(), 0u);
  EXPECT_EQ(port.fault(), RankFault::none);
}

TEST_F(Wire, MissingBytesReachTheRank) {
  Missing missing = Missing::of(64, 16);
  missing.add(16, 16);
  missing.add(48, 16);
  post(good(42));
  ASSERT_EQ(port.poll(batch), 1u);
  port.complete({.qp = 10, .id = 42, .length = 64, .missing = missing}, {});
  port.arrived({.qp = 10, .length = 64, .missing = missing}, {});
  port.flush({});
  std::array<CompletionEntry, 4> completed;
  std::array<ArrivalEntry, 4> arrived;
  ASSERT_EQ(completions.pop(completed), 1u);
  ASSERT_EQ(arrivals.pop(arrived), 1u);
  const auto same = [&](const auto& entry) {
    return missing ==
           Missing{entry.missing_bytes, entry.missing_extent, {entry.missing_extents[0], entry.missing_extents[1]}};
  };
  EXPECT_TRUE(same(completed[0]));
  EXPECT_TRUE(same(arrived[0]));
  EXPECT_EQ(port.counters().missing_bytes, 32u);
}

TEST_F(Wire, BothViewsAreTheSameBytes) {
  std::memcpy(seen.staging().data() + 100, "payload", 7);
  EXPECT_EQ(std::memcmp(port.resolve(100, 7), "payload", 7), 0);
}

TEST_F(Wire, ResolveRefusesRangeAndOverflow) {
  EXPECT_NE(port.resolve(0, 8192), nullptr);
  EXPECT_NE(port.resolve(8192, 0), nullptr);
  EXPECT_EQ(port.resolve(8192, 1), nullptr);
  EXPECT_EQ(port.resolve(~0ull, 2), nullptr);
  EXPECT_EQ(port.resolve(1, ~0ull), nullptr);
}

TEST_F(Wire, PeerOfARankThatIsNotThere) {
  auto s = good();
  s.peer = 3;
  EXPECT_EQ(after(s), RankFault::unknown_peer);
}
TEST_F(Wire, PeerItself) {
  auto s = good();
  s.peer = 0;
  EXPECT_EQ(after(s), RankFault::unknown_peer);
}
TEST_F(Wire, ChannelWithoutQueuePair) {
  auto s = good();
  s.peer = 2;
  s.channel = 1;
  EXPECT_EQ(after(s), RankFault::unknown_peer);
}
TEST_F(Wire, LocalBytesOutsideTheStagingArea) {
  auto s = good();
  s.local_offset = 8192 - 63;
  EXPECT_EQ(after(s), RankFault::out_of_region);
}
TEST_F(Wire, LocalOffsetThatWraps) {
  auto s = good();
  s.local_offset = ~0ull - 8;
  EXPECT_EQ(after(s), RankFault::out_of_region);
}
TEST_F(Wire, UnknownOpcode) {
  auto s = good();
  s.opcode = 2;
  EXPECT_EQ(after(s), RankFault::bad_descriptor);
}
TEST_F(Wire, LossToleranceNotANumber) {
  auto s = good();
  s.loss_tolerance = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(after(s), RankFault::bad_descriptor);
}
TEST_F(Wire, LossToleranceOutOfRange) {
  auto s = good();
  s.loss_tolerance = 1.001f;
  EXPECT_EQ(after(s), RankFault::bad_descriptor);
}
TEST_F(Wire, MoreFramingThanBytes) {
  auto s = good();
  s.framing = s.length + 1;
  EXPECT_EQ(after(s), RankFault::bad_descriptor);
}
TEST_F(Wire, BytesBeyondTheRingStep) {
  auto s = good();
  s.framing = 48;
  s.step_bytes = 100;
  s.ring_size = 4;
  s.step_offset = 85;  // 16 bytes behind the framing
  EXPECT_EQ(after(s), RankFault::bad_descriptor);
}
TEST_F(Wire, OffsetInARingStepThatWraps) {
  auto s = good();
  s.step_bytes = 100;
  s.ring_size = 4;
  s.step_offset = ~0ull - 8;
  EXPECT_EQ(after(s), RankFault::bad_descriptor);
}
TEST_F(Wire, OffsetInNoRingStep) {
  auto s = good();
  s.step_offset = 1;
  EXPECT_EQ(after(s), RankFault::bad_descriptor);
}
TEST_F(Wire, RankOutsideItsRing) {
  auto s = good();
  s.step_bytes = s.length;
  s.ring_rank = s.ring_size = 4;
  EXPECT_EQ(after(s), RankFault::bad_descriptor);
}
TEST_F(Wire, RankInNoRing) {
  auto s = good();
  s.ring_size = 4;
  EXPECT_EQ(after(s), RankFault::bad_descriptor);
}
TEST_F(Wire, ReservedBytesAreNotUsed) {
  auto s = good();
  s.reserved = 1;
  EXPECT_EQ(after(s), RankFault::bad_descriptor);
}
TEST_F(Wire, PriorityOutOfRange) {
  auto s = good();
  s.priority = 256;
  EXPECT_EQ(after(s), RankFault::bad_descriptor);
}
TEST_F(Wire, PriorityThatIsNone) {
  auto s = good();
  s.priority = kNoPriority - 1;
  EXPECT_EQ(after(s), RankFault::bad_descriptor);
}
TEST_F(Wire, APriorityOf0IsNotThatNoneIsStated) {
  for (const std::int16_t priority : {kNoPriority, std::int16_t{0}, std::int16_t{255}}) {
    auto s = good();
    s.priority = priority;
    post(s);
    ASSERT_EQ(port.poll(batch), 1u);
    EXPECT_EQ(batch[0].request.attributes.priority, priority);
  }
}
TEST_F(Wire, AttributesOfARequestArriveButForTheJob) {
  auto s = good();
  s.framing = 48;
  s.step_offset = 84;
  s.step_bytes = 100;
  s.communicator = 3;
  s.sequence = 4;
  s.ring_step = 5;
  s.ring_rank = 2;
  s.ring_size = 4;
  s.tag = 6;
  s.loss_tolerance = 0.25f;
  s.layer = 7;
  s.priority = 8;
  post(s);
  ASSERT_EQ(port.poll(batch), 1u);
  EXPECT_EQ(batch[0].request.framing, 48u);
  EXPECT_EQ(batch[0].request.attributes, (Attributes{.step_offset = 84,
                                                     .step_bytes = 100,
                                                     .ring_step = 5,
                                                     .job = 0,
                                                     .communicator = 3,
                                                     .sequence = 4,
                                                     .tag = 6,
                                                     .loss_tolerance = 0.25f,
                                                     .layer = 7,
                                                     .ring_rank = 2,
                                                     .ring_size = 4,
                                                     .priority = 8}));
}
TEST_F(Wire, ChannelOutOfRange) {
  auto s = good();
  s.channel = 2;
  EXPECT_EQ(after(s), RankFault::bad_descriptor);
}

TEST_F(Wire, AnyPostTimeIsHarmless) {
  auto s = good();
  s.posted_ns = std::numeric_limits<std::int64_t>::max();
  post(s);
  s.posted_ns = std::numeric_limits<std::int64_t>::min();
  post(s);
  ASSERT_EQ(port.poll(batch), 2u);
  EXPECT_GT(batch[0].request.posted.count, 0);
  EXPECT_EQ(batch[1].request.posted.count, 0);
}

TEST_F(Wire, RingIndexPastCapacity) {
  seen.ring_words(rank::kSubmissions)->produced.value = 9;
  EXPECT_EQ(port.poll(batch), 0u);
  EXPECT_EQ(port.fault(), RankFault::ring_index);
}

TEST_F(Wire, RingIndexBackwards) {
  post(good());
  ASSERT_EQ(port.poll(batch), 1u);
  seen.ring_words(rank::kSubmissions)->produced.value = 0;
  EXPECT_EQ(port.poll(batch), 0u);
  EXPECT_EQ(port.fault(), RankFault::ring_index);
}

TEST_F(Wire, ConsumerThatClaimsMoreThanWasWritten) {
  seen.ring_words(rank::kCompletions)->consumed.value = 3;
  for (int i = 0; i < 9; ++i) port.complete({.qp = 10, .id = 1}, {});
  EXPECT_EQ(port.fault(), RankFault::ring_index);
}

TEST_F(Wire, SleepingEngineNoticesACorruptedRing) {
  seen.ring_words(rank::kMarks)->produced.value = 1000;
  EXPECT_FALSE(port.announce_sleep());
  EXPECT_EQ(port.fault(), RankFault::ring_index);
}

// Each ring of the engine's, its index moved by the rank: found at the next flush, before the ring is
// full, and by quiescent(), whichever comes first.
TEST(RankPortIndices, CorruptedOnesAreFoundWhateverTheRankDoes) {
  for (const auto ring : {rank::kCompletions, rank::kArrivals, rank::kNotices}) {
    for (const bool waits : {false, true}) {
      auto memory = Memory::create(small());
      auto seen = Memory::attach(memory.fd());
      rank::WakeWord wake(seen.engine_words().rank_wake);
      RankPort port(memory, wake);
      seen.ring_words(ring)->consumed.value = 1ull << 40;
      if (waits) {
        seen.rank_words().state = rank::state_word(1, rank::State::waiting);
        EXPECT_FALSE(port.quiescent());
      } else {
        port.flush({});
      }
      EXPECT_EQ(port.fault(), RankFault::ring_index) << ring << waits;
    }
  }
}

TEST_F(Wire, StateOutOfRange) {
  seen.rank_words().state = rank::state_word(1, static_cast<rank::State>(200));
  EXPECT_FALSE(port.quiescent());
  EXPECT_EQ(port.fault(), RankFault::bad_state);
}

TEST_F(Wire, StepThatNoNoticeCouldName) {
  ASSERT_TRUE(marks.push({.kind = 1, .value = rank::kMaxStep + 1}));
  marks.publish();
  std::array<MarkEntry, 8> out;
  EXPECT_EQ(port.poll_marks(out), 0u);
  EXPECT_EQ(port.fault(), RankFault::bad_mark);
}

TEST_F(Wire, RequestsBeforeTheBadOneStand) {
  post(good(1));
  post(good(2));
  auto bad = good(3);
  bad.opcode = 7;
  post(bad);
  post(good(4));
  EXPECT_EQ(port.poll(batch), 2u);
  EXPECT_EQ(port.fault(), RankFault::bad_descriptor);
  EXPECT_EQ(port.poll(batch), 0u) << "nothing is taken after a fault";
  port.flush({});
  std::array<NoticeEntry, 2> told;
  ASSERT_EQ(notices.pop(told), 1u);
  EXPECT_EQ(told[0].kind, static_cast<std::uint32_t>(rank::NoticeKind::cut_off));
  EXPECT_EQ(told[0].reason, static_cast<std::uint32_t>(RankFault::bad_descriptor));
}

TEST_F(Wire, MoreOutstandingThanCompletionsFit) {
  for (int i = 0; i < 8; ++i) post(good(i));
  ASSERT_EQ(port.poll(batch), 8u);
  post(good(8));
  EXPECT_EQ(port.poll(batch), 0u);
  EXPECT_EQ(port.fault(), RankFault::flooded);
}

TEST_F(Wire, RankThatReadsNoArrivals) {
  for (int i = 0; i < 8; ++i) port.arrived({.qp = 20, .length = 4}, {});
  EXPECT_EQ(port.fault(), RankFault::none);
  port.arrived({.qp = 20, .length = 4}, {});
  EXPECT_EQ(port.fault(), RankFault::arrival_ring_full);
  port.arrived({.qp = 20, .length = 4}, {});
  EXPECT_EQ(port.counters().refused_after_fault, 1u);
}

TEST_F(Wire, UnknownMark) {
  ASSERT_TRUE(marks.push({.kind = 1, .value = 20}));
  ASSERT_TRUE(marks.push({.kind = 99}));
  marks.publish();
  std::array<MarkEntry, 8> out;
  EXPECT_EQ(port.poll_marks(out), 1u);
  EXPECT_EQ(out[0].value, 20u);
  EXPECT_EQ(port.fault(), RankFault::bad_mark);
}

TEST_F(Wire, WakesOnlyWhoSleeps) {
  port.arrived({.qp = 10, .length = 4}, {});
  port.flush({});
  EXPECT_FALSE(wake.wait(0));
  seen.rank_words().sleeping = 1;
  port.flush({});
  EXPECT_FALSE(wake.wait(0)) << "nothing new, no wake";
  port.arrived({.qp = 10, .length = 4}, {});
  port.flush({});
  EXPECT_TRUE(wake.wait(0));
  EXPECT_EQ(seen.rank_words().sleeping.load(), 0u);
}

TEST_F(Wire, QuiescentOnlyWhenWaitingAndAllRead) {
  using rank::State;
  EXPECT_FALSE(port.quiescent());
  seen.rank_words().state = rank::state_word(1, State::waiting);
  EXPECT_TRUE(port.quiescent());
  post(good());
  EXPECT_FALSE(port.quiescent()) << "a request is unread";
  ASSERT_EQ(port.poll(batch), 1u);
  EXPECT_TRUE(port.quiescent());
  port.complete({.qp = 10, .id = 1}, {});
  port.flush({});
  EXPECT_FALSE(port.quiescent()) << "a completion is unread";
  std::array<CompletionEntry, 1> out;
  ASSERT_EQ(completions.pop(out), 1u);
  EXPECT_TRUE(port.quiescent());
  seen.rank_words().state = rank::state_word(2, State::computing);
  EXPECT_FALSE(port.quiescent());
}

// The flags of an inherited eventfd are the rank's too: it makes reads block and empties the counter
// before the engine reads it. A blocked test dies of the alarm.
TEST(Wakes, ClearingAnEventFdNeverBlocks) {
  rank::EventFd engine_wake;
  rank::Descriptor ranks(fcntl(engine_wake.get(), F_DUPFD_CLOEXEC, 3));
  ASSERT_EQ(fcntl(ranks.get(), F_SETFL, O_RDWR), 0);
  alarm(10);
  engine_wake.clear();
  alarm(0);
  engine_wake.raise();
  EXPECT_TRUE(engine_wake.wait(0));
  engine_wake.clear();
  EXPECT_FALSE(engine_wake.wait(0));
}

TEST(Wakes, AWordIsRaisedUntilItIsCleared) {
  auto memory = Memory::create(small());
  auto seen = Memory::attach(memory.fd());
  rank::WakeWord ours(memory.engine_words().rank_wake), theirs(seen.engine_words().rank_wake);
  EXPECT_FALSE(theirs.wait(0));
  EXPECT_FALSE(theirs.wait(20));
  ours.raise();
  ours.raise();
  EXPECT_TRUE(theirs.wait(0));
  EXPECT_TRUE(theirs.wait(-1));
  theirs.clear();
  EXPECT_FALSE(theirs.wait(0));
  std::thread later([&] {
    usleep(20'000);
    ours.raise();
  });
  EXPECT_TRUE(theirs.wait(-1));
  later.join();
}

// Two threads, the sleep protocol both ways: every request is answered and nobody oversleeps.
TEST_F(Wire, NoWakeIsLost) {
  constexpr std::uint64_t kCount = 20000;
  rank::EventFd engine_wake;
  std::thread engine([&] {
    std::uint64_t answered = 0;
    while (answered < kCount) {
      const std::size_t n = port.poll(batch);
      for (std::size_t i = 0; i < n; ++i) {
        port.complete({.qp = batch[i].qp, .id = batch[i].request.id}, {});
      }
      answered += n;
      port.flush({});
      if (n == 0 && port.announce_sleep()) {
        ASSERT_TRUE(engine_wake.wait(20000)) << "engine overslept";
        engine_wake.clear();
        port.cancel_sleep();
      }
    }
  });
  std::uint64_t posted = 0, ended = 0;
  std::array<CompletionEntry, 4> out;
  while (ended < kCount) {
    while (posted < kCount && posted - ended < 8 && submissions.push(good(posted))) ++posted;
    if (submissions.publish()) {
      std::atomic_thread_fence(std::memory_order_seq_cst);
      if (seen.engine_words().sleeping.load() != 0) engine_wake.raise();
    }
    const std::size_t n = completions.pop(out);
    for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(out[i].id, ended++);
    if (n != 0) continue;
    seen.rank_words().sleeping = 1;
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (completions.empty()) {
      ASSERT_TRUE(wake.wait(20000)) << "rank overslept";
      wake.clear();
    }
    seen.rank_words().sleeping = 0;
  }
  engine.join();
  EXPECT_EQ(port.counters().completions, kCount);
}

// A rank that scribbles over everything it can reach: never undefined behaviour, soon a fault.
TEST(RankPortGarbage, IsCutOffWhateverItWrites) {
  int faults = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    RandomStream random(seed, 1, 1);
    auto memory = Memory::create(small());
    auto seen = Memory::attach(memory.fd());
    rank::WakeWord wake(memory.engine_words().rank_wake);
    RankPort port(memory, wake);
    port.bind(1, 0, 10, 77);
    port.bind(2, 0, 20, 77);
    std::array<RankWork, 16> batch;
    std::array<MarkEntry, 16> marks;
    auto* words = reinterpret_cast<std::uint64_t*>(seen.ring_words(rank::kSubmissions)) - 3 * 512;
    const std::size_t count = (seen.staging().data() + 8192 - reinterpret_cast<std::byte*>(words)) / 8;
    for (int round = 0; round < 50; ++round) {
      for (int i = 0; i < 200; ++i) {
        const auto v = random();
        words[random.below(static_cast<std::uint32_t>(count))] = (v & 1) ? v : v >> 58;
      }
      auto& produced = seen.ring_words(rank::kSubmissions)->produced.value;
      produced = produced + random.below(4);
      for (std::size_t i = 0, n = port.poll(batch); i < n; ++i) {
        const auto& r = batch[i].request;
        if (r.local) {
          const auto* begin = reinterpret_cast<std::uint8_t*>(memory.staging().data());
          ASSERT_GE(r.local, begin);
          ASSERT_LE(r.local + r.length, begin + 8192);
        }
        port.complete({.qp = batch[i].qp, .id = r.id}, {});
      }
      port.poll_marks(marks);
      port.arrived({.qp = 10}, {});
      port.announce_sleep();
      port.cancel_sleep();
      port.quiescent();
      port.flush({});
    }
    faults += port.fault() != RankFault::none;
  }
  EXPECT_EQ(faults, 200);
}

TEST(RankMemory, CannotBeResized) {
  auto memory = Memory::create(small());
  EXPECT_EQ(ftruncate(memory.fd(), 0), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(ftruncate(memory.fd(), 1 << 24), -1);
  EXPECT_EQ(fcntl(memory.fd(), F_ADD_SEALS, F_SEAL_WRITE), -1);
}

TEST(RankMemory, RefusesWhatIsNotItsOwn) {
  rank::Descriptor plain(memfd_create("plain", MFD_CLOEXEC));
  EXPECT_THROW(Memory::attach(plain.get()), std::runtime_error);
  auto memory = Memory::create(small());
  auto* header =
      reinterpret_cast<rank::Header*>(mmap(nullptr, rank::kPage, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd(), 0));
  ASSERT_NE(header, MAP_FAILED);
  const auto refused = [&](auto change) {
    const rank::Header saved = *header;
    change();
    std::string message;
    try {
      Memory::attach(memory.fd());
    } catch (const std::runtime_error& e) {
      message = e.what();
    }
    *header = saved;
    return message;
  };
  EXPECT_THAT(refused([&] { header->magic ^= 1; }), ::testing::HasSubstr("magic"));
  for (const std::uint32_t version : {rank::kAbiVersion - 1, rank::kAbiVersion + 6}) {
    EXPECT_THAT(refused([&] { header->version = version; }),
                ::testing::HasSubstr("ABI version " + std::to_string(version) + ", this build speaks " +
                                     std::to_string(rank::kAbiVersion) + "; rebuild loomnet"));
  }
  EXPECT_THAT(refused([&] { header->geometry.arrivals = 7; }), ::testing::HasSubstr("arrivals"));
  EXPECT_THAT(refused([&] { header->geometry.world = 0; }), ::testing::HasSubstr("world"));
  EXPECT_THAT(refused([&] { header->geometry.staging_bytes += 1 << 20; }), ::testing::HasSubstr("size"));
  EXPECT_NO_THROW(Memory::attach(memory.fd()));
  munmap(header, rank::kPage);
}

TEST(RankMemory, BadGeometryNamesTheField) {
  auto g = small();
  g.completions = 12;
  EXPECT_THROW(Memory::create(g), std::invalid_argument);
}

}  // namespace
}  // namespace loomnet
