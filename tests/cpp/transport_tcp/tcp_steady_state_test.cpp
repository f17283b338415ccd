// TCP in the steady state: no allocation per packet, and little memory per idle connection.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "transport/tcp/tcp_transport.hpp"

namespace {
std::size_t g_allocations = 0, g_bytes = 0;
}
// Not inlined: the compiler would pair malloc with delete and warn.
[[gnu::noinline]] void* operator new(std::size_t size) {
  ++g_allocations;
  g_bytes += size;
  if (void* p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace loomnet::tcp {
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
  TcpTransport a, b;
  Picoseconds now = milliseconds(1);

  Pair(const std::string& control, QpNumber connections)
      : a(near, options(control)), b(far, options(control)) {
    for (QpNumber q = 0; q < connections; ++q) {
      QpConfig c;
      c.local = 100 + q, c.remote = 100 + q, c.source = 0, c.destination = 1, c.planes.resize(4);
      a.connect(c, now);
      c.source = 1, c.destination = 0;
      b.connect(c, now);
    }
  }
  static TcpOptions options(const std::string& control) {
    TcpOptions o;
    o.congestion_control = control;
    return o;
  }
  // Carries packets both ways until all is done, losing every 50th; returns how many.
  std::size_t carry() {
    std::size_t n = 0;
    while (a.outstanding()) {
      bool moved = false;
      for (PlanePort p = 0; p < 4; ++p) {
        for (auto [from, to] : {std::pair(&a, &b), std::pair(&b, &a)}) {
          Pulled pulled = from->pull(p, kDataClass, now);
          if (!pulled.packet) continue;
          now += nanoseconds(100);
          moved = true;
          if (++n % 50 == 0) continue;
          to->on_packet(p, std::move(pulled.packet), now);
        }
      }
      if (moved) continue;
      now = std::min({a.next_deadline(), b.next_deadline(), now + microseconds(10)});
      a.on_deadline(now);
      b.on_deadline(now);
    }
    return n;
  }
};

class SteadyState : public ::testing::TestWithParam<const char*> {};

TEST_P(SteadyState, NothingIsAllocatedPerPacket) {
  Pair pair(GetParam(), 16);
  const auto round = [&] {
    for (QpNumber q = 0; q < 16; ++q) {
      for (int i = 0; i < 4; ++i) {
        WorkRequest w;
        w.length = 50'000, w.opcode = Opcode::write_with_immediate;
        pair.a.on_post(100 + q, w, pair.now);
      }
    }
    return pair.carry();
  };
  for (int i = 0; i < 30; ++i) round();  // until every ring has seen its largest window
  const std::size_t before = g_allocations;
  std::size_t packets = 0;
  for (int i = 0; i < 20; ++i) packets += round();
  EXPECT_LE(g_allocations - before, packets / 1000) << packets;
  EXPECT_GT(packets, 20u * 16 * 4 * 35);
  EXPECT_EQ(pair.far.arrivals, 50u * 64);
  EXPECT_EQ(pair.far.placed, 50u * 64 * 50'000);
}
INSTANTIATE_TEST_SUITE_P(Controls, SteadyState, ::testing::Values("reno", "cubic", "dctcp", "bbr"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Memory, AnIdleConnectionTakesLessThanTwoKilobytes) {
  Pair small("bbr", 1);
  const std::size_t before = g_bytes;
  Pair pair("bbr", 1000);
  EXPECT_LT((g_bytes - before) / 2000, 2048u);
}

}  // namespace
}  // namespace loomnet::tcp
