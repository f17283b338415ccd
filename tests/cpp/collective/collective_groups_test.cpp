// Several communicators at once, orders that differ between ranks, FIFO within one, lengths-only
// runs that look the same on the wire, and what each write says about itself.
#include <gtest/gtest.h>

#include <algorithm>

#include "collective/harness.hpp"
#include "collective/wire.hpp"

namespace loomnet::testing {
namespace {

Operation all_reduce(std::vector<std::int64_t>& v) {
  Operation op;
  op.collective = Collective::all_reduce;
  op.type = DataType::int64;
  op.count = v.size();
  op.input = op.output = buffer(v);
  return op;
}

TEST(Groups, StartedInAnyOrderAcrossCommunicatorsWithoutDeadlock) {
  for (std::uint64_t seed = 1; seed <= 120; ++seed) {
    RandomStream random(seed, 2, 2);
    const std::uint32_t n = 2 + random.below(7);
    World world(n, seed, {0, 1 + random.below(3), 64, 12});
    // Random groups; each rank creates them in its own order.
    std::vector<std::vector<JobRank>> groups;
    for (int g = 0; g < 5; ++g) {
      std::vector<JobRank> members;
      for (JobRank r = 0; r < n; ++r) {
        if (random.below(3) != 0) members.push_back(r);
      }
      for (std::size_t i = members.size(); i > 1; --i) {
        std::swap(members[i - 1], members[random.below(static_cast<std::uint32_t>(i))]);
      }
      groups.push_back(members);
    }
    struct Task {
      std::size_t group;
      std::size_t number;  // on its communicator
      bool create;
    };
    constexpr std::size_t kOps = 4;
    std::vector<std::vector<std::vector<std::vector<std::int64_t>>>> data(n);  // rank, group, op
    std::vector<std::vector<Task>> tasks(n);
    for (JobRank r = 0; r < n; ++r) {
      data[r].resize(5, std::vector<std::vector<std::int64_t>>(kOps));
      std::vector<std::size_t> next(5, 0), mine;
      for (std::size_t g = 0; g < 5; ++g) {
        if (std::find(groups[g].begin(), groups[g].end(), r) != groups[g].end()) mine.push_back(g);
      }
      while (!mine.empty()) {
        const std::size_t pick = random.below(static_cast<std::uint32_t>(mine.size()));
        const std::size_t g = mine[pick];
        tasks[r].push_back({g, next[g] == 0 ? 0 : next[g] - 1, next[g] == 0});
        if (next[g]++ == kOps) mine.erase(mine.begin() + static_cast<std::ptrdiff_t>(pick));
      }
    }
    std::vector<std::size_t> done(n, 0);
    std::vector<std::vector<OperationId>> ids(n);
    for (bool left = true; left;) {
      left = false;
      const JobRank r = random.below(n);
      if (done[r] < tasks[r].size()) {
        const Task t = tasks[r][done[r]++];
        const auto id = static_cast<CommunicatorId>(10 + t.group);
        if (t.create) {
          world.at(r).create(id, groups[t.group]);
        } else {
          auto& v = data[r][t.group][t.number];
          v.assign(1 + 37 * t.number, static_cast<std::int64_t>(r + 1));
          Operation op = all_reduce(v);
          op.cookie = t.group * 100 + t.number;
          ids[r].push_back(world.start(r, id, op));
        }
      }
      for (std::uint32_t k = random.below(10); k > 0; --k) world.step();
      for (JobRank q = 0; q < n; ++q) left = left || done[q] < tasks[q].size();
    }
    world.run();
    for (JobRank r = 0; r < n; ++r) {
      for (const OperationId id : ids[r]) {
        ASSERT_NE(world.result(r, id), nullptr) << "deadlock: seed " << seed << " rank " << r;
        ASSERT_EQ(world.result(r, id)->status, OperationStatus::ok) << world.result(r, id)->message;
      }
      std::vector<std::uint64_t> last(5, 0);
      for (const std::uint64_t cookie : world.order(r)) {
        ASSERT_GE(cookie % 100, last[cookie / 100]) << "out of order on a communicator";
        last[cookie / 100] = cookie % 100;
      }
      for (std::size_t g = 0; g < 5; ++g) {
        std::int64_t want = 0;
        for (const JobRank m : groups[g]) want += m + 1;
        for (const auto& v : data[r][g]) {
          for (const std::int64_t x : v) ASSERT_EQ(x, want);
        }
      }
    }
    world.expect_quiet();
  }
}

TEST(Groups, OneMemberMayBeLateByManyOperations) {
  World world(3, 1, {0, 4, 128, 4});
  std::vector<std::vector<std::int64_t>> a(10, std::vector<std::int64_t>(50, 1)), b = a, c = a;
  world.at(0).create(1, std::vector<JobRank>{0, 1, 2});
  world.at(1).create(1, std::vector<JobRank>{0, 1, 2});
  for (int i = 0; i < 10; ++i) {
    world.start(0, 1, all_reduce(a[i]));
    world.start(1, 1, all_reduce(b[i]));
  }
  world.run();
  EXPECT_FALSE(world.at(0).idle());
  world.at(2).create(1, std::vector<JobRank>{0, 1, 2});
  for (int i = 0; i < 10; ++i) world.start(2, 1, all_reduce(c[i]));
  world.run();
  world.expect_quiet();
  for (int i = 0; i < 10; ++i) EXPECT_EQ(c[i], std::vector<std::int64_t>(50, 3));
}

TEST(Groups, LengthsOnlyPostsTheSameWrites) {
  // Per pair of ranks the sequence of data lengths and immediates must be that of real bytes.
  for (const Collective collective :
       {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter, Collective::broadcast,
        Collective::reduce, Collective::all_to_all, Collective::gather, Collective::scatter, Collective::barrier}) {
    const std::uint32_t n = 5;
    std::vector<std::vector<std::pair<std::uint32_t, std::uint32_t>>> logs[2];
    for (const bool bytes : {true, false}) {
      World world(n, 77, {0, 3, 128, 4}, bytes);
      world.create_all(1);
      std::vector<std::vector<std::int64_t>> in(n, std::vector<std::int64_t>(100 * n)), out = in;
      for (JobRank r = 0; r < n; ++r) {
        Operation op;
        op.collective = collective;
        op.type = DataType::int64;
        op.count = 100;
        if (bytes) {
          op.input = buffer(in[r]);
          op.output = buffer(out[r]);
        }
        world.start(r, 1, op);
      }
      world.run();
      world.expect_quiet();
      for (JobRank r = 0; r < n; ++r) {
        EXPECT_EQ(world.counter(r, "operations_completed"), 1u) << to_string(collective);
        std::vector<std::pair<std::uint32_t, std::uint32_t>> data;
        for (const Write& w : world.log(r)) {
          if (w.length > 0) data.emplace_back(w.length, w.immediate);
        }
        std::sort(data.begin(), data.end());
        logs[bytes].push_back(data);
      }
    }
    EXPECT_EQ(logs[0], logs[1]) << to_string(collective);
  }
}

TEST(Groups, RingStepsAccumulateAndPartialSumsAreFused) {
  const std::uint32_t n = 4;
  World world(n, 3, {0, 16, 128, 4});
  world.create_all(1);
  std::vector<std::vector<std::int64_t>> v(n, std::vector<std::int64_t>(400, 1));
  for (int round = 0; round < 3; ++round) {
    for (JobRank r = 0; r < n; ++r) {
      Operation op = all_reduce(v[r]);
      op.algorithm = Algorithm::ring;
      world.start(r, 1, op);
    }
    world.run();
  }
  for (JobRank r = 0; r < n; ++r) {
    std::vector<std::uint64_t> bytes(18, 0);
    std::uint32_t last = 0;
    for (const Write& w : world.log(r)) {
      if (w.length == 0) continue;
      ASSERT_EQ(w.attributes.step_bytes, 800u);
      ASSERT_GE(w.attributes.ring_step, last);
      last = w.attributes.ring_step;
      ASSERT_LT(last, 18u);  // 3 × 2(N-1)
      ASSERT_EQ(w.attributes.step_offset, bytes[last]);
      ASSERT_EQ(w.attributes.sequence, w.attributes.ring_step / 6);
      bytes[last] += w.length - StagingLayout::kHeaderBytes;
    }
    for (const std::uint64_t b : bytes) EXPECT_EQ(b, 800u);
    // 2 of 3 reducing steps pass on what they reduce: 7 chunks each, in 3 rounds.
    EXPECT_EQ(world.counter(r, "chunks_fused") + world.counter(r, "chunks_unfused"), 42u);
    EXPECT_GT(world.counter(r, "chunks_fused"), 30u);
  }
}

TEST(Groups, APlannerReplacesTheSchedule) {
  // All-reduce by gathering at rank 0 in rank order and broadcasting: built from the same families.
  const std::uint32_t n = 4;
  World world(n, 5);
  world.create_all(1);
  std::vector<std::vector<std::int64_t>> v(n);
  for (JobRank r = 0; r < n; ++r) {
    world.at(r).set_planner(1, [](const ScheduleRequest& request, Schedule& schedule) {
      if (request.operation.collective != Collective::all_reduce) return false;
      TreePlace star;
      if (request.rank != 0) star.parent = 0;
      for (GroupRank k = 1; request.rank == 0 && k < request.size; ++k) star.children.push_back(k);
      const std::int32_t reduced = tree_reduce(request, star, schedule);
      tree_broadcast(request, star, {Space::output}, reduced, schedule);
      return true;
    });
    v[r].assign(500, 1 << r);
  }
  for (JobRank r = 0; r < n; ++r) world.start(r, 1, all_reduce(v[r]));
  world.run();
  for (JobRank r = 0; r < n; ++r) EXPECT_EQ(v[r], std::vector<std::int64_t>(500, 15));
  // 32 chunks to the root and as many back from it; no ring step anywhere.
  for (JobRank r = 0; r < n; ++r) {
    EXPECT_EQ(world.counter(r, "data_writes"), r == 0 ? 96u : 32u);
    for (const Write& w : world.log(r)) EXPECT_EQ(w.attributes.step_bytes, 0u);
  }
  world.expect_quiet();
}

TEST(Groups, FinishedMayStartTheNextOperation) {
  struct Chain : Verbs, OperationSink {
    void post(JobRank, const Write&) override {}
    void finished(OperationId, const OperationResult& result) override {
      EXPECT_EQ(result.cookie, count);
      if (++count < 1000) next();
    }
    void next() {
      Operation op;
      op.cookie = count;
      executor->start(1, op);
    }
    CollectiveExecutor* executor = nullptr;
    std::uint64_t count = 0;
  } chain;
  const StagingLayout layout({1, 2, 64, 1});
  CollectiveExecutor executor(layout, 0, nullptr, chain, chain);
  chain.executor = &executor;
  executor.create(1, std::vector<JobRank>{0});
  chain.next();
  EXPECT_EQ(chain.count, 1000u);
}

// One rank by hand: the network's answers come when the test gives them.
struct ByHand : Verbs, OperationSink {
  explicit ByHand(bool await_sends) : layout({2, 4, 64, 1}), executor(layout, 0, nullptr, *this, *this, await_sends) {
    executor.create(1, std::vector<JobRank>{0, 1});
  }
  void post(JobRank, const Write& write) override { writes.push_back(write); }
  void finished(OperationId id, const OperationResult& result) override {
    EXPECT_EQ(result.status, OperationStatus::ok);
    ended.push_back(id.value);
  }
  OperationId broadcast(std::uint64_t count) {
    Operation op;
    op.collective = Collective::broadcast;
    op.type = DataType::int32;
    op.count = count;
    return executor.start(1, op);
  }
  void complete(std::size_t write) { executor.on_completion(1, writes.at(write).id, WriteStatus::ok); }
  StagingLayout layout;
  std::vector<Write> writes;
  std::vector<std::uint64_t> ended;
  CollectiveExecutor executor;
};

TEST(Groups, AnOperationEndsWhenItsWritesHaveCompleted) {
  ByHand rank(true);
  const auto first = rank.broadcast(16), second = rank.broadcast(16);
  ASSERT_EQ(rank.writes.size(), 3u) << "the channel's opening, and both at once";
  EXPECT_TRUE(rank.ended.empty()) << "posted, not sent";
  rank.complete(2);
  EXPECT_TRUE(rank.ended.empty()) << "not before the first";
  rank.complete(0);
  rank.complete(1);
  EXPECT_EQ(rank.ended, (std::vector<std::uint64_t>{first.value, second.value}));
  rank.executor.close(1);
  EXPECT_EQ(rank.ended.size(), 2u);
}

TEST(Groups, AMemberThatGoesTakesNoResultThatIsInPlace) {
  ByHand rank(true);
  const auto first = rank.broadcast(16);
  rank.executor.on_peer_failure(1, "was killed");
  EXPECT_EQ(rank.ended, std::vector<std::uint64_t>{first.value}) << "its status is checked: ok";
}

TEST(Groups, OverASocketAnOperationEndsWhenItsWritesArePosted) {
  ByHand rank(false);
  const auto first = rank.broadcast(16);
  EXPECT_EQ(rank.ended, std::vector<std::uint64_t>{first.value});
}

TEST(Wire, ImmediateAndHeaderRoundTrip) {
  RandomStream random(1, 1, 1);
  for (int i = 0; i < 10'000; ++i) {
    const std::uint32_t slot = random.below(64), low = random.below(1 << 13);
    const auto channel = static_cast<std::uint8_t>(random.below(256));
    const auto d = Immediate::decode(Immediate::data(channel, slot, i & 1, i & 2, low).encode());
    ASSERT_TRUE(d);
    EXPECT_EQ(d->channel, channel);
    EXPECT_EQ(d->slot(), slot);
    EXPECT_EQ(d->first(), (i & 1) != 0);
    EXPECT_EQ(d->last(), (i & 2) != 0);
    EXPECT_EQ(d->sequence_low(), low);
    const std::uint32_t id = random.below(1 << 20);
    const auto o =
        Immediate::decode(Immediate::named(ImmediateKind::open, channel, id, Traffic::point_to_point).encode());
    EXPECT_EQ(o->communicator(), id);
    EXPECT_EQ(o->traffic(), Traffic::point_to_point);

    std::uint8_t bytes[48];
    for (auto& b : bytes) b = static_cast<std::uint8_t>(random());
    if (random.below(2) == 0) {
      bytes[0] = 0x4e, bytes[1] = 0x4c, bytes[2] = 1, bytes[3] = 0;
      for (int k = 4; k < 8; ++k) bytes[k] = static_cast<std::uint8_t>(random.below(13));
      for (int k = 44; k < 48; ++k) bytes[k] = 0;
      if (const auto h = SlotHeader::parse(std::span<const std::uint8_t, 48>(bytes))) {
        std::uint8_t again[48];
        h->serialize(std::span<std::uint8_t, 48>(again));
        ASSERT_EQ(0, std::memcmp(bytes, again, 48));
      } else {
        EXPECT_TRUE(bytes[4] >= kCollectives || bytes[5] >= kDataTypes || bytes[6] >= kReduceOps || bytes[7] > 2);
      }
    } else {
      SlotHeader::parse(std::span<const std::uint8_t, 48>(bytes));
    }
  }
}

TEST(Staging, SlotsAreDisjointAndSendersContiguous) {
  const StagingLayout layout({4, 3, 192, 5});
  std::set<std::uint64_t> starts;
  for (JobRank p = 0; p < 4; ++p) {
    for (std::uint32_t c = 0; c < 5; ++c) {
      for (std::uint32_t s = 0; s < 3; ++s) {
        const std::uint64_t in = layout.receive_slot(p, c, s), out = layout.send_slot(p, c, s);
        EXPECT_GE(in, layout.receive_row(p));
        EXPECT_LE(in + layout.slot_bytes(), layout.receive_row(p) + layout.row_bytes());
        EXPECT_GE(out, layout.receive_bytes());
        EXPECT_LE(out + layout.slot_bytes(), layout.total_bytes());
        starts.insert(in);
        starts.insert(out);
      }
    }
  }
  EXPECT_EQ(starts.size(), 2u * 4 * 5 * 3);
  std::uint64_t previous = 0;
  for (const std::uint64_t at : starts) {
    EXPECT_TRUE(at == 0 || at - previous >= layout.slot_bytes());
    EXPECT_EQ(at % 64, 0u);
    previous = at;
  }
}

}  // namespace
}  // namespace loomnet::testing
