// Whole ranks in one process: sessions with their progress threads, the loopback NIC between them.
// Meant to run under ThreadSanitizer and AddressSanitizer as well.
#include "rank/rank_session.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "rank/rank_loopback.hpp"

namespace loomnet::rank {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kSecond = 1'000'000'000;

class Cluster {
 public:
  // `on_virtual_clock`: rank 0 learns from its NIC that its time is the engine's.
  Cluster(std::uint32_t world, std::uint32_t channels, bool on_virtual_clock = false) : nic(world, channels) {
    if (on_virtual_clock) Memory::attach(nic.memory_fd(0)).engine_words().virtual_clock = 1;
    nic.start();
    for (std::uint32_t r = 0; r < world; ++r) {
      sessions.push_back(std::make_unique<RankSession>(nic.memory_fd(r), nic.engine_event_fd(r)));
    }
  }
  std::uint32_t world() const { return nic.world(); }
  std::vector<JobRank> everyone() const {
    std::vector<JobRank> all(world());
    std::iota(all.begin(), all.end(), 0u);
    return all;
  }
  // Runs `body` for every rank in a thread of its own.
  void each(const std::function<void(std::uint32_t, RankSession&)>& body) {
    std::vector<std::thread> threads;
    for (std::uint32_t r = 0; r < world(); ++r) {
      threads.emplace_back([&, r] { body(r, *sessions[r]); });
    }
    for (auto& t : threads) t.join();
  }

