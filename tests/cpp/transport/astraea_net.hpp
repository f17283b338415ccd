// Random policies and random frames that look like a flow's, from a seed.
#pragma once

#include <cmath>
#include <vector>

#include "clock/random.hpp"
#include "transport/congestion/astraea/features.hpp"
#include "transport/congestion/astraea/policy.hpp"

namespace loomnet::testbed {

// Dense layers of these widths, Glorot uniform, the first as wide as the input.
inline astraea::Policy random_policy(std::uint64_t seed, std::vector<std::uint16_t> hidden = {64, 32},
                                     astraea::PolicySpec spec = {}) {
  RandomStream random(seed, 1, 1);
  std::vector<astraea::Layer> layers;
  auto in = static_cast<std::uint16_t>(astraea::features_of(spec.features) * spec.frames);
  hidden.push_back(1);
  for (const std::uint16_t out : hidden) {
    astraea::Layer layer{.in = in, .out = out};
    const double range = std::sqrt(6.0 / (in + out));
    for (int i = 0; i < in * out; ++i) {
      layer.weights.push_back(static_cast<float>((random.uniform() * 2 - 1) * range));
    }
    for (int i = 0; i < out; ++i) layer.bias.push_back(static_cast<float>((random.uniform() * 2 - 1) * 0.1));
    layers.push_back(std::move(layer));
    in = out;
  }
  return {spec, std::move(layers)};
}

// Histories of flows on paths of 10 to 400 Mb/s and 5 to 200 ms with queues up to twice the path's own
// round trip, one input after another; `windows`: each flow's window in packets at the end.
inline std::vector<float> random_inputs(std::uint64_t seed, std::size_t flows, std::vector<std::uint32_t>& windows) {
  RandomStream random(seed, 2, 1);
  const auto between = [&](double least, double most) { return least * std::pow(most / least, random.uniform()); };
  std::vector<float> out;
  windows.clear();
  for (std::size_t i = 0; i < flows; ++i) {
    astraea::History history(astraea::FeatureSet::ours11, 5);
    const double rtt = between(5e3, 2e5), rate = between(1.25e6, 5e7) / (1 + random.below(10));
    double window = std::max(4.0, rate * rtt / 1e6 / 1448);
    for (int k = 0; k < 5; ++k) {
      const double now = rtt * (1 + random.uniform()), thr = rate * (0.5 + 0.5 * random.uniform());
      window = std::max(4.0, window * (0.975 + 0.05 * random.uniform()));
      history.push({.avg_thr_Bps = thr,
                    .avg_urtt_us = now,
                    .srtt_x8_us = now * 8,
                    .loss_Bps = random.below(10) == 0 ? thr * 0.02 * random.uniform() : 0,
                    .packets_out = std::floor(window * (0.8 + 0.2 * random.uniform())),
                    .retrans_out = 0,
                    .cwnd = std::floor(window),
                    .pacing_Bps = window * 1500 / now * 1e6},
                   {rate, rtt});
    }
    out.insert(out.end(), history.input().begin(), history.input().end());
    windows.push_back(static_cast<std::uint32_t>(window));
  }
  return out;
}

}  // namespace loomnet::testbed
