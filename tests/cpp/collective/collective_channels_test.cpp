// More streams than channels: channels are taken back and lent again, whatever order ranks work in,
// and nothing waits for ever that would not wait with a channel for each.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "collective/harness.hpp"
#include "collective/wire.hpp"

namespace loomnet::testing {
namespace {

using Ints = std::vector<std::int64_t>;

Operation operation(Collective collective, Ints* in, Ints* out, std::uint64_t count) {
  Operation op;
  op.collective = collective;
  op.type = DataType::int64;
  op.count = count;
  if (in) op.input = buffer(*in);
  if (out) op.output = buffer(*out);
  return op;
}
Operation all_reduce(Ints& v) { return operation(Collective::all_reduce, &v, &v, v.size()); }
Operation message(Collective kind, Ints& v, GroupRank peer, std::uint32_t tag = 0) {
  const bool sends = kind == Collective::send;
  Operation op = operation(kind, sends ? &v : nullptr, sends ? nullptr : &v, v.size());
  op.peer = peer;
  op.tag = tag;
  return op;
}

void expect_ok(const World& world, JobRank rank, OperationId id, const std::string& what) {
  ASSERT_NE(world.result(rank, id), nullptr) << what << ": rank " << rank << " waits for ever";
  ASSERT_EQ(world.result(rank, id)->status, OperationStatus::ok) << what << ": " << world.result(rank, id)->message;
}

TEST(Channels, AHundredCommunicatorsTakeTurnsOnTwoChannels) {
  constexpr std::uint32_t kRanks = 4, kGroups = 100, kRounds = 3;
  World world(kRanks, 1, {0, 4, 128, 2});
  for (CommunicatorId id = 0; id < kGroups; ++id) world.create_all(id);
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    for (CommunicatorId id = 0; id < kGroups; ++id) {
      std::vector<Ints> data(kRanks);
      std::vector<OperationId> ids;
      for (JobRank r = 0; r < kRanks; ++r) {
        data[r].assign(40, r + id);
        ids.push_back(world.start(r, id, all_reduce(data[r])));
      }
      // A message each beside it, to the next rank.
      std::vector<Ints> sent(kRanks, Ints(50)), got(kRanks, Ints(50));
      for (JobRank r = 0; r < kRanks; ++r) {
        std::iota(sent[r].begin(), sent[r].end(), id * r);
        ids.push_back(world.start(r, id, message(Collective::send, sent[r], (r + 1) % kRanks)));
        ids.push_back(world.start(r, id, message(Collective::recv, got[(r + 1) % kRanks], (r + kRanks - 1) % kRanks)));
      }
      world.run();
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const auto r = static_cast<JobRank>(i < kRanks ? i : (i - kRanks) / 2);
        expect_ok(world, r, ids[i], "group " + std::to_string(id));
      }
      for (JobRank r = 0; r < kRanks; ++r) {
        ASSERT_EQ(data[r], Ints(40, kRanks * id + 6));
        ASSERT_EQ(sent[r], got[(r + 2) % kRanks]);
      }
    }
  }
  world.expect_quiet();
  EXPECT_GT(world.counter(0, "channels_reclaimed"), 100u);
}

// Rank 1 does in the opposite order, one after the other, what rank 0 has under way all at once:
// every channel holds what rank 1 asks for last.
TEST(Channels, OppositeOrdersDoNotLockUp) {
  for (const std::uint32_t channels : {1u, 2u, 16u}) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      constexpr CommunicatorId kGroups = 40;
      World world(2, seed, {0, 1 + static_cast<std::uint32_t>(seed % 4), 64, channels});
      std::vector<Ints> a(kGroups), b(kGroups);
      std::vector<OperationId> ids;
      const bool late = seed % 2 == 0;  // rank 1 creates them only when it gets there
      for (CommunicatorId id = 0; id < kGroups; ++id) {
        world.at(0).create(id, std::vector<JobRank>{0, 1});
        if (!late) world.at(1).create(id, std::vector<JobRank>{0, 1});
        a[id].assign(1 + 20 * (id % 5), id);
        ids.push_back(world.start(0, id, all_reduce(a[id])));
      }
      world.run();
      for (CommunicatorId id = kGroups; id-- > 0;) {
        if (late) world.at(1).create(id, std::vector<JobRank>{0, 1});
        b[id].assign(a[id].size(), 1);
        const OperationId own = world.start(1, id, all_reduce(b[id]));
        world.run();
        expect_ok(world, 1, own, "group " + std::to_string(id));
        expect_ok(world, 0, ids[id], "group " + std::to_string(id));
        ASSERT_EQ(b[id], Ints(b[id].size(), id + 1));
      }
      world.expect_quiet();
      // A window of each stream at most was copied aside at a time.
      EXPECT_LE(world.counter(1, "chunks_kept"), kGroups * world.layout().slots());
    }
  }
}

