// A region whose servers run real ranks: it takes each rank's row of a gate's counts, has the region's circuits
// patched for them, and answers when the circuits have light.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "circuits/demand.hpp"
#include "circuits/messages.hpp"
#include "engine/rank_bridge.hpp"
#include "moe/queue_pair_traffic.hpp"
#include "moe/region_driver.hpp"
#include "moe/region_work.hpp"

namespace loomnet::moe {

struct RankRegionOptions {
  std::uint16_t region = 0;
  std::vector<std::uint32_t> server_of;  // by rank of the region: its server
  Repatch repatch = Repatch::layer;
  circuits::Weighing weighing{};  // of repatch worthwhile
  FirstDispatch first_dispatch = FirstDispatch::block;  // block or reuse
  circuits::Duplex duplex = circuits::Duplex::max;
  Picoseconds latency = microseconds(10);  // time that a report takes to the controller, and its answer back
};

class RankRegion final : public RankReports, public EventHandler, private RegionDriver::Listener {
 public:
  // One all-to-all. `tokens`: of a forward dispatch, by source and destination rank; else empty.
  struct Round {
    circuits::DemandKey key;
    std::uint8_t phase = 0;
    Picoseconds asked, answered;  // when the last rank's report arrived; when the circuits had light
    std::vector<std::uint32_t> tokens;
  };

  // `ranks` are the region's, as many as server_of has entries, and must outlive this object. Throws
  // std::invalid_argument.
  RankRegion(Network& network, RankRegionOptions options, std::vector<RankBridge*> ranks);
  ~RankRegion() override;

  // The controller patches this region's circuits at `panel`; `pairs` are the queue pairs that use them. Throws
  // std::invalid_argument.
  void use_circuits(NodeId panel, const circuits::RegionOptions& options, std::vector<NicPort> nics,
                    std::vector<LightQueuePair> pairs, Picoseconds crossing);
  RegionDriver* driver() { return driver_.get(); }  // null: there are no circuits
  const std::vector<Round>& rounds() const { return rounds_; }
  std::size_t rounds_left_out() const { return left_out_; }

  bool report(std::uint32_t rank, std::uint32_t number, std::span<const std::uint8_t> bytes, Picoseconds now) override;
  void on_event(std::uint64_t what, Picoseconds now) override;

 private:
  static constexpr std::size_t kMostRounds = 1 << 18;
  static constexpr std::uint16_t kAllLayers = 0xffff;
  enum Event : std::uint64_t { kTake, kAnswer };
  struct Row {
    circuits::DemandReport report;
    std::uint32_t number = 0;
  };

  void circuits_changed(Picoseconds now) override { look(now); }
  void take(Picoseconds now);
  bool asks_by_layer() const { return options_.repatch == Repatch::layer || options_.repatch == Repatch::worthwhile; }
  void ask(const Round& round, const std::vector<std::uint64_t>& tokens, std::uint32_t token_bytes, Picoseconds now);
  bool may_answer() const;
  void look(Picoseconds now);
  void answer(Picoseconds now);
  std::vector<std::uint64_t> between(std::span<const std::uint32_t> tokens) const;
  std::uint32_t servers() const;

  Network& network_;
  RankRegionOptions options_;
  std::vector<RankBridge*> ranks_;
  ObjectId id_;
  std::vector<std::optional<Row>> rows_;  // by rank: its report, until it is answered
  std::size_t reported_ = 0;
  std::optional<Round> open_;   // reported by all ranks, not answered yet
  bool answering_ = false;      // the answer is on its way
  circuits::PortMap told_;      // circuits in the last answer
  std::uint32_t iteration_ = 0;
  bool begun_ = false;
  std::vector<std::uint64_t> sum_, last_sum_;  // demand of this iteration, and of the one before
  std::unique_ptr<QueuePairTraffic> traffic_;
  std::unique_ptr<RegionDriver> driver_;
  std::vector<Round> rounds_;
  std::size_t left_out_ = 0;
};

}  // namespace loomnet::moe
