// See teacher.hpp.
#include "transport/congestion/astraea/teacher.hpp"

#include <algorithm>
#include <cmath>

namespace loomnet::astraea {
namespace {
constexpr double kLeastTarget = 4;     // packets
constexpr double kPath_us = 30'000;
constexpr double kTargetShare = 0.05;  // of the packets on the path: 4 of 80
constexpr double kGain = 0.5;          // of the distance, per round trip
constexpr double kMostLoss = 0.02;
// Rounding makes a whole packet of any step: half a packet from the target the window stays.
constexpr double kStill = 0.5;
}  // namespace

double teacher_action(const Measured& m, const Range& range, double interval_us, double alpha) {
  if (m.loss_Bps > kMostLoss * m.avg_thr_Bps) return -1;
  if (m.avg_urtt_us <= 0 || range.min_rtt_us <= 0 || m.cwnd <= 0) return 0;
  // The flow's share of the path in packets: what of its window is not in the queue.
  const double queue = queue_packets(m, range), path = m.cwnd - queue;
  const double share = kTargetShare * path;
  const double at_30_ms = share * kPath_us / range.min_rtt_us;
  const double target = std::max(kLeastTarget, std::sqrt(kLeastTarget * at_30_ms));
  const double empty = std::max(0.0, 1 - 2 * queue / target);  // 1: no queue, 0: half of the target
  const double distance = target - queue + empty * std::max(0.0, share - target);
  if (std::fabs(distance) < kStill) return 0;
  // An interval longer than a round trip makes good no more than a round trip does.
  const double step = kGain * std::min(interval_us / m.avg_urtt_us, 1.0) * distance;
  return std::clamp(step / (alpha * m.cwnd), -1.0, 1.0);
}

}  // namespace loomnet::astraea
