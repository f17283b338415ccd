// A region whose servers run ranks. The test plays the ranks, through the memory that a rank's process shares
// with the engine.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "circuits/messages.hpp"
#include "moe/rank_region.hpp"
#include "moe_bed.hpp"

namespace loomnet::testing {

inline panel::DeviceOptions dark_for(const char* profile) {
  return {.profile = panel::profile(profile), .carrier = panel::Carrier::none};
}

// The process of one rank.
class RankHand {
 public:
  struct Answered {
    std::uint32_t number;
    circuits::CircuitMap map;
  };

  RankHand(Network& network, NodeId host, std::uint32_t rank, std::uint32_t world)
      : bridge(network, host, geometry(rank, world)),
        network_(network),
        seen_(rank::Memory::attach(bridge.memory_fd())),
        marks_(seen_.ring_words(rank::kMarks), seen_.ring_entries(rank::kMarks), seen_.geometry().marks),
        notices_(seen_.ring_words(rank::kNotices), seen_.ring_entries(rank::kNotices), seen_.geometry().notices) {}

  // A part of a report, as the rank's mark has it; the engine reads it at once.
  void part(std::uint64_t value, std::span<const std::uint8_t> bytes) {
    rank::MarkEntry mark{.kind = static_cast<std::uint32_t>(rank::MarkKind::report),
                         .status = 0,
                         .at_ns = 0,
                         .value = value,
                         .a = 0,
                         .b = 0};
    std::uint64_t words[2] = {};
    std::memcpy(words, bytes.data(), std::min(bytes.size(), sizeof words));
    mark.a = words[0];
    mark.b = words[1];
    ASSERT_TRUE(marks_.push(mark));
    marks_.publish();
    bridge.poll(network_.now(), 0, 1.0);
  }
  // Sends bytes as a report; its number.
  std::uint32_t send(const std::vector<std::uint8_t>& bytes) {
    const std::uint32_t number = next_++;
    const std::span<const std::uint8_t> all(bytes);
    for (std::size_t at = 0; at < bytes.size(); at += rank::kReportPart) {
      part(rank::report_part(number, static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(bytes.size())),
           all.subspan(at));
    }
    return number;
  }
  std::uint32_t send(const circuits::DemandReport& report) { return send(report.serialize()); }

  // Answers that have come since the last call.
  std::vector<Answered> answers() {
    std::vector<Answered> found;
    std::array<rank::NoticeEntry, 64> out;
    for (std::size_t n; (n = notices_.pop(out)) != 0;) {
      for (std::size_t i = 0; i < n; ++i) take(out[i], found);
    }
    return found;
  }
  bool cut_off() const { return bridge.fault() != RankFault::none; }

  RankBridge bridge;

 private:
  static rank::Geometry geometry(std::uint32_t rank, std::uint32_t world) {
    rank::Geometry g;
    g.rank = rank;
    g.world = world;
    g.notices = 1024;
    g.staging_bytes = 8192;
    return g;
  }
  void take(const rank::NoticeEntry& notice, std::vector<Answered>& found) {
    if (notice.kind != static_cast<std::uint32_t>(rank::NoticeKind::answer)) return;
    if (notice.reserved == 1 && left_ == 0) {
      left_ = notice.reason;
      bytes_.clear();
      return;
    }
    const std::uint32_t words[2] = {notice.reason, notice.reserved};
    std::array<std::uint8_t, sizeof words> part;
    std::memcpy(part.data(), words, sizeof words);
    const std::size_t length = std::min<std::size_t>(left_, part.size());
    bytes_.insert(bytes_.end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(length));
    left_ -= length;
    if (left_ > 0) return;
    const auto map = circuits::CircuitMap::parse(bytes_);
    ASSERT_TRUE(map);
    found.push_back({notice.peer, *map});
  }

