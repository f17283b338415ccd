// Send and receive: tags, any source, order, messages nobody awaits yet, random traffic.
#include <gtest/gtest.h>

#include "collective/harness.hpp"

namespace loomnet::testing {
namespace {

using Bytes = std::vector<std::uint8_t>;

Operation message(Collective c, GroupRank peer, std::uint32_t tag, Bytes& data) {
  Operation op;
  op.collective = c;
  op.type = DataType::uint8;
  op.count = data.size();
  op.peer = peer;
  op.tag = tag;
  (c == Collective::send ? op.input : op.output) = buffer(data);
  return op;
}

Bytes pattern(std::size_t size, std::uint64_t seed) {
  Bytes b(size);
  for (std::size_t i = 0; i < size; ++i) b[i] = static_cast<std::uint8_t>(mix64(seed * 1000 + i));
  return b;
}

TEST(Messages, TagsMatchOutOfOrderEvenWhenLarge) {
  World world(2, 1, {0, 2, 64, 2});
  world.create_all(1);
  // Far more than two slots each, received in the opposite order.
  Bytes a = pattern(5000, 1), b = pattern(7000, 2), into_a(5000), into_b(7000);
  world.start(0, 1, message(Collective::send, 1, 10, a));
  world.start(0, 1, message(Collective::send, 1, 20, b));
  world.run();
  const OperationId second = world.start(1, 1, message(Collective::recv, 0, 20, into_b));
  world.run();
  ASSERT_NE(world.result(1, second), nullptr) << "the first message blocks the second";
  EXPECT_EQ(into_b, b);
  world.start(1, 1, message(Collective::recv, 0, 10, into_a));
  world.run();
  EXPECT_EQ(into_a, a);
  world.expect_quiet();
}

TEST(Messages, SameTagKeepsOrderAndAnySourceSaysWho) {
  World world(3, 2);
  world.create_all(1);
  Bytes one = pattern(300, 1), two = pattern(300, 2), x(300), y(300), z(10);
  world.start(0, 1, message(Collective::send, 2, 7, one));
  world.start(0, 1, message(Collective::send, 2, 7, two));
  world.run();
  const OperationId first = world.start(2, 1, message(Collective::recv, kAnySource, 7, x));
  const OperationId next = world.start(2, 1, message(Collective::recv, 0, 7, y));
  const OperationId any = world.start(2, 1, message(Collective::recv, kAnySource, 9, z));
  world.run();
  EXPECT_EQ(x, one);
  EXPECT_EQ(y, two);
  EXPECT_EQ(world.result(2, first)->source, 0u);
  EXPECT_NE(world.result(2, next), nullptr);
  EXPECT_EQ(world.result(2, any), nullptr);
  Bytes nine = pattern(10, 9);
  world.start(1, 1, message(Collective::send, 2, 9, nine));
  world.run();
  ASSERT_NE(world.result(2, any), nullptr);
  EXPECT_EQ(world.result(2, any)->source, 1u);
  EXPECT_EQ(world.result(2, any)->tag, 9u);
  EXPECT_EQ(z, nine);
  world.expect_quiet();
}

TEST(Messages, RandomTrafficOverSeeds) {
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    RandomStream random(seed, 1, 1);
    const std::uint32_t n = 2 + random.below(4);
    World world(n, seed, {0, 1 + random.below(4), 64 * (1 + random.below(3)), 3});
    world.create_all(3);
    struct Message {
      JobRank from, to;
      std::uint32_t tag;
      Bytes data, into;
      OperationId send, recv;
      bool sent = false, posted = false;
    };
    std::vector<Message> all;
    for (std::uint32_t i = 0; i < 40; ++i) {
      Message m;
      m.from = random.below(n);
      m.to = (m.from + 1 + random.below(n - 1)) % n;
      m.tag = i;  // own tag: any order must do
      m.data = pattern(random.below(3) == 0 ? random.below(3) : random.below(1500), seed * 100 + i);
      m.into.resize(m.data.size());
      all.push_back(std::move(m));
    }
    for (int left = 80; left > 0;) {
      Message& m = all[random.below(40)];
      const bool send = random.below(2) == 0;
      if (send && !m.sent) {
        m.send = world.start(m.from, 3, message(Collective::send, m.to, m.tag, m.data));
        m.sent = true;
        --left;
      } else if (!send && !m.posted) {
        const GroupRank from = random.below(2) == 0 ? kAnySource : m.from;
        m.recv = world.start(m.to, 3, message(Collective::recv, from, m.tag, m.into));
        m.posted = true;
        --left;
      }
      for (std::uint32_t k = random.below(6); k > 0; --k) world.step();
    }
    world.run();
    for (const Message& m : all) {
      ASSERT_NE(world.result(m.from, m.send), nullptr) << "seed " << seed;
      ASSERT_NE(world.result(m.to, m.recv), nullptr) << "seed " << seed;
      ASSERT_EQ(world.result(m.to, m.recv)->status, OperationStatus::ok);
      ASSERT_EQ(world.result(m.to, m.recv)->source, m.from);
      ASSERT_EQ(m.into, m.data) << "seed " << seed << " tag " << m.tag;
    }
    world.expect_quiet();
  }
}

TEST(Messages, SizeAndTypeMismatchAreNamed) {
  World world(2, 3);
  world.create_all(1);
  Bytes data = pattern(20, 1), into(12);
  world.start(0, 1, message(Collective::send, 1, 4, data));
  const OperationId recv = world.start(1, 1, message(Collective::recv, 0, 4, into));
  world.run();
  ASSERT_NE(world.result(1, recv), nullptr);
  EXPECT_EQ(world.result(1, recv)->status, OperationStatus::mismatch);
  EXPECT_NE(world.result(1, recv)->message.find("rank 0 sends 20 bytes of uint8 with tag 4"), std::string::npos)
      << world.result(1, recv)->message;
}

TEST(Messages, CancelledReceiveLeavesTheRestRunning) {
  World world(2, 4);
  world.create_all(1);
  Bytes data = pattern(20, 1), into(20), never(8);
  const OperationId lost = world.start(1, 1, message(Collective::recv, 0, 99, never));
  const OperationId kept = world.start(1, 1, message(Collective::recv, 0, 4, into));
  EXPECT_TRUE(world.at(1).cancel(lost));
  EXPECT_FALSE(world.at(1).cancel(lost));
  EXPECT_EQ(world.result(1, lost)->status, OperationStatus::aborted);
  world.start(0, 1, message(Collective::send, 1, 4, data));
  world.run();
  ASSERT_NE(world.result(1, kept), nullptr);
  EXPECT_EQ(world.result(1, kept)->status, OperationStatus::ok);
  EXPECT_EQ(into, data);
}

TEST(Messages, UnawaitedFloodIsBoundedAndStillArrives) {
  // Beyond PointToPoint::kUnexpectedBytes first chunks stay in their slots and hold the sender
  // back.
  constexpr std::uint32_t kSlot = 1u << 20;
  World world(2, 5, {0, 2, kSlot, 1});
  world.create_all(1);
  std::vector<Bytes> data;
  for (std::uint32_t i = 0; i < 70; ++i) data.push_back(Bytes(kSlot, static_cast<std::uint8_t>(i)));
  for (std::uint32_t i = 0; i < 70; ++i) {
    world.start(0, 1, message(Collective::send, 1, i, data[i]));
  }
  world.run();
  EXPECT_GT(world.counter(1, "messages_stalled"), 0u);
  EXPECT_EQ(world.counter(1, "messages_unexpected"), 63u);
  EXPECT_FALSE(world.at(0).idle());
  for (std::uint32_t i = 0; i < 70; ++i) {
    Bytes into(kSlot);
    const OperationId recv = world.start(1, 1, message(Collective::recv, 0, i, into));
    world.run();
    ASSERT_NE(world.result(1, recv), nullptr) << i;
    ASSERT_EQ(into, data[i]);
  }
  world.expect_quiet();
}

TEST(Messages, LengthsOnly) {
  World world(2, 6, {0, 2, 64, 2}, false);
  world.create_all(1);
  Operation op;
  op.type = DataType::float32;
  op.count = 1000;
  op.tag = 5;
  op.collective = Collective::send;
  op.peer = 1;
  const OperationId send = world.start(0, 1, op);
  op.collective = Collective::recv;
  op.peer = kAnySource;
  const OperationId recv = world.start(1, 1, op);
  world.run();
  ASSERT_NE(world.result(0, send), nullptr);
  ASSERT_NE(world.result(1, recv), nullptr);
  EXPECT_EQ(world.result(1, recv)->status, OperationStatus::ok);
  EXPECT_EQ(world.counter(0, "data_bytes"), 4000u);
  world.expect_quiet();
}

}  // namespace
}  // namespace loomnet::testing
