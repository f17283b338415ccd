// Astraea's reward, one number for all flows of a bottleneck, and the global state that the critic sees in
// training. Liao et al., EuroSys 2024: throughput, latency, loss, fairness and stability in one sum.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

namespace loomnet::astraea {

// One flow that is present at a step.
struct FlowStep {
  std::span<const double> thr_Bps;  // throughput of its last intervals, oldest first, this one last
  double avg_urtt_us = 0;           // mean RTT of this interval; 0: no sample
  double base_rtt_us = 0;           // without any queue: d0
  double min_rtt_us = 0;            // the least that the flow has seen
  double pacing_Bps = 0;
  double loss_Bps = 0;  // dropped by queues; what links lose by themselves is no sign of congestion
  double cwnd = 0;      // packets
};

struct RewardOptions {
  double c0 = 0.1, c1 = 0.02, c2 = 1, c3 = 0.02, c4 = 0.01;
  double clip = 0.1;
  double beta = 0.5;                    // round trips up to (1 + beta) d0 cost nothing
  std::optional<double> lat_cap = 5;    // on R_lat; none: as published
  std::size_t window = 5;               // intervals that fairness and stability look back
  bool observed_base = false;           // d0 is min_rtt_us, which queues of others raise
};

struct Reward {
  double thr = 0, lat = 0, loss = 0, fair = 0, stab = 0;  // R_thr … R_stab; lat after its cap
  double raw = 0, clipped = 0;
};

// `capacity_Bps`: of the bottleneck. Without flows all is 0. Throws std::invalid_argument for a capacity
// that is not above 0, or a window of 0.
Reward reward(std::span<const FlowStep> flows, double capacity_Bps, const RewardOptions& options = {});

struct Bottleneck {
  double capacity_Bps = 0, buffer_bytes = 0;
  bool buffer_in_packets = false;  // value 10 counts packets of 1500 bytes, else bandwidth-delay products
};
// Sum, least and most throughput; mean RTT; least, most and mean window; loss; flows; one-way delay;
// buffer; bandwidth; each divided so that it is near 1.
inline constexpr std::size_t kGlobalValues = 12;
std::array<float, kGlobalValues> global_state(std::span<const FlowStep> flows, const Bottleneck& link);

}  // namespace loomnet::astraea
