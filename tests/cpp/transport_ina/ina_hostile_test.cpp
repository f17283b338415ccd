// Packets of any content, between those of a job under way: no state machine leaves its bounds, and what it
// holds stays consistent. Sums are not asked for: a packet that could be a worker's is taken for one.
#include "clock/random.hpp"
#include "transport/ina/parameter_server.hpp"
#include "transport/ina/switchml_worker.hpp"
#include "transport/ina/worker.hpp"
#include "transport_ina/ina_script.hpp"

namespace loomnet::ina::test {
namespace {

// A header with some fields right, some near what is right and some of any value.
aggregate_header any_header(RandomStream& random, const InaOptions& o, Sequence about) {
  aggregate_header h = header(random.below(8), about + random.below(40) - 20, random() & 7, o.scheme);
  if (random.below(8) == 0) {
    std::uint8_t bytes[sizeof h];
    std::memcpy(bytes, &h, sizeof h);
    bytes[random.below(sizeof h)] = static_cast<std::uint8_t>(random());
    std::memcpy(&h, bytes, sizeof h);
  }
  if (random.below(4) == 0) h.flags = static_cast<std::uint8_t>(random());
  if (h.flags & AGGREGATE_BOOT && random.below(2)) h.values = 0;
  if (random.below(4) == 0) h.sequence = static_cast<std::uint32_t>(random());
  if (random.below(4) == 0) h.next_index = static_cast<std::uint16_t>(random());
  if (random.below(4) == 0) h.time = static_cast<std::uint32_t>(random());
  return h;
}

template <typename Host>
void play(Host& host, const InaOptions& o, RandomStream& random, Picoseconds now) {
  static const auto values = values_of(5);
  const Sequence base = host.base();
  host.on_packet(any_header(random, o, base), Bytes(values).first(random.below(4) ? 256 : random.below(257)), now);
  EXPECT_GE(host.base(), base);
  if (random.below(8) == 0) host.on_deadline(now);
  for (int i = 0; i < 64; ++i) {
    const auto out = host.pull(now);
    if (!out) return;
    EXPECT_LE(out->values.size(), 4 * std::size_t{out->wire_values});
    EXPECT_LE(out->wire_values, o.values);
  }
  EXPECT_FALSE(host.pull(now)) << "packets without end";
}

TEST(InaHostile, AnyPacketsLeaveHostsWithinTheirBounds) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    RandomStream random(seed, 0, 0xbad);
    InaOptions o = small(static_cast<aggregate_scheme>(random.below(3)), 1 + random.below(9));
    o.index_policy = static_cast<IndexPolicy>(random.below(3));
    o.components = random.below(2);
    o.saturate = random.below(2);
    if (o.scheme == AGGREGATE_ESA && o.index_policy != IndexPolicy::rehash && random.below(2)) {
      o.result_path = ResultPath::root;
    }
    if (o.scheme != AGGREGATE_SWITCHML && random.below(2)) o.first_sequence = (std::int64_t{1} << 32) - 30;
    const auto values = values_of(5);
    Contribution part;
    part.values = values;
    std::optional<Worker> worker;
    std::optional<SwitchMlWorker> switchml;
    std::optional<ParameterServer> server;
    if (o.scheme == AGGREGATE_SWITCHML)
      switchml.emplace(o, job1(), 0);
    else
      worker.emplace(o, job1(), 0, seed), server.emplace(o, job1());
    Picoseconds now{};
    for (int step = 0; step < 3000; ++step) {
      now += microseconds(random.below(100));
      if (switchml) {
        while (switchml->room()) switchml->submit(part);
        play(*switchml, o, random, now);
        continue;
      }
      while (worker->room()) worker->submit(part);
      play(*worker, o, random, now);
      EXPECT_LE(worker->next() - worker->base(), o.window);
      EXPECT_LE(worker->keeps_from(), worker->base());
      const Sequence highest = server->highest();
      play(*server, o, random, now);
      EXPECT_GE(server->highest(), highest);
      EXPECT_GT(server->base(), server->highest() - 2 * Sequence{o.window});
      std::uint64_t all = 0;
      for (const auto& held : server->parts(server->highest())) {
        EXPECT_EQ(all & held.workers, 0u);
        all |= held.workers;
      }
      EXPECT_EQ(all & ~7ull, 0u);
      EXPECT_LE(server->buffers(), 2 * o.window * 3 + 16);
    }
  }
}

}  // namespace
}  // namespace loomnet::ina::test
