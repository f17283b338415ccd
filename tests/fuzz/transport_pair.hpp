// Two hosts of one transport and a fuzzer between them: it posts, carries, bends, loses and repeats
// packets and lets time pass. Whatever comes, nothing is placed outside its region, no message
// completes twice, deadlines are served, every packet goes back to the pool.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "transport/transport.hpp"

namespace loomnet::fuzz {

inline void require(bool holds) {
  if (!holds) std::abort();
}

inline constexpr std::uint64_t kBase = 0x10000;

struct Host final : TransportSink {
  PacketPool& pool;
  std::vector<std::uint8_t> memory = std::vector<std::uint8_t>(1 << 16);
  std::uint64_t completed = 0;
  explicit Host(PacketPool& p) : pool(p) {}
  PacketPtr allocate() override { return pool.allocate(); }
  bool place(QpNumber, std::uint32_t key, std::uint64_t address, const Payload& payload) override {
    if (payload.length == 0) return true;
    if (key != 1 || address < kBase || payload.length > memory.size() ||
        address - kBase > memory.size() - payload.length) {
      return false;
    }
    if (payload.data) std::memcpy(memory.data() + (address - kBase), payload.data, payload.length);
    return true;
  }
  void complete(const Completion&) override { ++completed; }
  void arrived(const Arrival&) override {}
  void event(const TransportEvent&) override {}
  void port_ready(PlanePort) override {}
};

// Takes what the fuzzer gives, byte by byte; zeros when it has run out.
struct Input {
  const std::uint8_t* data;
  std::size_t size;
  std::uint8_t byte() {
    if (size == 0) return 0;
    --size;
    return *data++;
  }
};

// Transport(sink, options) on both sides.
template <typename Transport, typename Options>
int exchange(Input in, const Options& options) {
  PacketPool pool;
  Host near(pool), far(pool);
  const std::vector<std::uint8_t> source(255 * 16, 0xa5);
  std::uint64_t posted = 0;
  Picoseconds now{};
  {
    Transport a(near, options), b(far, options);
    QpConfig c;
    c.local = 10, c.remote = 20, c.source = 1, c.destination = 2, c.planes.resize(2);
    for (PlanePaths& plane : c.planes) plane.uplinks = {0};
    a.connect(c, now);
    std::swap(c.local, c.remote), std::swap(c.source, c.destination);
    b.connect(c, now);
    std::vector<PacketPtr> wire;  // genuine packets under way, to deliver, lose, repeat or bend
    while (in.size > 0 && posted < 200) {
      const std::uint8_t action = in.byte();
      Transport& to = action & 0x80 ? a : b;
      Transport& from = action & 0x80 ? b : a;
      const PlanePort port = action >> 6 & 1;
      now += nanoseconds(in.byte() * 50);
      switch (action & 7) {
        case 0: {
          WorkRequest w;
          w.length = in.byte() * 16u, w.remote_address = kBase + in.byte(), w.remote_key = 1;
          w.local = source.data();
          w.opcode = action & 8 ? Opcode::write : Opcode::write_with_immediate;
          from.on_post(action & 0x80 ? 20 : 10, w, now);
          ++posted;
          break;
        }
        case 1:
        case 2: {
          Pulled p = from.pull(port, kDataClass, now);
          if (p.packet) to.on_packet(port, std::move(p.packet), now);
          break;
        }
        case 3: {
          Pulled p = from.pull(port, kDataClass, now);
          if (!p.packet) break;
          for (int edits = action >> 3 & 3; edits >= 0; --edits) {
            const std::size_t at = in.byte();
            if (at < p.packet->header_length) p.packet->header[at] ^= in.byte();
          }
          if (action & 0x20) p.packet->header_length = std::min<std::uint16_t>(in.byte(), kMaxHeaderBytes);
          to.on_packet(port, std::move(p.packet), now);
          break;
        }
        case 4: {
          Pulled p = from.pull(port, kDataClass, now);
          if (p.packet && wire.size() < 64) wire.push_back(std::move(p.packet));
          break;
        }
        case 5:
          if (!wire.empty()) {
            PacketPtr copy = pool.duplicate(*wire[in.byte() % wire.size()]);
            to.on_packet(port, std::move(copy), now);
          }
          break;
        case 6: {
          PacketPtr p = pool.allocate();
          p->header_length = std::min<std::uint16_t>(in.byte(), kMaxHeaderBytes);
          for (int i = 0; i < p->header_length; ++i) p->header[i] = in.byte();
          p->wire_length = in.byte() * 16u;
          p->payload.length = in.byte() * 16u;
          to.on_packet(static_cast<PlanePort>(action >> 3 & 15), std::move(p), now);
          break;
        }
        case 7:
          if (action & 8) to.on_port(port, action & 16, now);
          now = std::max(now, std::min(to.next_deadline(), now + milliseconds(1)));
          a.on_deadline(now);
          b.on_deadline(now);
          break;
      }
      // A deadline that has passed must be served by one call.
      a.on_deadline(now);
      b.on_deadline(now);
      require(a.next_deadline() > now && b.next_deadline() > now);
    }
    require(near.completed + far.completed <= posted);
    require((near.completed + far.completed == posted) == (!a.outstanding() && !b.outstanding()));
  }
  require(pool.outstanding() == 0);
  return 0;
}

}  // namespace loomnet::fuzz