TEST(Channels, ReceivesThatWaitForEverHoldNone) {
  World world(2, 3, {0, 4, 128, 1});
  constexpr CommunicatorId kGroups = 50;
  std::vector<Ints> never(kGroups, Ints(10));
  for (CommunicatorId id = 0; id < kGroups; ++id) {
    world.create_all(id);
    world.start(0, id, message(Collective::recv, never[id], 1));
    world.start(1, id, message(Collective::recv, never[id], 0));
  }
  world.create_all(kGroups);
  Ints x(500, 1), y(500, 2);
  const OperationId a = world.start(0, kGroups, all_reduce(x));
  const OperationId b = world.start(1, kGroups, all_reduce(y));
  world.run();
  expect_ok(world, 0, a, "all_reduce");
  expect_ok(world, 1, b, "all_reduce");
  EXPECT_EQ(x, Ints(500, 3));
}

// Messages that are announced and not asked for leave their channel to others too, and are cleared
// when it is long another's.
TEST(Channels, AMessageIsClearedAfterItsChannelHasGoneToAnother) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    constexpr CommunicatorId kGroups = 12;
    World world(2, seed, {0, 3, 64, 1 + static_cast<std::uint32_t>(seed % 2)}, seed % 3 != 0);
    std::vector<Ints> sent(kGroups, Ints(100)), got(kGroups, Ints(100));
    std::vector<OperationId> sends, receives(kGroups);
    for (CommunicatorId id = 0; id < kGroups; ++id) {
      world.create_all(id);
      std::iota(sent[id].begin(), sent[id].end(), 1000 * id);
      sends.push_back(world.start(0, id, message(Collective::send, sent[id], 1, 7)));
    }
    if (seed % 5 != 0) world.run();
    for (CommunicatorId id = kGroups; id-- > 0;) {
      receives[id] = world.start(1, id, message(Collective::recv, got[id], 0, 7));
      if (seed % 7 < 3) world.run();
    }
    world.run();
    for (CommunicatorId id = 0; id < kGroups; ++id) {
      expect_ok(world, 0, sends[id], "send");
      expect_ok(world, 1, receives[id], "receive");
      if (seed % 3 != 0) {
        ASSERT_EQ(sent[id], got[id]);
      }
    }
    world.expect_quiet();
  }
}

