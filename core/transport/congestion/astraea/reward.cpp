// The terms by their formulas; see reward.hpp.
#include "transport/congestion/astraea/reward.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace loomnet::astraea {
namespace {

constexpr double kPacketBytes = 1460;  // of the published R_lat
constexpr double kBufferPacket = 1500;

double now_of(const FlowStep& flow) { return flow.thr_Bps.empty() ? 0 : flow.thr_Bps.back(); }

std::span<const double> recent(const FlowStep& flow, std::size_t window) {
  return flow.thr_Bps.last(std::min(window, flow.thr_Bps.size()));
}

double mean_of(std::span<const double> values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

double latency(std::span<const FlowStep> flows, const RewardOptions& o) {
  double over = 0, pacing = 0;
  std::size_t sampled = 0;
  for (const FlowStep& f : flows) {
    pacing += f.pacing_Bps / kPacketBytes;
    if (f.avg_urtt_us <= 0) continue;
    ++sampled;
    over += f.avg_urtt_us - (1 + o.beta) * (o.observed_base ? f.min_rtt_us : f.base_rtt_us);
  }
  if (sampled == 0) return 0;
  // The threshold is taken of the mean, not of each flow.
  const double seconds = std::max(over / static_cast<double>(sampled), 0.0) / 1e6;
  const double r = seconds * pacing / static_cast<double>(flows.size());
  return o.lat_cap ? std::min(r, *o.lat_cap) : r;
}

double unfairness(std::span<const FlowStep> flows, std::size_t window) {
  const auto n = static_cast<double>(flows.size());
  double sum = 0, squares = 0;
  for (const FlowStep& f : flows) sum += mean_of(recent(f, window));
  if (flows.size() < 2 || sum <= 0) return 0;
  for (const FlowStep& f : flows) {
    const double apart = mean_of(recent(f, window)) - sum / n;
    squares += apart * apart;
  }
  return std::sqrt(squares / (n * sum * sum));
}

double instability(const FlowStep& flow, std::size_t window) {
  const auto values = recent(flow, window);
  const double mean = mean_of(values);
  if (mean <= 0) return 0;
  double squares = 0;
  for (const double v : values) squares += (v - mean) * (v - mean);
  return std::sqrt(squares / (static_cast<double>(values.size()) * mean * mean));
}

}  // namespace

Reward reward(std::span<const FlowStep> flows, double capacity_Bps, const RewardOptions& o) {
  if (!(capacity_Bps > 0)) throw std::invalid_argument("reward: capacity: give bytes per second above 0");
  if (o.window == 0) throw std::invalid_argument("reward: window: give at least 1 interval");
  Reward r;
  if (flows.empty()) return r;
  for (const FlowStep& f : flows) {
    const double thr = now_of(f);
    r.thr += thr / capacity_Bps;
    r.loss += thr > 0 ? f.loss_Bps / thr : 0;
    r.stab += instability(f, o.window);
  }
  r.loss /= static_cast<double>(flows.size());
  r.stab /= static_cast<double>(flows.size());
  r.lat = latency(flows, o);
  r.fair = unfairness(flows, o.window);
  r.raw = o.c0 * r.thr - o.c1 * r.lat - o.c2 * r.loss - o.c3 * r.fair - o.c4 * r.stab;
  r.clipped = std::clamp(r.raw, -o.clip, o.clip);
  return r;
}

std::array<float, kGlobalValues> global_state(std::span<const FlowStep> flows, const Bottleneck& link) {
  std::array<float, kGlobalValues> out{};
  if (flows.empty()) return out;
  double thr = 0, least_thr = now_of(flows[0]), most_thr = 0, rtt = 0, cwnd = 0, least_cwnd = flows[0].cwnd,
         most_cwnd = 0, loss = 0, base = 0;
  for (const FlowStep& f : flows) {
    thr += now_of(f);
    least_thr = std::min(least_thr, now_of(f));
    most_thr = std::max(most_thr, now_of(f));
    rtt += f.avg_urtt_us;
    cwnd += f.cwnd;
    least_cwnd = std::min(least_cwnd, f.cwnd);
    most_cwnd = std::max(most_cwnd, f.cwnd);
    loss += f.loss_Bps;
    base += f.base_rtt_us;
  }
  const auto n = static_cast<double>(flows.size());
  const double product = link.capacity_Bps * base / n / 1e6;  // bandwidth-delay, of the mean base RTT
  const double unit = link.buffer_in_packets ? kBufferPacket : product;
  const double values[kGlobalValues] = {thr / 5e7,
                                        least_thr / 5e7,
                                        most_thr / 5e7,
                                        rtt / n / 5e5,
                                        least_cwnd / 1000,
                                        most_cwnd / 1000,
                                        cwnd / n / 1000,
                                        loss / n / 1e6,
                                        n / 10,
                                        base / n / 2e3 / 500,
                                        unit > 0 ? link.buffer_bytes / unit / 10 : 0,
                                        link.capacity_Bps * 8 / 1e6 / 500};
  for (std::size_t i = 0; i < kGlobalValues; ++i) out[i] = static_cast<float>(values[i]);
  return out;
}

}  // namespace loomnet::astraea