  Network& network_;
  rank::Memory seen_;
  rank::RingProducer<rank::MarkEntry> marks_;
  rank::RingConsumer<rank::NoticeEntry> notices_;
  std::uint32_t next_ = 1;
  std::vector<std::uint8_t> bytes_;  // of the answer that is coming
  std::size_t left_ = 0;
};

// Pairs of servers whose ranks exchange 1,000 tokens each; ranks of other pairs exchange one.
using Hot = std::vector<circuits::ServerPair>;

// Servers with `per` ranks each. Without use_circuits() the region has none.
struct RegionBed : MoeBed {
  static constexpr std::uint16_t kRegion = 3;
  static constexpr Picoseconds kCrossing = microseconds(2);  // the longest that a packet is on a circuit
  std::uint32_t per;
  std::vector<std::unique_ptr<RankHand>> hands;
  std::unique_ptr<moe::RankRegion> region;

  RegionBed(std::uint32_t servers, std::uint32_t alpha, const char* profile, moe::RankRegionOptions options = {},
            std::uint32_t per = 2, bool packets = false, Picoseconds fibre = {})
      : MoeBed(servers, alpha, dark_for(profile), packets, 5, fibre), per(per) {
    const std::uint32_t world = servers * per;
    std::vector<RankBridge*> ranks;
    options.region = kRegion;
    options.server_of.clear();
    for (std::uint32_t rank = 0; rank < world; ++rank) {
      hands.push_back(std::make_unique<RankHand>(network, rank / per, rank, world));
      ranks.push_back(&hands.back()->bridge);
      options.server_of.push_back(rank / per);
    }
    region = std::make_unique<moe::RankRegion>(network, options, std::move(ranks));
  }

  void use_circuits(circuits::RegionOptions options = {}, std::vector<moe::LightQueuePair> pairs = {}) {
    options.servers = servers;
    options.alpha = alpha;
    std::vector<moe::NicPort> nics;
    for (std::uint32_t p = 0; p < servers * alpha; ++p) {
      nics.push_back({p / alpha, static_cast<PlanePort>(1 + p % alpha)});
    }
    region->use_circuits(panel, options, std::move(nics), std::move(pairs), kCrossing);
  }

  circuits::DemandReport row(std::uint32_t source, std::uint16_t layer, std::uint32_t iteration = 0,
                             std::uint8_t phase = 0, const Hot& hot = {}) const {
    circuits::DemandReport report{.phase = phase,
                                  .layer = layer,
                                  .iteration = iteration,
                                  .micro_batch = 0,
                                  .region = kRegion,
                                  .source = static_cast<std::uint16_t>(source),
                                  .token_bytes = 2,
                                  .tokens = {}};
    for (std::uint32_t to = 0; to < hands.size(); ++to) {
      const std::uint32_t here = source / per, there = to / per;
      const circuits::ServerPair pair{std::min(here, there), std::max(here, there)};
      const bool is_hot = std::ranges::find(hot, pair) != hot.end();
      report.tokens.push_back(is_hot ? 1000 : 1);
    }
    return report;
  }
  // All ranks report at the network's time.
  void report(std::uint16_t layer, std::uint32_t iteration = 0, std::uint8_t phase = 0, const Hot& hot = {}) {
    for (std::uint32_t rank = 0; rank < hands.size(); ++rank)
      hands[rank]->send(row(rank, layer, iteration, phase, hot));
  }
  void wait(Picoseconds time) { network.run_until(network.now() + time); }
  // The answer that every rank has had, the same for all, since the last call.
  circuits::CircuitMap answer() {
    circuits::CircuitMap map;
    for (std::size_t rank = 0; rank < hands.size(); ++rank) {
      const auto found = hands[rank]->answers();
      EXPECT_EQ(found.size(), 1u) << "rank " << rank;
      if (found.empty()) continue;
      if (rank == 0) map = found[0].map;
      EXPECT_EQ(found[0].map, map) << "rank " << rank;
    }
    return map;
  }
  bool silent() {
    return std::ranges::all_of(hands, [](auto& each) { return each->answers().empty(); });
  }
  moe::RegionDriver& driver() { return *region->driver(); }
};

// Servers that the circuits of an answer join.
inline Hot joined(const circuits::CircuitMap& map) {
  Hot found;
  for (const circuits::MappedCircuit& each : map.circuits) found.emplace_back(each.i, each.j);
  std::ranges::sort(found);
  return found;
}

}  // namespace loomnet::testing