// Many communicators, each rank in an order of its own, collectives and messages, members that come
// late, communicators closed and others made, lengths only in some.
TEST(Channels, RandomWorkOverRandomCommunicators) {
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    RandomStream random(seed, 5, 5);
    const std::uint32_t n = 2 + random.below(4), groups = 3 + random.below(30);
    const bool bytes = random.below(5) != 0;
    World world(n, seed, {0, 1 + random.below(4), 64 * (1 + random.below(3)), 1 + random.below(4)}, bytes);
    struct Task {
      enum { create, reduce, send, receive, close } kind;
      CommunicatorId id;
      GroupRank peer = 0;
      std::size_t data = 0;
    };
    std::vector<std::vector<JobRank>> members(groups);
    std::deque<Ints> data;
    std::vector<std::int64_t> want;  // every element of data[i], -1: as sent
    std::vector<std::vector<Task>> tasks(n);
    for (CommunicatorId id = 0; id < groups; ++id) {
      for (JobRank r = 0; r < n; ++r) {
        if (random.below(4) != 0) members[id].push_back(r);
      }
      const auto size = static_cast<GroupRank>(members[id].size());
      std::vector<std::vector<Task>> own(n);
      for (const JobRank r : members[id]) own[r].push_back({Task::create, id});
      for (std::uint32_t k = random.below(5); size > 1 && k > 0; --k) {
        const std::uint32_t count = 1 + random.below(random.below(3) == 0 ? 120 : 10);
        if (random.below(2) == 0) {
          std::int64_t sum = 0;
          for (const JobRank r : members[id]) sum += r + id + 1;
          for (const JobRank r : members[id]) {
            own[r].push_back({Task::reduce, id, 0, data.size()});
            data.push_back(Ints(count, r + id + 1));
            want.push_back(sum);
          }
          continue;
        }
        const GroupRank from = random.below(size);
        const GroupRank to = (from + 1 + random.below(size - 1)) % size;
        own[members[id][from]].push_back({Task::send, id, to, data.size()});
        data.push_back(Ints(count, 7 * id + count));
        want.push_back(7 * id + count);
        own[members[id][to]].push_back({Task::receive, id, from, data.size()});
        data.push_back(Ints(count));
        want.push_back(7 * id + count);
      }
      // In this order within the communicator, shuffled among all of them below.
      for (const JobRank r : members[id]) {
        if (random.below(3) == 0) own[r].push_back({Task::close, id});
        std::size_t at = 0;
        std::vector<Task>& all = tasks[r];
        for (const Task& task : own[r]) {
          at += random.below(static_cast<std::uint32_t>(all.size() - at + 1));
          all.insert(all.begin() + static_cast<std::ptrdiff_t>(at++), task);
        }
      }
    }
    struct Started {
      JobRank rank;
      CommunicatorId id;
      OperationId operation;
    };
    std::vector<Started> started;
    std::vector<std::size_t> done(n, 0);
    const auto unfinished = [&](JobRank r, CommunicatorId id) {
      return std::any_of(started.begin(), started.end(), [&](const Started& s) {
        return s.rank == r && s.id == id && world.result(r, s.operation) == nullptr;
      });
    };
    for (std::uint32_t stuck = 0; stuck < 3 * n;) {
      bool all = true;
      for (JobRank r = 0; r < n; ++r) all &= done[r] == tasks[r].size();
      if (all) break;
      const JobRank r = random.below(n);
      for (std::uint32_t k = random.below(12); k > 0; --k) world.step();
      if (done[r] == tasks[r].size()) continue;
      const Task& t = tasks[r][done[r]];
      // A communicator is closed when its work here is done; later tasks wait for that.
      if (t.kind == Task::close && unfinished(r, t.id)) {
        if (random.below(20) != 0) continue;
        world.run();
        if (unfinished(r, t.id)) {
          ++stuck;  // for a member that has not come to it: the others go first
          std::rotate(tasks[r].begin() + static_cast<std::ptrdiff_t>(done[r]),
                      tasks[r].begin() + static_cast<std::ptrdiff_t>(done[r]) + 1, tasks[r].end());
        }
        continue;
      }
      stuck = 0;
      ++done[r];
      switch (t.kind) {
        case Task::create:
          world.at(r).create(t.id, members[t.id]);
          break;
        case Task::close:
          world.at(r).close(t.id);
          break;
        case Task::reduce:
          started.push_back({r, t.id, world.start(r, t.id, all_reduce(data[t.data]))});
          break;
        default: {
          const auto kind = t.kind == Task::send ? Collective::send : Collective::recv;
          started.push_back({r, t.id, world.start(r, t.id, message(kind, data[t.data], t.peer))});
        }
      }
    }
    world.run();
    for (const Started& s : started) {
      expect_ok(world, s.rank, s.operation, "seed " + std::to_string(seed) + ", group " + std::to_string(s.id));
      if (HasFatalFailure()) return;
    }
    for (std::size_t i = 0; bytes && i < data.size(); ++i) {
      ASSERT_EQ(data[i], Ints(data[i].size(), want[i])) << "seed " << seed;
    }
    for (JobRank r = 0; r < n; ++r) {
      EXPECT_TRUE(world.at(r).quiescent());
      EXPECT_EQ(world.counter(r, "protocol_errors"), 0u) << "seed " << seed;
    }
  }
}

TEST(Channels, AChannelThatIsNeverIdleIsSharedInTurns) {
  // Two streams of one channel, both with much to send: neither waits for the other's end.
  World world(2, 9, {0, 4, 64, 1});
  world.create_all(1);
  world.create_all(2);
  Ints a(8000, 1), b(8000, 2), c(8, 3), d(8, 4);
  std::vector<OperationId> ids;
  ids.push_back(world.start(0, 1, all_reduce(a)));
  ids.push_back(world.start(1, 1, all_reduce(b)));
  for (int i = 0; i < 50; ++i) world.step();
  const OperationId small = world.start(0, 2, all_reduce(c));
  world.start(1, 2, all_reduce(d));
  while (world.result(0, small) == nullptr) ASSERT_TRUE(world.step());
  EXPECT_EQ(world.result(0, ids[0]), nullptr) << "the small one came first";
  world.run();
  expect_ok(world, 0, ids[0], "the large one");
  world.expect_quiet();
}

