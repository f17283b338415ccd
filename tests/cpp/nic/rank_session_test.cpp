// Whole ranks in one process: sessions with their progress threads, the loopback NIC between them.
// Meant to run under ThreadSanitizer and AddressSanitizer as well.
#include "nic/rank_session.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "nic/rank_loopback.hpp"

namespace loomnet::rank {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kSecond = 1'000'000'000;

class Cluster {
 public:
  Cluster(std::uint32_t world, std::uint32_t channels) : nic(world, channels) {
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
  const auto attach = [&] {
    return std::make_unique<RankSession>(nic.memory_fd(0), nic.engine_event_fd(0));
  };
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

}  // namespace
}  // namespace loomnet::rank
