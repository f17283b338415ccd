// Two hosts of one transport that hand packets to each other without a network between them: for what
// a transport itself allocates and asks for.
#pragma once

#include <algorithm>

#include "transport/transport.hpp"

namespace loomnet::testbed {

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

template <typename Transport>
struct BarePair {
  PacketPool pool;
  BareSink near{pool}, far{pool};
  Transport a, b;
  Picoseconds now = milliseconds(1);

  template <typename Options>
  BarePair(const Options& options, QpNumber connections) : a(near, options), b(far, options) {
    for (QpNumber q = 0; q < connections; ++q) {
      QpConfig c;
      c.local = 100 + q, c.remote = 100 + q, c.source = 0, c.destination = 1, c.planes.resize(4);
      for (PlanePaths& plane : c.planes) plane.uplinks = {0};
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
  // Carries packets both ways until there are none; where every `lost`-th is lost, until all is
  // done. Returns how many.
  std::size_t carry(std::size_t lost = 0) {
    std::size_t n = 0;
    for (;;) {
      bool moved = false;
      for (PlanePort p = 0; p < 4; ++p) {
        for (auto [from, to] : {std::pair(&a, &b), std::pair(&b, &a)}) {
          Pulled pulled = from->pull(p, kDataClass, now);
          if (!pulled.packet) continue;
          now += nanoseconds(100);
          moved = true;
          if (++n && lost && n % lost == 0) continue;
          to->on_packet(p, std::move(pulled.packet), now);
        }
      }
      if (moved) continue;
      if (lost == 0 || !a.outstanding()) return n;
      now = std::min({a.next_deadline(), b.next_deadline(), now + microseconds(10)});
      a.on_deadline(now);
      b.on_deadline(now);
    }
  }
};

}  // namespace loomnet::testbed