TEST(Channels, APeerThatIsLostEndsTheStreamsThatWait) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    World world(3, seed, {0, 2, 64, 1});
    std::deque<Ints> data;
    std::vector<std::pair<JobRank, OperationId>> ids;
    for (CommunicatorId id = 0; id < 10; ++id) {
      world.create_all(id);
      for (JobRank r = 0; r < 3; ++r) {
        data.push_back(Ints(100, r));
        ids.emplace_back(r, world.start(r, id, all_reduce(data.back())));
      }
    }
    world.create(100, {0, 1});
    Ints x(50, 1), y(50, 2);
    for (std::uint64_t k = 0; k < 20 * seed; ++k) world.step();
    world.break_pair(0, 2);
    world.break_pair(2, 0);
    const OperationId mine = world.start(0, 100, all_reduce(x));
    const OperationId yours = world.start(1, 100, all_reduce(y));
    world.run();
    for (const auto& [rank, id] : ids) {
      ASSERT_NE(world.result(rank, id), nullptr) << "seed " << seed << ", rank " << rank;
    }
    expect_ok(world, 0, mine, "the group without the lost one");
    expect_ok(world, 1, yours, "the group without the lost one");
  }
}

TEST(Channels, WordsAboutStreamsAreChecked) {
  const auto stream = [](StreamWord w, CommunicatorId id = 1, Traffic t = Traffic::collective) {
    return Immediate::named(ImmediateKind::stream, static_cast<std::uint8_t>(w), id, t).encode();
  };
  const auto open = Immediate::named(ImmediateKind::open, 0, 1).encode();
  const auto wanted = Immediate{ImmediateKind::close, 0, 1}.encode();
  const auto data = Immediate::data(0, 0, true, true, 0).encode();
  struct Breach {
    const char* name;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> arrivals;
  };
  const std::vector<Breach> breaches = {
      {"a word about a stream that does not exist", {{7u << 29, 0}}},
      {"a word about a stream that does not exist", {{7u << 29 | 9u << 21, 0}}},
      {"slots back that were not asked for", {{stream(StreamWord::returned), 0}}},
      {"slots back that were not asked for", {{stream(StreamWord::kept), 0}}},
      {"a stream to clear and then something else", {{stream(StreamWord::clear), 0}, {open, 0}}},
      {"a control immediate that carries bytes", {{stream(StreamWord::drained), 4}}},
      // What is kept aside is still that stream's.
      {"a second channel for the same traffic", {{open, 0}, {data, 48}, {wanted, 0}, {open, 0}}},
  };
  for (const Breach& b : breaches) {
    World world(2, 1, {0, 3, 128, 8}, false);
    world.create_all(1);
    for (const auto& [immediate, length] : b.arrivals) world.forge(1, 0, immediate, length);
    Ints x(4);
    Operation op = all_reduce(x);
    op.input = op.output = Buffers();
    const OperationId id = world.start(0, 1, op);
    ASSERT_NE(world.result(0, id), nullptr) << b.name;
    EXPECT_NE(world.result(0, id)->message.find(b.name), std::string::npos)
        << world.result(0, id)->message << " lacks: " << b.name;
  }
}

// A peer that leaves chunks on ever more communicators is cut off by count.
TEST(Channels, ChunksKeptForCommunicatorsThatNeverComeAreBounded) {
  World world(2, 1, {0, 3, 128, 8}, false);
  world.create_all(1);
  std::uint32_t slot = 0, streams = 0;
  for (CommunicatorId id = 2; world.counter(0, "protocol_errors") == 0 && id < 10'000; ++id) {
    world.forge(1, 0, Immediate::named(ImmediateKind::open, 0, id).encode(), 0);
    world.forge(1, 0, Immediate::data(0, slot++ % 3, true, true, 0).encode(), 48);
    world.forge(1, 0, Immediate{ImmediateKind::close, 0, 1}.encode(), 0);
    ++streams;
  }
  EXPECT_EQ(streams, 4097u);
}

}  // namespace
}  // namespace loomnet::testing