  LoopbackNic nic;
  std::vector<std::unique_ptr<RankSession>> sessions;
};

std::vector<Operation> all_reduce(std::vector<std::int64_t>& values) {
  Operation o;
  o.collective = Collective::all_reduce;
  o.type = DataType::int64;
  o.count = values.size();
  o.input = Buffers(values.data());
  o.output = Buffers(values.data());
  return {o};
}

std::vector<Operation> barrier() { return {Operation{}}; }

class RankSessions : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(RankSessions, AllReduceOfManySizesOnTwoCommunicators) {
  Cluster cluster(3, GetParam());
  cluster.each([&](std::uint32_t rank, RankSession& session) {
    session.create(1, cluster.everyone());
    session.create(2, cluster.everyone());
    for (const std::size_t size : {1u, 5u, 4096u, 40'000u}) {
      std::vector<std::int64_t> a(size, rank + 1), b(size, 10 * rank);
      const auto first = session.start(1, all_reduce(a), 60 * kSecond);
      const auto second = session.start(2, all_reduce(b), 60 * kSecond);
      ASSERT_TRUE(session.wait(second, 60 * kSecond));
      ASSERT_TRUE(session.wait(first, 60 * kSecond));
      ASSERT_EQ(first->status, OperationStatus::ok) << first->message;
      ASSERT_EQ(a, std::vector<std::int64_t>(size, 6));
      ASSERT_EQ(b, std::vector<std::int64_t>(size, 30));
    }
    session.leave(5 * kSecond);
  });
  for (std::uint32_t r = 0; r < 3; ++r) EXPECT_EQ(cluster.nic.fault(r), RankFault::none);
}
INSTANTIATE_TEST_SUITE_P(QueuePairs, RankSessions, ::testing::Values(1u, 2u, 5u));

// 2 (N - 1) steps of an all-reduce, numbered on over all of a communicator; none unless they are asked for.
TEST(RankSession, MarksTheRingStepsThatItReceives) {
  Cluster cluster(3, 1);
  cluster.each([&](std::uint32_t rank, RankSession& session) {
    if (rank != 2) session.mark_ring_steps();
    session.create(5, cluster.everyone());
    for (int i = 0; i < 2; ++i) {
      std::vector<std::int64_t> values(40'000, rank);
      const auto work = session.start(5, all_reduce(values), 60 * kSecond);
      ASSERT_TRUE(session.wait(work, 60 * kSecond));
    }
    session.leave(5 * kSecond);
  });
  for (std::uint32_t r = 0; r < 3; ++r) {
    std::vector<std::uint64_t> steps;
    for (const MarkEntry& mark : cluster.nic.take_marks(r)) {
      if (mark.kind != static_cast<std::uint32_t>(MarkKind::ring_step)) continue;
      EXPECT_EQ(mark.a, 5u);
      steps.push_back(mark.value);
    }
    const std::vector<std::uint64_t> all{0, 1, 2, 3, 4, 5, 6, 7};
    EXPECT_EQ(steps, r == 2 ? std::vector<std::uint64_t>{} : all);
  }
}

// The rank trusts no more of the shared memory than the NIC does.
TEST(RankClient, MissingBytesThatCannotBeAreRefused) {
  const StagingLayout layout({.ranks = 2, .slots = 4, .slot_payload = 1024, .channels = 2});
  const Geometry geometry{
      .world = 2, .slots = 4, .slot_payload = 1024, .slot_channels = 2, .staging_bytes = layout.total_bytes()};
  for (const bool arrives : {false, true}) {
    auto memory = Memory::create(geometry);
    EventFd engine_wake;
    RankClient client(memory, engine_wake);
    const auto write = [&]<class Entry>(RingId ring, std::uint32_t capacity, Entry entry) {
      RingProducer<Entry> producer(memory.ring_words(ring), memory.ring_entries(ring), capacity);
      ASSERT_TRUE(producer.push(entry));
      producer.publish();
    };
    if (arrives) {
      write(kArrivals, geometry.arrivals,
            ArrivalEntry{.missing_bytes = 65, .missing_extent = 64, .peer = 1, .length = 64});
    } else {
      write(kCompletions, geometry.completions,
            CompletionEntry{
                .missing_extents = {2, 0}, .missing_bytes = 1, .missing_extent = 64, .peer = 1, .length = 64});
    }
    EXPECT_TRUE(client.poll(nullptr));
    EXPECT_THAT(client.failure(), HasSubstr(arrives ? "malformed arrival" : "malformed completion"));
  }
}

TEST(RankSession, FinishedWorksReachCallbackThreads) {
  Cluster cluster(2, 1);
  cluster.each([&](std::uint32_t, RankSession& session) {
    session.create(7, cluster.everyone());
    std::atomic<int> seen{0};
    std::thread callbacks([&] {
      while (const WorkPtr work = session.next_finished()) {
        EXPECT_TRUE(work->done);
        ++seen;
      }
    });
    int wanted = 0;
    for (int i = 0; i < 50; ++i) {
      const auto work = session.start(7, barrier(), 60 * kSecond);
      wanted += session.want(work);
      ASSERT_TRUE(session.wait(work, -1));
    }
    session.leave(5 * kSecond);
    callbacks.join();
    EXPECT_EQ(seen, wanted);
    EXPECT_FALSE(session.next_finished());
  });
}

TEST(RankSession, DeadPeerIsNamedPromptly) {
  Cluster cluster(3, 1);
  std::vector<WorkPtr> works;
  for (auto& session : cluster.sessions) session->create(1, cluster.everyone());
  for (int r : {0, 2}) works.push_back(cluster.sessions[r]->start(1, barrier(), 60 * kSecond));
  cluster.nic.gone(1, GoneReason::killed);
  for (std::size_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(cluster.sessions[2 * i]->wait(works[i], 10 * kSecond));
    EXPECT_NE(works[i]->status, OperationStatus::ok);
    EXPECT_THAT(works[i]->message, HasSubstr("rank"));
  }
}

TEST(RankSession, DeadlineAbortsTheCommunicatorEverywhere) {
  Cluster cluster(2, 1);
  for (auto& session : cluster.sessions) session->create(1, cluster.everyone());
  const auto late = cluster.sessions[0]->start(1, barrier(), kSecond / 5);
  ASSERT_TRUE(cluster.sessions[0]->wait(late, 10 * kSecond));
  EXPECT_THAT(late->message, HasSubstr("Timed out waiting 200ms for barrier"));
  // The first may still be served by what rank 0 sent before it gave up; not the second.
  const auto first = cluster.sessions[1]->start(1, barrier(), 60 * kSecond);
  ASSERT_TRUE(cluster.sessions[1]->wait(first, 10 * kSecond));
  const auto after = cluster.sessions[1]->start(1, barrier(), 60 * kSecond);
  ASSERT_TRUE(cluster.sessions[1]->wait(after, 10 * kSecond));
  EXPECT_NE(after->status, OperationStatus::ok);
}

TEST(RankSession, WaitThatTimesOutLeavesTheWorkAlone) {
  Cluster cluster(2, 1);
  for (auto& session : cluster.sessions) session->create(1, cluster.everyone());
  const auto first = cluster.sessions[0]->start(1, barrier(), 0);
  EXPECT_FALSE(cluster.sessions[0]->wait(first, kSecond / 50));
  const auto second = cluster.sessions[1]->start(1, barrier(), 0);
  EXPECT_TRUE(cluster.sessions[0]->wait(first, 20 * kSecond));
  EXPECT_TRUE(cluster.sessions[1]->wait(second, 20 * kSecond));
  EXPECT_EQ(first->status, OperationStatus::ok);
}

// What the virtual clock asks: does every rank wait in communication with nothing unread?
TEST(RankSession, AllWaitingIsSeenOnlyWhenTheWireStalls) {
  Cluster cluster(2, 1);
  for (auto& session : cluster.sessions) session->create(1, cluster.everyone());
  const auto soon = [&](bool expected) {
    for (int i = 0; i < 500 && cluster.nic.all_waiting() != expected; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return cluster.nic.all_waiting() == expected;
  };
  cluster.nic.set_stalled(true);
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    auto& s = *cluster.sessions[0];
    EXPECT_TRUE(s.wait(s.start(1, barrier(), 0), -1));
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(cluster.nic.all_waiting()) << "rank 1 computes";
  threads.emplace_back([&] {
    auto& s = *cluster.sessions[1];
    EXPECT_TRUE(s.wait(s.start(1, barrier(), 0), -1));
  });
  EXPECT_TRUE(soon(true));
  cluster.nic.set_stalled(false);
  for (auto& t : threads) t.join();
  EXPECT_TRUE(soon(false)) << "both compute again";
}

TEST(RankSession, MemoryServesOneProcessOnly) {
  LoopbackNic nic(2);
  const auto attach = [&] { return std::make_unique<RankSession>(nic.memory_fd(0), nic.engine_event_fd(0)); };
  const auto session = attach();
  EXPECT_THROW(attach(), std::runtime_error);
}

TEST(RankSession, EveryBeginningHasItsEndInTheMarks) {
  Cluster cluster(2, 1);
  cluster.each([&](std::uint32_t, RankSession& session) {
    session.create(1, cluster.everyone());
    for (int i = 0; i < 3000; ++i) ASSERT_TRUE(session.wait(session.start(1, barrier(), 0), -1));
    session.leave(5 * kSecond);
  });
  cluster.nic.stop();
  const auto marks = cluster.nic.take_marks(0);
  std::size_t begins = 0, ends = 0;
  for (const auto& m : marks) {
    begins += m.kind == static_cast<std::uint32_t>(MarkKind::work_begin);
    ends += m.kind == static_cast<std::uint32_t>(MarkKind::work_end);
  }
  EXPECT_EQ(begins, ends);
  EXPECT_GT(begins, 1000u);
}

TEST(RankSession, TwoThreadsMayLeaveAtOnce) {
  Cluster cluster(2, 1);
  for (auto& session : cluster.sessions) session->create(1, cluster.everyone());
  cluster.nic.set_stalled(true);
  auto& session = *cluster.sessions[0];
  (void)session.start(1, barrier(), 0);
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) threads.emplace_back([&] { session.leave(kSecond / 5); });
  for (auto& t : threads) t.join();
  session.leave(0);
}

// A child that the rank has forked. It ends by SIGALRM if it hangs.
int exit_status_of_child(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

TEST(RankSession, AForkedChildCanDestroyItsCopy) {
  Cluster cluster(2, 1);
  auto& session = cluster.sessions[0];
  session->create(1, cluster.everyone());
  std::thread callbacks([&] {
    while (session->next_finished()) {
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // until it waits in there
  EXPECT_EQ(exit_status_of_child([&] { session.reset(); }), 0);
  session->leave(0);
  callbacks.join();
}

TEST(RankSession, AForkedChildDoesNotSpeakForItsParent) {
  Cluster cluster(2, 1);
  auto& session = *cluster.sessions[0];
  session.create(1, cluster.everyone());
  EXPECT_EQ(exit_status_of_child([&] {
              if (session.mark(MarkKind::step, 77)) _exit(1);
              if (session.foreign_begin() != 0) _exit(2);
              session.compute(1'000'000);
              session.close(1);
              try {
                session.start(1, barrier(), 0);
                _exit(3);
              } catch (const std::runtime_error&) {
              }
            }),
            0);
  EXPECT_TRUE(session.mark(MarkKind::step, 5));
  cluster.each([&](std::uint32_t, RankSession& each) {
    if (each.rank() == 1) each.create(1, cluster.everyone());
    EXPECT_TRUE(each.wait(each.start(1, barrier(), 0), 20 * kSecond));
    each.leave(5 * kSecond);
  });
  cluster.nic.stop();
  std::vector<std::uint64_t> steps;
  for (const auto& m : cluster.nic.take_marks(0)) {
    if (m.kind == static_cast<std::uint32_t>(MarkKind::step)) steps.push_back(m.value);
  }
  EXPECT_EQ(steps, std::vector<std::uint64_t>{5});
}

// An engine that finds a rank at rest takes it that the rank has nothing more to say.
TEST(RankClient, ShowsItsLastMarkBeforeItRests) {
  const StagingLayout layout({.ranks = 2, .slots = 4, .slot_payload = 1024, .channels = 1});
  auto memory = Memory::create(
      {.world = 2, .slots = 4, .slot_payload = 1024, .slot_channels = 1, .staging_bytes = layout.total_bytes()});
  auto seen = Memory::attach(memory.fd());
  WakeWord rank_wake(memory.engine_words().rank_wake);
  RankPort port(memory, rank_wake);
  EventFd engine_wake;
  RankClient client(seen, engine_wake);
  client.set_state(State::computing);
  client.publish();
  client.mark(MarkKind::meet, 1);
  client.set_state(State::waiting);
  EXPECT_FALSE(port.quiescent()) << "a mark was shown too late";
  std::array<MarkEntry, 4> marks;
  EXPECT_EQ(port.poll_marks(marks), 1u);
  EXPECT_TRUE(port.quiescent());
  EXPECT_TRUE(port.announce_sleep());
  EXPECT_FALSE(engine_wake.wait(0));
  client.publish();
  EXPECT_TRUE(engine_wake.wait(0)) << "the engine is woken for what set_state() has shown";
}

// --- the virtual clock's view of one session: its state word -----------------------------------------

State state_of(const Cluster& cluster, std::uint32_t rank) {
  const Memory seen = Memory::attach(cluster.nic.memory_fd(rank));
  return static_cast<State>(seen.rank_words().state.load() & 0xff);
}

bool soon(const std::function<bool()>& holds) {
  for (int i = 0; i < 2500; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

// A callback blocks in a lock whose holder waits for the network. When the callback began, all other threads
// waited in the session, and the progress thread had none to look at.
TEST(VirtualSession, ACallbackThatBlocksIsLookedAt) {
  Cluster cluster(2, 1, true);
  RankSession &own = *cluster.sessions[0], &peer = *cluster.sessions[1];
  own.create(1, cluster.everyone());
  peer.create(1, cluster.everyone());
  std::mutex held;
  std::atomic<bool> in_wait{false}, in_callback{false}, rested{false};
  std::thread callbacks([&] {
    if (!own.next_finished()) return;
    in_callback = true;
    {
      const std::lock_guard lock(held);
    }
    while (own.next_finished()) {
    }
  });
  std::thread other([&] {  // stands for the process of the peer
    EXPECT_TRUE(soon([&] { return in_wait && state_of(cluster, 0) == State::waiting; }));
    (void)peer.start(1, barrier(), 0);
    rested = soon([&] { return in_callback && state_of(cluster, 0) == State::waiting; });
    (void)peer.start(1, barrier(), 0);
  });
  {
    const std::lock_guard lock(held);
    const auto first = own.start(1, barrier(), 0), second = own.start(1, barrier(), 0);
    EXPECT_TRUE(own.want(first));
    in_wait = true;
    EXPECT_TRUE(own.wait(second, -1));
  }
  other.join();
  EXPECT_TRUE(rested) << "the clock stood for as long as the callback was blocked";
  own.leave(0);
  callbacks.join();
}

// A finished work whose callback has not begun may post: the rank must not be found waiting.
TEST(VirtualSession, AWorkThatAnotherThreadAbortsIsNotOverBeforeItsCallback) {
  Cluster cluster(2, 1, true);
  RankSession& own = *cluster.sessions[0];
  for (const CommunicatorId id : {1u, 2u}) own.create(id, cluster.everyone());
  State after{};
  std::thread other([&] {
    EXPECT_TRUE(soon([&] { return state_of(cluster, 0) == State::waiting; }));
    own.abort(1, "test");
    after = state_of(cluster, 0);
    own.abort(2, "test");
  });
  const auto wanted = own.start(1, barrier(), 0), waited = own.start(2, barrier(), 0);
  EXPECT_TRUE(own.want(wanted));
  EXPECT_TRUE(own.wait(waited, -1));
  other.join();
  EXPECT_EQ(after, State::computing);
  EXPECT_EQ(own.next_finished(), wanted);
}

// While a thread of the script sleeps, the kernel's word that all wait is kept. A thread whose time is over may see
// so on the clock before the progress thread does: it computes from then on, whatever the kernel has said before.
TEST(VirtualSession, AThreadWhoseTimeIsOverComputesThoughAnotherSleeps) {
  Cluster cluster(2, 1, true);
  RankSession &own = *cluster.sessions[0], &peer = *cluster.sessions[1];
  own.create(1, cluster.everyone());
  peer.create(1, cluster.everyone());
  std::mutex held;
  std::atomic<bool> begun{false}, over{false};
  std::unique_lock lock(held);
  std::thread quiet([&] {
    own.thread_begins("quiet");
    begun = true;
    {
      const std::lock_guard sleeps(held);
    }
    own.thread_ends();
  });
  ASSERT_TRUE(soon([&] { return begun.load(); }));
  constexpr int kTimes = 200, kBarriers = 20'000;
  for (int i = 0; i < kBarriers; ++i) (void)own.start(1, barrier(), 0);
  std::thread other([&] {  // each barrier wakes the waiting thread of the rank, mostly before its time
    for (int i = 0; i < kBarriers && !over; ++i) {
      (void)peer.start(1, barrier(), 0);
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  });
  int wrong = 0;
  for (int i = 0; i < kTimes; ++i) {
    own.compute(2'000'000'000);
    const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(300);
    bool waits = false;
    while (std::chrono::steady_clock::now() < until) waits |= state_of(cluster, 0) == State::waiting;
    wrong += waits;
  }
  over = true;
  other.join();
  EXPECT_EQ(wrong, 0) << "of " << kTimes << " times it was found waiting while it computed";
  lock.unlock();
  quiet.join();
}

// All threads of a rank wait: it asks to be woken at the earliest time, limits it did not choose apart.
TEST(VirtualSession, SaysWhenItWantsToBeWoken) {
  Cluster cluster(2, 1, true);
  RankSession& own = *cluster.sessions[0];
  own.create(1, cluster.everyone());
  const Memory seen = Memory::attach(cluster.nic.memory_fd(0));
  std::int64_t asked = 0, limit = 0;
  // This NIC's clock is the machine's; before the NIC has shown it, a time limit from now would be over at once.
  ASSERT_TRUE(soon([&] { return own.now_ps() > 0; }));
  const std::int64_t before = own.now_ps();
  std::thread other([&] {
    EXPECT_TRUE(soon([&] { return state_of(cluster, 0) == State::waiting; }));
    asked = seen.rank_words().alarm_ps;
    limit = seen.rank_words().limit_ps;
    own.abort(1, "test");
  });
  const auto work = own.start(1, barrier(), 1000 * kSecond, false);
  EXPECT_TRUE(own.wait(work, 500 * kSecond));
  other.join();
  EXPECT_GE(asked, before + 500'000'000'000'000);
  EXPECT_LT(asked, limit);
  EXPECT_GE(limit, before + 1000'000'000'000'000);
  EXPECT_NE(limit, kNoAlarm);
}

}  // namespace
}  // namespace loomnet::rank
