// See teacher.hpp.
#include "transport/congestion/astraea/teacher.hpp"

#include <algorithm>
#include <cmath>

namespace loomnet::astraea {
namespace {
constexpr double kLeastTarget = 4;   // packets
constexpr double kTargetShare = 0.05;  // of the bandwidth-delay product
constexpr double kGain = 0.5;        // of the distance, per round trip
constexpr double kMostLoss = 0.02;
constexpr double kStill = 0.5;       // packets: a smaller step is none, since rounding makes it a whole one
}  // namespace

double teacher_action(const Measured& m, const Range& range, double interval_us, double alpha) {
  if (m.loss_Bps > kMostLoss * m.avg_thr_Bps) return -1;
  if (m.avg_urtt_us <= 0 || range.min_rtt_us <= 0 || m.cwnd <= 0) return 0;
  // What is not in the queue is on the path: the product of the flow's own share.
  const double queue = queue_packets(m, range), product = m.cwnd - queue;
  const double target = std::max(kLeastTarget, kTargetShare * product);
  // An interval longer than a round trip makes good no more than a round trip does.
  const double share = std::min(interval_us / m.avg_urtt_us, 1.0);
  const double step = kGain * share * (target - queue);  // packets
  if (std::fabs(step) < kStill * share) return 0;
  return std::clamp(step / (alpha * m.cwnd), -1.0, 1.0);
}

}  // namespace loomnet::astraea
