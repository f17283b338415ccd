// A seeded storm on the test bed: loss, duplication, reordering, corruption and flaps for a while,
// with every host writing to the next. Whatever happens, each message arrives once, in order, with
// every byte right, and nothing leaks or hangs.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "testbed_writes.hpp"

namespace loomnet::testbed {

// Seeds of a slice. Under ASan each takes several times as long, so it runs the first quarter of them.
inline constexpr std::uint64_t kWholeSlice = 100;
#if defined(LOOMNET_SANITIZES_ADDRESS)
inline constexpr std::uint64_t kStormSeeds = kWholeSlice / 4;
#else
inline constexpr std::uint64_t kStormSeeds = kWholeSlice;
#endif

// What storms did: one that tests nothing must not pass for one. A transport's test adds what it
// repaired. Only a whole slice is held to it: rare events are too few in the quarter that ASan runs.
struct StormTally {
  std::uint64_t lost = 0, duplicated = 0, corrupted = 0, delayed = 0, overflowed = 0, flaps = 0;
  using Row = std::pair<const char*, std::uint64_t>;

  void expect_seen(std::vector<Row> repaired) const {
    if (kStormSeeds < kWholeSlice) return;
    const Row did[] = {{"lost", lost},       {"duplicated", duplicated}, {"corrupted", corrupted},
                       {"delayed", delayed}, {"overflowed", overflowed}, {"flaps", flaps}};
    repaired.insert(repaired.begin(), std::begin(did), std::end(did));
    for (auto [what, n] : repaired) {
      EXPECT_GE(n, 20u) << "a slice of storms almost without " << what;
    }
  }
};

class Storm {
 public:
  // Draws the faults of every pipe and the messages. `bed` has `options`; where a pipe's data queue
  // is limited, to `queue_limit` bytes.
  Storm(Testbed& bed, const BedOptions& options, std::uint64_t queue_limit, RandomStream& random)
      : bed_(bed), options_(options) {
    draw_faults(queue_limit, random);
    draw_messages(random);
  }

  // Plays it, and what must hold does: `repair` after the storm all has arrived, and what was made
  // but not sent has left `rest` later. The caller looks for fatal failures.
  void play(Picoseconds repair, Picoseconds rest) {
    const std::uint64_t seed = options_.seed;
    ASSERT_TRUE(bed_.run_until_idle(kEnds + repair)) << "hangs\n" << bed_;
    bed_.run_until(bed_.now() + rest);
    for (auto& flow : flows_) {
      std::uint64_t immediates = 0;
      for (const Flow::Sent& s : flow->sent) immediates += s.immediate.has_value();
      std::size_t i = 0;
      for (const Done& d : bed_.nic(flow->from).completions) {
        if (d.completion.qp != flow->qp) continue;
        ASSERT_LT(i, flow->sent.size());
        ASSERT_EQ(d.completion.id, flow->sent[i].id) << "seed " << seed << "\n" << bed_;
        ASSERT_EQ(d.completion.status, Status::ok) << "seed " << seed << "\n" << bed_;
        ++i;
      }
      ASSERT_EQ(i, flow->sent.size()) << "seed " << seed << "\n" << bed_;
      ASSERT_EQ(bed_.nic(flow->to).arrivals.size(), immediates) << "seed " << seed << "\n" << bed_;
      ASSERT_EQ(std::memcmp(flow->source.data(), flow->target->bytes.data(), flow->filled), 0);
      ASSERT_EQ(bed_.nic(flow->to).placed_bytes, flow->filled) << "a byte placed twice, seed " << seed;
    }
    ASSERT_EQ(bed_.leaked(), 0u) << "seed " << seed << "\n" << bed_;
  }

  void add_to(StormTally& tally) const {
    tally.flaps += flaps_;
    for (const Pipe* pipe : pipes_) {
      tally.lost += pipe->lost, tally.duplicated += pipe->duplicated;
      tally.corrupted += pipe->corrupted, tally.delayed += pipe->delayed;
      tally.overflowed += pipe->overflowed;
    }
  }

 private:
  static constexpr Picoseconds kEnds = milliseconds(3);

  struct Flow {
    HostId from, to;
    QpNumber qp;
    std::vector<std::uint8_t> source;
    Region* target;
    struct Sent {
      std::uint64_t id;
      std::size_t offset, length;
      std::optional<std::uint32_t> immediate;
    };
    std::vector<Sent> sent;
    std::size_t filled = 0, arrived = 0;
  };

