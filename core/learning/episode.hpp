// A network with flows whose congestion control a learner decides for, advanced from one moment at which a flow waits
// for a decision to the next. Liao et al., "Towards Fair and Efficient Learning-based Congestion Control", EuroSys
// 2024: flows decide each by itself, at the wake-ups of one agent, and share one reward.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/network.hpp"
#include "link/queue_losses.hpp"
#include "traffic/flow_traffic.hpp"
#include "transport/congestion/astraea/reward.hpp"
#include "transport/pupil.hpp"

namespace loomnet {

// The bottleneck has another rate from then on.
struct CapacityChange {
  Picoseconds at{};
  double capacity_Bps = 0;
};

struct EpisodeOptions {
  double capacity_Bps = 0;             // of the bottleneck that the flows share, at first
  double buffer_bytes = 0;             // of its queue
  std::vector<double> base_rtt_us;     // of each flow, without any queue
  astraea::RewardOptions reward = {};
  std::vector<CapacityChange> changes = {};  // in order of time
};

class Episode {
 public:
  // Why advance() came back.
  enum class Stand : std::uint8_t {
    decision,  // a flow waits
    bound,     // the time that was given is reached
    stopped,   // all flows of a traffic have ended, or a plug-in has failed: the run's own loop must look
  };
  // What a flow has measured in its last interval, as numbers; see PupilInterval.
  enum Term : std::size_t {
    seconds,        // length of the interval
    throughput_Bps,
    rtt_us,         // 0: no sample
    least_rtt_us,
    loss_Bps,       // what the sender took for lost
    queue_loss_Bps, // what queues dropped: of what links lose by themselves the flow is not to blame
    pacing_Bps,
    window_packets,
    most_throughput_Bps,  // the largest of an interval that the flow remembers
  };
  static constexpr std::size_t kTerms = most_throughput_Bps + 1;

  // A row is a flow: those of each traffic in the order of their add(), traffic after traffic. All must outlive the
  // episode, and their flows have one round. Throws std::invalid_argument for a base RTT too few.
  Episode(Network& network, std::vector<const FlowTraffic*> traffics, EpisodeOptions options);
  ~Episode();
  Episode(const Episode&) = delete;

  std::size_t flows() const { return rows_.size(); }
  Picoseconds now() const { return network_.now(); }
  // Time passes to the next wake-up at which a flow waits, at most to `until`. Decisions that nobody made are left
  // out: the window stays. What was born and left before is forgotten.
  Stand advance(Picoseconds until);
  // Throws std::invalid_argument for an action that is not -1 to 1, std::logic_error for a flow that does not wait.
  void act(std::size_t flow, double action);

  // --- of each flow, now ------------------------------------------------------------------------
  bool present(std::size_t flow) const { return rows_.at(flow).state == State::present; }
  bool waits(std::size_t flow) const { return rows_.at(flow).waits; }
  // Since the last moment at which a flow waited.
  bool born(std::size_t flow) const { return rows_.at(flow).born; }
  bool left(std::size_t flow) const { return rows_.at(flow).left; }
  std::array<double, kTerms> terms(std::size_t flow) const { return rows_.at(flow).terms; }
  // What a policy sees; empty for a flow that is not present, or that no learner could decide for.
  std::span<const float> input(std::size_t flow) const;
  // Of all flows that are present and have measured an interval, at the bottleneck's rate of now.
  astraea::Reward reward() const { return astraea::reward(steps(), capacity_Bps(), options_.reward); }
  std::array<float, astraea::kGlobalValues> global_state() const;

 private:
  enum class State : std::uint8_t { unborn, present, over };
  struct Row {
    const FlowTraffic* traffic = nullptr;
    std::size_t flow = 0;
    State state = State::unborn;
    bool waits = false, born = false, left = false;
    Picoseconds seen{};               // end of the interval that `terms` are of
    std::uint64_t dropped = 0;        // by queues, up to then
    std::array<double, kTerms> terms{};
    std::vector<double> throughput;   // of the last intervals, oldest first
  };
  Pupil* pupil(const Row& row) const;
  void look();
  void take(Row& row, const PupilInterval& interval);
  bool somebody_waits() const;
  double capacity_Bps() const;
  std::vector<astraea::FlowStep> steps() const;

  Network& network_;
  EpisodeOptions options_;
  std::vector<Row> rows_;
  QueueLosses losses_;
  Picoseconds wake_ = kNever;  // of the flows that have been seen
  bool decided_ = false;       // advance() came back for a decision the last time
};

}  // namespace loomnet
