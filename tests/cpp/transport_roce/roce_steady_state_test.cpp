// RoCE in the steady state: no allocation per packet, and deadlines cheap with many queue pairs.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "transport/roce/roce_transport.hpp"

namespace {
std::size_t g_allocations = 0;
}
void* operator new(std::size_t size) {
  ++g_allocations;
  if (void* p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace loomnet {
namespace {

struct BareSink final : TransportSink {
  PacketPool& pool;
  std::uint64_t placed = 0, completed = 0, arrivals = 0;
  explicit BareSink(PacketPool& p) : pool(p) {}
  PacketPtr allocate() override { return pool.allocate(); }
  bool place(QpNumber, std::uint32_t, std::uint64_t, const Payload& payload) override {
    placed += payload.length;
    return true;
  }
  void complete(const Completion&) override { ++completed; }
  void arrived(const Arrival&) override { ++arrivals; }
  void event(const TransportEvent&) override {}
  void port_ready(PlanePort) override {}
};

struct Pair {
  PacketPool pool;
  BareSink near{pool}, far{pool};
  RoceTransport a{near}, b{far};
  Picoseconds now{};

  explicit Pair(QpNumber queue_pairs) {
    for (QpNumber q = 0; q < queue_pairs; ++q) {
      QpConfig c;
      c.local = 100 + q, c.remote = 100 + q, c.source = 0, c.destination = 1, c.planes.resize(4);
      a.connect(c, now);
      c.source = 1, c.destination = 0;
      b.connect(c, now);
    }
  }
  void post(QpNumber q, std::uint32_t length) {
    WorkRequest w;
    w.length = length, w.opcode = Opcode::write_with_immediate;
    a.on_post(100 + q, w, now);
  }
  // Carries packets both ways until there are none; returns how many.
  std::size_t carry() {
    std::size_t n = 0;
    for (bool moved = true; moved;) {
      moved = false;
      for (PlanePort p = 0; p < 4; ++p) {
        for (auto [from, to] : {std::pair(&a, &b), std::pair(&b, &a)}) {
          Pulled pulled = from->pull(p, kDataClass, now);
          if (!pulled.packet) continue;
          now += nanoseconds(100);
          to->on_packet(p, std::move(pulled.packet), now);
          moved = true;
          ++n;
        }
      }
    }
    return n;
  }
};

TEST(RoceSteadyState, NothingIsAllocatedPerPacket) {
  Pair pair(16);
  const auto round = [&] {
    for (QpNumber q = 0; q < 16; ++q) {
      for (int i = 0; i < 4; ++i) pair.post(q, 50'000);
    }
    return pair.carry();
  };
  round();
  const std::size_t before = g_allocations;
  std::size_t packets = 0;
  for (int i = 0; i < 20; ++i) packets += round();
  EXPECT_EQ(g_allocations, before);
  EXPECT_GT(packets, 20u * 16 * 4 * 25);
  EXPECT_EQ(pair.near.completed, 21u * 64);
  EXPECT_EQ(pair.far.arrivals, 21u * 64);
  EXPECT_EQ(pair.far.placed, 21u * 64 * 50'000);
  EXPECT_EQ(pair.pool.outstanding(), 0u);
}

// Timers that were stopped or extended cost one look each when their old time comes, no more.
TEST(RoceSteadyState, ManyQueuePairsLeaveOneDeadlineEach) {
  Pair pair(500);
  for (int i = 0; i < 10; ++i) {
    for (QpNumber q = 0; q < 500; ++q) pair.post(q, 4096);
    pair.carry();
  }
  ASSERT_FALSE(pair.a.outstanding());
  std::size_t looks = 0;
  while (pair.a.next_deadline() != kNever) {
    pair.now = std::max(pair.now, pair.a.next_deadline());
    pair.a.on_deadline(pair.now);
    ++looks;
  }
  EXPECT_LE(looks, 500u * 4);
  std::vector<TransportCounter> counters;
  pair.a.counters(counters);
  for (const auto& c : counters) {
    if (c.name == "timeouts") {
      EXPECT_EQ(c.value, 0u);
    }
  }
}

}  // namespace
}  // namespace loomnet