  void draw_faults(std::uint64_t queue_limit, RandomStream& random) {
    for (HostId h = 0; h < options_.hosts; ++h) {
      for (std::size_t p = 0; p < options_.planes; ++p) {
        for (Pipe* pipe : {&bed_.up(h, p), &bed_.down(h, p)}) {
          pipes_.push_back(pipe);
          pipe->loss = random.below(3) ? 0 : random.uniform() * 0.05;
          pipe->duplication = random.below(3) ? 0 : random.uniform() * 0.1;
          pipe->corruption = random.below(3) ? 0 : random.uniform() * 0.02;
          pipe->reorder = random.below(3) ? 0 : random.uniform() * 0.2;
          pipe->jitter = microseconds(1 + random.below(40));
          pipe->queue_limit = random.below(3) ? 0 : queue_limit;
        }
        if (random.below(3) == 0) {
          ++flaps_;
          const auto port = static_cast<PlanePort>(p);
          const Picoseconds down = kEnds.scaled(random.uniform() * 0.8);
          bed_.at(down, [this, h, port] { bed_.set_link(h, port, false); });
          bed_.at(down + (kEnds - down).scaled(random.uniform()), [this, h, port] { bed_.set_link(h, port, true); });
        }
      }
    }
    bed_.at(kEnds, [this] {
      for (Pipe* pipe : pipes_) {
        pipe->loss = pipe->duplication = pipe->corruption = pipe->reorder = 0;
        pipe->queue_limit = 0;
      }
    });
  }

  void draw_messages(RandomStream& random) {
    for (HostId from = 0; from < options_.hosts; ++from) {
      const HostId to = (from + 1) % static_cast<HostId>(options_.hosts);
      const QpNumber qp = 100 + from;
      bed_.connect(from, qp, to, qp + 100);
      auto flow = std::make_unique<Flow>(Flow{from, to, qp, {}, nullptr, {}});
      flow->source.resize(300'000);
      for (auto& b : flow->source) b = static_cast<std::uint8_t>(random() | 1);
      flow->target = &bed_.nic(to).add_region(kKey + from, kBase, flow->source.size());
      flows_.push_back(std::move(flow));
    }
    for (auto& flow : flows_) {
      Flow* f = flow.get();
      const int messages = 3 + static_cast<int>(random.below(20));
      for (int m = 0; m < messages; ++m) {
        const std::size_t length = random.below(8) == 0 ? 0 : random.below(random.below(2) ? 400 : 15'000);
        const auto immediate = random.below(2) ? std::optional<std::uint32_t>(m) : std::nullopt;
        const Picoseconds when = kEnds.scaled(random.uniform());
        bed_.at(when, [this, f, length, immediate] { write(*f, length, immediate); });
      }
      bed_.nic(f->to).on_arrival = [this, f](const Arrival& a) { check(*f, a); };
    }
  }

  void write(Flow& flow, std::size_t length, std::optional<std::uint32_t> immediate) {
    if (flow.filled + length > flow.source.size()) return;
    const std::size_t offset = flow.filled;
    flow.filled += length;
    const auto id = bed_.post_write(flow.from, flow.qp, std::span(flow.source).subspan(offset, length), kBase + offset,
                                    kKey + flow.from, immediate);
    flow.sent.push_back({id, offset, length, immediate});
  }

  void check(Flow& flow, const Arrival& a) {
    const std::uint64_t seed = options_.seed;
    while (flow.arrived < flow.sent.size() && !flow.sent[flow.arrived].immediate) ++flow.arrived;
    ASSERT_LT(flow.arrived, flow.sent.size()) << "seed " << seed << ": an immediate too many\n" << bed_;
    const Flow::Sent& s = flow.sent[flow.arrived++];
    ASSERT_EQ(a.immediate, *s.immediate) << "seed " << seed << "\n" << bed_;
    ASSERT_EQ(a.length, s.length) << "seed " << seed;
    ASSERT_EQ(a.address, kBase + s.offset) << "seed " << seed;
    // It and everything posted before it is in place.
    ASSERT_EQ(std::memcmp(flow.source.data(), flow.target->bytes.data(), s.offset + s.length), 0)
        << "seed " << seed << "\n"
        << bed_;
  }

  Testbed& bed_;
  BedOptions options_;
  std::vector<Pipe*> pipes_;
  std::vector<std::unique_ptr<Flow>> flows_;
  std::uint64_t flaps_ = 0;
};

}  // namespace loomnet::testbed
