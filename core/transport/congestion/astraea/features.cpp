// The formulas of the features; see features.hpp. Liao et al., EuroSys 2024.
#include "transport/congestion/astraea/features.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "transport/congestion/astraea/arithmetic.hpp"

namespace loomnet::astraea {
namespace {

constexpr double kMost = 2;  // ratios above it say nothing more
constexpr double kMostAurora = 10, kLeastSlope = -1;  // of aurora3, which tells long queues apart
constexpr double kPacketBytes = 1460;  // of the published feature, whatever the flow's packets are

double latency_ratio(double rtt_us, const Range& range) {
  if (rtt_us <= 0) return kMost;  // no sample: as bad as can be
  return range.min_rtt_us > 0 ? std::min(rtt_us / range.min_rtt_us, kMost) : 0;
}

// 0.8 times the window over the flow's bandwidth-delay product: the published formula has bits above and
// bytes below, and a divisor of 10.
double relative_window(const Measured& m, const Range& range) {
  if (range.max_tput_Bps <= 0 || range.min_rtt_us <= 0) return 0;
  const double bits = m.cwnd * kPacketBytes * 8;
  return std::min(bits / (range.min_rtt_us / 1e6) / range.max_tput_Bps / 10, kMost);
}

// Jay et al., "A Deep Reinforcement Learning Perspective on Internet Congestion Control", ICML 2019, section 4.1:
// the derivative of the latency over time; the interval's mean latency over the least one, which there is the
// least mean of an interval and here the least round trip that the flow remembers; bytes sent over bytes
// acknowledged. They are 0, 1 and 1 where nothing was measured.
std::array<double, 3> aurora(const Measured& m, const Range& range) {
  const bool timed = m.avg_urtt_us > 0 && range.min_rtt_us > 0;
  const double sent = m.delivered_bytes > 0 ? m.sent_bytes / m.delivered_bytes : m.sent_bytes > 0 ? kMostAurora : 1;
  return {std::clamp(m.rtt_slope, kLeastSlope, kMostAurora),
          timed ? std::min(m.avg_urtt_us / range.min_rtt_us, kMostAurora) : 1, std::min(sent, kMostAurora)};
}

}  // namespace

std::string_view to_string(FeatureSet set) {
  switch (set) {
    case FeatureSet::astraea10:
      return "astraea10";
    case FeatureSet::ours11:
      return "ours11";
    case FeatureSet::rel8:
      return "rel8";
    case FeatureSet::aurora3:
      return "aurora3";
  }
  return "unknown";
}

std::string names_of_sets() {
  std::string names;
  for (const FeatureSet set : kFeatureSets) names.append(names.empty() ? "" : ", ").append(to_string(set));
  return names;
}

std::size_t features_of(FeatureSet set) {
  switch (set) {
    case FeatureSet::astraea10:
      return 10;
    case FeatureSet::ours11:
      return 11;
    case FeatureSet::rel8:
      return 8;
    case FeatureSet::aurora3:
      return 3;
  }
  return 0;
}

double queue_packets(const Measured& m, const Range& range) {
  if (m.avg_urtt_us <= 0) return 0;
  return std::max(0.0, m.cwnd * (1 - range.min_rtt_us / m.avg_urtt_us));
}

void frame(FeatureSet set, const Measured& m, const Range& range, std::span<float> out) {
  if (set == FeatureSet::aurora3) {
    std::ranges::transform(aurora(m, range), out.begin(), [](double value) { return static_cast<float>(value); });
    return;
  }
  const double max = range.max_tput_Bps, min = range.min_rtt_us;
  const auto of_max = [&](double rate) { return max > 0 ? rate / max : 0; };
  const auto of_window = [&](double packets) { return m.cwnd > 0 ? packets / m.cwnd : 0; };
  const double throughput = m.avg_thr_Bps > 0 ? of_max(m.avg_thr_Bps) : 0.5;
  std::size_t at = 0;
  const auto put = [&](double value) { out[at++] = static_cast<float>(value); };
  put(throughput);
  put(latency_ratio(m.avg_urtt_us, range));
  put(latency_ratio(m.srtt_x8_us / 8, range));
  put(relative_window(m, range));
  if (set == FeatureSet::astraea10) {
    put(max / 1e7);
    put(min / 5e5);
  } else if (set == FeatureSet::ours11) {
    put(log2(1 + max / 1e5) / 12);
    put(log2(1 + min / 1000) / 8);
  }
  put(of_max(m.loss_Bps));
  put(of_window(m.packets_out));
  put(std::min(of_max(m.pacing_Bps), kMost));
  put(of_window(m.retrans_out));
  if (set == FeatureSet::ours11) put(log2(1 + queue_packets(m, range)) / 8);
}

History::History(FeatureSet set, std::size_t frames, Spacing spacing)
    : set_(set), width_(features_of(set)), frames_(frames), spacing_(spacing) {
  const std::size_t most = spacing == Spacing::every ? kMostFrames : kMostDoubled;
  if (frames < 1 || frames > most) {
    throw std::invalid_argument("astraea: frames: 1 to " + std::to_string(most) +
                                (spacing == Spacing::every ? "" : " where their distance doubles"));
  }
  const std::size_t depth = spacing == Spacing::every ? frames : std::size_t{1} << (frames - 1);
  kept_.assign(depth * width_, 0.0f);
  input_.assign(frames * width_, 0.0f);
}

void History::push(const Measured& m, const Range& range) {
  const std::size_t depth = kept_.size() / width_;
  frame(set_, m, range, std::span(kept_).subspan(next_ * width_, width_));
  for (std::size_t k = 0; k < frames_; ++k) {  // k-th newest
    const std::size_t back = spacing_ == Spacing::every ? k : (std::size_t{1} << k) - 1;
    const auto from = kept_.begin() + static_cast<std::ptrdiff_t>((next_ + depth - back) % depth * width_);
    std::copy_n(from, width_, input_.end() - static_cast<std::ptrdiff_t>((k + 1) * width_));
  }
  next_ = (next_ + 1) % depth;
}

}  // namespace loomnet::astraea
